// SPDX-License-Identifier: Apache-2.0
// From steps to a program: every allocation, copy, sum and product in order, so that running it needs no decision and its peak of memory is
// known exactly (EXE-6). Labels of extent 1 have been dropped before; a repeated label is one label whose step is the sum of its axes' steps.
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/memory.h"
#include "tensor/einsum_internal.h"
#include "tensor/tensor_internal.h"

typedef struct builder {
  berth_einsum_plan *plan;
  const berthi_einsum_spec *spec;
  const berthi_path_step *steps;
  uint32_t step_count;
  uint32_t words;
  uint64_t *sets;      // labels of each node
  uint32_t *consumers; // step that uses a node; step_count for the last
  berthi_term **terms; // of each node
  berthi_term out;     // fixed layout of the output
  berthi_arena *scratch;
  berthi_instruction *instructions;
  uint32_t count, room;
  uint32_t step; // being built
  berth_error *err;
} builder;

static berth_status no_memory(const builder *b) {
  return berthi_fail(b->err, BERTHI_R_HOST_EXHAUSTED, "no memory for planning an einsum");
}

static int64_t extent_of(const builder *b, uint32_t label) {
  return b->spec->labels[label].extent;
}

static bool has(const builder *b, uint32_t node, uint32_t label) {
  return ((b->sets[(size_t)node * b->words + label / 64] >> (label % 64)) & 1) != 0;
}

static uint64_t term_bytes(const builder *b, const berthi_term *term) {
  uint64_t bytes = b->plan->size;
  for (uint32_t i = 0; i < term->rank; i++) bytes *= (uint64_t)extent_of(b, term->labels[i]);
  return bytes;
}

static bool is_intermediate(const builder *b, uint32_t buffer) {
  return buffer > berthi_plan_output(b->plan);
}

// ---- Emitting -----------------------------------------------------------------------------------------------------------------------------

static berth_status emit(builder *b, const berthi_instruction *instruction) {
  if (b->count == b->room) {
    uint32_t room = b->room * 2 + 16;
    berthi_instruction *grown = berthi_arena_alloc(b->scratch, room, sizeof *grown);
    if (grown == NULL) return no_memory(b);
    if (b->count > 0) memcpy(grown, b->instructions, b->count * sizeof *grown);
    b->instructions = grown;
    b->room = room;
  }
  b->instructions[b->count] = *instruction;
  b->instructions[b->count].step = b->step;
  b->count++;
  return BERTH_OK;
}

static berth_status emit_alloc(builder *b, uint32_t buffer, uint64_t bytes) {
  berth_einsum_plan_info *info = &b->plan->info;
  if (bytes > info->largest_bytes) info->largest_bytes = bytes;
  return emit(b, &(berthi_instruction){.kind = BERTHI_DO_ALLOC, .dst = buffer, .bytes = bytes});
}

static berth_status emit_free(builder *b, uint32_t buffer) {
  if (!is_intermediate(b, buffer)) return BERTH_OK;
  return emit(b, &(berthi_instruction){.kind = BERTHI_DO_FREE, .dst = buffer});
}

/// Gives a term a new buffer, or the output's, and allocates it.
static berth_status emit_place(builder *b, berthi_term *term, bool output) {
  term->buffer = output ? berthi_plan_output(b->plan) : b->plan->buffer_count++;
  return emit_alloc(b, term->buffer, term_bytes(b, term));
}

static void count_traffic(builder *b, uint64_t read, uint64_t written) {
  b->plan->bytes_read += read;
  b->plan->bytes_written += written;
}

static int64_t step_in(const berthi_term *term, uint32_t label) {
  for (uint32_t i = 0; i < term->rank; i++) {
    if (term->labels[i] == label) return term->steps[i];
  }
  return 0;
}

static const berthi_axis *keep_axes(builder *b, const berthi_axis *axes, uint32_t rank) {
  berthi_axis *kept = berthi_arena_alloc(&b->plan->arena, rank, sizeof *kept);
  if (kept != NULL && rank > 0) memcpy(kept, axes, rank * sizeof *kept);
  return kept;
}

