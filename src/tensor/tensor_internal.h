// SPDX-License-Identifier: Apache-2.0
/// The tensor object, as the tensor room sees it.
#ifndef BERTHI_TENSOR_INTERNAL_H
#define BERTHI_TENSOR_INTERNAL_H

#include "base/atomic.h"
#include "berth/tensor.h"

enum { BERTHI_INLINE_RANK = 8 };

struct berth_tensor {
  // Constant after creation.
  berth_dtype dtype;
  uint32_t rank;
  berth_exec *exec; // owner of the memory; NULL when borrowed from the host
  void *data;
  uint64_t elements;
  uint64_t bytes;
  int64_t *shape;   // inline_dims, or behind the object for higher ranks
  int64_t *strides; // in bytes
  bool compact;
  // Atomic.
  berthi_atomic32 refs;
  int64_t inline_dims[2 * BERTHI_INLINE_RANK];
};

/// A tensor that takes over `data` of the execution (NULL exec: borrowed). `strides` NULL: compact.
berth_status berthi_tensor_adopt(berth_exec *exec, void *data, berth_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *strides,
                                 berth_tensor **out_tensor, berth_error *err);
/// Checks dtype, rank and extents, and computes elements and bytes.
berth_status berthi_shape_check(berth_dtype dtype, uint32_t rank, const int64_t *shape, uint64_t *out_elements, uint64_t *out_bytes,
                                berth_error *err);
/// Fills compact row-major strides in units of `size`.
void berthi_shape_strides(uint32_t rank, const int64_t *shape, int64_t size, int64_t *out_strides);
/// Bytes as an execution charges them.
static inline uint64_t berthi_charged(uint64_t bytes) {
  uint64_t unit = BERTH_TENSOR_ALIGNMENT;
  return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

#endif
