// SPDX-License-Identifier: Apache-2.0
// Running: larger products against a plain evaluation, random networks within exactly their planned memory (EXE-6), every allocation failing in
// turn, cancels, destinations, and bits that do not depend on the order of tasks or on threads (EXE-4).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "tensor/fake_exec.h"
#include "tensor/naive_einsum.h"

enum { MAX_TENSORS = 40 };

/// A network with labels of its own over many tensors.
typedef struct network {
  uint32_t count;
  uint32_t ranks[MAX_TENSORS];
  int64_t shapes[MAX_TENSORS][8];
  char spec[1024];
  double *data[MAX_TENSORS];
  berth_tensor *tensors[MAX_TENSORS];
  berth_einsum_operand described[MAX_TENSORS];
} network;

static int64_t elements_of(const network *net, uint32_t i) {
  int64_t n = 1;
  for (uint32_t a = 0; a < net->ranks[i]; a++) n *= net->shapes[i][a];
  return n;
}

static void close_network(network *net, naive_random *random) {
  for (uint32_t i = 0; i < net->count; i++) {
    int64_t n = elements_of(net, i);
    net->data[i] = malloc((size_t)n * sizeof(double));
    naive_fill(random, BERTH_F64, net->data[i], n);
    assert_int_equal(berth_tensor_wrap(net->data[i], BERTH_F64, net->ranks[i], net->shapes[i], NULL, &net->tensors[i], NULL), BERTH_OK);
    net->described[i] = (berth_einsum_operand){net->ranks[i], net->shapes[i], NULL};
  }
}

/// A random graph: each edge a label, some labels open, some on three tensors.
static void make_network(network *net, naive_random *random) {
  char terms[MAX_TENSORS][16] = {{0}};
  char open[16] = {0};
  static const char labels[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  memset(net, 0, sizeof *net);
  net->count = (uint32_t)naive_between(random, 2, 14);
  uint32_t edges = net->count + (uint32_t)naive_between(random, 0, 8);
  for (uint32_t e = 0; e < edges; e++) {
    int64_t extent = naive_between(random, 1, 4);
    uint32_t ends = naive_between(random, 0, 9) == 0 ? 3 : 2;
    uint32_t placed = 0;
    for (uint32_t k = 0; k < ends; k++) {
      uint32_t t = e < net->count && k == 0 ? e : (uint32_t)naive_between(random, 0, net->count - 1);
      if (net->ranks[t] == 6) continue;
      net->shapes[t][net->ranks[t]] = extent;
      terms[t][net->ranks[t]++] = labels[e];
      placed++;
    }
    if (placed > 0 && strlen(open) < 4 && naive_between(random, 0, 7) == 0) open[strlen(open)] = labels[e];
  }
  for (uint32_t i = 0; i < net->count; i++) {
    if (i > 0) strcat(net->spec, ",");
    strcat(net->spec, terms[i]);
  }
  strcat(net->spec, "->");
  strcat(net->spec, open);
  close_network(net, random);
}

static void drop_network(network *net) {
  for (uint32_t i = 0; i < net->count; i++) {
    berth_tensor_release(net->tensors[i]);
    free(net->data[i]);
  }
}

static berth_einsum_plan *plan_network(const network *net, berth_einsum_objective objective) {
  berth_einsum_options options = BERTH_EINSUM_OPTIONS_INIT;
  berth_einsum_plan *plan = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.objective = objective;
  if (berth_einsum_plan_create(net->spec, net->count, net->described, BERTH_F64, &options, &plan, &err) != BERTH_OK) {
    fail_msg("%s: %s", net->spec, err.message);
  }
  return plan;
}

static uint64_t peak_of(const berth_einsum_plan *plan) {
  berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
  assert_int_equal(berth_einsum_plan_get_info(plan, &info, NULL), BERTH_OK);
  return info.peak_bytes;
}

/// All objectives give the same result, each within exactly its planned bytes, and fail with one byte less.
static void test_networks_in_planned_memory(void **state) {
  (void)state;
  for (uint64_t number = 0; number < 150; number++) {
    naive_random random = {number * 31 + 7};
    network net;
    double *first = NULL;
    uint64_t first_elements = 0;
    make_network(&net, &random);
    for (int objective = BERTH_EINSUM_BALANCED; objective <= BERTH_EINSUM_SIZE; objective++) {
      berth_einsum_plan *plan = plan_network(&net, (berth_einsum_objective)objective);
      uint64_t peak = peak_of(plan);
      berth_tensor *result = NULL;
      berth_error err = BERTH_ERROR_INIT;
      berth_exec exec;
      fake_exec_init(&exec, peak);
      if (berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, &err) != BERTH_OK) fail_msg("%s", err.message);
      assert_int_equal(exec.peak, peak); // EXE-6
      berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
      berth_tensor_get_info(result, &info, NULL);
      if (first == NULL) {
        first_elements = info.elements;
        first = malloc(info.bytes + 1);
        memcpy(first, info.data, info.bytes);
      }
      assert_int_equal(info.elements, first_elements);
      double scale = 1;
      for (uint64_t i = 0; i < info.elements; i++) scale = first[i] > scale ? first[i] : -first[i] > scale ? -first[i] : scale;
      assert_true(naive_difference(BERTH_F64, first, info.data, (int64_t)info.elements) <= 1e-9 * scale);
      berth_tensor_release(result);
      exec.limit = peak - 64;
      assert_int_equal(berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, &err), BERTH_RESOURCE_EXHAUSTED);
      assert_string_equal(err.reason, "grant_exhausted");
      assert_non_null(strstr(err.message, "grant_exhausted: step "));
      assert_non_null(strstr(err.message, "; ask for "));
      assert_true(fake_exec_is_clean(&exec));
      berth_einsum_plan_release(plan);
    }
    free(first);
    drop_network(&net);
  }
}

