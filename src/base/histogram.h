// SPDX-License-Identifier: Apache-2.0
/// Fixed-bucket histogram of nanoseconds: powers of 4 from 1 us, plus the overflow bucket. Plain data; its owner synchronizes.
#ifndef BERTHI_HISTOGRAM_H
#define BERTHI_HISTOGRAM_H

#include <stdint.h>

#define BERTHI_HISTOGRAM_BUCKETS 16 ///< upper bounds 1 us * 4^i for i in 0..14 (last about 268 s), then +Inf

typedef struct berthi_histogram {
  uint64_t buckets[BERTHI_HISTOGRAM_BUCKETS];
  uint64_t count;
  uint64_t sum; ///< saturating
  uint64_t max;
} berthi_histogram;

void berthi_histogram_record(berthi_histogram *histogram, int64_t nanoseconds);
int64_t berthi_histogram_bound(uint32_t bucket); ///< INT64_MAX for the last
/// The smallest bound below which at least `fraction` of the records lie, 0 when empty; `max` caps it.
int64_t berthi_histogram_quantile(const berthi_histogram *histogram, double fraction);

#endif
