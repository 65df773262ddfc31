// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "device/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/memory.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)

static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) & ~(to - 1); }

static void *map(size_t bytes, int flags) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

// The kernel gives huge pages only to aligned ranges of 2 MiB: map that much more, then trim both ends.
static void *map_aligned(size_t bytes) {
  char *memory = map(bytes + HUGE_PAGE, 0);
  if (memory == NULL) return NULL;
  size_t before = round_up((size_t)(uintptr_t)memory, HUGE_PAGE) - (size_t)(uintptr_t)memory;
  if (before > 0) munmap(memory, before);
  memory += before;
  if (HUGE_PAGE > before) munmap(memory + bytes, HUGE_PAGE - before);
  madvise(memory, bytes, MADV_HUGEPAGE); // advice: a refusal costs speed only
  return memory;
}

void *berthi_pages_map(size_t bytes, berthi_pages_use use) {
  if (bytes > SIZE_MAX / 2 || berthi_fault_fires(BERTHI_FAULT_ALLOC, "pages")) return NULL;
  bytes = round_up(bytes, SMALL_PAGE);
  return use == BERTHI_PAGES_HUGE ? map_aligned(bytes) : map(bytes, MAP_NORESERVE);
}

void berthi_pages_unmap(void *memory, size_t bytes) { munmap(memory, round_up(bytes, SMALL_PAGE)); }
