// SPDX-License-Identifier: Apache-2.0
/// Own kernels for products that are too small, or too narrow, for a BLAS call to pay.
#ifndef BERTHI_CPU_GEMM_SMALL_H
#define BERTHI_CPU_GEMM_SMALL_H

#include "kernels/kernels.h"

/// True when berthi_gemm_small is the better choice: decided by the descriptor alone.
bool berthi_gemm_small_fits(const berthi_gemm *gemm);
/// One product of `rows` rows.
void berthi_gemm_small(const berthi_gemm *gemm, int64_t rows, void *c, const void *a, const void *b);

#endif
