// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/// Opens the first library of the list that loads. `tried` collects the names for the message.
static void *open_first(const char *const *names, char *tried, size_t capacity) {
  size_t length = 0;
  tried[0] = '\0';
  for (size_t i = 0; names[i] != NULL; i++) {
    // Local binding: two vendor libraries that share symbol names must not meet.
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) {
      snprintf(tried, capacity, "%s", names[i]);
      return library;
    }
    int more = length < capacity ? snprintf(tried + length, capacity - length, "%s%s", i > 0 ? ", " : "", names[i]) : 0;
    if (more > 0) length += (size_t)more;
  }
  return NULL;
}

berth_status berthi_library_load(const char *const *names, const berthi_symbol *symbols, size_t count, void *table, berth_error *err) {
  char tried[160];
  void *library = open_first(names, tried, sizeof tried);
  if (library == NULL) return berthi_fail(err, BERTHI_R_DEVICE_UNAVAILABLE, "%s: not found", tried);
  for (size_t i = 0; i < count; i++) {
    void *address = dlsym(library, symbols[i].name);
    if (address == NULL && !symbols[i].optional) {
      return berthi_fail(err, BERTHI_R_DEVICE_UNAVAILABLE, "%s: has no symbol %s; a newer version is needed", tried, symbols[i].name);
    }
    memcpy((char *)table + symbols[i].offset, &address, sizeof address);
  }
  return BERTH_OK;
}
