// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/library.h"

typedef struct math_table {
  double (*cosine)(double);
  void (*missing)(void);
} math_table;

static const char *const names[] = {"libnothing-here.so.9", "libm.so.6", NULL};

static void test_loads(void **state) {
  (void)state;
  const berthi_symbol symbols[] = {{"cos", offsetof(math_table, cosine), false}, {"no_such_symbol", offsetof(math_table, missing), true}};
  math_table table;
  memset(&table, 0xFF, sizeof table);
  assert_int_equal(berthi_library_load(names, symbols, 2, &table, NULL), BERTH_OK);
  assert_true(table.cosine(0.0) == 1.0);
  assert_true(table.missing == NULL);
}

static void test_missing_symbol(void **state) {
  (void)state;
  const berthi_symbol symbols[] = {{"no_such_symbol", offsetof(math_table, missing), false}};
  math_table table;
  berth_error error;
  assert_int_equal(berthi_library_load(names, symbols, 1, &table, &error), BERTH_UNAVAILABLE);
  assert_string_equal(error.reason, "device_unavailable");
  assert_non_null(strstr(error.message, "libm.so.6"));
  assert_non_null(strstr(error.message, "no_such_symbol"));
}

static void test_missing_library(void **state) {
  (void)state;
  const char *const none[] = {"libnothing-here.so.9", "libnothing-there.so", NULL};
  berth_error error;
  assert_int_equal(berthi_library_load(none, NULL, 0, NULL, &error), BERTH_UNAVAILABLE);
  assert_string_equal(error.message, "device_unavailable: libnothing-here.so.9, libnothing-there.so: not found");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_loads), cmocka_unit_test(test_missing_symbol), cmocka_unit_test(test_missing_library)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
