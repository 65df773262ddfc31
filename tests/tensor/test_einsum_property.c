// SPDX-License-Identifier: Apache-2.0
// Random einsums against a plain evaluation: 1 to 5 operands, batch, summed, free, repeated and broadcast labels, labels in many operands,
// extents from 0, operands of any strides, all element types, random paths and the searched one; the same bits whatever the order of tasks
// (EXE-4); a grant of exactly the planned peak (EXE-6).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/tensor.h"
#include "tensor/fake_exec.h"
#include "tensor/naive_einsum.h"

typedef struct problem {
  berth_dtype dtype;
  uint32_t operand_count, label_count, out_rank;
  int64_t extents[NAIVE_MAX_LABELS];
  naive_operand operands[NAIVE_MAX_OPERANDS];
  uint32_t out_labels[NAIVE_MAX_LABELS];
  int64_t out_elements;
  char spec[256];
  void *memory[NAIVE_MAX_OPERANDS];
  berth_tensor *tensors[NAIVE_MAX_OPERANDS];
  uint32_t path[2 * NAIVE_MAX_OPERANDS];
  uint32_t path_entries; // 0: searched
} problem;

static const int64_t small_extents[] = {1, 2, 3, 4, 5, 2, 3};

/// Gives an operand random strides: permuted axes with gaps, sometimes a negative step.
static void make_strides(naive_random *random, problem *p, uint32_t k) {
  naive_operand *operand = &p->operands[k];
  int64_t size = (int64_t)berth_dtype_size(p->dtype);
  uint32_t order[16];
  int64_t step = size;
  bool plain = naive_between(random, 0, 1) == 0;
  for (uint32_t i = 0; i < operand->rank; i++) order[i] = i;
  for (uint32_t i = operand->rank; !plain && i > 1; i--) {
    uint32_t j = (uint32_t)naive_between(random, 0, i - 1);
    uint32_t moved = order[i - 1];
    order[i - 1] = order[j];
    order[j] = moved;
  }
  for (uint32_t i = operand->rank; i-- > 0;) {
    operand->strides[order[i]] = step;
    step *= operand->shape[order[i]] > 0 ? operand->shape[order[i]] : 1;
    if (!plain && naive_between(random, 0, 5) == 0) step += size * naive_between(random, 1, 3);
  }
  p->memory[k] = calloc(1, (size_t)step + 64);
  naive_fill(random, p->dtype, p->memory[k], step / size);
  char *first = p->memory[k];
  for (uint32_t i = 0; !plain && i < operand->rank; i++) {
    if (operand->shape[i] < 2 || naive_between(random, 0, 9) != 0) continue;
    first += (operand->shape[i] - 1) * operand->strides[i];
    operand->strides[i] = -operand->strides[i];
  }
  operand->data = first;
}

static void make_operand(naive_random *random, problem *p, uint32_t k) {
  naive_operand *operand = &p->operands[k];
  operand->rank = (uint32_t)naive_between(random, k == 0 ? 1 : 0, 5);
  for (uint32_t i = 0; i < operand->rank; i++) {
    operand->labels[i] = (uint32_t)naive_between(random, 0, p->label_count - 1);
    bool broadcast = naive_between(random, 0, 11) == 0;
    operand->shape[i] = broadcast ? 1 : p->extents[operand->labels[i]];
  }
}

/// Labels that no operand has in full get the extent that they have: 1, or none.
static void settle_extents(problem *p) {
  int64_t found[NAIVE_MAX_LABELS];
  for (uint32_t l = 0; l < p->label_count; l++) found[l] = 1;
  for (uint32_t k = 0; k < p->operand_count; k++) {
    for (uint32_t i = 0; i < p->operands[k].rank; i++) {
      if (p->operands[k].shape[i] != 1) found[p->operands[k].labels[i]] = p->operands[k].shape[i];
    }
  }
  memcpy(p->extents, found, sizeof found);
}

static bool label_used(const problem *p, uint32_t label) {
  for (uint32_t k = 0; k < p->operand_count; k++) {
    for (uint32_t i = 0; i < p->operands[k].rank; i++) {
      if (p->operands[k].labels[i] == label) return true;
    }
  }
  return false;
}

