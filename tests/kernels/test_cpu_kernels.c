// SPDX-License-Identifier: Apache-2.0
// Each CPU kernel alone, against plain loops: random axes of any extents, steps and orders; sums against long double within the stated bound
// (NUM-1); the same bits forward, backward and in two threads (EXE-4).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "tensor/fake_exec.h"
#include "tensor/naive_einsum.h"

enum { MAX_RANK = 10 };

/// A dense array with permuted axes and gaps: fills step `which`; returns its elements.
static int64_t lay_out(naive_random *random, berthi_axis *axes, uint32_t rank, int which, bool gaps) {
  uint32_t order[MAX_RANK];
  int64_t step = 1;
  for (uint32_t i = 0; i < rank; i++) order[i] = i;
  for (uint32_t i = rank; i > 1; i--) {
    uint32_t j = (uint32_t)naive_between(random, 0, i - 1);
    uint32_t moved = order[i - 1];
    order[i - 1] = order[j];
    order[j] = moved;
  }
  for (uint32_t i = 0; i < rank; i++) {
    axes[order[i]].step[which] = step;
    step *= axes[order[i]].extent;
    if (gaps && naive_between(random, 0, 6) == 0) step += naive_between(random, 1, 4);
  }
  return step;
}

static uint32_t make_axes(naive_random *random, berthi_axis *axes, int64_t limit) {
  static const int64_t extents[] = {1, 2, 2, 2, 3, 4, 5, 7, 8, 16, 33, 64, 100};
  uint32_t rank = (uint32_t)naive_between(random, 0, MAX_RANK);
  int64_t count = 1;
  for (uint32_t i = 0; i < rank; i++) {
    axes[i] = (berthi_axis){.extent = extents[naive_between(random, 0, 12)]};
    if (count * axes[i].extent > limit) axes[i].extent = 1;
    count *= axes[i].extent;
  }
  return rank;
}

static int64_t offset_of(const berthi_axis *axes, uint32_t rank, int64_t index, int which) {
  int64_t at = 0;
  for (uint32_t i = rank; i-- > 0; index /= axes[i].extent) at += index % axes[i].extent * axes[i].step[which];
  return at;
}

static void test_copy(void **state) {
  static const uint32_t sizes[] = {1, 2, 4, 8, 16};
  (void)state;
  for (uint64_t number = 0; number < 1200; number++) {
    naive_random random = {number * 7919};
    berthi_axis axes[MAX_RANK], simple[MAX_RANK];
    uint32_t size = sizes[number % 5];
    uint32_t rank = make_axes(&random, axes, number % 50 == 0 ? 1 << 18 : 1 << 12);
    int64_t dst_elements = lay_out(&random, axes, rank, 0, number % 3 == 0);
    int64_t src_elements = lay_out(&random, axes, rank, 1, number % 3 != 1);
    int64_t count = berthi_axes_count(axes, rank);
    char *src = malloc((size_t)src_elements * size);
    char *dst = malloc((size_t)dst_elements * size);
    char *expected = malloc((size_t)dst_elements * size);
    for (int64_t i = 0; i < src_elements * size; i++) src[i] = (char)(i * 31 + (i >> 8));
    memset(dst, 0x5A, (size_t)dst_elements * size);
    memset(expected, 0x5A, (size_t)dst_elements * size);
    for (int64_t e = 0; e < count; e++) {
      memcpy(expected + offset_of(axes, rank, e, 0) * size, src + offset_of(axes, rank, e, 1) * size, size);
    }
    memcpy(simple, axes, sizeof axes);
    uint32_t simple_rank = berthi_axes_simplify(simple, rank, 2);
    assert_int_equal(berthi_axes_count(simple, simple_rank), count);
    berth_exec exec;
    fake_exec_init(&exec, 0);
    exec.order = (fake_order)(number % 3);
    assert_int_equal(berthi_cpu_copy(&exec, size, simple, simple_rank, dst, src, NULL), BERTH_OK);
    if (memcmp(dst, expected, (size_t)dst_elements * size) != 0) fail_msg("problem %llu", (unsigned long long)number);
    free(src);
    free(dst);
    free(expected);
  }
}