static berth_status emit_copy(builder *b, const berthi_term *dst, const berthi_term *src) {
  berthi_axis axes[BERTHI_MAX_AXES];
  for (uint32_t i = 0; i < dst->rank; i++) {
    axes[i] = (berthi_axis){extent_of(b, dst->labels[i]), {dst->steps[i], step_in(src, dst->labels[i]), 0}};
  }
  uint32_t rank = berthi_axes_simplify(axes, dst->rank, 2);
  berthi_instruction copy = {.kind = BERTHI_DO_COPY, .dst = dst->buffer, .a = src->buffer, .rank = rank};
  copy.axes = keep_axes(b, axes, rank);
  if (copy.axes == NULL) return no_memory(b);
  uint64_t bytes = term_bytes(b, dst);
  count_traffic(b, bytes, bytes);
  b->plan->info.copied_bytes += 2 * bytes;
  return emit(b, &copy);
}

static berth_status emit_reduce(builder *b, const berthi_term *dst, const berthi_term *src) {
  berthi_axis kept[BERTHI_MAX_AXES];
  berthi_axis summed[BERTHI_MAX_AXES];
  uint32_t kept_rank = 0;
  uint32_t summed_rank = 0;
  for (uint32_t i = 0; i < src->rank; i++) {
    int64_t extent = extent_of(b, src->labels[i]);
    bool keep = false;
    for (uint32_t d = 0; d < dst->rank; d++) keep = keep || dst->labels[d] == src->labels[i];
    if (keep) {
      kept[kept_rank++] = (berthi_axis){extent, {step_in(dst, src->labels[i]), src->steps[i], 0}};
    } else {
      summed[summed_rank++] = (berthi_axis){extent, {src->steps[i], src->steps[i], 0}};
    }
  }
  berthi_instruction reduce = {.kind = BERTHI_DO_REDUCE, .dst = dst->buffer, .a = src->buffer};
  reduce.reduce.dtype = b->plan->dtype;
  reduce.reduce.kept_rank = berthi_axes_simplify(kept, kept_rank, 2);
  reduce.reduce.summed_rank = berthi_axes_simplify(summed, summed_rank, 2);
  reduce.reduce.kept = keep_axes(b, kept, reduce.reduce.kept_rank);
  reduce.reduce.summed = keep_axes(b, summed, reduce.reduce.summed_rank);
  if (reduce.reduce.kept == NULL || reduce.reduce.summed == NULL) return no_memory(b);
  count_traffic(b, term_bytes(b, src), term_bytes(b, dst));
  return emit(b, &reduce);
}

static berth_status emit_multiply(builder *b, const berthi_term *c, const berthi_term *x, const berthi_term *y) {
  berthi_axis axes[BERTHI_MAX_AXES];
  for (uint32_t i = 0; i < c->rank; i++) {
    axes[i] = (berthi_axis){extent_of(b, c->labels[i]), {c->steps[i], step_in(x, c->labels[i]), step_in(y, c->labels[i])}};
  }
  uint32_t rank = berthi_axes_simplify(axes, c->rank, 3);
  berthi_instruction multiply = {.kind = BERTHI_DO_MULTIPLY, .dst = c->buffer, .a = x->buffer, .b = y->buffer, .rank = rank};
  multiply.axes = keep_axes(b, axes, rank);
  if (multiply.axes == NULL) return no_memory(b);
  count_traffic(b, term_bytes(b, x) + term_bytes(b, y), term_bytes(b, c));
  return emit(b, &multiply);
}

// ---- One step -----------------------------------------------------------------------------------------------------------------------------

static void compact_steps(const builder *b, berthi_term *term) {
  int64_t step = 1;
  for (uint32_t i = term->rank; i-- > 0;) {
    term->steps[i] = step;
    step *= extent_of(b, term->labels[i]);
  }
}

