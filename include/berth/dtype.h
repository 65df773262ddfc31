// SPDX-License-Identifier: Apache-2.0
/// The element types of tensors.
#ifndef BERTH_DTYPE_H
#define BERTH_DTYPE_H

#include "berth/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// An element type. Values never change; 0 is none.
typedef enum berth_dtype {
  BERTH_DTYPE_NONE = 0,
  BERTH_BOOL = 1,
  BERTH_I8 = 2,
  BERTH_I16 = 3,
  BERTH_I32 = 4,
  BERTH_I64 = 5,
  BERTH_U8 = 6,
  BERTH_U16 = 7,
  BERTH_U32 = 8,
  BERTH_U64 = 9,
  BERTH_F16 = 10,
  BERTH_BF16 = 11,
  BERTH_F32 = 12,
  BERTH_F64 = 13,
  BERTH_C64 = 14, ///< Two f32: real, imaginary.
  BERTH_C128 = 15 ///< Two f64: real, imaginary.
} berth_dtype;

/// Returns the bytes of one element; 0 for a value that is no element type.
///
/// Threads: any.
/// Blocks:  never.
/// Since:   0.1
BERTH_API size_t berth_dtype_size(berth_dtype dtype);

/// Returns the short name of an element type, such as "f64"; "none" for a value that is no element type.
///
/// Owns:    returns a static string.
/// Threads: any.
/// Blocks:  never.
/// Since:   0.1
BERTH_API const char *berth_dtype_name(berth_dtype dtype);

/// Finds an element type by its short name ("f64") or its NumPy name ("float64"); BERTH_DTYPE_NONE when there is none.
///
/// Owns:    borrows `name`.
/// Threads: any.
/// Blocks:  never.
/// Since:   0.1
BERTH_API berth_dtype berth_dtype_parse(const char *name);

#ifdef __cplusplus
}
#endif
#endif
