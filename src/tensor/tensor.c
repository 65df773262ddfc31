// SPDX-License-Identifier: Apache-2.0
#include "berth/tensor.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/exec_ops.h"
#include "tensor/tensor_internal.h"

berth_status berthi_shape_check(berth_dtype dtype, uint32_t rank, const int64_t *shape, uint64_t *out_elements, uint64_t *out_bytes,
                                berth_error *err) {
  size_t size = berth_dtype_size(dtype);
  if (size == 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "dtype %d is no element type", (int)dtype);
  if (rank > BERTH_MAX_RANK) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "rank %u; at most %d", rank, BERTH_MAX_RANK);
  if (rank > 0 && shape == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "shape is NULL with rank %u", rank);
  bool empty = false;
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] < 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "extent %lld of axis %u; at least 0", (long long)shape[i], i);
    empty = empty || shape[i] == 0;
  }
  uint64_t bytes = size;
  // The product without the zeros has to fit as well: strides are built from it.
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] == 0) continue;
    if (!berthi_size_mul(bytes, (uint64_t)shape[i], &bytes) || bytes > INT64_MAX) {
      return berthi_fail(err, BERTHI_R_SIZE_OVERFLOW, "a tensor of this shape has more than 2^63 bytes (at axis %u, extent %lld)", i,
                         (long long)shape[i]);
    }
  }
  *out_bytes = empty ? 0 : bytes;
  *out_elements = *out_bytes / size;
  return BERTH_OK;
}

void berthi_shape_strides(uint32_t rank, const int64_t *shape, int64_t size, int64_t *out_strides) {
  int64_t step = size;
  for (uint32_t i = rank; i-- > 0;) {
    out_strides[i] = step;
    if (shape[i] > 1) step *= shape[i];
  }
}

static bool is_compact(const berth_tensor *tensor) {
  int64_t step = (int64_t)berth_dtype_size(tensor->dtype);
  if (tensor->elements == 0) return true;
  for (uint32_t i = tensor->rank; i-- > 0;) {
    if (tensor->shape[i] == 1) continue;
    if (tensor->strides[i] != step) return false;
    step *= tensor->shape[i];
  }
  return true;
}

berth_status berthi_tensor_adopt(berth_exec *exec, void *data, berth_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *strides,
                                 berth_tensor **out_tensor, berth_error *err) {
  uint64_t elements;
  uint64_t bytes;
  BERTHI_TRY(berthi_shape_check(dtype, rank, shape, &elements, &bytes, err));
  size_t behind = rank > BERTHI_INLINE_RANK ? 2 * rank * sizeof(int64_t) : 0;
  berth_tensor *tensor = berthi_alloc(sizeof *tensor + behind);
  if (tensor == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "%zu bytes for a tensor's description", sizeof *tensor + behind);
  tensor->dtype = dtype;
  tensor->rank = rank;
  tensor->exec = exec;
  tensor->data = data;
  tensor->elements = elements;
  tensor->bytes = bytes;
  tensor->shape = behind > 0 ? (int64_t *)(void *)(tensor + 1) : tensor->inline_dims;
  tensor->strides = tensor->shape + (behind > 0 ? rank : BERTHI_INLINE_RANK);
  if (rank > 0) memcpy(tensor->shape, shape, rank * sizeof *shape);
  if (strides == NULL) {
    berthi_shape_strides(rank, shape, (int64_t)berth_dtype_size(dtype), tensor->strides);
  } else if (rank > 0) {
    memcpy(tensor->strides, strides, rank * sizeof *strides);
  }
  tensor->compact = is_compact(tensor);
  berthi_stat_store(&tensor->refs, 1); // relaxed: not shared yet
  *out_tensor = tensor;
  return BERTH_OK;
}

berth_status berth_tensor_create(berth_exec *exec, berth_dtype dtype, uint32_t rank, const int64_t *shape, berth_tensor **out_tensor,
                                 berth_error *err) {
  uint64_t elements;
  uint64_t bytes;
  if (exec == NULL || out_tensor == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", exec == NULL ? "exec" : "out_tensor");
  BERTHI_TRY(berthi_shape_check(dtype, rank, shape, &elements, &bytes, err));
  void *data;
  BERTHI_TRY(berth_exec_alloc(exec, bytes, &data, err));
  berth_status status = berthi_tensor_adopt(exec, data, dtype, rank, shape, NULL, out_tensor, err);
  if (status != BERTH_OK) berth_exec_free(exec, data);
  return status;
}

static berth_status check_strides(berth_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *strides, berth_error *err) {
  int64_t size = (int64_t)berth_dtype_size(dtype);
  int64_t reach = size;
  for (uint32_t i = 0; i < rank; i++) {
    if (strides[i] % size != 0) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "stride %lld of axis %u is no multiple of the element size %lld", (long long)strides[i], i,
                         (long long)size);
    }
    int64_t along;
    int64_t step = strides[i] == INT64_MIN ? INT64_MAX : (strides[i] < 0 ? -strides[i] : strides[i]);
    if (shape[i] > 1 && (__builtin_mul_overflow(step, shape[i] - 1, &along) || __builtin_add_overflow(reach, along, &reach))) {
      return berthi_fail(err, BERTHI_R_SIZE_OVERFLOW, "the strides reach beyond 2^63 bytes at axis %u", i);
    }
  }
  return BERTH_OK;
}

berth_status berth_tensor_wrap(void *data, berth_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *strides,
                               berth_tensor **out_tensor, berth_error *err) {
  uint64_t elements;
  uint64_t bytes;
  if (out_tensor == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_tensor is NULL");
  BERTHI_TRY(berthi_shape_check(dtype, rank, shape, &elements, &bytes, err));
  if (data == NULL && elements > 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "data is NULL and the tensor has elements");
  size_t part = berth_dtype_size(dtype) / (dtype == BERTH_C64 || dtype == BERTH_C128 ? 2 : 1);
  if ((uintptr_t)data % part != 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "data is not aligned to %zu bytes", part);
  if (strides != NULL) BERTHI_TRY(check_strides(dtype, rank, shape, strides, err));
  return berthi_tensor_adopt(NULL, data, dtype, rank, shape, strides, out_tensor, err);
}

berth_tensor *berth_tensor_retain(berth_tensor *tensor) {
  if (tensor != NULL) berthi_ref_up(&tensor->refs);
  return tensor;
}

void berth_tensor_release(berth_tensor *tensor) {
  if (tensor == NULL || !berthi_ref_down(&tensor->refs)) return;
  if (tensor->exec != NULL) berth_exec_free(tensor->exec, tensor->data);
  berthi_free(tensor);
}

berth_status berth_tensor_get_info(const berth_tensor *tensor, berth_tensor_info *out_info, berth_error *err) {
  if (tensor == NULL || out_info == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", tensor == NULL ? "tensor" : "out_info");
  berth_tensor_info info = {
      .struct_size = sizeof info,
      .dtype = tensor->dtype,
      .rank = tensor->rank,
      .shape = tensor->shape,
      .strides = tensor->strides,
      .elements = tensor->elements,
      .bytes = tensor->bytes,
      .data = tensor->data,
      .compact = tensor->compact,
      .borrowed = tensor->exec == NULL,
  };
  return berthi_output_copy(out_info, &info, sizeof info, "berth_tensor_info", err);
}

void *berth_tensor_data(const berth_tensor *tensor) {
  return tensor == NULL ? NULL : tensor->data;
}
