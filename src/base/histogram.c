// SPDX-License-Identifier: Apache-2.0
#include "base/histogram.h"

#include "base/annotate.h"

#define FIRST_BOUND 1000 // 1 us

int64_t berthi_histogram_bound(uint32_t bucket) {
  if (bucket >= BERTHI_HISTOGRAM_BUCKETS - 1) return INT64_MAX;
  return (int64_t)FIRST_BOUND << (2 * bucket);
}

/// The first bucket whose bound is not below the value, without a loop: ceil(log4(value / 1 us)).
static uint32_t bucket_of(uint64_t value) {
  if (value <= FIRST_BOUND) return 0;
  uint64_t scaled = (value - 1) / FIRST_BOUND; // at least 1; value <= FIRST_BOUND * 4^i exactly when scaled < 4^i
  uint32_t bits = 64 - (uint32_t)__builtin_clzll(scaled);
  uint32_t bucket = (bits + 1) / 2;
  return bucket < BERTHI_HISTOGRAM_BUCKETS - 1 ? bucket : BERTHI_HISTOGRAM_BUCKETS - 1;
}

void berthi_histogram_record(berthi_histogram *histogram, int64_t nanoseconds) {
  uint64_t value = nanoseconds > 0 ? (uint64_t)nanoseconds : 0;
  histogram->buckets[bucket_of(value)]++;
  histogram->count++;
  if (__builtin_add_overflow(histogram->sum, value, &histogram->sum)) histogram->sum = UINT64_MAX;
  if (value > histogram->max) histogram->max = value;
}

int64_t berthi_histogram_quantile(const berthi_histogram *histogram, double fraction) {
  if (histogram->count == 0) return 0;
  double wanted = fraction * (double)histogram->count;
  int64_t max = histogram->max > INT64_MAX ? INT64_MAX : (int64_t)histogram->max;
  uint64_t below = 0;
  for (uint32_t i = 0; i < BERTHI_HISTOGRAM_BUCKETS; i++) {
    below += histogram->buckets[i];
    if (below > 0 && (double)below >= wanted) {
      int64_t bound = berthi_histogram_bound(i);
      return bound < max ? bound : max;
    }
  }
  return max;
}
