// SPDX-License-Identifier: Apache-2.0
/// What runs on a CPU device: plain descriptors in, no tensor handles. Callers have validated everything; kernels assert.
///
/// Strides are in elements. How work is cut depends on the descriptor alone, never on the number of lanes, so the bits of a result do not
/// either (EXE-4, NUM-6). Every kernel looks for a cancel between chunks of a few milliseconds and then leaves its output undefined.
#ifndef BERTHI_KERNELS_H
#define BERTHI_KERNELS_H

#include "berth/dtype.h"
#include "runtime/exec_ops.h"

#define BERTHI_MAX_AXES 64

/// One axis of a loop nest over up to three arrays. Which array `step[i]` belongs to, each kernel says.
typedef struct berthi_axis {
  int64_t extent;
  int64_t step[3];
} berthi_axis;

/// Drops axes of extent 1, sorts by falling |step[0]| (ties: step[1], step[2]) and joins axes that step alike in the first `arrays` arrays.
/// Returns the new rank. With an extent of 0 anywhere it returns one axis of extent 0.
uint32_t berthi_axes_simplify(berthi_axis *axes, uint32_t rank, uint32_t arrays);
/// Product of the extents.
int64_t berthi_axes_count(const berthi_axis *axes, uint32_t rank);

/// True when the CPU kernels compute with this element type.
bool berthi_cpu_supports(berth_dtype dtype);

/// dst = 0 for `bytes` bytes.
berth_status berthi_cpu_zero(berth_exec *exec, void *dst, uint64_t bytes, berth_error *err);

/// dst[..] = src[..]: step[0] of dst, step[1] of src; `size` bytes an element (1, 2, 4, 8 or 16). `axes` simplified with 2 arrays.
berth_status berthi_cpu_copy(berth_exec *exec, uint32_t size, const berthi_axis *axes, uint32_t rank, void *dst, const void *src,
                             berth_error *err);

/// dst[..] = a[..] * b[..]: step[0] of dst, step[1] of a, step[2] of b. `axes` simplified with 3 arrays.
berth_status berthi_cpu_multiply(berth_exec *exec, berth_dtype dtype, const berthi_axis *axes, uint32_t rank, void *dst, const void *a,
                                 const void *b, berth_error *err);

/// dst[kept] = sum over `summed` of src[kept, summed]: step[0] of dst (0 in `summed`), step[1] of src. Sums combine pairwise over blocks of at
/// most 128 elements (NUM-1): the error is below (128 + log2(n / 128)) x epsilon x the sum of absolute values. `kept` is simplified with 2
/// arrays, `summed` is too after its step[0] was set to step[1].
typedef struct berthi_reduce {
  berth_dtype dtype;
  const berthi_axis *kept;
  const berthi_axis *summed;
  uint32_t kept_rank;
  uint32_t summed_rank;
} berthi_reduce;
berth_status berthi_cpu_reduce(berth_exec *exec, const berthi_reduce *reduce, void *dst, const void *src, berth_error *err);

/// One matrix product C(m,n) = A(m,k) B(k,n) for each index of `loops` (step[0] of C, step[1] of A, step[2] of B). C has step 1 along m and
/// `c_n` along n. A has step 1 along m (`a_m` = 1) or along k (`a_k` = 1), B along k or along n.
typedef struct berthi_gemm {
  berth_dtype dtype;
  int64_t m, n, k;
  int64_t c_n;
  int64_t a_m, a_k;
  int64_t b_k, b_n;
  const berthi_axis *loops;
  uint32_t loops_rank;
} berthi_gemm;
berth_status berthi_cpu_gemm(berth_exec *exec, const berthi_gemm *gemm, void *c, const void *a, const void *b, berth_error *err);

#endif
