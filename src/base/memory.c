// SPDX-License-Identifier: Apache-2.0
/// Host allocation: the C library's, zeroed, counted, with a fault point in front.
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/annotate.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/thread.h"

#if defined(BERTHI_SCHED) && defined(BERTHI_ASAN)
#include <sanitizer/lsan_interface.h>
// Coroutines of a failed schedule never free what they hold; the scheduler's own count finds the leaks of the others.
#define LEAK_CHECK_PAUSE() __lsan_disable()
#define LEAK_CHECK_RESUME() __lsan_enable()
#else
#define LEAK_CHECK_PAUSE() ((void)0)
#define LEAK_CHECK_RESUME() ((void)0)
#endif

#define STRIPES 16
#define SMALL_BYTES 8192

// Each thread counts in its own stripe; a block freed by another thread makes stripes negative, the sum is right.
typedef struct live_stripe {
  _Atomic int64_t blocks;
} BERTHI_ALIGNED_LINE live_stripe;
static live_stripe live[STRIPES];

static void count_blocks(int64_t change) { berthi_stat_add(&live[berthi_thread_self()->stripe % STRIPES].blocks, change); }

uint64_t berthi_alloc_live(void) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < STRIPES; i++) sum += berthi_stat_load(&live[i].blocks);
  return sum > 0 ? (uint64_t)sum : 0;
}

/// calloc is slower than malloc for small blocks (glibc keeps its per-thread cache for malloc) and faster for those that come fresh from
/// the system.
static void *allocate_zeroed(size_t bytes) {
  if (bytes > SMALL_BYTES) return calloc(1, bytes);
  void *memory = malloc(bytes);
  __asm__("" : "+r"(memory)); // or the compiler makes the pair a calloc again
  return memory != NULL ? memset(memory, 0, bytes) : NULL; // NOLINT(clang-analyzer-unix.Malloc): returned through the asm
}

void *berthi_alloc(size_t bytes) {
  if (berthi_fault_fires(BERTHI_FAULT_ALLOC, "alloc")) return NULL;
  LEAK_CHECK_PAUSE();
  void *memory = allocate_zeroed(bytes > 0 ? bytes : 1);
  LEAK_CHECK_RESUME();
  if (memory != NULL) count_blocks(1);
  return memory;
}

void *berthi_alloc_aligned(size_t bytes, size_t alignment) {
  berthi_assert(alignment > 0 && (alignment & (alignment - 1)) == 0, "base");
  if (berthi_fault_fires(BERTHI_FAULT_ALLOC, "alloc_aligned")) return NULL;
  void *memory = NULL;
  size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
  LEAK_CHECK_PAUSE();
  int failure = posix_memalign(&memory, least, bytes > 0 ? bytes : 1);
  LEAK_CHECK_RESUME();
  if (failure != 0) return NULL;
  memset(memory, 0, bytes);
  count_blocks(1);
  return memory;
}

void *berthi_alloc_raw(size_t bytes, size_t alignment) {
  berthi_assert(alignment > 0 && (alignment & (alignment - 1)) == 0, "base");
  if (berthi_fault_fires(BERTHI_FAULT_ALLOC, "alloc_raw")) return NULL;
  void *memory = NULL;
  size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
  LEAK_CHECK_PAUSE();
  int failure = posix_memalign(&memory, least, bytes > 0 ? bytes : 1);
  LEAK_CHECK_RESUME();
  if (failure != 0) return NULL;
  count_blocks(1);
  return memory;
}

void berthi_free(void *memory) {
  if (memory == NULL) return;
  count_blocks(-1);
  free(memory);
}

char *berthi_string_copy(const char *text, size_t length) {
  if (length == SIZE_MAX) return NULL;
  char *copy = berthi_alloc(length + 1);
  if (copy != NULL && length > 0) memcpy(copy, text, length);
  return copy;
}
