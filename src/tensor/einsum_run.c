// SPDX-License-Identifier: Apache-2.0
// Running a program: check the operands, then execute the instructions. Nothing is written before every check has passed.
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/einsum_internal.h"
#include "tensor/tensor_internal.h"

enum { INLINE_BUFFERS = 24 };

typedef struct run {
  berth_exec *exec;
  const berth_einsum_plan *plan;
  void **buffers;
  bool borrowed_output; // the output is the caller's destination
  berth_einsum_progress progress;
  void *progress_arg;
  berth_error *err;
  void *inline_buffers[INLINE_BUFFERS];
} run;

/// Puts the step and the way out into an allocation's failure; the first facts stay.
static berth_status explain(const run *r, const berthi_instruction *instruction, berth_status status, berth_error *inner) {
  if (r->err == NULL) return status;
  if (inner->reason == NULL || strcmp(inner->reason, berthi_reason_name(BERTHI_R_GRANT_EXHAUSTED)) != 0) {
    *r->err = *inner;
    return status;
  }
  char needed[BERTHI_BYTES_TEXT], left_text[BERTHI_BYTES_TEXT], grant[BERTHI_BYTES_TEXT], ask[BERTHI_BYTES_TEXT];
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  uint64_t left = 0;
  uint64_t peak = 0;
  if (berth_exec_get_info(r->exec, &info, NULL) == BERTH_OK) {
    left = info.grant_bytes > info.used_bytes ? info.grant_bytes - info.used_bytes : 0;
    peak = info.used_bytes;
  }
  // What the execution holds besides this run stays in use, so ask for that and the plan's peak.
  uint64_t mine = 0;
  for (uint32_t i = 0; instruction != r->plan->instructions + i; i++) {
    const berthi_instruction *done = &r->plan->instructions[i];
    if (done->kind != BERTHI_DO_ALLOC || (r->borrowed_output && done->dst == berthi_plan_output(r->plan))) continue;
    if (r->buffers[done->dst] != NULL) mine += berthi_charged(done->bytes);
  }
  peak = (peak > mine ? peak - mine : 0) + r->plan->info.peak_bytes;
  // A round figure that is enough: the text keeps one decimal.
  uint64_t unit = peak > (1u << 24) ? 1u << 20 : 1u << 12;
  peak = (peak + unit - 1) / unit * unit;
  berth_status code = berthi_fail(r->err, BERTHI_R_GRANT_EXHAUSTED, "step %u of %u needs %s, %s of %s left; ask for %s", instruction->step + 1,
                                  r->plan->steps, berthi_bytes_text(instruction->bytes, needed), berthi_bytes_text(left, left_text),
                                  berthi_bytes_text(info.grant_bytes, grant), berthi_bytes_text(peak, ask));
  for (uint32_t i = 0; i < inner->fact_count; i++) berthi_fact(r->err, inner->facts[i].key, inner->facts[i].value);
  berthi_fact(r->err, "step", instruction->step + 1);
  berthi_fact(r->err, "ask_bytes", (int64_t)peak);
  return code;
}

static berth_status allocate(const run *r, const berthi_instruction *instruction) {
  if (r->borrowed_output && instruction->dst == berthi_plan_output(r->plan)) return BERTH_OK;
  berth_error inner = BERTH_ERROR_INIT;
  berth_status status = berth_exec_alloc(r->exec, instruction->bytes, &r->buffers[instruction->dst], &inner);
  if (status == BERTH_OK) return BERTH_OK;
  r->buffers[instruction->dst] = NULL;
  return explain(r, instruction, status, &inner);
}

static berth_status execute(const run *r, const berthi_instruction *i) {
  void *dst = r->buffers[i->dst];
  switch (i->kind) {
    case BERTHI_DO_ALLOC: return allocate(r, i);
    case BERTHI_DO_FREE:
      berth_exec_free(r->exec, dst);
      r->buffers[i->dst] = NULL;
      return BERTH_OK;
    case BERTHI_DO_ZERO: return berthi_cpu_zero(r->exec, dst, i->bytes, r->err);
    case BERTHI_DO_COPY: return berthi_cpu_copy(r->exec, r->plan->size, i->axes, i->rank, dst, r->buffers[i->a], r->err);
    case BERTHI_DO_REDUCE: return berthi_cpu_reduce(r->exec, &i->reduce, dst, r->buffers[i->a], r->err);
    case BERTHI_DO_MULTIPLY:
      return berthi_cpu_multiply(r->exec, r->plan->dtype, i->axes, i->rank, dst, r->buffers[i->a], r->buffers[i->b], r->err);
    case BERTHI_DO_GEMM: return berthi_cpu_gemm(r->exec, &i->gemm, dst, r->buffers[i->a], r->buffers[i->b], r->err);
  }
  return berthi_fail(r->err, BERTHI_R_INTERNAL, "instruction %d", (int)i->kind);
}

