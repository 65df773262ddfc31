// SPDX-License-Identifier: Apache-2.0
// Einsum on stored right values: what users of other systems got wrong, and each rule of the notation once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/einsum_check.h"

#define V(...) ((const double[]){__VA_ARGS__})
#define SHAPE0 \
  0, { 0 }
#define SHAPE1(a) \
  1, { a }
#define SHAPE2(a, b) \
  2, { a, b }
#define SHAPE3(a, b, c) \
  3, { a, b, c }
#define CHECK(spec, expected, ...)                                                        \
  do {                                                                                    \
    const literal operands_[] = {__VA_ARGS__};                                            \
    check_einsum(spec, sizeof operands_ / sizeof *operands_, operands_, &(literal)expected); \
  } while (0)
#define REFUSED(spec, reason, text, ...)                                                   \
  do {                                                                                     \
    const literal operands_[] = {__VA_ARGS__};                                             \
    check_refused(spec, sizeof operands_ / sizeof *operands_, operands_, reason, text);    \
  } while (0)
#define L(...) \
  { __VA_ARGS__ }

static void test_basic(void **state) {
  (void)state;
  CHECK("ij,jk->ik", L(SHAPE2(2, 2), V(19, 22, 43, 50)), L(SHAPE2(2, 2), V(1, 2, 3, 4)), L(SHAPE2(2, 2), V(5, 6, 7, 8)));
  CHECK("ij,jk->ki", L(SHAPE2(2, 2), V(19, 43, 22, 50)), L(SHAPE2(2, 2), V(1, 2, 3, 4)), L(SHAPE2(2, 2), V(5, 6, 7, 8)));
  CHECK("ij->ji", L(SHAPE2(3, 2), V(1, 4, 2, 5, 3, 6)), L(SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6)));
  CHECK("ij->", L(SHAPE0, V(21)), L(SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6)));
  CHECK("ij->i", L(SHAPE1(2), V(6, 15)), L(SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6)));
  CHECK("ij->j", L(SHAPE1(3), V(5, 7, 9)), L(SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6)));
  CHECK("ii->", L(SHAPE0, V(5)), L(SHAPE2(2, 2), V(1, 2, 3, 4)));
  CHECK("ii->i", L(SHAPE1(2), V(1, 4)), L(SHAPE2(2, 2), V(1, 2, 3, 4)));
  CHECK("i,i->", L(SHAPE0, V(32)), L(SHAPE1(3), V(1, 2, 3)), L(SHAPE1(3), V(4, 5, 6)));
  CHECK("i,j->ij", L(SHAPE2(2, 2), V(3, 4, 6, 8)), L(SHAPE1(2), V(1, 2)), L(SHAPE1(2), V(3, 4)));
  CHECK("ij,ij->ij", L(SHAPE2(1, 2), V(3, 8)), L(SHAPE2(1, 2), V(1, 2)), L(SHAPE2(1, 2), V(3, 4)));
  CHECK("i,,->i", L(SHAPE1(2), V(6, 12)), L(SHAPE1(2), V(1, 2)), L(SHAPE0, V(2)), L(SHAPE0, V(3)));
  CHECK("->", L(SHAPE0, V(7)), L(SHAPE0, V(7)));
  CHECK(" i j , j k -> i k ", L(SHAPE2(1, 1), V(11)), L(SHAPE2(1, 2), V(1, 2)), L(SHAPE2(2, 1), V(3, 4)));
}

/// A label in three operands stays until its last use; one in four counts once in the sum.
static void test_hyperedges(void **state) {
  (void)state;
  CHECK("i,i,i->", L(SHAPE0, V(1 * 3 * 5 + 2 * 4 * 6)), L(SHAPE1(2), V(1, 2)), L(SHAPE1(2), V(3, 4)), L(SHAPE1(2), V(5, 6)));
  CHECK("i,i,i->i", L(SHAPE1(2), V(15, 48)), L(SHAPE1(2), V(1, 2)), L(SHAPE1(2), V(3, 4)), L(SHAPE1(2), V(5, 6)));
  CHECK("ab,b,bc,b->ac", L(SHAPE2(1, 1), V(1 * 2 * 5 * 7 + 1 * 3 * 6 * 8)), L(SHAPE2(1, 2), V(1, 1)), L(SHAPE1(2), V(2, 3)),
        L(SHAPE2(2, 1), V(5, 6)), L(SHAPE1(2), V(7, 8)));
}