static void make_pair(network *net, naive_random *random, const char *spec, uint32_t ra, const int64_t *a, uint32_t rb, const int64_t *b) {
  memset(net, 0, sizeof *net);
  net->count = 2;
  strcpy(net->spec, spec);
  net->ranks[0] = ra;
  net->ranks[1] = rb;
  memcpy(net->shapes[0], a, ra * sizeof *a);
  memcpy(net->shapes[1], b, rb * sizeof *b);
  close_network(net, random);
}

/// Shapes that reach BLAS, the narrow kernel, packing, loops and buffers for the result.
static void test_larger_pairs(void **state) {
  static const struct {
    const char *spec;
    const char *a, *b, *out;
  } cases[] = {
      {"abc,bd->adc", "abc", "bd", "adc"},    {"abc,bd->cda", "abc", "bd", "cda"},     {"abcd,dbe->eca", "abcd", "dbe", "eca"},
      {"abc,cba->", "abc", "cba", ""},        {"abcd,bcde->ade", "abcd", "bcde", "ade"}, {"abc,adc->bda", "abc", "adc", "bda"},
      {"ab,bc->ca", "ab", "bc", "ca"},        {"ab,cb->ac", "ab", "cb", "ac"},         {"ba,bc->ac", "ba", "bc", "ac"},
      {"abcde,ce->dab", "abcde", "ce", "dab"}, {"ab,b->a", "ab", "b", "a"},            {"a,ab->b", "a", "ab", "b"},
      {"abc,abc->ac", "abc", "abc", "ac"},    {"abcd,ebfd->aecf", "abcd", "ebfd", "aecf"},
  };
  (void)state;
  for (uint64_t number = 0; number < 400; number++) {
    naive_random random = {number * 13 + 1};
    const size_t c = number % (sizeof cases / sizeof *cases);
    int64_t extents[6];
    naive_operand operands[2] = {{0}};
    const char *texts[2] = {cases[c].a, cases[c].b};
    uint32_t out_labels[8];
    int64_t outputs = 1;
    for (int i = 0; i < 6; i++) extents[i] = naive_between(&random, 1, strlen(cases[c].a) > 3 ? 11 : 40);
    network net;
    int64_t shapes[2][8];
    for (int k = 0; k < 2; k++) {
      operands[k].rank = (uint32_t)strlen(texts[k]);
      for (uint32_t i = 0; i < operands[k].rank; i++) {
        operands[k].labels[i] = (uint32_t)(texts[k][i] - 'a');
        operands[k].shape[i] = shapes[k][i] = extents[operands[k].labels[i]];
      }
      int64_t step = 8;
      for (uint32_t i = operands[k].rank; i-- > 0; step *= operands[k].shape[i]) operands[k].strides[i] = step;
    }
    make_pair(&net, &random, cases[c].spec, operands[0].rank, shapes[0], operands[1].rank, shapes[1]);
    for (int k = 0; k < 2; k++) operands[k].data = net.data[k];
    uint32_t out_rank = (uint32_t)strlen(cases[c].out);
    for (uint32_t i = 0; i < out_rank; i++) {
      out_labels[i] = (uint32_t)(cases[c].out[i] - 'a');
      outputs *= extents[out_labels[i]];
    }
    uint32_t labels = 0;
    for (int k = 0; k < 2; k++) {
      for (uint32_t i = 0; i < operands[k].rank; i++) labels = operands[k].labels[i] + 1 > labels ? operands[k].labels[i] + 1 : labels;
    }
    double *expected = malloc((size_t)outputs * sizeof *expected);
    naive_einsum(BERTH_F64, 2, operands, labels, extents, out_rank, out_labels, expected);
    berth_einsum_plan *plan = plan_network(&net, BERTH_EINSUM_BALANCED);
    berth_exec exec;
    berth_tensor *result = NULL;
    fake_exec_init(&exec, peak_of(plan));
    assert_int_equal(berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, NULL), BERTH_OK);
    double off = naive_difference(BERTH_F64, expected, berth_tensor_data(result), outputs);
    if (!(off <= 1e-10)) fail_msg("%llu %s: off by %g", (unsigned long long)number, net.spec, off);
    berth_tensor_release(result);
    berth_einsum_plan_release(plan);
    free(expected);
    drop_network(&net);
  }
}

