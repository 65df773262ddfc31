// SPDX-License-Identifier: Apache-2.0
/// Host allocation of the library's own objects, with the fault points of tests.
#ifndef BERTHI_MEMORY_H
#define BERTHI_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Zeroed memory, or NULL. A fault point (BERTHI_FAULT_ALLOC).
void *berthi_alloc(size_t bytes);
/// Zeroed memory aligned to `alignment` (a power of two), or NULL. Freed with berthi_free.
void *berthi_alloc_aligned(size_t bytes, size_t alignment);
/// The same with contents undefined: for memory that is handed on, never for the library's own objects.
void *berthi_alloc_raw(size_t bytes, size_t alignment);
void berthi_free(void *memory);
/// Copies a bounded string (NUL-terminated result), or NULL.
char *berthi_string_copy(const char *text, size_t length);

/// False on overflow.
static inline bool berthi_size_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool berthi_size_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }

/// Fault injection, for tests: the hook decides whether the call at a fault point fails. NULL (the default) costs one load.
typedef enum berthi_fault {
  BERTHI_FAULT_ALLOC,
  BERTHI_FAULT_THREAD,
  BERTHI_FAULT_CLOCK,
  BERTHI_FAULT_NOTIFY_FD, ///< writing the caller's descriptor
  BERTHI_FAULT_FILE,
  BERTHI_FAULT_KINDS
} berthi_fault;
typedef bool (*berthi_fault_hook)(void *arg, berthi_fault kind, const char *where);
void berthi_fault_set_hook(berthi_fault_hook hook, void *arg);
bool berthi_fault_fires(berthi_fault kind, const char *where);

/// Counted-fault helper used by the failure loops: fails the Nth call of `kind` (1-based), and all later ones when `sticky`.
void berthi_fault_plan(berthi_fault kind, uint64_t nth, bool sticky);
/// Calls of the planned kind seen since the plan was set; ends the plan.
uint64_t berthi_fault_plan_end(void);
/// Live blocks given out by berthi_alloc*, for leak tests.
uint64_t berthi_alloc_live(void);

#endif