static void test_implicit_output(void **state) {
  (void)state;
  CHECK("ji", L(SHAPE2(3, 2), V(1, 4, 2, 5, 3, 6)), L(SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6))); // ij of ji: the transpose
  CHECK("ij,jk", L(SHAPE2(2, 2), V(19, 22, 43, 50)), L(SHAPE2(2, 2), V(1, 2, 3, 4)), L(SHAPE2(2, 2), V(5, 6, 7, 8)));
  CHECK("ii", L(SHAPE0, V(5)), L(SHAPE2(2, 2), V(1, 2, 3, 4)));
  CHECK("bA", L(SHAPE2(2, 1), V(1, 2)), L(SHAPE2(1, 2), V(1, 2))); // capitals come first
}

static void test_ellipsis(void **state) {
  (void)state;
  CHECK("...->...", L(SHAPE2(1, 2), V(1, 2)), L(SHAPE2(1, 2), V(1, 2)));
  CHECK("i...->...i", L(SHAPE2(2, 1), V(1, 2)), L(SHAPE2(1, 2), V(1, 2)));
  CHECK("...i->...", L(SHAPE1(2), V(3, 7)), L(SHAPE2(2, 2), V(1, 2, 3, 4)));
  CHECK("...ij,...jk->...ik", L(SHAPE3(2, 1, 1), V(11, 25)), L(SHAPE3(2, 1, 2), V(1, 2, 3, 4)), L(SHAPE2(2, 1), V(3, 4)));
  CHECK("i...,...->i...", L(SHAPE2(1, 2), V(3, 8)), L(SHAPE2(1, 2), V(1, 2)), L(SHAPE1(2), V(3, 4)));
  CHECK("...,i->i...", L(SHAPE2(2, 1), V(10, 15)), L(SHAPE1(1), V(5)), L(SHAPE1(2), V(2, 3)));
  CHECK("...ii->...i", L(SHAPE2(1, 2), V(1, 4)), L(SHAPE3(1, 2, 2), V(1, 2, 3, 4)));
  CHECK("...b,...a", L(SHAPE3(1, 2, 1), V(3, 6)), L(SHAPE2(1, 1), V(3)), L(SHAPE2(1, 2), V(1, 2))); // implicit: ...ab
  // C-103: (2,1,3) and (3,2) give (2,1,2).
  CHECK("i...k,k...j->i...j", L(SHAPE3(2, 1, 2), V(22, 28, 49, 64)), L(SHAPE3(2, 1, 3), V(1, 2, 3, 4, 5, 6)), L(SHAPE2(3, 2), V(1, 2, 3, 4, 5, 6)));
}

static void test_broadcast_of_extent_1(void **state) {
  (void)state;
  // C-103: a label of extent 1 broadcasts.
  CHECK("ab,ab->ab", L(SHAPE2(4, 2), V(10, 40, 30, 80, 50, 120, 70, 160)), L(SHAPE2(4, 2), V(1, 2, 3, 4, 5, 6, 7, 8)), L(SHAPE2(1, 2), V(10, 20)));
  // C-104: on a summed label, too.
  CHECK("ij,jk->ik", L(SHAPE2(2, 2), V(9, 12, 18, 24)), L(SHAPE2(2, 1), V(1, 2)), L(SHAPE2(3, 2), V(1, 2, 3, 4, 5, 6)));
  CHECK("i,i->", L(SHAPE0, V(18)), L(SHAPE1(1), V(3)), L(SHAPE1(3), V(1, 2, 3)));
  // C-104: 1 with 0 is 0, not 1.
  CHECK("i,i->i", L(SHAPE1(0), NULL), L(SHAPE1(1), V(3)), L(SHAPE1(0), NULL));
  CHECK("i,i->", L(SHAPE0, V(0)), L(SHAPE1(1), V(3)), L(SHAPE1(0), NULL));
  CHECK("ii->i", L(SHAPE1(2), V(1, 2)), L(SHAPE2(1, 2), V(1, 2)));
}

static void test_empty_and_extent_1(void **state) {
  (void)state;
  // C-106: zeros (1,2) with (2,2).
  CHECK("ij,jk->ik", L(SHAPE2(1, 2), V(0, 0)), L(SHAPE2(1, 2), V(0, 0)), L(SHAPE2(2, 2), V(1, 2, 3, 4)));
  CHECK("ij,jk->ik", L(SHAPE2(2, 2), V(0, 0, 0, 0)), L(SHAPE2(2, 0), NULL), L(SHAPE2(0, 2), NULL));
  CHECK("ij,jk->ik", L(SHAPE2(0, 2), NULL), L(SHAPE2(0, 3), NULL), L(SHAPE2(3, 2), V(1, 2, 3, 4, 5, 6)));
  CHECK("ij->j", L(SHAPE1(2), V(0, 0)), L(SHAPE2(0, 2), NULL));
  CHECK("ij->i", L(SHAPE1(0), NULL), L(SHAPE2(0, 2), NULL));
  CHECK("ij,jk->ik", L(SHAPE2(1, 1), V(6)), L(SHAPE2(1, 1), V(2)), L(SHAPE2(1, 1), V(3)));
  CHECK("abc->cab", L(SHAPE3(1, 1, 2), V(1, 2)), L(SHAPE3(1, 2, 1), V(1, 2)));
}

