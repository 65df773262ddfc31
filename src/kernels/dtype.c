// SPDX-License-Identifier: Apache-2.0
#include "berth/dtype.h"

#include <string.h>

#include "base/annotate.h"

static const struct {
  const char *name;
  const char *numpy;
  size_t size;
} table[] = {
    [BERTH_DTYPE_NONE] = {"none", "", 0},     [BERTH_BOOL] = {"bool", "bool", 1},         [BERTH_I8] = {"i8", "int8", 1},
    [BERTH_I16] = {"i16", "int16", 2},        [BERTH_I32] = {"i32", "int32", 4},          [BERTH_I64] = {"i64", "int64", 8},
    [BERTH_U8] = {"u8", "uint8", 1},          [BERTH_U16] = {"u16", "uint16", 2},         [BERTH_U32] = {"u32", "uint32", 4},
    [BERTH_U64] = {"u64", "uint64", 8},       [BERTH_F16] = {"f16", "float16", 2},        [BERTH_BF16] = {"bf16", "bfloat16", 2},
    [BERTH_F32] = {"f32", "float32", 4},      [BERTH_F64] = {"f64", "float64", 8},        [BERTH_C64] = {"c64", "complex64", 8},
    [BERTH_C128] = {"c128", "complex128", 16},
};

static bool known(berth_dtype dtype) {
  return (size_t)dtype < BERTHI_COUNTOF(table);
}

size_t berth_dtype_size(berth_dtype dtype) {
  return known(dtype) ? table[dtype].size : 0;
}

const char *berth_dtype_name(berth_dtype dtype) {
  return known(dtype) ? table[dtype].name : table[BERTH_DTYPE_NONE].name;
}

berth_dtype berth_dtype_parse(const char *name) {
  if (name == NULL) return BERTH_DTYPE_NONE;
  for (uint32_t i = BERTH_BOOL; i < BERTHI_COUNTOF(table); i++) {
    if (strcmp(name, table[i].name) == 0 || strcmp(name, table[i].numpy) == 0) return (berth_dtype)i;
  }
  return BERTH_DTYPE_NONE;
}