static void make_output(naive_random *random, problem *p) {
  p->out_rank = 0;
  p->out_elements = 1;
  for (uint32_t l = 0; l < p->label_count; l++) {
    if (!label_used(p, l) || naive_between(random, 0, 1) == 0 || p->out_rank == 6) continue;
    uint32_t at = (uint32_t)naive_between(random, 0, p->out_rank);
    memmove(p->out_labels + at + 1, p->out_labels + at, (p->out_rank - at) * sizeof *p->out_labels);
    p->out_labels[at] = l;
    p->out_rank++;
    p->out_elements *= p->extents[l];
  }
}

static void write_spec(problem *p) {
  char *at = p->spec;
  for (uint32_t k = 0; k < p->operand_count; k++) {
    if (k > 0) *at++ = ',';
    for (uint32_t i = 0; i < p->operands[k].rank; i++) *at++ = (char)('a' + p->operands[k].labels[i]);
  }
  *at++ = '-';
  *at++ = '>';
  for (uint32_t i = 0; i < p->out_rank; i++) *at++ = (char)('a' + p->out_labels[i]);
  *at = '\0';
}

static void make_path(naive_random *random, problem *p) {
  p->path_entries = naive_between(random, 0, 1) == 0 ? 0 : p->operand_count - 1;
  uint32_t left = p->operand_count;
  for (uint32_t e = 0; e < p->path_entries; e++, left--) {
    p->path[2 * e] = (uint32_t)naive_between(random, 0, left - 1);
    do p->path[2 * e + 1] = (uint32_t)naive_between(random, 0, left - 1);
    while (p->path[2 * e + 1] == p->path[2 * e]);
  }
}

static void make_problem(naive_random *random, problem *p) {
  static const berth_dtype dtypes[] = {BERTH_F32, BERTH_F64, BERTH_C64, BERTH_C128};
  memset(p, 0, sizeof *p);
  p->dtype = dtypes[naive_between(random, 0, 3)];
  p->operand_count = (uint32_t)naive_between(random, 1, 5);
  p->label_count = (uint32_t)naive_between(random, 1, 7);
  for (uint32_t l = 0; l < p->label_count; l++) p->extents[l] = small_extents[naive_between(random, 0, 6)];
  if (naive_between(random, 0, 19) == 0) p->extents[0] = 0;
  for (uint32_t k = 0; k < p->operand_count; k++) make_operand(random, p, k);
  settle_extents(p);
  for (uint32_t k = 0; k < p->operand_count; k++) make_strides(random, p, k);
  make_output(random, p);
  write_spec(p);
  make_path(random, p);
  for (uint32_t k = 0; k < p->operand_count; k++) {
    naive_operand *o = &p->operands[k];
    assert_int_equal(berth_tensor_wrap((void *)(uintptr_t)o->data, p->dtype, o->rank, o->shape, o->strides, &p->tensors[k], NULL), BERTH_OK);
  }
}

static void drop_problem(problem *p) {
  for (uint32_t k = 0; k < p->operand_count; k++) {
    berth_tensor_release(p->tensors[k]);
    free(p->memory[k]);
  }
}

static berth_einsum_plan *plan_problem(const problem *p) {
  berth_einsum_operand described[NAIVE_MAX_OPERANDS];
  berth_einsum_options options = BERTH_EINSUM_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  berth_einsum_plan *plan = NULL;
  for (uint32_t k = 0; k < p->operand_count; k++) {
    described[k] = (berth_einsum_operand){p->operands[k].rank, p->operands[k].shape, p->operands[k].strides};
  }
  if (p->path_entries > 0) {
    options.path = p->path;
    options.path_entries = p->path_entries;
  }
  if (berth_einsum_plan_create(p->spec, p->operand_count, described, p->dtype, &options, &plan, &err) != BERTH_OK) {
    fail_msg("%s: %s", p->spec, err.message);
  }
  return plan;
}

