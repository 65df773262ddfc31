// SPDX-License-Identifier: Apache-2.0
/// A plain evaluation of small einsums, and random values: what property tests compare with. Shares no code with the library.
#ifndef NAIVE_EINSUM_H
#define NAIVE_EINSUM_H

#include <stdint.h>

#include "berth/tensor.h"

typedef struct naive_random {
  uint64_t state;
} naive_random;
uint64_t naive_next(naive_random *random);
/// Uniform in [low, high].
int64_t naive_between(naive_random *random, int64_t low, int64_t high);

enum { NAIVE_MAX_LABELS = 16, NAIVE_MAX_OPERANDS = 8 };

typedef struct naive_operand {
  uint32_t rank;
  uint32_t labels[16];
  int64_t shape[16];
  int64_t strides[16]; // in bytes
  const void *data;
} naive_operand;

/// Sums over all indices of all labels, in long double; an axis of extent 1 is read at 0 whatever its label's extent. `out` is compact.
void naive_einsum(berth_dtype dtype, uint32_t operand_count, const naive_operand *operands, uint32_t label_count, const int64_t *extents,
                  uint32_t out_rank, const uint32_t *out_labels, void *out);
/// Fills with multiples of 1/8 in [-1, 1], so that products of a few are exact.
void naive_fill(naive_random *random, berth_dtype dtype, void *data, int64_t elements);
/// Largest difference of elements.
double naive_difference(berth_dtype dtype, const void *left, const void *right, int64_t elements);

#endif
