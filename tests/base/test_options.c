// SPDX-License-Identifier: Apache-2.0
/// Sized structs: older and newer callers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

typedef struct options {
  size_t struct_size;
  int64_t first;
  int64_t second;
} options;

typedef struct older {
  size_t struct_size;
  int64_t first;
} older;

typedef struct newer {
  options known;
  int64_t third;
} newer;

static void test_copy(void **state) {
  (void)state;
  options known;
  berth_error error;
  assert_int_equal(berthi_options_copy(NULL, &known, sizeof known, "options", &error), BERTH_OK);
  assert_int_equal(known.first, 0);
  options same = {sizeof same, 1, 2};
  assert_int_equal(berthi_options_copy(&same, &known, sizeof known, "options", &error), BERTH_OK);
  assert_memory_equal(&known, &same, sizeof same);
  older old = {sizeof old, 5};
  assert_int_equal(berthi_options_copy(&old, &known, sizeof known, "options", &error), BERTH_OK);
  assert_int_equal(known.first, 5);
  assert_int_equal(known.second, 0);
  assert_int_equal(known.struct_size, sizeof known);
  newer later = {.known = {sizeof later, 7, 8}};
  assert_int_equal(berthi_options_copy(&later, &known, sizeof known, "options", &error), BERTH_OK);
  assert_int_equal(known.second, 8);
  later.third = 1;
  assert_int_equal(berthi_options_copy(&later, &known, sizeof known, "options", &error), BERTH_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "options"));
  for (size_t size = 0; size < sizeof(size_t); size++) {
    same.struct_size = size;
    assert_int_equal(berthi_options_copy(&same, &known, sizeof known, "options", &error), BERTH_INVALID_ARGUMENT);
  }
}

static void test_output(void **state) {
  (void)state;
  options value = {99, 1, 2};
  newer later = {.known = {sizeof later, -1, -1}, .third = -1};
  assert_int_equal(berthi_output_copy(&later, &value, sizeof value, "out", NULL), BERTH_OK);
  assert_int_equal(later.known.struct_size, sizeof later);
  assert_int_equal(later.known.second, 2);
  assert_int_equal(later.third, 0);
  struct {
    older old;
    int64_t behind;
  } small = {.old = {sizeof(older), -1}, .behind = 42};
  assert_int_equal(berthi_output_copy(&small, &value, sizeof value, "out", NULL), BERTH_OK);
  assert_int_equal(small.old.first, 1);
  assert_int_equal(small.behind, 42);
  assert_int_equal(berthi_output_copy(NULL, &value, sizeof value, "out", NULL), BERTH_INVALID_ARGUMENT);
  small.old.struct_size = 0;
  assert_int_equal(berthi_output_copy(&small, &value, sizeof value, "out", NULL), BERTH_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy), cmocka_unit_test(test_output)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