static berth_status check_operand(const berth_einsum_plan *plan, const berth_tensor *tensor, uint32_t number, berth_error *err) {
  if (tensor == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "operand %u is NULL", number);
  if (tensor->dtype != plan->dtype) {
    return berthi_fail(err, BERTHI_R_DTYPE_MISMATCH, "operand %u is %s and the plan is for %s; nothing is promoted; convert one", number,
                       berth_dtype_name(tensor->dtype), berth_dtype_name(plan->dtype));
  }
  if (tensor->rank != plan->ranks[number]) {
    return berthi_fail(err, BERTHI_R_SHAPE_MISMATCH, "operand %u has %u axes and the plan has %u", number, tensor->rank, plan->ranks[number]);
  }
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] != plan->shapes[number][i]) {
      return berthi_fail(err, BERTHI_R_SHAPE_MISMATCH, "operand %u axis %u is %lld and the plan has %lld", number, i, (long long)tensor->shape[i],
                         (long long)plan->shapes[number][i]);
    }
  }
  if (tensor->elements == 0) return BERTH_OK;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] > 1 && tensor->strides[i] != plan->strides[number][i]) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "operand %u axis %u has stride %lld and the plan is for %lld; plan with the strides", number,
                         i, (long long)tensor->strides[i], (long long)plan->strides[number][i]);
    }
  }
  return BERTH_OK;
}

static void nothing(void *arg, uint64_t i) {
  (void)arg;
  (void)i;
}

static void free_intermediates(const run *r) {
  for (uint32_t i = berthi_plan_output(r->plan) + 1; i < r->plan->buffer_count; i++) {
    if (r->buffers[i] != NULL) berth_exec_free(r->exec, r->buffers[i]);
  }
}

/// Runs the program inside a begun operation. On failure nothing of the run stays allocated.
static berth_status run_program(run *r, const berth_tensor *const *operands) {
  const berth_einsum_plan *plan = r->plan;
  uint32_t step = 0;
  berth_status status = BERTH_OK;
  for (uint32_t i = 0; i < plan->operand_count; i++) r->buffers[i] = operands[i]->data;
  for (uint32_t i = 0; i < plan->instruction_count && status == BERTH_OK; i++) {
    const berthi_instruction *instruction = &plan->instructions[i];
    if (instruction->step != step) {
      step = instruction->step;
      if (r->progress != NULL) r->progress(r->progress_arg, step, plan->steps);
      // A parallel region that is skipped tells whether it was a cancel or the deadline.
      if (berthi_exec_cancelled(r->exec)) status = berthi_exec_parallel(r->exec, 1, nothing, NULL, r->err);
      if (status != BERTH_OK) break;
    }
    status = execute(r, instruction);
  }
  if (status == BERTH_OK) {
    if (r->progress != NULL) r->progress(r->progress_arg, plan->steps, plan->steps);
    return BERTH_OK;
  }
  free_intermediates(r);
  void *output = r->buffers[berthi_plan_output(plan)];
  if (!r->borrowed_output && output != NULL) berth_exec_free(r->exec, output);
  r->buffers[berthi_plan_output(plan)] = NULL;
  return status;
}

static berth_status start(run *r, berth_exec *exec, const berth_einsum_plan *plan, const berth_tensor *const *operands, berth_error *err) {
  r->exec = exec;
  r->plan = plan;
  r->err = err;
  r->buffers = r->inline_buffers;
  r->borrowed_output = false;
  r->progress = NULL;
  if (exec == NULL || plan == NULL || operands == NULL) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", exec == NULL ? "exec" : plan == NULL ? "plan" : "operands");
  }
  for (uint32_t i = 0; i < plan->operand_count; i++) BERTHI_TRY(check_operand(plan, operands[i], i, err));
  if (plan->buffer_count > INLINE_BUFFERS) {
    r->buffers = berthi_alloc(plan->buffer_count * sizeof *r->buffers);
    if (r->buffers == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for the list of %u buffers", plan->buffer_count);
  } else {
    memset(r->inline_buffers, 0, plan->buffer_count * sizeof *r->buffers);
  }
  return BERTH_OK;
}

