// SPDX-License-Identifier: Apache-2.0
/// A bump allocator for what lives exactly as long as a plan, or as the making of one.
#ifndef BERTHI_ARENA_H
#define BERTHI_ARENA_H

#include <stddef.h>

typedef struct berthi_arena_block berthi_arena_block;
typedef struct berthi_arena {
  berthi_arena_block *blocks; // newest first
  size_t used;                // of the newest block
} berthi_arena;

/// Zeroed memory, aligned for any object, or NULL. Never NULL for 0 bytes while memory is left.
void *berthi_arena_alloc(berthi_arena *arena, size_t count, size_t size);
void berthi_arena_free(berthi_arena *arena);

#endif