static void check_problem(problem *p, uint64_t number) {
  berth_einsum_plan *plan = plan_problem(p);
  berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
  assert_int_equal(berth_einsum_plan_get_info(plan, &info, NULL), BERTH_OK);
  size_t bytes = (size_t)p->out_elements * berth_dtype_size(p->dtype);
  void *expected = malloc(bytes + 1);
  void *first = malloc(bytes + 1);
  naive_einsum(p->dtype, p->operand_count, p->operands, p->label_count, p->extents, p->out_rank, p->out_labels, expected);
  for (int order = FAKE_FORWARD; order <= FAKE_BACKWARD; order++) {
    berth_exec exec;
    berth_error err = BERTH_ERROR_INIT;
    berth_tensor *result = NULL;
    fake_exec_init(&exec, info.peak_bytes);
    exec.order = (fake_order)order;
    if (berth_einsum_run(&exec, plan, (const berth_tensor *const *)p->tensors, NULL, &result, &err) != BERTH_OK) {
      fail_msg("problem %llu, %s: %s", (unsigned long long)number, p->spec, err.message);
    }
    assert_int_equal(exec.peak, info.peak_bytes); // EXE-6
    if (order == FAKE_FORWARD) memcpy(first, berth_tensor_data(result), bytes);
    assert_memory_equal(first, berth_tensor_data(result), bytes); // EXE-4
    double bound = p->dtype == BERTH_F32 || p->dtype == BERTH_C64 ? 2e-3 : 1e-11;
    double difference = naive_difference(p->dtype, expected, berth_tensor_data(result), p->out_elements);
    if (!(difference <= bound)) fail_msg("problem %llu, %s: off by %g", (unsigned long long)number, p->spec, difference);
    berth_tensor_release(result);
    assert_true(fake_exec_is_clean(&exec));
  }
  free(expected);
  free(first);
  berth_einsum_plan_release(plan);
}

static void test_random_problems(void **state) {
  (void)state;
  for (uint64_t number = 0; number < 4000; number++) {
    naive_random random = {number * 1000003};
    problem p;
    make_problem(&random, &p);
    check_problem(&p, number);
    drop_problem(&p);
  }
}

/// A destination of any strides gets what a compact one gets, and its gaps stay untouched.
static void test_into_any_strides(void **state) {
  (void)state;
  for (uint64_t number = 0; number < 300; number++) {
    naive_random random = {number * 77 + 5};
    problem p;
    make_problem(&random, &p);
    berth_einsum_plan *plan = plan_problem(&p);
    int64_t size = (int64_t)berth_dtype_size(p.dtype);
    int64_t shape[16], strides[16], step = 2 * size;
    for (uint32_t i = 0; i < p.out_rank; i++) {
      shape[i] = p.extents[p.out_labels[i]];
      strides[i] = step;
      step *= shape[i] + 1;
    }
    char *gaps = malloc((size_t)step + 64);
    memset(gaps, 0x5A, (size_t)step + 64);
    berth_exec exec;
    berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
    berth_einsum_plan_get_info(plan, &info, NULL);
    fake_exec_init(&exec, info.peak_bytes);
    berth_tensor *destination = NULL;
    berth_tensor *result = NULL;
    berth_error err = BERTH_ERROR_INIT;
    assert_int_equal(berth_tensor_wrap(gaps, p.dtype, p.out_rank, shape, strides, &destination, NULL), BERTH_OK);
    if (berth_einsum_run_into(&exec, plan, (const berth_tensor *const *)p.tensors, destination, NULL, &err) != BERTH_OK) {
      fail_msg("%s: %s", p.spec, err.message);
    }
    assert_int_equal(berth_einsum_run(&exec, plan, (const berth_tensor *const *)p.tensors, NULL, &result, NULL), BERTH_OK);
    int64_t written = 0;
    for (int64_t o = 0; o < p.out_elements; o++) {
      int64_t at = 0, rest = o;
      for (uint32_t i = p.out_rank; i-- > 0; rest /= shape[i]) at += rest % shape[i] * strides[i];
      assert_memory_equal(gaps + at, (char *)berth_tensor_data(result) + o * size, (size_t)size);
      memset(gaps + at, 0x5A, (size_t)size);
      written++;
    }
    assert_int_equal(written, p.out_elements);
    for (int64_t i = 0; i < step + 64; i++) assert_int_equal((unsigned char)gaps[i], 0x5A);
    berth_tensor_release(result);
    berth_tensor_release(destination);
    assert_true(fake_exec_is_clean(&exec));
    free(gaps);
    berth_einsum_plan_release(plan);
    drop_problem(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_problems),
      cmocka_unit_test(test_into_any_strides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
