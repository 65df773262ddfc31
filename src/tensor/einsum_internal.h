// SPDX-License-Identifier: Apache-2.0
/// How a specification becomes a program: parse (einsum_spec.c), choose the order (einsum_path.c), choose layouts and emit (einsum_build.c,
/// einsum_layout.c), then run (einsum_run.c).
#ifndef BERTHI_EINSUM_INTERNAL_H
#define BERTHI_EINSUM_INTERNAL_H

#include "berth/tensor.h"
#include "kernels/kernels.h"
#include "tensor/arena.h"

enum {
  BERTHI_EINSUM_MAX_OPERANDS = 65536,
  BERTHI_EINSUM_MAX_LABELS = 65536,
  BERTHI_EINSUM_MAX_SPEC = 1 << 20
};

/// A label: its code point, or the place of an ellipsis axis counted from the right.
typedef struct berthi_label {
  uint32_t code; // 0 for an axis of the ellipsis
  uint32_t ellipsis_axis;
  int64_t extent;       // after broadcasting; -1 before it is known
  uint32_t seen_operand; // where the extent was found, for messages
  uint32_t seen_axis;
} berthi_label;

/// A parsed specification: which label every axis has.
typedef struct berthi_einsum_spec {
  uint32_t operand_count;
  uint32_t label_count;
  berthi_label *labels;
  uint32_t **axes; // axes[operand][axis] is a label
  uint32_t *ranks;
  uint32_t out_rank;
  uint32_t *out_axes;
} berthi_einsum_spec;

berth_status berthi_einsum_parse(const char *spec, uint32_t operand_count, const berth_einsum_operand *operands, berthi_arena *arena,
                                 berthi_einsum_spec *out_spec, berth_error *err);
/// Text of a label for messages.
#define BERTHI_LABEL_TEXT 32
const char *berthi_label_text(const berthi_label *label, char out[BERTHI_LABEL_TEXT]);

/// A step joins two nodes into one. Nodes 0 .. operand_count-1 are the operands, node operand_count + s is the result of step s.
typedef struct berthi_path_step {
  uint32_t left;
  uint32_t right;
} berthi_path_step;
#define BERTHI_NO_NODE UINT32_MAX

/// Sets of labels as bit words.
typedef struct berthi_label_sets {
  uint32_t words;   // of one set
  uint64_t *sets;   // sets + node * words
  uint64_t *output; // labels of the output
} berthi_label_sets;

/// Turns a given path into steps; a group of more than two is joined from left to right. `steps` has room for all operands.
berth_status berthi_path_given(const berth_einsum_options *options, uint32_t operand_count, berthi_arena *arena, berthi_path_step *steps,
                               uint32_t *out_count, berth_error *err);
/// Searches an order: greedy with several weights, best by the objective.
berth_status berthi_path_search(const berthi_einsum_spec *spec, const berthi_label_sets *sets, berth_einsum_objective objective, size_t size,
                                berthi_arena *arena, berthi_path_step *steps, uint32_t *out_count, berth_error *err);

/// Something the program computes with: a buffer and how labels step through it. Labels of extent 1 do not appear.
typedef struct berthi_term {
  uint32_t buffer;
  uint32_t rank;
  uint32_t labels[BERTHI_MAX_AXES];
  int64_t steps[BERTHI_MAX_AXES]; // in elements
} berthi_term;

/// What a label is to the step that consumes a result.
typedef enum berthi_role { BERTHI_ROLE_FREE, BERTHI_ROLE_SUMMED, BERTHI_ROLE_BATCH } berthi_role;

/// One label of a contraction, with its steps (0 where absent).
typedef struct berthi_mode {
  uint32_t label;
  int64_t extent;
  int64_t a, b, c; // c only when the result's layout is fixed
  uint8_t role;    // in the step that consumes the result
} berthi_mode;

typedef struct berthi_mode_list {
  uint32_t count;
  berthi_mode at[BERTHI_MAX_AXES];
} berthi_mode_list;

/// A contraction to lay out: batch labels in both operands and the result, m in a, n in b, k summed.
typedef struct berthi_contraction {
  berth_dtype dtype;
  bool fixed; // c steps are given
  berthi_mode_list batch, m, n, k;
} berthi_contraction;

/// How it will be computed. Terms are rebuilt in place: a packed operand or a free result gets new steps.
typedef struct berthi_layout {
  bool pack_a, pack_b;
  bool unpack;   // the product goes to a buffer of its own, which is then copied to the fixed result
  bool swap;     // a and b change roles in the product
  double cost;   // estimated nanoseconds
  berthi_term a; // layout of the packed operand; buffer not set
  berthi_term b;
  berthi_term c; // layout of the product
  berthi_gemm gemm; // loops not set
  uint32_t loops_rank;
  berthi_axis loops[BERTHI_MAX_AXES];
} berthi_layout;

/// Chooses among the forms by an estimate of time. Always finds one.
void berthi_layout_choose(const berthi_contraction *contraction, berthi_layout *out_layout);

/// The program of a plan.
typedef enum berthi_instruction_kind {
  BERTHI_DO_ALLOC,
  BERTHI_DO_FREE,
  BERTHI_DO_ZERO,
  BERTHI_DO_COPY,
  BERTHI_DO_REDUCE,
  BERTHI_DO_MULTIPLY,
  BERTHI_DO_GEMM
} berthi_instruction_kind;

typedef struct berthi_instruction {
  berthi_instruction_kind kind;
  uint32_t step;      // for messages and progress, from 0
  uint32_t dst, a, b; // buffers
  uint64_t bytes;     // of ALLOC and ZERO
  uint32_t rank;      // of COPY and MULTIPLY
  const berthi_axis *axes;
  berthi_reduce reduce;
  berthi_gemm gemm;
} berthi_instruction;

struct berth_einsum_plan {
  berthi_arena arena;
  berth_dtype dtype;
  uint32_t size; // of an element
  uint32_t operand_count;
  uint32_t *ranks;
  int64_t **shapes;
  int64_t **strides; // in bytes
  uint32_t out_rank;
  int64_t *out_shape;
  uint64_t out_bytes;
  uint32_t steps;
  uint32_t buffer_count; // operands, then the output (index operand_count), then intermediates
  uint32_t instruction_count;
  berthi_instruction *instructions;
  uint64_t bytes_read;
  uint64_t bytes_written;
  berth_einsum_plan_info info;
};

static inline uint32_t berthi_plan_output(const berth_einsum_plan *plan) {
  return plan->operand_count;
}

/// Emits the program for the steps and fills the plan's figures. `scratch` is dropped afterwards.
berth_status berthi_einsum_build(berth_einsum_plan *plan, const berthi_einsum_spec *spec, const berthi_path_step *steps, uint32_t step_count,
                                 const berthi_label_sets *sets, bool charge_operands, berthi_arena *scratch, berth_error *err);

#endif
