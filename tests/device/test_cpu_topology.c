// SPDX-License-Identifier: Apache-2.0
/// The order in which lanes take CPUs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu_internal.h"

static void check_order(const char *synthetic, const uint32_t *allowed, size_t allowed_count, const int *expected, uint32_t expected_count) {
  cpu_set set = {0};
  int out[32];
  for (size_t i = 0; i < allowed_count; i++) assert_true(berthi_cpu_set_add(&set, allowed[i]));
  assert_int_equal(berthi_topology_order(&set, synthetic, out, expected_count), expected_count);
  for (uint32_t i = 0; i < expected_count; i++) assert_int_equal(out[i], expected[i]);
  berthi_cpu_set_free(&set);
}

static const uint32_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void one_thread_per_core_first(void **state) {
  (void)state;
  check_order("core:4 pu:2", eight, 8, (const int[]){0, 2, 4, 6, 1, 3, 5, 7}, 8);
}

static void few_lanes_get_whole_cores(void **state) {
  (void)state;
  check_order("core:4 pu:2", eight, 8, (const int[]){0, 2, 4}, 3);
}

// C-64: a CPU outside the mask is never used; a core of which only the second thread is allowed counts with that.
static void only_allowed_cpus(void **state) {
  (void)state;
  static const uint32_t some[] = {1, 2, 3, 7};
  check_order("core:4 pu:2", some, 4, (const int[]){1, 2, 7, 3}, 4);
}

static void what_hwloc_does_not_know_comes_last(void **state) {
  (void)state;
  static const uint32_t some[] = {0, 1, 2, 90};
  check_order("core:2 pu:2", some, 4, (const int[]){0, 2, 1, 90}, 4);
}

static void a_topology_that_fails_leaves_the_masks_order(void **state) {
  (void)state;
  static const uint32_t some[] = {5, 3, 1};
  check_order("this is no topology", some, 3, (const int[]){1, 3, 5}, 3);
}

static void cores_without_siblings(void **state) {
  (void)state;
  check_order("numa:2 core:2 pu:1", eight, 8, (const int[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
}

static void this_machine(void **state) {
  (void)state;
  cpu_set set;
  int out[BERTHI_LANES_MAX];
  assert_true(berthi_cpu_set_allowed("", &set));
  uint32_t count = berthi_topology_order(&set, NULL, out, BERTHI_LANES_MAX);
  assert_int_equal(count, berthi_cpu_set_count(&set) < BERTHI_LANES_MAX ? berthi_cpu_set_count(&set) : BERTHI_LANES_MAX);
  for (uint32_t i = 0; i < count; i++) {
    assert_true(cpu_set_test(&set, (uint32_t)out[i]));
    for (uint32_t k = 0; k < i; k++) assert_int_not_equal(out[i], out[k]);
  }
  berthi_cpu_set_free(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_thread_per_core_first),
      cmocka_unit_test(few_lanes_get_whole_cores),
      cmocka_unit_test(only_allowed_cpus),
      cmocka_unit_test(what_hwloc_does_not_know_comes_last),
      cmocka_unit_test(a_topology_that_fails_leaves_the_masks_order),
      cmocka_unit_test(cores_without_siblings),
      cmocka_unit_test(this_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