static void test_multiply(void **state) {
  static const berth_dtype dtypes[] = {BERTH_F32, BERTH_F64, BERTH_C64, BERTH_C128};
  (void)state;
  for (uint64_t number = 0; number < 500; number++) {
    naive_random random = {number * 104729};
    berthi_axis axes[MAX_RANK];
    berth_dtype dtype = dtypes[number % 4];
    int64_t size = (int64_t)berth_dtype_size(dtype);
    uint32_t rank = make_axes(&random, axes, number % 50 == 0 ? 1 << 18 : 1 << 11);
    int64_t elements[3];
    for (int i = 0; i < 3; i++) elements[i] = lay_out(&random, axes, rank, i, number % 3 == 0);
    for (uint32_t i = 0; i < rank; i++) { // operands that lack an axis
      if (naive_between(&random, 0, 3) == 0) axes[i].step[naive_between(&random, 1, 2)] = 0;
    }
    naive_operand operands[2] = {{0}};
    int64_t extents[NAIVE_MAX_LABELS];
    uint32_t labels[NAIVE_MAX_LABELS];
    char *data[4];
    for (int i = 0; i < 3; i++) data[i] = malloc((size_t)(elements[i] * size));
    data[3] = malloc((size_t)(berthi_axes_count(axes, rank) * size));
    for (int k = 0; k < 2; k++) {
      naive_fill(&random, dtype, data[k + 1], elements[k + 1]);
      operands[k].data = data[k + 1];
      operands[k].rank = rank;
      for (uint32_t i = 0; i < rank; i++) {
        extents[i] = operands[k].shape[i] = axes[i].extent;
        labels[i] = operands[k].labels[i] = i;
        operands[k].strides[i] = axes[i].step[k + 1] * size;
      }
    }
    naive_einsum(dtype, 2, operands, rank, extents, rank, labels, data[3]);
    berthi_axis simple[MAX_RANK];
    memcpy(simple, axes, sizeof axes);
    uint32_t simple_rank = berthi_axes_simplify(simple, rank, 3);
    berth_exec exec;
    fake_exec_init(&exec, 0);
    exec.order = (fake_order)(number % 3);
    assert_int_equal(berthi_cpu_multiply(&exec, dtype, simple, simple_rank, data[0], data[1], data[2], NULL), BERTH_OK);
    for (int64_t e = 0; e < berthi_axes_count(axes, rank); e++) {
      double off = naive_difference(dtype, data[0] + offset_of(axes, rank, e, 0) * size, data[3] + e * size, 1);
      if (off != 0) fail_msg("problem %llu: element %lld", (unsigned long long)number, (long long)e);
    }
    for (int i = 0; i < 4; i++) free(data[i]);
  }
}

static void test_reduce(void **state) {
  static const berth_dtype dtypes[] = {BERTH_F32, BERTH_F64, BERTH_C64, BERTH_C128};
  (void)state;
  for (uint64_t number = 0; number < 240; number++) {
    naive_random random = {number * 1299709};
    berthi_axis axes[MAX_RANK], kept[MAX_RANK], summed[MAX_RANK];
    berth_dtype dtype = dtypes[number % 4];
    int64_t size = (int64_t)berth_dtype_size(dtype);
    uint32_t rank = make_axes(&random, axes, number % 20 == 0 ? 1 << 20 : 1 << 13);
    uint32_t kept_rank = 0, summed_rank = 0;
    int64_t elements = lay_out(&random, axes, rank, 1, number % 3 == 0);
    for (uint32_t i = 0; i < rank; i++) {
      axes[i].step[0] = axes[i].step[1];
      if (naive_between(&random, 0, 1) == 0) kept[kept_rank++] = axes[i]; else summed[summed_rank++] = axes[i];
    }
    int64_t outputs = lay_out(&random, kept, kept_rank, 0, false);
    naive_operand operand = {.rank = rank};
    int64_t extents[NAIVE_MAX_LABELS];
    uint32_t labels[NAIVE_MAX_LABELS];
    uint32_t n = 0;
    char *src = malloc((size_t)(elements * size)), *dst = malloc((size_t)(outputs * size)), *expected = malloc((size_t)(outputs * size));
    naive_fill(&random, dtype, src, elements);
    operand.data = src;
    for (uint32_t i = 0; i < kept_rank + summed_rank; i++) {
      const berthi_axis *axis = i < kept_rank ? &kept[i] : &summed[i - kept_rank];
      extents[i] = operand.shape[i] = axis->extent;
      operand.labels[i] = i;
      operand.strides[i] = axis->step[1] * size;
      if (i < kept_rank) labels[n++] = i;
    }
    for (uint32_t i = 0; i < n; i++) { // outputs in the order of dst
      for (uint32_t j = i + 1; j < n; j++) {
        bool later = kept[labels[j]].step[0] > kept[labels[i]].step[0] || (kept[labels[j]].step[0] == kept[labels[i]].step[0] && kept[labels[j]].extent > kept[labels[i]].extent);
        uint32_t moved = labels[i];
        if (later) labels[i] = labels[j];
        if (later) labels[j] = moved;
      }
    }
    naive_einsum(dtype, 1, &operand, rank, extents, n, labels, expected);
    berthi_reduce reduce = {.dtype = dtype, .kept = kept, .summed = summed};
    reduce.kept_rank = berthi_axes_simplify(kept, kept_rank, 2);
    reduce.summed_rank = berthi_axes_simplify(summed, summed_rank, 2);
    if (reduce.summed_rank > 0) {
      char *first = NULL;
      for (int order = 0; order < 3; order++) {
        berth_exec exec;
        fake_exec_init(&exec, 0);
        exec.order = (fake_order)order;
        assert_int_equal(berthi_cpu_reduce(&exec, &reduce, dst, src, NULL), BERTH_OK);
        if (first == NULL) {
          first = malloc((size_t)(outputs * size));
          memcpy(first, dst, (size_t)(outputs * size));
        }
        assert_memory_equal(first, dst, (size_t)(outputs * size));
      }
      free(first);
      // Eighths below 2^20: exact in f32 up to 2^21 terms.
      double off = naive_difference(dtype, dst, expected, outputs);
      if (off != 0) fail_msg("problem %llu: off by %g", (unsigned long long)number, off);
    }
    free(src);
    free(dst);
    free(expected);
  }
}

