// SPDX-License-Identifier: Apache-2.0
/// Names of devices, the list of devices, and "key=value" parameters.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "device/device.h"

static void names_of_devices_are_found(void **state) {
  (void)state;
  const berthi_device_kind *kind;
  uint32_t ordinal;
  assert_int_equal(berthi_device_find("cpu:0", &kind, &ordinal, NULL), BERTH_OK);
  assert_string_equal(kind->name, "cpu");
  assert_int_equal(ordinal, 0);
  assert_int_equal(berthi_device_find("sim:63", &kind, &ordinal, NULL), BERTH_OK);
  assert_string_equal(kind->name, "sim");
  assert_int_equal(ordinal, 63);
}

static void other_names_are_refused(void **state) {
  (void)state;
  static const char *const names[] = {"",       "cpu",    "cpu:",   "cpu:1",  "cpu:00", "cpu:+0", "cpu:0 ", " cpu:0",
                                      "sim:64", "sim:-1", "sim:01", "cuda:0", ":0",     "cp:0",   "cpus:0", "sim:99999999999999999999"};
  for (size_t i = 0; i < BERTHI_COUNTOF(names); i++) {
    berth_error err = BERTH_ERROR_INIT;
    const berthi_device_kind *kind = NULL;
    uint32_t ordinal;
    assert_int_equal(berthi_device_find(names[i], &kind, &ordinal, &err), BERTH_NOT_FOUND);
    assert_string_equal(err.reason, "unknown_device");
    assert_null(kind);
  }
  berth_error err = BERTH_ERROR_INIT;
  const berthi_device_kind *kind;
  uint32_t ordinal;
  (void)berthi_device_find("gpu:0", &kind, &ordinal, &err);
  assert_non_null(strstr(err.message, "cpu, sim")); // the way out: the kinds there are
}

static void the_list_has_the_cpu_first(void **state) {
  (void)state;
  berth_device_description list[8] = {BERTH_DEVICE_DESCRIPTION_INIT};
  uint32_t count = 0;
  assert_int_equal(berth_devices_list(list, 8, &count, NULL), BERTH_OK);
  assert_int_equal(count, 2);
  assert_string_equal(list[0].name, "cpu:0");
  assert_true(list[0].available);
  assert_true(list[0].default_lanes >= 1);
  assert_int_equal(list[0].default_slots, 4 * list[0].default_lanes);
  assert_true(list[0].limit_bytes >= list[0].default_capacity_bytes);
  assert_int_equal(strncmp(list[0].limit_source, "half of ", 8), 0);
  assert_string_equal(list[1].name, "sim:0");
  assert_int_equal(list[1].struct_size, sizeof(list[1]));
}

static void the_count_is_known_without_room(void **state) {
  (void)state;
  berth_device_description one = BERTH_DEVICE_DESCRIPTION_INIT;
  uint32_t count = 0;
  assert_int_equal(berth_devices_list(NULL, 0, &count, NULL), BERTH_OK);
  assert_int_equal(count, 2);
  assert_int_equal(berth_devices_list(&one, 1, &count, NULL), BERTH_OK);
  assert_int_equal(count, 2);
  assert_string_equal(one.name, "cpu:0");
}

// An older program's elements are shorter: the stride is its size.
static void an_older_struct_is_filled_with_its_stride(void **state) {
  (void)state;
  struct older {
    size_t struct_size;
    char name[BERTH_DEVICE_NAME];
  } list[3] = {{sizeof(list[0]), ""}, {0, ""}, {0, "untouched"}};
  uint32_t count = 0;
  assert_int_equal(berth_devices_list((berth_device_description *)(void *)list, 3, &count, NULL), BERTH_OK);
  assert_string_equal(list[0].name, "cpu:0");
  assert_string_equal(list[1].name, "sim:0");
  assert_string_equal(list[2].name, "untouched");
}

