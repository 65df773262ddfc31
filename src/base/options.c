// SPDX-License-Identifier: Apache-2.0
/// Sized structs at the public boundary: options come in, reports go out, and either side may be older than the other.
#include <string.h>

#include "base/error.h"

/// Reads the caller's struct_size, which is the first field of every sized struct.
static size_t sized_read(const void *sized) {
  size_t size = 0;
  memcpy(&size, sized, sizeof size);
  return size;
}

static bool all_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

berth_status berthi_options_copy(const void *options, void *known, size_t known_size, const char *what, berth_error *err) {
  memset(known, 0, known_size);
  memcpy(known, &known_size, sizeof known_size);
  if (options == NULL) return BERTH_OK;
  size_t given = sized_read(options);
  if (given < sizeof given) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s: struct_size is %zu; set it with the struct's INIT macro", what, given);
  }
  if (given > known_size && !all_zero((const unsigned char *)options + known_size, given - known_size)) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT,
                       "%s: struct_size is %zu, this library knows %zu bytes, and a field behind them is set; use a newer library", what, given,
                       known_size);
  }
  size_t common = given < known_size ? given : known_size;
  memcpy((unsigned char *)known + sizeof known_size, (const unsigned char *)options + sizeof known_size, common - sizeof known_size);
  return BERTH_OK;
}

berth_status berthi_output_copy(void *out, const void *value, size_t size, const char *what, berth_error *err) {
  if (out == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", what);
  size_t given = sized_read(out);
  if (given < sizeof given) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s: struct_size is %zu; set it with the struct's INIT macro", what, given);
  }
  size_t common = given < size ? given : size;
  memcpy((unsigned char *)out + sizeof given, (const unsigned char *)value + sizeof given, common - sizeof given);
  // A newer caller's fields that this library does not know read as 0, their default.
  if (given > size) memset((unsigned char *)out + size, 0, given - size);
  return BERTH_OK;
}