/// EXE-4: forward, backward and two threads give the same bits, with products large enough to be cut.
static void test_same_bits(void **state) {
  (void)state;
  static const struct {
    const char *spec;
    uint32_t ra, rb;
    int64_t a[4], b[4];
  } cases[] = {
      {"ab,bc->ac", 2, 2, {300, 301}, {301, 302}},   {"ab,bc->ac", 2, 2, {2000, 64}, {64, 16}},  {"ab,bc->ac", 2, 2, {16, 64}, {64, 2000}},
      {"abc,abd->acd", 3, 3, {50, 30, 40}, {50, 30, 60}}, {"ab,ab->", 2, 2, {900, 700}, {900, 700}}, {"abc,bd->cad", 3, 2, {70, 8, 300}, {8, 7}},
      {"ab,cd->abd", 2, 2, {300, 60}, {40, 50}},     {"ab,bc->", 2, 2, {600, 500}, {500, 40}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    naive_random random = {c + 100};
    network net;
    make_pair(&net, &random, cases[c].spec, cases[c].ra, cases[c].a, cases[c].rb, cases[c].b);
    for (uint32_t k = 0; k < 2; k++) {
      for (int64_t i = 0; i < elements_of(&net, k); i++) net.data[k][i] += 1e-9 * (double)(i % 1013); // inexact sums
    }
    berth_einsum_plan *plan = plan_network(&net, BERTH_EINSUM_BALANCED);
    void *first = NULL;
    for (int order = FAKE_FORWARD; order <= FAKE_THREADS; order++) {
      berth_exec exec;
      berth_tensor *result = NULL;
      berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
      fake_exec_init(&exec, peak_of(plan));
      exec.order = (fake_order)order;
      exec.lanes = order == FAKE_THREADS ? 2 : 1;
      assert_int_equal(berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, NULL), BERTH_OK);
      berth_tensor_get_info(result, &info, NULL);
      if (first == NULL) {
        first = malloc(info.bytes);
        memcpy(first, info.data, info.bytes);
      }
      if (memcmp(first, info.data, info.bytes) != 0) fail_msg("case %zu, order %d: other bits", c, order);
      berth_tensor_release(result);
    }
    free(first);
    berth_einsum_plan_release(plan);
    drop_network(&net);
  }
}

static void test_failing_allocations(void **state) {
  (void)state;
  naive_random random = {99};
  network net;
  make_network(&net, &random);
  berth_einsum_plan *plan = plan_network(&net, BERTH_EINSUM_BALANCED);
  // The execution's memory.
  bool done = false;
  for (uint64_t nth = 1; !done; nth++) {
    berth_exec exec;
    berth_tensor *result = NULL;
    fake_exec_init(&exec, 1 << 24);
    exec.fail_at = nth;
    berth_status status = berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, NULL);
    done = status == BERTH_OK;
    if (!done) assert_int_equal(status, BERTH_RESOURCE_EXHAUSTED);
    if (!done) assert_null(result);
    berth_tensor_release(result);
    assert_true(fake_exec_is_clean(&exec));
  }
  berth_einsum_plan_release(plan);
  // The library's own memory, in planning and running.
  done = false;
  uint64_t live = berthi_alloc_live();
  for (uint64_t nth = 1; !done; nth++) {
    berth_exec exec;
    berth_tensor *result = NULL;
    berth_error err = BERTH_ERROR_INIT;
    fake_exec_init(&exec, 1 << 24);
    berthi_fault_plan(BERTHI_FAULT_ALLOC, nth, nth % 2 == 0);
    berth_status status = berth_einsum(&exec, net.spec, (const berth_tensor *const *)net.tensors, net.count, &result, &err);
    uint64_t calls = berthi_fault_plan_end();
    done = status == BERTH_OK;
    if (!done) assert_string_equal(err.reason, "host_exhausted");
    if (done) assert_true(calls < nth);
    berth_tensor_release(result);
    assert_true(fake_exec_is_clean(&exec));
    assert_int_equal(berthi_alloc_live(), live);
  }
  drop_network(&net);
}

