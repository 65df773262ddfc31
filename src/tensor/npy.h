// SPDX-License-Identifier: Apache-2.0
/// The header of a `.npy` file as bytes: reading and writing it without touching files.
#ifndef BERTHI_NPY_H
#define BERTHI_NPY_H

#include "berth/tensor.h"

enum {
  BERTHI_NPY_PREFIX = 12,         // magic, version and the longer form of the length
  BERTHI_NPY_MAX_HEADER = 1 << 20 // longest header that is read
};

/// Reads magic, version and length from the first bytes of a file. `out_start` is where the header's text begins.
berth_status berthi_npy_parse_prefix(const unsigned char *bytes, size_t length, uint32_t *out_version, size_t *out_start, uint64_t *out_length,
                                     berth_error *err);
/// Reads the header's text, a Python dictionary with the keys descr, fortran_order and shape. Fills dtype, order, shape, strides and bytes.
berth_status berthi_npy_parse_header(const char *text, size_t length, berth_npy_header *header, berth_error *err);
/// Writes prefix and header for the tensor's dtype and shape; a multiple of 64 bytes, at most BERTHI_NPY_MAX_WRITTEN. Returns the length.
#define BERTHI_NPY_MAX_WRITTEN 2048
size_t berthi_npy_format_header(berth_dtype dtype, uint32_t rank, const int64_t *shape, bool fortran_order, char out[BERTHI_NPY_MAX_WRITTEN]);

#endif
