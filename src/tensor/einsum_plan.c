// SPDX-License-Identifier: Apache-2.0
// Plans: validation, and the way from a specification to a program.
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/einsum_internal.h"
#include "tensor/tensor_internal.h"

static berth_status no_memory(berth_error *err) {
  return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for planning an einsum");
}

static berth_status check_dtype(berth_dtype dtype, berth_error *err) {
  if (berth_dtype_size(dtype) == 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "dtype %d is no element type", (int)dtype);
  if (!berthi_cpu_supports(dtype)) {
    return berthi_fail(err, BERTHI_R_UNSUPPORTED_ON_DEVICE, "einsum of %s on cpu; it has f32, f64, c64 and c128", berth_dtype_name(dtype));
  }
  return BERTH_OK;
}

static berth_status check_operand(const berth_einsum_operand *operand, uint32_t number, berth_dtype dtype, uint64_t *out_bytes, berth_error *err) {
  uint64_t elements;
  berth_error inner = BERTH_ERROR_INIT;
  berth_status status = berthi_shape_check(dtype, operand->rank, operand->shape, &elements, out_bytes, &inner);
  if (status == BERTH_OK && operand->strides != NULL) {
    int64_t size = (int64_t)berth_dtype_size(dtype);
    for (uint32_t i = 0; i < operand->rank; i++) {
      if (operand->strides[i] % size == 0) continue;
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "operand %u: stride %lld of axis %u is no multiple of %lld bytes", number,
                         (long long)operand->strides[i], i, (long long)size);
    }
  }
  if (status != BERTH_OK && err != NULL) *err = inner;
  return status;
}

/// Keeps what a run compares its operands with.
static berth_status keep_operands(berth_einsum_plan *plan, const berth_einsum_operand *operands, berth_error *err) {
  uint32_t count = plan->operand_count;
  plan->ranks = berthi_arena_alloc(&plan->arena, count, sizeof *plan->ranks);
  plan->shapes = berthi_arena_alloc(&plan->arena, count, sizeof *plan->shapes);
  plan->strides = berthi_arena_alloc(&plan->arena, count, sizeof *plan->strides);
  if (plan->ranks == NULL || plan->shapes == NULL || plan->strides == NULL) return no_memory(err);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t rank = operands[i].rank;
    uint64_t bytes;
    BERTHI_TRY(check_operand(&operands[i], i, plan->dtype, &bytes, err));
    plan->info.operand_bytes += berthi_charged(bytes);
    plan->ranks[i] = rank;
    plan->shapes[i] = berthi_arena_alloc(&plan->arena, rank, sizeof **plan->shapes);
    plan->strides[i] = berthi_arena_alloc(&plan->arena, rank, sizeof **plan->strides);
    if (plan->shapes[i] == NULL || plan->strides[i] == NULL) return no_memory(err);
    if (rank == 0) continue;
    memcpy(plan->shapes[i], operands[i].shape, rank * sizeof **plan->shapes);
    if (operands[i].strides != NULL) {
      memcpy(plan->strides[i], operands[i].strides, rank * sizeof **plan->strides);
    } else {
      berthi_shape_strides(rank, operands[i].shape, plan->size, plan->strides[i]);
    }
  }
  return BERTH_OK;
}

static berth_status keep_output(berth_einsum_plan *plan, const berthi_einsum_spec *spec, berth_error *err) {
  uint64_t elements;
  plan->out_rank = spec->out_rank;
  plan->out_shape = berthi_arena_alloc(&plan->arena, spec->out_rank, sizeof *plan->out_shape);
  if (plan->out_shape == NULL) return no_memory(err);
  for (uint32_t i = 0; i < spec->out_rank; i++) plan->out_shape[i] = spec->labels[spec->out_axes[i]].extent;
  return berthi_shape_check(plan->dtype, plan->out_rank, plan->out_shape, &elements, &plan->out_bytes, err);
}