static void test_unicode_labels(void **state) {
  (void)state;
  CHECK("αβ,βγ->αγ", L(SHAPE2(2, 2), V(19, 22, 43, 50)), L(SHAPE2(2, 2), V(1, 2, 3, 4)), L(SHAPE2(2, 2), V(5, 6, 7, 8)));
  CHECK("0\u03a2,\u03a2\U0001F600->0\U0001F600", L(SHAPE2(1, 1), V(11)), L(SHAPE2(1, 2), V(1, 2)), L(SHAPE2(2, 1), V(3, 4)));
}

/// C-98: the sum of a permuted view is the sum of its elements, in place.
static void test_sum_of_view(void **state) {
  (void)state;
  float *data = malloc(33 * 256 * sizeof *data);
  double right = 0;
  for (int i = 0; i < 33 * 256; i++) {
    data[i] = (float)(i % 97) * 0.25f;
    right += data[i];
  }
  const int64_t shape[] = {256, 33};
  const int64_t strides[] = {4, 1024};
  berth_tensor *view = NULL;
  berth_tensor *result = NULL;
  berth_exec exec;
  fake_exec_init(&exec, 64);
  assert_int_equal(berth_tensor_wrap(data, BERTH_F32, 2, shape, strides, &view, NULL), BERTH_OK);
  assert_int_equal(berth_einsum(&exec, "ab->", (const berth_tensor *const *)&view, 1, &result, NULL), BERTH_OK);
  assert_true(*(float *)berth_tensor_data(result) == (float)right); // quarters below 2^24: exact in any order
  berth_tensor_release(result);
  berth_tensor_release(view);
  free(data);
}

static void test_refusals(void **state) {
  (void)state;
  const literal m = {SHAPE2(2, 3), V(1, 2, 3, 4, 5, 6)};
  REFUSED("ij,jk->ik", "shape_mismatch", "label j is 3 in operand 0 axis 1 and 2 in operand 1 axis 0", m, m);
  REFUSED("ii->i", "shape_mismatch", "label i is 2 in operand 0 axis 0 and 3 in operand 0 axis 1", m);
  REFUSED("...,...->...", "shape_mismatch", "label ...[-1] is 3", m, L(SHAPE1(2), V(1, 2)));
  REFUSED("ijk->i", "shape_mismatch", "operand 0 has 2 axes and the specification names 3", m);
  REFUSED("ijk...->i...", "shape_mismatch", "at least 3", m);
  REFUSED("ij,jk->ik", "invalid_spec", "2 operands and 1 are given", m);
  REFUSED("ij->ij", "invalid_spec", "1 operands and 2 are given", m, m);
  REFUSED("ij->ik", "invalid_spec", "output label k is in no operand", m);
  REFUSED("ij->ii", "invalid_spec", "output label i occurs twice", m);
  REFUSED("i;->i", "invalid_spec", "';' at byte 1 is no label", m);
  REFUSED("i.j->i", "invalid_spec", "a dot at byte 1", m);
  REFUSED("......->...", "invalid_spec", "two ellipses", m);
  REFUSED("i...->i", "invalid_spec", "the output has no ellipsis", m);
  REFUSED("ij->i->j", "invalid_spec", "behind the output", m);
  REFUSED("ij-", "invalid_spec", "not part of an arrow", m);
  REFUSED("i\xff->i", "invalid_spec", "byte 1 (0xff) is not UTF-8", m);
  REFUSED("i\xc3", "invalid_spec", "is not UTF-8", m);
  REFUSED("i\xed\xa0\x80", "invalid_spec", "is not UTF-8", m);
}

/// An intermediate that cannot exist is refused while planning, whatever the path.
static void test_overflow(void **state) {
  (void)state;
  const int64_t shape[] = {INT64_C(1) << 40};
  const berth_einsum_operand operands[] = {{1, shape, NULL}, {1, shape, NULL}};
  berth_einsum_plan *plan = NULL;
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_einsum_plan_create("i,j->ij", 2, operands, BERTH_F64, NULL, &plan, &err), BERTH_OUT_OF_RANGE);
  assert_string_equal(err.reason, "size_overflow");
  assert_int_equal(berth_einsum_plan_create("i,j->", 2, operands, BERTH_F64, NULL, &plan, &err), BERTH_OK);
  berth_einsum_plan_release(plan);
}

