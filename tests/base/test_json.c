// SPDX-License-Identifier: Apache-2.0
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static char text[1024];

static const char *one_string(const char *value, size_t length) {
  berthi_json json;
  berthi_json_init(&json, text, sizeof text);
  berthi_json_string_n(&json, NULL, value, length);
  berthi_json_finish(&json);
  return text;
}

static void test_nesting(void **state) {
  (void)state;
  berthi_json json;
  berthi_json_init(&json, text, sizeof text);
  berthi_json_object_begin(&json, NULL);
  berthi_json_i64(&json, "i", INT64_MIN);
  berthi_json_u64(&json, "u", UINT64_MAX);
  berthi_json_array_begin(&json, "a");
  berthi_json_object_begin(&json, NULL);
  berthi_json_object_end(&json);
  berthi_json_bool(&json, NULL, true);
  berthi_json_string(&json, NULL, NULL);
  berthi_json_array_begin(&json, NULL);
  berthi_json_array_end(&json);
  berthi_json_array_end(&json);
  berthi_json_bool(&json, "b", false);
  berthi_json_object_end(&json);
  const char *expected = "{\"i\":-9223372036854775808,\"u\":18446744073709551615,\"a\":[{},true,null,[]],\"b\":false}";
  assert_int_equal(berthi_json_finish(&json), strlen(expected));
  assert_string_equal(text, expected);
}

static void test_strings(void **state) {
  (void)state;
  assert_string_equal(one_string("a\"\\\n\r\t\x01\x7f", 8), "\"a\\\"\\\\\\n\\r\\t\\u0001\\u007f\"");
  assert_string_equal(one_string("a\0b", 3), "\"a\\u0000b\"");
  assert_string_equal(one_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\xA2", 9), "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\xA2\"");
}

/// Each byte that begins no valid sequence becomes U+FFFD: overlong, surrogate, too large, cut off, lone continuation.
static void test_invalid_utf8(void **state) {
  (void)state;
#define BAD "\xEF\xBF\xBD"
  assert_string_equal(one_string("\xC0\xAF", 2), "\"" BAD BAD "\"");
  assert_string_equal(one_string("\xED\xA0\x80", 3), "\"" BAD BAD BAD "\"");
  assert_string_equal(one_string("\xF4\x90\x80\x80", 4), "\"" BAD BAD BAD BAD "\"");
  assert_string_equal(one_string("x\xE2\x82", 3), "\"x" BAD BAD "\"");
  assert_string_equal(one_string("\x80y", 2), "\"" BAD "y\"");
  assert_string_equal(one_string("\xFF", 1), "\"" BAD "\"");
}

static void check_double(double value) {
  berthi_json json;
  berthi_json_init(&json, text, sizeof text);
  berthi_json_double(&json, NULL, value);
  berthi_json_finish(&json);
  assert_true(strtod(text, NULL) == value);
}

static void test_doubles(void **state) {
  (void)state;
  const double values[] = {0.0, 0.1, 1.0 / 3, 1e300, -2.5e-310, DBL_MAX, DBL_MIN, 123456789012345678.0};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) check_double(values[i]);
  berthi_json json;
  berthi_json_init(&json, text, sizeof text);
  berthi_json_array_begin(&json, NULL);
  berthi_json_double(&json, NULL, 0.1);
  berthi_json_double(&json, NULL, NAN);
  berthi_json_double(&json, NULL, INFINITY);
  berthi_json_array_end(&json);
  berthi_json_finish(&json);
  assert_string_equal(text, "[0.1,null,null]");
}

static void test_counts_and_cuts(void **state) {
  (void)state;
  berthi_json json;
  berthi_json_init(&json, NULL, 100);
  berthi_json_string(&json, "key", "value");
  assert_int_equal(berthi_json_finish(&json), 13);
  for (size_t capacity = 1; capacity < 20; capacity++) {
    memset(text, 'z', sizeof text);
    berthi_json_init(&json, text, capacity);
    berthi_text(&json, "%d ", 12345);
    berthi_text(&json, "%s\n", "rest");
    assert_int_equal(berthi_json_finish(&json), 11);
    assert_int_equal(strlen(text), capacity < 12 ? capacity - 1 : 11);
    assert_memory_equal(text, "12345 rest\n", strlen(text));
    assert_int_equal(text[capacity], 'z');
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nesting), cmocka_unit_test(test_strings),         cmocka_unit_test(test_invalid_utf8),
      cmocka_unit_test(test_doubles), cmocka_unit_test(test_counts_and_cuts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
