// SPDX-License-Identifier: Apache-2.0
/// The conformance suite on every kind that needs no hardware of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/device_conformance.h"

static void cpu_with_its_own_lanes(void **state) {
  (void)state;
  const conformance_target target = {.device = "cpu:0"};
  assert_int_equal(berth_test_conformance(&target), 0);
}

static void cpu_with_one_lane(void **state) {
  (void)state;
  const conformance_target target = {.device = "cpu:0", .lanes = 1};
  assert_int_equal(berth_test_conformance(&target), 0);
}

// More lanes than CPUs: what a caller asks for is opened; the lanes beyond are not pinned.
static void cpu_with_more_lanes_than_cpus(void **state) {
  (void)state;
  const conformance_target target = {.device = "cpu:0", .lanes = 7};
  assert_int_equal(berth_test_conformance(&target), 0);
}

static void sim(void **state) {
  (void)state;
  const conformance_target target = {.device = "sim:3", .parameters = "lanes=3,memory=1TiB"};
  assert_int_equal(berth_test_conformance(&target), 0);
}

// The lists work: what is listed must fail.
static void an_unexpected_pass_is_a_surprise(void **state) {
  (void)state;
  static const char *const listed[] = {"copies_arrive", NULL};
  const conformance_target target = {.device = "sim:4", .unsupported = listed};
  assert_int_equal(berth_test_conformance(&target), 1);
}

static void an_expected_failure_is_none(void **state) {
  (void)state;
  static const char *const listed[] = {"copies_arrive", NULL};
  const conformance_target target = {.device = "sim:4", .parameters = "fail_copy=2", .expected_failures = listed};
  assert_int_equal(berth_test_conformance(&target), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cpu_with_its_own_lanes),           cmocka_unit_test(cpu_with_one_lane),
      cmocka_unit_test(cpu_with_more_lanes_than_cpus),    cmocka_unit_test(sim),
      cmocka_unit_test(an_unexpected_pass_is_a_surprise), cmocka_unit_test(an_expected_failure_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