/// NUM-1: 16 Mi values of 0.1 in f32; one running sum would be off by percents.
static void test_pairwise_f32(void **state) {
  enum { N = 1 << 24 };
  float *values = malloc(N * sizeof *values);
  float sum = 0;
  (void)state;
  for (int i = 0; i < N; i++) values[i] = 0.1f;
  const berthi_axis axis = {.extent = N, .step = {1, 1, 0}};
  const berthi_reduce reduce = {.dtype = BERTH_F32, .summed = &axis, .summed_rank = 1};
  berth_exec exec;
  fake_exec_init(&exec, 0);
  assert_int_equal(berthi_cpu_reduce(&exec, &reduce, &sum, values, NULL), BERTH_OK);
  assert_true(fabs((double)sum / (N * (double)0.1f) - 1.0) < 1e-6);
  free(values);
}

/// A cancel is seen between tasks of every kernel.
static void test_cancel(void **state) {
  enum { N = 1 << 21 };
  double *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
  const berthi_axis axes[] = {{1 << 10, {1 << 11, 1, 1}}, {1 << 11, {1, 1 << 10, 1 << 10}}};
  const berthi_axis all = {.extent = N, .step = {1, 1, 0}};
  const berthi_reduce reduce = {.dtype = BERTH_F64, .summed = &all, .summed_rank = 1};
  const berthi_gemm gemm = {.dtype = BERTH_F64, .m = 1024, .n = 1024, .k = 1024, .c_n = 1024, .a_m = 1, .a_k = 1024, .b_k = 1, .b_n = 1024};
  (void)state;
  for (int kernel = 0; kernel < 5; kernel++) {
    berth_exec exec;
    berth_status status = BERTH_OK;
    fake_exec_init(&exec, 0);
    exec.cancel_after = 2;
    if (kernel == 0) status = berthi_cpu_copy(&exec, 8, axes, 2, a, b, NULL);
    if (kernel == 1) status = berthi_cpu_multiply(&exec, BERTH_F64, axes, 2, a, b, b, NULL);
    if (kernel == 2) status = berthi_cpu_reduce(&exec, &reduce, b, a, NULL);
    if (kernel == 3) status = berthi_cpu_gemm(&exec, &gemm, a, b, b, NULL);
    if (kernel == 4) status = berthi_cpu_zero(&exec, a, N * sizeof *a, NULL);
    assert_int_equal(status, BERTH_CANCELLED);
  }
  free(a);
  free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copy),   cmocka_unit_test(test_multiply), cmocka_unit_test(test_reduce),
      cmocka_unit_test(test_pairwise_f32), cmocka_unit_test(test_cancel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
