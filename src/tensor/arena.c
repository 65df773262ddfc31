// SPDX-License-Identifier: Apache-2.0
#include "tensor/arena.h"

#include <stdint.h>

#include "base/memory.h"

enum { BLOCK = 8192, ALIGN = 16 };

struct berthi_arena_block {
  berthi_arena_block *next;
  size_t capacity;
  _Alignas(ALIGN) char data[];
};

void *berthi_arena_alloc(berthi_arena *arena, size_t count, size_t size) {
  uint64_t bytes;
  if (!berthi_size_mul(count, size, &bytes) || bytes > SIZE_MAX / 4) return NULL;
  bytes = (bytes + ALIGN) / ALIGN * ALIGN;
  if (arena->blocks == NULL || arena->blocks->capacity - arena->used < bytes) {
    size_t capacity = bytes > BLOCK ? bytes : BLOCK;
    berthi_arena_block *block = berthi_alloc(sizeof *block + capacity);
    if (block == NULL) return NULL;
    block->capacity = capacity;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used = 0;
  }
  void *memory = arena->blocks->data + arena->used;
  arena->used += bytes;
  return memory;
}

void berthi_arena_free(berthi_arena *arena) {
  berthi_arena_block *block = arena->blocks;
  while (block != NULL) {
    berthi_arena_block *next = block->next;
    berthi_free(block);
    block = next;
  }
  arena->blocks = NULL;
  arena->used = 0;
}
