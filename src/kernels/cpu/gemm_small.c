// SPDX-License-Identifier: Apache-2.0
// Two kernels: a plain triple loop for products of a few hundred multiply-adds, and a narrow one (n and k small, any m) that streams A and C
// once, which is what contractions of a large tensor with a small gate or matrix are.
#include "kernels/cpu/gemm_small.h"

#include "kernels/cpu/elements.h"

enum {
  TINY_WORK = 512,
  NARROW = 8,
  ROWS = 256 // of the narrow kernel: a strip of C stays in the first cache
};

static bool is_narrow(const berthi_gemm *gemm) {
  return gemm->a_m == 1 && gemm->n <= NARROW && gemm->k <= NARROW && gemm->m >= 8;
}

bool berthi_gemm_small_fits(const berthi_gemm *gemm) {
  if (is_narrow(gemm)) return true;
  return gemm->m <= TINY_WORK && gemm->n <= TINY_WORK && gemm->k <= TINY_WORK && gemm->m * gemm->n * gemm->k <= TINY_WORK;
}

#define DEFINE_SMALL(name, constant)                                                                                                   \
  static void tiny_##name(const berthi_gemm *g, int64_t rows, berthi_##name *restrict c, const berthi_##name *a, const berthi_##name *b) { \
    for (int64_t n = 0; n < g->n; n++) {                                                                                               \
      for (int64_t m = 0; m < rows; m++) {                                                                                             \
        berthi_##name sum = berthi_mul_##name(a[m * g->a_m], b[n * g->b_n]);                                                           \
        for (int64_t k = 1; k < g->k; k++) {                                                                                           \
          sum = berthi_add_##name(sum, berthi_mul_##name(a[m * g->a_m + k * g->a_k], b[n * g->b_n + k * g->b_k]));                     \
        }                                                                                                                              \
        c[m + n * g->c_n] = sum;                                                                                                       \
      }                                                                                                                                \
    }                                                                                                                                  \
  }                                                                                                                                    \
  static void narrow_##name(const berthi_gemm *g, int64_t rows, berthi_##name *restrict c, const berthi_##name *restrict a,            \
                            const berthi_##name *b) {                                                                                  \
    for (int64_t first = 0; first < rows; first += ROWS) {                                                                             \
      int64_t count = rows - first < ROWS ? rows - first : ROWS;                                                                       \
      const berthi_##name *strip = a + first;                                                                                          \
      for (int64_t n = 0; n < g->n; n++) {                                                                                             \
        berthi_##name *out = c + first + n * g->c_n;                                                                                   \
        const berthi_##name *column = b + n * g->b_n;                                                                                  \
        int64_t k = 0;                                                                                                                 \
        if (g->k >= 2) {                                                                                                               \
          berthi_##name b0 = column[0], b1 = column[g->b_k];                                                                           \
          const berthi_##name *a1 = strip + g->a_k;                                                                                    \
          for (int64_t m = 0; m < count; m++) {                                                                                        \
            out[m] = berthi_add_##name(berthi_mul_##name(strip[m], b0), berthi_mul_##name(a1[m], b1));                                 \
          }                                                                                                                            \
          k = 2;                                                                                                                       \
        } else {                                                                                                                       \
          for (int64_t m = 0; m < count; m++) out[m] = berthi_mul_##name(strip[m], column[0]);                                         \
          k = 1;                                                                                                                       \
        }                                                                                                                              \
        for (; k < g->k; k++) {                                                                                                        \
          berthi_##name bk = column[k * g->b_k];                                                                                       \
          const berthi_##name *ak = strip + k * g->a_k;                                                                                \
          for (int64_t m = 0; m < count; m++) out[m] = berthi_add_##name(out[m], berthi_mul_##name(ak[m], bk));                        \
        }                                                                                                                              \
      }                                                                                                                                \
    }                                                                                                                                  \
  }
BERTHI_FOR_ELEMENTS(DEFINE_SMALL)

void berthi_gemm_small(const berthi_gemm *gemm, int64_t rows, void *c, const void *a, const void *b) {
  bool narrow = is_narrow(gemm);
  switch (gemm->dtype) {
#define CASE(name, constant)                      \
  case constant:                                  \
    if (narrow) {                                 \
      narrow_##name(gemm, rows, c, a, b);         \
    } else {                                      \
      tiny_##name(gemm, rows, c, a, b);           \
    }                                             \
    break;
    BERTHI_FOR_ELEMENTS(CASE)
#undef CASE
    default: break;
  }
}