static void stop(run *r) {
  if (r->buffers != r->inline_buffers) berthi_free(r->buffers);
}

berth_status berth_einsum_run(berth_exec *exec, const berth_einsum_plan *plan, const berth_tensor *const *operands,
                              const berth_einsum_run_options *options, berth_tensor **out_result, berth_error *err) {
  run r;
  berth_einsum_run_options known;
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_einsum_run_options", err));
  if (out_result == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_result is NULL");
  BERTHI_TRY(start(&r, exec, plan, operands, err));
  berth_status status = berthi_exec_op_begin(exec, "einsum", err);
  if (status != BERTH_OK) goto out;
  r.progress = known.progress;
  r.progress_arg = known.progress_arg;
  status = run_program(&r, operands);
  if (status == BERTH_OK) {
    void *data = r.buffers[berthi_plan_output(plan)];
    status = berthi_tensor_adopt(exec, data, plan->dtype, plan->out_rank, plan->out_shape, NULL, out_result, err);
    if (status != BERTH_OK) berth_exec_free(exec, data);
  }
  berthi_exec_op_end(exec, status == BERTH_OK ? plan->bytes_read : 0, status == BERTH_OK ? plan->bytes_written : 0);
out:
  stop(&r);
  return status;
}

/// First and last byte that a tensor touches.
static void span(const berth_tensor *tensor, intptr_t *first, intptr_t *last) {
  *first = (intptr_t)tensor->data;
  *last = *first + (intptr_t)berth_dtype_size(tensor->dtype) - 1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    intptr_t reach = (intptr_t)((tensor->shape[i] - 1) * tensor->strides[i]);
    if (reach < 0) *first += reach;
    if (reach > 0) *last += reach;
  }
}

static bool overlaps(const berth_tensor *left, const berth_tensor *right) {
  intptr_t l_first, l_last, r_first, r_last;
  if (left->elements == 0 || right->elements == 0) return false;
  span(left, &l_first, &l_last);
  span(right, &r_first, &r_last);
  return l_first <= r_last && r_first <= l_last;
}

/// True when two indices of the tensor are one address, as far as nested strides tell: sorted by step, each covers what is inside it.
static bool overlaps_itself(const berth_tensor *tensor) {
  int64_t reach = (int64_t)berth_dtype_size(tensor->dtype);
  int64_t done = 0;
  for (uint32_t round = 0; round < tensor->rank; round++) {
    int64_t next = INT64_MAX;
    uint32_t axis = tensor->rank;
    uint32_t same = 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
      int64_t step = tensor->strides[i] < 0 ? -tensor->strides[i] : tensor->strides[i];
      if (tensor->shape[i] <= 1) continue;
      if (step == 0) return true;
      if (step <= done || step > next) continue;
      same = step == next ? same + 1 : 0;
      next = step;
      axis = i;
    }
    if (axis == tensor->rank) return false;
    if (same > 0 || next < reach) return true;
    reach += next * (tensor->shape[axis] - 1);
    done = next;
  }
  return false;
}

static berth_status check_destination(const berth_einsum_plan *plan, const berth_tensor *const *operands, const berth_tensor *destination,
                                      berth_error *err) {
  if (destination == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "destination is NULL");
  if (destination->dtype != plan->dtype) {
    return berthi_fail(err, BERTHI_R_DTYPE_MISMATCH, "the destination is %s and the result %s; nothing is promoted; convert one",
                       berth_dtype_name(destination->dtype), berth_dtype_name(plan->dtype));
  }
  if (destination->rank != plan->out_rank) {
    return berthi_fail(err, BERTHI_R_SHAPE_MISMATCH, "the destination has %u axes and the result %u", destination->rank, plan->out_rank);
  }
  for (uint32_t i = 0; i < plan->out_rank; i++) {
    if (destination->shape[i] != plan->out_shape[i]) {
      return berthi_fail(err, BERTHI_R_SHAPE_MISMATCH, "the destination's axis %u is %lld and the result's %lld", i,
                         (long long)destination->shape[i], (long long)plan->out_shape[i]);
    }
  }
  for (uint32_t i = 0; i < plan->operand_count; i++) {
    if (overlaps(destination, operands[i])) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "the destination's memory overlaps operand %u's", i);
    }
  }
  if (destination->elements > 0 && overlaps_itself(destination)) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "elements of the destination share memory");
  }
  return BERTH_OK;
}

