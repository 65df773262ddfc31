// SPDX-License-Identifier: Apache-2.0
/// Element types of the CPU kernels and the few operations on them, so that one body serves each type.
///
/// Complex numbers are plain pairs: the compiler's complex product adds a recovery of infinities that no kernel here wants.
#ifndef BERTHI_CPU_ELEMENTS_H
#define BERTHI_CPU_ELEMENTS_H

#include <stdint.h>

typedef float berthi_f32;
typedef double berthi_f64;
typedef struct berthi_c64 {
  float re, im;
} berthi_c64;
typedef struct berthi_c128 {
  double re, im;
} berthi_c128;
typedef struct berthi_bits128 {
  uint64_t word[2];
} berthi_bits128;

static inline float berthi_mul_f32(float a, float b) { return a * b; }
static inline double berthi_mul_f64(double a, double b) { return a * b; }
static inline berthi_c64 berthi_mul_c64(berthi_c64 a, berthi_c64 b) {
  return (berthi_c64){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline berthi_c128 berthi_mul_c128(berthi_c128 a, berthi_c128 b) {
  return (berthi_c128){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline float berthi_add_f32(float a, float b) { return a + b; }
static inline double berthi_add_f64(double a, double b) { return a + b; }
static inline berthi_c64 berthi_add_c64(berthi_c64 a, berthi_c64 b) { return (berthi_c64){a.re + b.re, a.im + b.im}; }
static inline berthi_c128 berthi_add_c128(berthi_c128 a, berthi_c128 b) { return (berthi_c128){a.re + b.re, a.im + b.im}; }

/// Calls X(name of the dtype, its constant) for each type that the kernels compute with.
#define BERTHI_FOR_ELEMENTS(X) \
  X(f32, BERTH_F32)            \
  X(f64, BERTH_F64)            \
  X(c64, BERTH_C64)            \
  X(c128, BERTH_C128)

#endif
