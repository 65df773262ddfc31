// SPDX-License-Identifier: Apache-2.0
/// Short forms for tests of einsum on literal values.
#ifndef EINSUM_CHECK_H
#define EINSUM_CHECK_H

#include "berth/tensor.h"
#include "tensor/fake_exec.h"

typedef struct literal {
  uint32_t rank;
  int64_t shape[8];
  const double *values;
} literal;

/// Evaluates `spec` on f64 literals and compares shape and values exactly.
void check_einsum(const char *spec, uint32_t count, const literal *operands, const literal *expected);
/// Plans and expects failure with this reason and with `text` in the message.
void check_refused(const char *spec, uint32_t count, const literal *operands, const char *reason, const char *text);

#endif