static void test_cancel_at_each_task(void **state) {
  (void)state;
  naive_random random = {5};
  network net;
  const int64_t a[] = {400, 300}, b[] = {300, 500};
  make_pair(&net, &random, "ab,bc->ca", 2, a, 2, b);
  berth_einsum_plan *plan = plan_network(&net, BERTH_EINSUM_BALANCED);
  bool done = false;
  uint64_t cancels = 0;
  for (uint64_t after = 1; !done; after++) {
    berth_exec exec;
    berth_tensor *result = NULL;
    berth_error err = BERTH_ERROR_INIT;
    fake_exec_init(&exec, peak_of(plan));
    exec.cancel_after = after;
    berth_status status = berth_einsum_run(&exec, plan, (const berth_tensor *const *)net.tensors, NULL, &result, &err);
    done = status == BERTH_OK;
    if (!done) assert_string_equal(err.reason, "cancelled");
    cancels += !done;
    berth_tensor_release(result);
    assert_true(fake_exec_is_clean(&exec));
  }
  assert_true(cancels >= 8);
  berth_einsum_plan_release(plan);
  drop_network(&net);
}

static void count_progress(void *arg, uint32_t done, uint32_t steps) {
  uint32_t *seen = arg;
  assert_true(done > seen[0] && done <= steps);
  seen[0] = done;
  seen[1] = steps;
}

static void test_destinations(void **state) {
  (void)state;
  naive_random random = {6};
  network net;
  const int64_t a[] = {3, 4}, b[] = {4, 5};
  double memory[64];
  make_pair(&net, &random, "ab,bc->ac", 2, a, 2, b);
  berth_einsum_plan *plan = plan_network(&net, BERTH_EINSUM_BALANCED);
  static const struct {
    int64_t shape[2], strides[2];
    int overlap; // 1: lies in an operand
    const char *error;
  } cases[] = {
      {{3, 5}, {40, 8}, 0, NULL},
      {{3, 5}, {8, 24}, 0, NULL},
      {{3, 5}, {-40, 8}, 0, NULL},
      {{3, 5}, {40, 8}, 1, "overlaps operand 0"},
      {{5, 3}, {24, 8}, 0, "axis 0 is 5"},
      {{3, 5}, {32, 8}, 0, "share memory"},
      {{3, 5}, {0, 8}, 0, "share memory"},
      {{3, 5}, {8, 8}, 0, "share memory"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    berth_exec exec;
    berth_error err = BERTH_ERROR_INIT;
    berth_tensor *destination = NULL;
    berth_einsum_run_options options = BERTH_EINSUM_RUN_OPTIONS_INIT;
    uint32_t seen[2] = {0, 0};
    options.progress = count_progress;
    options.progress_arg = seen;
    fake_exec_init(&exec, peak_of(plan));
    void *at = cases[c].overlap ? (void *)net.data[0] : (void *)(memory + 32);
    assert_int_equal(berth_tensor_wrap(at, BERTH_F64, 2, cases[c].shape, cases[c].strides, &destination, NULL), BERTH_OK);
    berth_status status = berth_einsum_run_into(&exec, plan, (const berth_tensor *const *)net.tensors, destination, &options, &err);
    if (cases[c].error == NULL) {
      assert_int_equal(status, BERTH_OK);
      assert_int_equal(seen[0], seen[1]);
    } else {
      assert_int_equal(status, BERTH_INVALID_ARGUMENT);
      assert_int_equal(exec.operations, 0);
      if (strstr(err.message, cases[c].error) == NULL) fail_msg("case %zu: %s", c, err.message);
    }
    berth_tensor_release(destination);
    assert_true(fake_exec_is_clean(&exec));
  }
  berth_einsum_plan_release(plan);
  drop_network(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_networks_in_planned_memory),
      cmocka_unit_test(test_larger_pairs),
      cmocka_unit_test(test_same_bits),
      cmocka_unit_test(test_failing_allocations),
      cmocka_unit_test(test_cancel_at_each_task),
      cmocka_unit_test(test_destinations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