static void wrong_arguments_of_the_list(void **state) {
  (void)state;
  berth_device_description zero;
  uint32_t count;
  memset(&zero, 0, sizeof(zero));
  assert_int_equal(berth_devices_list(&zero, 1, &count, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_devices_list(NULL, 1, &count, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_devices_list(NULL, 0, NULL, NULL), BERTH_INVALID_ARGUMENT);
}

typedef struct sample {
  uint64_t memory;
  int64_t latency;
  uint64_t count;
  bool flag;
  char text[8];
} sample;

static const berthi_parameter known[] = {
    {"memory", BERTHI_PARAM_BYTES, offsetof(sample, memory), 0, 0, 0}, {"latency", BERTHI_PARAM_NANOSECONDS, offsetof(sample, latency), 0, 0, 0},
    {"count", BERTHI_PARAM_U64, offsetof(sample, count), 0, 1, 10},    {"flag", BERTHI_PARAM_BOOL, offsetof(sample, flag), 0, 0, 0},
    {"text", BERTHI_PARAM_TEXT, offsetof(sample, text), 8, 0, 0},
};

static berth_status parse(const char *text, sample *out, berth_error *err) {
  memset(out, 0, sizeof(*out));
  return berthi_parameters_parse(text, known, BERTHI_COUNTOF(known), out, err);
}

static void values_are_stored(void **state) {
  (void)state;
  sample s;
  assert_int_equal(parse("memory=3GiB,latency=2ms,count=10,flag=1,text=abc=def", &s, NULL), BERTH_OK);
  assert_int_equal(s.memory, (uint64_t)3 << 30);
  assert_int_equal(s.latency, 2000000);
  assert_int_equal(s.count, 10);
  assert_true(s.flag);
  assert_string_equal(s.text, "abc=def");
  assert_int_equal(parse("memory=7,latency=0,flag=false,text=", &s, NULL), BERTH_OK);
  assert_int_equal(s.memory, 7);
  assert_int_equal(s.latency, 0);
  assert_false(s.flag);
  assert_string_equal(s.text, "");
  assert_int_equal(parse("memory=1TiB,latency=3s", &s, NULL), BERTH_OK);
  assert_int_equal(s.memory, (uint64_t)1 << 40);
  assert_int_equal(s.latency, 3000000000);
  assert_int_equal(parse("memory=512B,latency=5us", &s, NULL), BERTH_OK);
  assert_int_equal(parse("memory=512KiB,latency=5ns", &s, NULL), BERTH_OK);
  assert_int_equal(parse("", &s, NULL), BERTH_OK);
  assert_int_equal(parse(NULL, &s, NULL), BERTH_OK);
}

static void wrong_values_are_refused(void **state) {
  (void)state;
  static const char *const texts[] = {"memory",
                                      "memory=",
                                      "memory=x",
                                      "memory=-1",
                                      "memory=1.5GiB",
                                      "memory=1gb",
                                      "memory=1GiBx",
                                      "latency=5",
                                      "latency=5m",
                                      "count=0",
                                      "count=11",
                                      "count=1KiB",
                                      "flag=2",
                                      "flag=",
                                      "text=12345678",
                                      "nothing=1",
                                      "memory=1,memory=2",
                                      ",",
                                      "memory=1,",
                                      "memory=20000000000000000000",
                                      "memory=99999999TiB",
                                      "latency=9999999999999s",
                                      "Memory=1"};
  for (size_t i = 0; i < BERTHI_COUNTOF(texts); i++) {
    sample s;
    berth_error err = BERTH_ERROR_INIT;
    assert_int_equal(parse(texts[i], &s, &err), BERTH_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "invalid_configuration");
  }
}

// BCK-1: the error names the field, the value and the bound.
static void errors_name_key_value_and_bound(void **state) {
  (void)state;
  sample s;
  berth_error err = BERTH_ERROR_INIT;
  (void)parse("count=11", &s, &err);
  assert_non_null(strstr(err.message, "count=11"));
  assert_non_null(strstr(err.message, "1 to 10"));
  assert_int_equal(err.facts[0].value, 11);
  assert_int_equal(err.facts[2].value, 10);
  (void)parse("colour=red", &s, &err);
  assert_non_null(strstr(err.message, "colour"));
  assert_non_null(strstr(err.message, "memory, latency, count, flag, text"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_devices_are_found),
      cmocka_unit_test(other_names_are_refused),
      cmocka_unit_test(the_list_has_the_cpu_first),
      cmocka_unit_test(the_count_is_known_without_room),
      cmocka_unit_test(an_older_struct_is_filled_with_its_stride),
      cmocka_unit_test(wrong_arguments_of_the_list),
      cmocka_unit_test(values_are_stored),
      cmocka_unit_test(wrong_values_are_refused),
      cmocka_unit_test(errors_name_key_value_and_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
