// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void test_codes(void **state) {
  (void)state;
  assert_string_equal(berth_status_name(BERTH_OK), "OK");
  assert_string_equal(berth_status_name(BERTH_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  assert_string_equal(berth_status_name(BERTH_DATA_LOSS), "DATA_LOSS");
  assert_string_equal(berth_status_name(-1), "UNKNOWN_CODE");
  assert_string_equal(berth_status_name(16), "UNKNOWN_CODE");
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR, BERTH_VERSION_PATCH);
  assert_string_equal(berth_version(), version);
}

/// Every reason is found by name and by position, has a code of its own and a name that is unique.
static void test_reasons(void **state) {
  (void)state;
  uint32_t count = 0;
  berth_reason reason;
  while (berth_reason_info(NULL, count, &reason, NULL) == BERTH_OK) {
    berth_reason by_name;
    assert_int_equal(berth_reason_info(reason.name, 0, &by_name, NULL), BERTH_OK);
    assert_string_equal(by_name.summary, reason.summary);
    assert_int_not_equal(reason.code, BERTH_OK);
    assert_string_equal(berthi_reason_name((berthi_reason)(count + 1)), reason.name);
    assert_int_equal(berthi_reason_code((berthi_reason)(count + 1)), reason.code);
    assert_int_equal(berthi_reason_retry((berthi_reason)(count + 1)), reason.retry);
    count++;
  }
  assert_int_equal(count, BERTHI_R_COUNT - 1);
  berth_error error = BERTH_ERROR_INIT;
  assert_int_equal(berth_reason_info("no_such", 0, &reason, &error), BERTH_NOT_FOUND);
  assert_string_equal(error.reason, "unknown_reason");
  assert_int_equal(berth_reason_info("no_such", 0, NULL, &error), BERTH_INVALID_ARGUMENT);
  assert_string_equal(berthi_reason_name(BERTHI_R_NONE), "");
  assert_string_equal(berthi_reason_summary((berthi_reason)9999), "");
}

static void test_fail(void **state) {
  (void)state;
  berth_error error;
  memset(&error, 0xAB, sizeof error);
  assert_int_equal(berthi_fail(&error, BERTHI_R_GRANT_EXHAUSTED, "%d of %s", 7, "8 GiB"), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(error.code, BERTH_RESOURCE_EXHAUSTED);
  assert_string_equal(error.reason, "grant_exhausted");
  assert_string_equal(error.message, "grant_exhausted: 7 of 8 GiB");
  assert_int_equal(error.fact_count, 0);
  for (int64_t i = 0; i < BERTH_ERROR_FACTS + 3; i++) berthi_fact(&error, "n", i);
  assert_int_equal(error.fact_count, BERTH_ERROR_FACTS);
  assert_int_equal(error.facts[BERTH_ERROR_FACTS - 1].value, BERTH_ERROR_FACTS - 1);
  berthi_fact(NULL, "n", 1);
  assert_int_equal(berthi_fail(NULL, BERTHI_R_FORKED, "x"), BERTH_FAILED_PRECONDITION);
}

static void test_long_message_is_cut(void **state) {
  (void)state;
  berth_error error;
  char text[600];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  berthi_fail(&error, BERTHI_R_INTERNAL, "%s", text);
  assert_int_equal(strlen(error.message), BERTH_ERROR_MESSAGE - 1);
}

static void test_json(void **state) {
  (void)state;
  berth_error error = BERTH_ERROR_INIT;
  char text[512];
  berthi_fail(&error, BERTHI_R_ADMISSION_QUEUE_FULL, "\"q\" is full");
  berthi_fact(&error, "queued", 1024);
  berthi_fact(&error, "bound", -1);
  const char *expected = "{\"schema\":\"berth.error\",\"version\":1,\"code\":14,\"status\":\"UNAVAILABLE\",\"reason\":\"admission_queue_full\","
                         "\"retry\":\"BACKOFF\",\"message\":\"admission_queue_full: \\\"q\\\" is full\",\"facts\":{\"queued\":1024,\"bound\":-1}}";
  size_t length = berth_error_json(&error, text, sizeof text);
  assert_string_equal(text, expected);
  assert_int_equal(length, strlen(expected));
  // Cut anywhere, the length stays and the text ends in a NUL.
  for (size_t capacity = 0; capacity <= length; capacity++) {
    memset(text, 'z', sizeof text);
    assert_int_equal(berth_error_json(&error, text, capacity), length);
    if (capacity > 0) assert_int_equal(strlen(text), capacity - 1);
    assert_int_equal(text[capacity], 'z');
  }
  assert_true(berth_error_json(NULL, NULL, 0) > 0);
}

static void test_bytes_text(void **state) {
  (void)state;
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"},
      {512, "512 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.5 KiB"},
      {UINT64_C(12) << 30, "12 GiB"},
      {(UINT64_C(3) << 20) / 2, "1.5 MiB"},
      {(UINT64_C(1) << 20) - 1, "1 MiB"},
      {UINT64_MAX, "16 EiB"},
      {(UINT64_C(49) << 30) / 10, "4.9 GiB"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char out[BERTHI_BYTES_TEXT];
    assert_string_equal(berthi_bytes_text(cases[i].bytes, out), cases[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_codes), cmocka_unit_test(test_reasons),    cmocka_unit_test(test_fail), cmocka_unit_test(test_long_message_is_cut),
      cmocka_unit_test(test_json),  cmocka_unit_test(test_bytes_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
