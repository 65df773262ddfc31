// SPDX-License-Identifier: Apache-2.0
#include "tensor/naive_einsum.h"

#include <math.h>
#include <string.h>

uint64_t naive_next(naive_random *random) {
  uint64_t z = (random->state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

int64_t naive_between(naive_random *random, int64_t low, int64_t high) {
  return low + (int64_t)(naive_next(random) % (uint64_t)(high - low + 1));
}

typedef struct value {
  long double re, im;
} value;

static value load(berth_dtype dtype, const char *at) {
  float f[2];
  double d[2];
  switch (dtype) {
    case BERTH_F32: memcpy(f, at, 4); return (value){f[0], 0};
    case BERTH_F64: memcpy(d, at, 8); return (value){d[0], 0};
    case BERTH_C64: memcpy(f, at, 8); return (value){f[0], f[1]};
    default: memcpy(d, at, 16); return (value){d[0], d[1]};
  }
}

static void store(berth_dtype dtype, char *at, value v) {
  float f[2] = {(float)v.re, (float)v.im};
  double d[2] = {(double)v.re, (double)v.im};
  memcpy(at, dtype == BERTH_F32 || dtype == BERTH_C64 ? (void *)f : (void *)d, berth_dtype_size(dtype));
}

static value read_operand(berth_dtype dtype, const naive_operand *operand, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (operand->shape[i] != 1) at += index[operand->labels[i]] * operand->strides[i];
  }
  return load(dtype, (const char *)operand->data + at);
}

void naive_einsum(berth_dtype dtype, uint32_t operand_count, const naive_operand *operands, uint32_t label_count, const int64_t *extents,
                  uint32_t out_rank, const uint32_t *out_labels, void *out) {
  uint32_t order[NAIVE_MAX_LABELS];
  int64_t index[NAIVE_MAX_LABELS] = {0};
  size_t size = berth_dtype_size(dtype);
  int64_t outputs = 1;
  int64_t terms = 1;
  uint32_t n = out_rank;
  for (uint32_t i = 0; i < out_rank; i++) order[i] = out_labels[i];
  for (uint32_t i = 0; i < out_rank; i++) outputs *= extents[out_labels[i]];
  for (uint32_t l = 0; l < label_count; l++) {
    bool kept = false;
    for (uint32_t i = 0; i < out_rank; i++) kept = kept || out_labels[i] == l;
    if (!kept) order[n++] = l;
    if (!kept) terms *= extents[l];
  }
  for (int64_t o = 0; o < outputs; o++) {
    value sum = {0, 0};
    for (int64_t t = 0; t < terms; t++) {
      value product = {1, 0};
      int64_t rest = o;
      for (uint32_t i = out_rank; i-- > 0; rest /= extents[order[i]]) index[order[i]] = rest % extents[order[i]];
      rest = t;
      for (uint32_t i = n; i-- > out_rank; rest /= extents[order[i]]) index[order[i]] = rest % extents[order[i]];
      for (uint32_t k = 0; k < operand_count; k++) {
        value v = read_operand(dtype, &operands[k], index);
        product = (value){product.re * v.re - product.im * v.im, product.re * v.im + product.im * v.re};
      }
      sum.re += product.re;
      sum.im += product.im;
    }
    store(dtype, (char *)out + (size_t)o * size, sum);
  }
}

void naive_fill(naive_random *random, berth_dtype dtype, void *data, int64_t elements) {
  for (int64_t i = 0; i < elements; i++) {
    value v = {(long double)naive_between(random, -8, 8) / 8, (long double)naive_between(random, -8, 8) / 8};
    store(dtype, (char *)data + (size_t)i * berth_dtype_size(dtype), v);
  }
}

double naive_difference(berth_dtype dtype, const void *left, const void *right, int64_t elements) {
  long double worst = 0;
  size_t size = berth_dtype_size(dtype);
  for (int64_t i = 0; i < elements; i++) {
    value l = load(dtype, (const char *)left + (size_t)i * size);
    value r = load(dtype, (const char *)right + (size_t)i * size);
    long double d = fmaxl(fabsl(l.re - r.re), dtype == BERTH_C64 || dtype == BERTH_C128 ? fabsl(l.im - r.im) : 0);
    if (!(d <= worst)) worst = d; // a NaN counts as worst
  }
  return (double)worst;
}
