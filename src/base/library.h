// SPDX-License-Identifier: Apache-2.0
/// Reaching a shared library by dlopen through a table of symbols.
#ifndef BERTHI_LIBRARY_H
#define BERTHI_LIBRARY_H

#include <stddef.h>

#include "berth/base.h"

typedef struct berthi_symbol {
  const char *name;
  size_t offset; ///< of a function pointer in the caller's table
  bool optional;
} berthi_symbol;

/// Tries each name of the NULL-terminated list, then resolves every symbol into `table`. The library stays loaded for the process.
/// Fails: UNAVAILABLE device_unavailable, naming the libraries tried or the symbol that is missing.
berth_status berthi_library_load(const char *const *names, const berthi_symbol *symbols, size_t count, void *table, berth_error *err);

#endif
