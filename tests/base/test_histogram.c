// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/histogram.h"

static uint32_t bucket_by_search(int64_t value) {
  uint32_t i = 0;
  while (value > berthi_histogram_bound(i)) i++;
  return i;
}

static void check_bucket(int64_t value) {
  berthi_histogram histogram = {0};
  berthi_histogram_record(&histogram, value);
  assert_int_equal(histogram.buckets[bucket_by_search(value)], 1);
  assert_int_equal(histogram.count, 1);
}

/// A value equal to a bound belongs to it.
static void test_buckets(void **state) {
  (void)state;
  assert_int_equal(berthi_histogram_bound(0), 1000);
  assert_int_equal(berthi_histogram_bound(14), INT64_C(268435456000));
  assert_int_equal(berthi_histogram_bound(15), INT64_MAX);
  for (uint32_t i = 0; i < BERTHI_HISTOGRAM_BUCKETS - 1; i++) {
    for (int64_t offset = -2000; offset <= 2000; offset++) check_bucket(berthi_histogram_bound(i) + offset);
  }
  check_bucket(0);
  check_bucket(-5);
  check_bucket(INT64_MAX);
}

static void test_quantiles(void **state) {
  (void)state;
  berthi_histogram histogram = {0};
  assert_int_equal(berthi_histogram_quantile(&histogram, 0.5), 0);
  for (int i = 0; i < 99; i++) berthi_histogram_record(&histogram, 500);
  berthi_histogram_record(&histogram, 3000000);
  assert_int_equal(berthi_histogram_quantile(&histogram, 0.5), 1000);
  assert_int_equal(berthi_histogram_quantile(&histogram, 0.99), 1000);
  assert_int_equal(berthi_histogram_quantile(&histogram, 0.999), 3000000); // capped by the largest record
  assert_int_equal(berthi_histogram_quantile(&histogram, 0), 1000);
  assert_int_equal(berthi_histogram_quantile(&histogram, 1), 3000000);
}

static void test_sum_saturates(void **state) {
  (void)state;
  berthi_histogram histogram = {0};
  for (int i = 0; i < 3; i++) berthi_histogram_record(&histogram, INT64_MAX);
  assert_true(histogram.sum == UINT64_MAX);
  assert_true(histogram.max == INT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_buckets), cmocka_unit_test(test_quantiles), cmocka_unit_test(test_sum_saturates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