/// Sums labels that only this operand has and the result does not: in the operand's own order of steps.
static berth_status sum_private(builder *b, berthi_term *term, uint32_t other, uint32_t result) {
  berthi_term sum = {0};
  uint32_t order[BERTHI_MAX_AXES];
  for (uint32_t i = 0; i < term->rank; i++) {
    uint32_t at = i;
    for (; at > 0 && term->steps[order[at - 1]] < term->steps[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  for (uint32_t i = 0; i < term->rank; i++) {
    uint32_t label = term->labels[order[i]];
    bool other_has = other != BERTHI_NO_NODE && has(b, other, label);
    if (other_has || has(b, result, label)) sum.labels[sum.rank++] = label;
  }
  if (sum.rank == term->rank) return BERTH_OK;
  compact_steps(b, &sum);
  BERTHI_TRY(emit_place(b, &sum, false));
  BERTHI_TRY(emit_reduce(b, &sum, term));
  BERTHI_TRY(emit_free(b, term->buffer));
  *term = sum;
  return BERTH_OK;
}

/// What a label of this step's result is to the step that uses the result.
static uint8_t role_of(const builder *b, uint32_t node, uint32_t label) {
  uint32_t consumer = b->consumers[node];
  if (consumer >= b->step_count) return BERTHI_ROLE_FREE;
  uint32_t other = b->steps[consumer].left == node ? b->steps[consumer].right : b->steps[consumer].left;
  uint32_t result = b->spec->operand_count + consumer;
  if (other == BERTHI_NO_NODE || !has(b, other, label)) return BERTHI_ROLE_FREE;
  return has(b, result, label) ? BERTHI_ROLE_BATCH : BERTHI_ROLE_SUMMED;
}

static void classify(const builder *b, const berthi_term *x, const berthi_term *y, uint32_t node, bool fixed, berthi_contraction *con) {
  con->dtype = b->plan->dtype;
  con->fixed = fixed;
  con->batch.count = con->m.count = con->n.count = con->k.count = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint32_t label = x->labels[i];
    berthi_mode mode = {label, extent_of(b, label), x->steps[i], 0, fixed ? step_in(&b->out, label) : 0, role_of(b, node, label)};
    bool in_y = false;
    for (uint32_t j = 0; j < y->rank; j++) in_y = in_y || y->labels[j] == label;
    mode.b = step_in(y, label);
    berthi_mode_list *list = !in_y ? &con->m : has(b, node, label) ? &con->batch : &con->k;
    list->at[list->count++] = mode;
  }
  for (uint32_t j = 0; j < y->rank; j++) {
    uint32_t label = y->labels[j];
    bool in_x = false;
    for (uint32_t i = 0; i < x->rank; i++) in_x = in_x || x->labels[i] == label;
    if (in_x) continue;
    con->n.at[con->n.count++] = (berthi_mode){label, extent_of(b, label), 0, y->steps[j], fixed ? step_in(&b->out, label) : 0, role_of(b, node, label)};
  }
}

/// Without summed labels: the result runs as the larger operand does, the other's own labels outside.
static berth_status product_elementwise(builder *b, const berthi_term *x, const berthi_term *y, uint32_t node, bool last) {
  berthi_term *c = b->terms[node];
  if (last) {
    *c = b->out;
  } else {
    const berthi_term *large = term_bytes(b, x) >= term_bytes(b, y) ? x : y;
    const berthi_term *small = large == x ? y : x;
    const berthi_term *parts[] = {small, large};
    for (uint32_t p = 0; p < 2; p++) {
      for (uint32_t i = 0; i < parts[p]->rank; i++) {
        uint32_t label = parts[p]->labels[i];
        bool later = false;
        for (uint32_t j = 0; p == 0 && j < large->rank; j++) later = later || large->labels[j] == label;
        if (!later) c->labels[c->rank++] = label;
      }
    }
    compact_steps(b, c);
  }
  BERTHI_TRY(emit_place(b, c, last));
  return emit_multiply(b, c, x, y);
}

static berth_status pack_operand(builder *b, berthi_term *term, const berthi_term *layout) {
  berthi_term packed = *layout;
  BERTHI_TRY(emit_place(b, &packed, false));
  BERTHI_TRY(emit_copy(b, &packed, term));
  BERTHI_TRY(emit_free(b, term->buffer));
  *term = packed;
  return BERTH_OK;
}

static berth_status product_matrix(builder *b, berthi_term *x, berthi_term *y, const berthi_contraction *con, uint32_t node) {
  berthi_layout *layout = berthi_arena_alloc(b->scratch, 1, sizeof *layout);
  if (layout == NULL) return no_memory(b);
  berthi_layout_choose(con, layout);
  berthi_term *c = b->terms[node];
  if (layout->pack_a) BERTHI_TRY(pack_operand(b, x, &layout->a));
  if (layout->pack_b) BERTHI_TRY(pack_operand(b, y, &layout->b));
  *c = con->fixed && !layout->unpack ? b->out : layout->c;
  BERTHI_TRY(emit_place(b, c, con->fixed && !layout->unpack));
  berthi_instruction gemm = {.kind = BERTHI_DO_GEMM, .dst = c->buffer, .gemm = layout->gemm};
  gemm.a = layout->swap ? y->buffer : x->buffer;
  gemm.b = layout->swap ? x->buffer : y->buffer;
  gemm.gemm.loops_rank = layout->loops_rank;
  gemm.gemm.loops = keep_axes(b, layout->loops, layout->loops_rank);
  if (gemm.gemm.loops == NULL) return no_memory(b);
  count_traffic(b, term_bytes(b, x) + term_bytes(b, y), term_bytes(b, c));
  return emit(b, &gemm);
}

/// Moves a finished result into the output's layout.
static berth_status finish(builder *b, const berthi_term *term) {
  berthi_term out = b->out;
  BERTHI_TRY(emit_place(b, &out, true));
  if (out.rank < term->rank) {
    BERTHI_TRY(emit_reduce(b, &out, term));
  } else {
    BERTHI_TRY(emit_copy(b, &out, term));
  }
  return emit_free(b, term->buffer);
}

static berth_status build_step(builder *b, uint32_t s) {
  const berthi_path_step *step = &b->steps[s];
  uint32_t node = b->spec->operand_count + s;
  bool last = s + 1 == b->step_count;
  berthi_term x = *b->terms[step->left];
  berthi_term y = *b->terms[step->right];
  b->step = s;
  BERTHI_TRY(sum_private(b, &x, step->right, node));
  BERTHI_TRY(sum_private(b, &y, step->left, node));
  berthi_contraction *con = berthi_arena_alloc(b->scratch, 1, sizeof *con);
  if (con == NULL) return no_memory(b);
  classify(b, &x, &y, node, last, con);
  if (con->k.count == 0) {
    BERTHI_TRY(product_elementwise(b, &x, &y, node, last));
  } else {
    BERTHI_TRY(product_matrix(b, &x, &y, con, node));
  }
  BERTHI_TRY(emit_free(b, x.buffer));
  BERTHI_TRY(emit_free(b, y.buffer));
  if (last && b->terms[node]->buffer != berthi_plan_output(b->plan)) return finish(b, b->terms[node]);
  return BERTH_OK;
}

// ---- Before and after the steps -------------------------------------------------------------------------------------------------------------

/// Label sets of all results, the figures that follow from them, and a check that every result can exist.
static berth_status follow_sets(builder *b) {
  const berthi_einsum_spec *spec = b->spec;
  uint32_t *uses = berthi_arena_alloc(b->scratch, spec->label_count, sizeof *uses);
  if (uses == NULL) return no_memory(b);
  for (uint32_t i = 0; i < spec->out_rank; i++) uses[spec->out_axes[i]]++;
  for (uint32_t i = 0; i < spec->operand_count; i++) {
    for (uint32_t l = 0; l < spec->label_count; l++) uses[l] += has(b, i, l);
  }
  for (uint32_t s = 0; s < b->step_count; s++) {
    uint32_t left = b->steps[s].left;
    uint32_t right = b->steps[s].right;
    uint32_t node = spec->operand_count + s;
    uint64_t bytes = b->plan->size;
    double work = 1.0;
    b->consumers[left] = b->consumers[right] = s;
    b->consumers[node] = b->step_count;
    for (uint32_t l = 0; l < spec->label_count; l++) {
      uint32_t here = (uint32_t)has(b, left, l) + (uint32_t)has(b, right, l);
      if (here == 0) continue;
      work *= (double)extent_of(b, l);
      uses[l] -= here;
      if (uses[l] == 0) continue;
      uses[l]++;
      b->sets[(size_t)node * b->words + l / 64] |= 1ull << (l % 64);
      if (!berthi_size_mul(bytes, (uint64_t)extent_of(b, l), &bytes) || bytes > INT64_MAX) {
        return berthi_fail(b->err, BERTHI_R_SIZE_OVERFLOW, "step %u of %u: the intermediate has more than 2^63 bytes", s + 1, b->step_count);
      }
    }
    b->plan->info.flops += work;
  }
  return BERTH_OK;
}

/// Operands as terms: strides in elements, repeated labels joined, extents of 1 dropped.
static void operand_terms(builder *b) {
  for (uint32_t i = 0; i < b->spec->operand_count; i++) {
    berthi_term *term = b->terms[i];
    term->buffer = i;
    for (uint32_t j = 0; j < b->spec->ranks[i]; j++) {
      uint32_t label = b->spec->axes[i][j];
      if (b->plan->shapes[i][j] == 1) continue;
      int64_t step = b->plan->strides[i][j] / (int64_t)b->plan->size;
      uint32_t at = 0;
      while (at < term->rank && term->labels[at] != label) at++;
      if (at == term->rank) {
        term->labels[at] = label;
        term->steps[at] = 0;
        term->rank++;
      }
      term->steps[at] += step;
    }
  }
}

static void output_term(builder *b) {
  const berthi_einsum_spec *spec = b->spec;
  b->out.buffer = berthi_plan_output(b->plan);
  for (uint32_t i = 0; i < spec->out_rank; i++) {
    if (extent_of(b, spec->out_axes[i]) != 1) b->out.labels[b->out.rank++] = spec->out_axes[i];
  }
  compact_steps(b, &b->out);
}

static bool has_empty_label(const builder *b) {
  for (uint32_t l = 0; l < b->spec->label_count; l++) {
    if (extent_of(b, l) == 0) return true;
  }
  return false;
}

/// Runs the allocations on paper.
static void measure(berth_einsum_plan *plan, const uint64_t *bytes_of, bool charge_operands) {
  uint64_t used = charge_operands ? plan->info.operand_bytes : 0;
  uint64_t peak = used;
  for (uint32_t i = 0; i < plan->instruction_count; i++) {
    const berthi_instruction *instruction = &plan->instructions[i];
    if (instruction->kind == BERTHI_DO_ALLOC) used += berthi_charged(instruction->bytes);
    if (instruction->kind == BERTHI_DO_FREE) used -= berthi_charged(bytes_of[instruction->dst]);
    if (used > peak) peak = used;
  }
  plan->info.peak_bytes = peak;
}

static berth_status close_program(builder *b, bool charge_operands) {
  berth_einsum_plan *plan = b->plan;
  plan->instructions = berthi_arena_alloc(&plan->arena, b->count, sizeof *plan->instructions);
  uint64_t *bytes_of = berthi_arena_alloc(b->scratch, plan->buffer_count, sizeof *bytes_of);
  if (plan->instructions == NULL || bytes_of == NULL) return no_memory(b);
  if (b->count > 0) memcpy(plan->instructions, b->instructions, b->count * sizeof *b->instructions);
  plan->instruction_count = b->count;
  for (uint32_t i = 0; i < b->count; i++) {
    if (plan->instructions[i].kind == BERTHI_DO_ALLOC) bytes_of[plan->instructions[i].dst] = plan->instructions[i].bytes;
  }
  measure(plan, bytes_of, charge_operands);
  plan->info.traffic_bytes = plan->bytes_read + plan->bytes_written;
  return BERTH_OK;
}

static berth_status build_program(builder *b) {
  if (has_empty_label(b)) {
    berthi_term out = b->out;
    BERTHI_TRY(emit_place(b, &out, true));
    count_traffic(b, 0, b->plan->out_bytes);
    b->plan->info.flops = 0;
    return emit(b, &(berthi_instruction){.kind = BERTHI_DO_ZERO, .dst = out.buffer, .bytes = b->plan->out_bytes});
  }
  if (b->step_count == 0) {
    b->plan->info.flops = (double)term_bytes(b, b->terms[0]) / b->plan->size;
    return finish(b, b->terms[0]);
  }
  for (uint32_t s = 0; s < b->step_count; s++) BERTHI_TRY(build_step(b, s));
  return BERTH_OK;
}

berth_status berthi_einsum_build(berth_einsum_plan *plan, const berthi_einsum_spec *spec, const berthi_path_step *steps, uint32_t step_count,
                                 const berthi_label_sets *sets, bool charge_operands, berthi_arena *scratch, berth_error *err) {
  size_t nodes = (size_t)spec->operand_count + step_count;
  builder b = {.plan = plan, .spec = spec, .steps = steps, .step_count = step_count, .words = sets->words, .sets = sets->sets};
  b.scratch = scratch;
  b.err = err;
  b.consumers = berthi_arena_alloc(scratch, nodes, sizeof *b.consumers);
  b.terms = berthi_arena_alloc(scratch, nodes, sizeof *b.terms);
  if (b.consumers == NULL || b.terms == NULL) return no_memory(&b);
  for (size_t i = 0; i < nodes; i++) {
    b.terms[i] = berthi_arena_alloc(scratch, 1, sizeof **b.terms);
    if (b.terms[i] == NULL) return no_memory(&b);
  }
  plan->buffer_count = spec->operand_count + 1;
  operand_terms(&b);
  output_term(&b);
  BERTHI_TRY(follow_sets(&b));
  BERTHI_TRY(build_program(&b));
  return close_program(&b, charge_operands);
}
