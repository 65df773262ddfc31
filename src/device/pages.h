// SPDX-License-Identifier: Apache-2.0
/// Whole pages from the operating system, for blocks too big for the allocator. Not in the deterministic scheduler's build.
#ifndef BERTHI_PAGES_H
#define BERTHI_PAGES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum berthi_pages_use {
  BERTHI_PAGES_HUGE,   ///< will be filled: aligned for huge pages and advised so
  BERTHI_PAGES_RESERVE ///< address space first; a page costs memory when it is touched
} berthi_pages_use;

/// Zeroed pages, or NULL. A fault point (BERTHI_FAULT_ALLOC).
void *berthi_pages_map(size_t bytes, berthi_pages_use use);
/// `bytes` as given to berthi_pages_map.
void berthi_pages_unmap(void *memory, size_t bytes);

#endif
