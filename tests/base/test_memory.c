// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

static void assert_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) assert_int_equal(bytes[i], 0);
}

static void test_zeroed_and_counted(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 1, 100, 8192, 8193, 1 << 20};
  uint64_t before = berthi_alloc_live();
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    for (int round = 0; round < 2; round++) { // the second gets the memory that the first has written to
      unsigned char *memory = berthi_alloc(sizes[i]);
      unsigned char *aligned = berthi_alloc_aligned(sizes[i], 256);
      assert_non_null(memory);
      assert_int_equal((uintptr_t)aligned % 256, 0);
      assert_int_equal(berthi_alloc_live(), before + 2);
      assert_zero(memory, sizes[i]);
      assert_zero(aligned, sizes[i]);
      memset(memory, 0xFF, sizes[i]);
      memset(aligned, 0xFF, sizes[i]);
      berthi_free(memory);
      berthi_free(aligned);
    }
  }
  berthi_free(NULL);
  assert_int_equal(berthi_alloc_live(), before);
}

static void test_string_copy(void **state) {
  (void)state;
  char *copy = berthi_string_copy("abcdef", 3);
  assert_string_equal(copy, "abc");
  berthi_free(copy);
  copy = berthi_string_copy(NULL, 0);
  assert_string_equal(copy, "");
  berthi_free(copy);
  assert_null(berthi_string_copy("x", SIZE_MAX));
}

static void test_sizes(void **state) {
  (void)state;
  uint64_t out = 0;
  assert_true(berthi_size_add(1, 2, &out));
  assert_int_equal(out, 3);
  assert_false(berthi_size_add(UINT64_MAX, 1, &out));
  assert_true(berthi_size_mul(UINT64_C(1) << 32, 7, &out));
  assert_false(berthi_size_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
}

static int fails_of(int calls) {
  int fails = 0;
  for (int i = 0; i < calls; i++) {
    void *memory = berthi_alloc(1);
    fails += memory == NULL;
    berthi_free(memory);
  }
  return fails;
}

static void test_fault_plan(void **state) {
  (void)state;
  berthi_fault_plan(BERTHI_FAULT_ALLOC, 3, false);
  assert_int_equal(fails_of(2), 0);
  assert_int_equal(fails_of(1), 1);
  assert_int_equal(fails_of(4), 0);
  assert_false(berthi_fault_fires(BERTHI_FAULT_FILE, "other kinds do not count"));
  assert_int_equal(berthi_fault_plan_end(), 7);
  berthi_fault_plan(BERTHI_FAULT_ALLOC, 3, true);
  assert_int_equal(fails_of(7), 5);
  assert_int_equal(berthi_fault_plan_end(), 7);
  berthi_fault_plan(BERTHI_FAULT_ALLOC, 0, true); // counts only
  assert_int_equal(fails_of(5), 0);
  assert_int_equal(berthi_fault_plan_end(), 5);
  assert_int_equal(fails_of(5), 0);
}

static bool fail_all(void *arg, berthi_fault kind, const char *where) {
  assert_non_null(where);
  assert_int_equal(kind, BERTHI_FAULT_ALLOC);
  ++*(int *)arg;
  return true;
}

static void test_fault_hook(void **state) {
  (void)state;
  int calls = 0;
  berthi_fault_set_hook(fail_all, &calls);
  assert_null(berthi_alloc(1));
  assert_null(berthi_alloc_aligned(1, 64));
  assert_null(berthi_string_copy("x", 1));
  berthi_fault_set_hook(NULL, NULL);
  assert_int_equal(calls, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zeroed_and_counted), cmocka_unit_test(test_string_copy), cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_fault_plan),         cmocka_unit_test(test_fault_hook),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