/// Copies a compact result to a destination of other strides.
static berth_status scatter(run *r, berth_tensor *destination) {
  const berth_einsum_plan *plan = r->plan;
  int64_t compact[BERTH_MAX_RANK];
  berthi_axis axes[BERTH_MAX_RANK];
  void *data = r->buffers[berthi_plan_output(plan)];
  berthi_shape_strides(plan->out_rank, plan->out_shape, 1, compact);
  for (uint32_t i = 0; i < plan->out_rank; i++) {
    axes[i] = (berthi_axis){plan->out_shape[i], {destination->strides[i] / (int64_t)plan->size, compact[i], 0}};
  }
  uint32_t rank = berthi_axes_simplify(axes, plan->out_rank, 2);
  berth_status status = berthi_cpu_copy(r->exec, plan->size, axes, rank, destination->data, data, r->err);
  berth_exec_free(r->exec, data);
  return status;
}

berth_status berth_einsum_run_into(berth_exec *exec, const berth_einsum_plan *plan, const berth_tensor *const *operands,
                                   berth_tensor *destination, const berth_einsum_run_options *options, berth_error *err) {
  run r;
  berth_einsum_run_options known;
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_einsum_run_options", err));
  BERTHI_TRY(start(&r, exec, plan, operands, err));
  berth_status status = check_destination(plan, operands, destination, err);
  if (status != BERTH_OK) goto out;
  status = berthi_exec_op_begin(exec, "einsum", err);
  if (status != BERTH_OK) goto out;
  r.progress = known.progress;
  r.progress_arg = known.progress_arg;
  r.borrowed_output = destination->compact;
  if (r.borrowed_output) r.buffers[berthi_plan_output(plan)] = destination->data;
  status = run_program(&r, operands);
  if (status == BERTH_OK && !r.borrowed_output) status = scatter(&r, destination);
  berthi_exec_op_end(exec, status == BERTH_OK ? plan->bytes_read : 0, status == BERTH_OK ? plan->bytes_written : 0);
out:
  stop(&r);
  return status;
}

static berth_status plan_for(const char *spec, const berth_tensor *const *operands, uint32_t count, berth_einsum_operand *described,
                             berth_einsum_plan **out_plan, berth_error *err) {
  for (uint32_t i = 0; i < count; i++) {
    if (operands[i] == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "operand %u is NULL", i);
    if (operands[i]->dtype != operands[0]->dtype) {
      return berthi_fail(err, BERTHI_R_DTYPE_MISMATCH, "%s with %s; nothing is promoted; convert one", berth_dtype_name(operands[0]->dtype),
                         berth_dtype_name(operands[i]->dtype));
    }
    described[i] = (berth_einsum_operand){operands[i]->rank, operands[i]->shape, operands[i]->strides};
  }
  return berth_einsum_plan_create(spec, count, described, operands[0]->dtype, NULL, out_plan, err);
}

berth_status berth_einsum(berth_exec *exec, const char *spec, const berth_tensor *const *operands, uint32_t operand_count,
                          berth_tensor **out_result, berth_error *err) {
  berth_einsum_operand few[4];
  berth_einsum_operand *described = few;
  berth_einsum_plan *plan = NULL;
  if (exec == NULL || operands == NULL || operand_count == 0 || operand_count > BERTHI_EINSUM_MAX_OPERANDS) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, exec == NULL ? "exec is NULL" : operands == NULL ? "operands is NULL" : "%u operands",
                       operand_count);
  }
  if (operand_count > 4) {
    described = berthi_alloc(operand_count * sizeof *described);
    if (described == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for planning an einsum");
  }
  berth_status status = plan_for(spec, operands, operand_count, described, &plan, err);
  if (status == BERTH_OK) status = berth_einsum_run(exec, plan, operands, NULL, out_result, err);
  berth_einsum_plan_release(plan);
  if (described != few) berthi_free(described);
  return status;
}
