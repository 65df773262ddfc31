// SPDX-License-Identifier: Apache-2.0
#include "kernels/vendor/blas_guard.h"

#include <cblas.h>
#include <stddef.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/memory.h"

enum { UNKNOWN, GUARDED, SERIALIZED };
enum { PROBE = 112 }; // rows of a product that is too large for kernels without buffers

// Set once, from UNKNOWN. Release pairs with the acquire of every reader: the probe's effects are done.
static berthi_atomic32 state;
static berthi_atomic32 wrapped_calls; // relaxed: the probe looks at it on its own thread
static berthi_mutex table_lock = {.rank = BERTHI_RANK_LEAF};
static berthi_mutex call_lock = {.rank = BERTHI_RANK_DEVICE};

// The linker gives these names their meaning; no header has them.
void *__real_blas_memory_alloc(int position);
void __real_blas_memory_free(void *buffer);
void *__wrap_blas_memory_alloc(int position);
void __wrap_blas_memory_free(void *buffer);

void *__wrap_blas_memory_alloc(int position) {
  berthi_stat_add(&wrapped_calls, 1);
  berthi_mutex_lock(&table_lock);
  void *buffer = __real_blas_memory_alloc(position);
  berthi_mutex_unlock(&table_lock);
  return buffer;
}

void __wrap_blas_memory_free(void *buffer) {
  berthi_mutex_lock(&table_lock);
  __real_blas_memory_free(buffer);
  berthi_mutex_unlock(&table_lock);
}

/// Runs a product that needs a buffer and sees whether the wrapper was asked for it. Under call_lock: the probe itself is a call.
static uint32_t probe(void) {
  size_t elements = (size_t)PROBE * PROBE;
  double *memory = berthi_alloc(3 * elements * sizeof *memory);
  if (memory == NULL) return UNKNOWN; // serialize this call, and look again at the next one
  uint32_t before = berthi_stat_load(&wrapped_calls);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, PROBE, PROBE, PROBE, 1.0, memory, PROBE, memory + elements, PROBE, 0.0,
              memory + 2 * elements, PROBE);
  berthi_free(memory);
  return berthi_stat_load(&wrapped_calls) != before ? GUARDED : SERIALIZED;
}

static uint32_t find_out(void) {
  uint32_t found = berthi_load(&state, acquire);
  if (found == UNKNOWN) {
    found = probe();
    berthi_store(&state, found, release);
  }
  return found;
}

// A lock that is held from begin to end, or not at all, is beyond the analysis.
BERTHI_NO_TSA void berthi_blas_begin(void) {
  if (BERTHI_LIKELY(berthi_load(&state, acquire) == GUARDED)) return;
  berthi_mutex_lock(&call_lock);
  if (find_out() == GUARDED) berthi_mutex_unlock(&call_lock);
}

BERTHI_NO_TSA void berthi_blas_end(void) {
  if (BERTHI_LIKELY(berthi_load(&state, acquire) == GUARDED)) return;
  berthi_mutex_unlock(&call_lock);
}

bool berthi_blas_is_guarded(void) {
  berthi_blas_begin();
  bool guarded = berthi_load(&state, acquire) == GUARDED;
  berthi_blas_end();
  return guarded;
}
