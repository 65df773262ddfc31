// SPDX-License-Identifier: Apache-2.0
#include "base/wait_place.h"

#include <stddef.h>
#include <string.h>

#include "base/lock.h"

#if !defined(BERTHI_SCHED)

#define SLOTS 256 // places in the program's text, and one name may have several addresses; beyond, a place goes uncounted

// A slot belongs to one address for good: claimed by compare-and-swap, never freed.
static struct {
  _Atomic(const char *) name;
  berthi_atomic32 waiting;
} places[SLOTS];

static uint32_t slot_of(const char *place) { return (uint32_t)(((uintptr_t)place * UINT64_C(0x9E3779B97F4A7C15)) >> 56) % SLOTS; }

berthi_atomic32 *berthi_wait_place_enter(const char *place) {
  if (place == NULL) return NULL;
  uint32_t slot = slot_of(place);
  for (uint32_t probe = 0; probe < SLOTS; probe++, slot = (slot + 1) % SLOTS) {
    const char *name = atomic_load_explicit(&places[slot].name, memory_order_acquire);
    if (name == NULL && atomic_compare_exchange_strong(&places[slot].name, &name, place)) name = place;
    if (name != place) continue;
    // Release: who reads the count also sees that this thread had marked what it waits for (pairs with the acquire of the count).
    atomic_fetch_add_explicit(&places[slot].waiting, 1, memory_order_release);
    return &places[slot].waiting;
  }
  return NULL;
}

void berthi_wait_place_leave(berthi_atomic32 *counter) {
  if (counter != NULL) atomic_fetch_sub_explicit(counter, 1, memory_order_release);
}

uint32_t berthi_wait_place_count(const char *place) {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < SLOTS; slot++) {
    const char *name = atomic_load_explicit(&places[slot].name, memory_order_acquire);
    if (name == NULL || strcmp(name, place) != 0) continue;
    count += atomic_load_explicit(&places[slot].waiting, memory_order_acquire);
  }
  return count;
}

#endif