static void test_dtypes(void **state) {
  (void)state;
  const int64_t shape[] = {2};
  double values[2] = {1, 2};
  float floats[2] = {1, 2};
  berth_tensor *t[2];
  berth_tensor *result = NULL;
  berth_exec exec;
  berth_error err = BERTH_ERROR_INIT;
  fake_exec_init(&exec, 1 << 16);
  berth_tensor_wrap(floats, BERTH_F32, 1, shape, NULL, &t[0], NULL);
  berth_tensor_wrap(values, BERTH_F64, 1, shape, NULL, &t[1], NULL);
  assert_int_equal(berth_einsum(&exec, "i,i->", (const berth_tensor *const *)t, 2, &result, &err), BERTH_INVALID_ARGUMENT);
  assert_string_equal(err.message, "dtype_mismatch: f32 with f64; nothing is promoted; convert one");
  berth_tensor_release(t[1]);
  berth_tensor_wrap(values, BERTH_I64, 1, shape, NULL, &t[1], NULL);
  assert_int_equal(berth_einsum(&exec, "i->", (const berth_tensor *const *)&t[1], 1, &result, &err), BERTH_UNIMPLEMENTED);
  assert_string_equal(err.reason, "unsupported_on_device");
  berth_tensor_release(t[0]);
  berth_tensor_release(t[1]);
  assert_int_equal(exec.allocations, 0);
}

static void test_paths(void **state) {
  (void)state;
  const int64_t shape[] = {2, 2};
  const berth_einsum_operand operands[] = {{2, shape, NULL}, {2, shape, NULL}, {2, shape, NULL}};
  static const struct {
    uint32_t path[6];
    uint32_t lengths[3];
    uint32_t entries;
    const char *error; // NULL: accepted
  } cases[] = {
      {{0, 1, 0, 1}, {2, 2}, 2, NULL},
      {{2, 0, 1, 0}, {2, 2}, 2, NULL},
      {{0, 1, 2}, {3}, 1, NULL},
      {{1, 0, 1, 0, 1}, {1, 2, 2}, 3, NULL},
      {{0, 1}, {2}, 1, "leaves 2 tensors"},
      {{0, 3, 0, 1}, {2, 2}, 2, "entry 0 names position 3 of 3"},
      {{1, 1, 0, 1}, {2, 2}, 2, "entry 0 names position 1 twice"},
      {{0, 1, 0, 1, 0, 1}, {2, 2, 2}, 3, "entry 2 has 2 positions; 1 tensors are left"},
      {{0}, {0}, 1, "entry 0 has 0 positions"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    berth_einsum_options options = BERTH_EINSUM_OPTIONS_INIT;
    berth_einsum_plan *plan = NULL;
    berth_error err = BERTH_ERROR_INIT;
    options.path = cases[c].path;
    options.path_lengths = cases[c].lengths;
    options.path_entries = cases[c].entries;
    berth_status status = berth_einsum_plan_create("ab,bc,cd->ad", 3, operands, BERTH_F64, &options, &plan, &err);
    if (cases[c].error == NULL) {
      assert_int_equal(status, BERTH_OK);
      berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
      assert_int_equal(berth_einsum_plan_get_info(plan, &info, NULL), BERTH_OK);
      assert_int_equal(info.steps, 2);
      assert_true(info.flops == 16 || info.flops == 32); // 32: the ends first, an outer product
      berth_einsum_plan_release(plan);
    } else {
      assert_int_equal(status, BERTH_INVALID_ARGUMENT);
      if (strstr(err.message, cases[c].error) == NULL) fail_msg("case %zu: %s", c, err.message);
    }
  }
}

/// A chain whose left-to-right order is 25 times as much work: the search finds the other one.
static void test_search_finds_the_cheap_order(void **state) {
  (void)state;
  const int64_t a[] = {100, 100}, v[] = {100, 1 + 1};
  const berth_einsum_operand operands[] = {{2, a, NULL}, {2, a, NULL}, {2, v, NULL}};
  berth_einsum_plan *plan = NULL;
  berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
  assert_int_equal(berth_einsum_plan_create("ab,bc,cd->ad", 3, operands, BERTH_F64, NULL, &plan, NULL), BERTH_OK);
  berth_einsum_plan_get_info(plan, &info, NULL);
  assert_true(info.flops == 2 * 100 * 100 * 2);
  berth_einsum_plan_release(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_basic),
      cmocka_unit_test(test_hyperedges),
      cmocka_unit_test(test_implicit_output),
      cmocka_unit_test(test_ellipsis),
      cmocka_unit_test(test_broadcast_of_extent_1),
      cmocka_unit_test(test_empty_and_extent_1),
      cmocka_unit_test(test_unicode_labels),
      cmocka_unit_test(test_sum_of_view),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_paths),
      cmocka_unit_test(test_search_finds_the_cheap_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