static berth_status make_sets(const berth_einsum_plan *plan, const berthi_einsum_spec *spec, berthi_arena *scratch, berthi_label_sets *sets,
                              berth_error *err) {
  sets->words = (spec->label_count + 63) / 64 + (spec->label_count == 0);
  sets->sets = berthi_arena_alloc(scratch, 2 * (size_t)spec->operand_count * sets->words, sizeof *sets->sets);
  sets->output = berthi_arena_alloc(scratch, sets->words, sizeof *sets->output);
  if (sets->sets == NULL || sets->output == NULL) return no_memory(err);
  for (uint32_t i = 0; i < spec->operand_count; i++) {
    for (uint32_t j = 0; j < spec->ranks[i]; j++) {
      uint32_t label = spec->axes[i][j];
      if (plan->shapes[i][j] != 1) sets->sets[(size_t)i * sets->words + label / 64] |= 1ull << (label % 64);
    }
  }
  for (uint32_t i = 0; i < spec->out_rank; i++) {
    uint32_t label = spec->out_axes[i];
    if (spec->labels[label].extent != 1) sets->output[label / 64] |= 1ull << (label % 64);
  }
  return BERTH_OK;
}

static void fill_info(berth_einsum_plan *plan) {
  plan->info.struct_size = sizeof plan->info;
  plan->info.dtype = plan->dtype;
  plan->info.operands = plan->operand_count;
  plan->info.steps = plan->steps;
  plan->info.output_bytes = berthi_charged(plan->out_bytes);
  plan->info.out_rank = plan->out_rank;
  plan->info.out_shape = plan->out_shape;
}

static berth_status make_plan(berth_einsum_plan *plan, const char *text, const berth_einsum_operand *operands,
                              const berth_einsum_options *options, berthi_arena *scratch, berth_error *err) {
  berthi_einsum_spec spec = {0};
  berthi_label_sets sets;
  uint32_t count = 0;
  BERTHI_TRY(keep_operands(plan, operands, err));
  BERTHI_TRY(berthi_einsum_parse(text, plan->operand_count, operands, scratch, &spec, err));
  BERTHI_TRY(keep_output(plan, &spec, err));
  BERTHI_TRY(make_sets(plan, &spec, scratch, &sets, err));
  berthi_path_step *steps = berthi_arena_alloc(scratch, plan->operand_count, sizeof *steps);
  if (steps == NULL) return no_memory(err);
  if (options->path != NULL) {
    BERTHI_TRY(berthi_path_given(options, plan->operand_count, scratch, steps, &count, err));
  } else {
    BERTHI_TRY(berthi_path_search(&spec, &sets, options->objective, plan->size, scratch, steps, &count, err));
  }
  plan->steps = count == 0 ? 1 : count;
  BERTHI_TRY(berthi_einsum_build(plan, &spec, steps, count, &sets, options->charge_operands, scratch, err));
  fill_info(plan);
  return BERTH_OK;
}

berth_status berth_einsum_plan_create(const char *spec, uint32_t operand_count, const berth_einsum_operand *operands, berth_dtype dtype,
                                      const berth_einsum_options *options, berth_einsum_plan **out_plan, berth_error *err) {
  berth_einsum_options known;
  if (spec == NULL || operands == NULL || out_plan == NULL) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", spec == NULL ? "spec" : operands == NULL ? "operands" : "out_plan");
  }
  if (operand_count == 0 || operand_count > BERTHI_EINSUM_MAX_OPERANDS) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%u operands; from 1 to %d", operand_count, BERTHI_EINSUM_MAX_OPERANDS);
  }
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_einsum_options", err));
  if ((unsigned)known.objective > BERTH_EINSUM_SIZE) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "objective %d", (int)known.objective);
  BERTHI_TRY(check_dtype(dtype, err));
  berth_einsum_plan *plan = berthi_alloc(sizeof *plan);
  if (plan == NULL) return no_memory(err);
  berthi_arena scratch = {0};
  plan->dtype = dtype;
  plan->size = (uint32_t)berth_dtype_size(dtype);
  plan->operand_count = operand_count;
  berth_status status = make_plan(plan, spec, operands, &known, &scratch, err);
  berthi_arena_free(&scratch);
  if (status == BERTH_OK) {
    *out_plan = plan;
  } else {
    berth_einsum_plan_release(plan);
  }
  return status;
}

berth_status berth_einsum_plan_get_info(const berth_einsum_plan *plan, berth_einsum_plan_info *out_info, berth_error *err) {
  if (plan == NULL || out_info == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", plan == NULL ? "plan" : "out_info");
  return berthi_output_copy(out_info, &plan->info, sizeof plan->info, "berth_einsum_plan_info", err);
}

void berth_einsum_plan_release(berth_einsum_plan *plan) {
  if (plan == NULL) return;
  berthi_arena_free(&plan->arena);
  berthi_free(plan);
}
