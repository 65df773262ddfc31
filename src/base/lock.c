// SPDX-License-Identifier: Apache-2.0
/// The futex mutex and event. The deterministic scheduler's are in sched_lock.c.
///
/// Mutex word: 0 free, 1 held, 2 held and someone may sleep. Who slept takes it as 2, because others may sleep still.
/// Event word: 0 clear, 1 set, 2 clear and someone may sleep. Setting costs a system call only from 2.
#include "base/lock.h"

#include <limits.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/rank.h"
#include "base/wait_place.h"

#if !defined(BERTHI_SCHED)

#define FREE 0u
#define HELD 1u
#define HELD_WAITERS 2u

#define CLEAR 0u
#define SET 1u
#define CLEAR_WAITERS 2u

#define SPIN_ROUNDS 40 // about the length of the longest usual critical section; see README, Why not otherwise

static inline void cpu_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void berthi_mutex_init(berthi_mutex *mutex, berthi_rank rank) {
  atomic_init(&mutex->word, FREE);
  mutex->rank = (uint32_t)rank;
  mutex->owner = 0;
}

/// Acquire pairs with the release of the unlock that freed it.
static inline bool take_free(berthi_mutex *mutex) {
  uint32_t expected = FREE;
  return atomic_compare_exchange_strong_explicit(&mutex->word, &expected, HELD, memory_order_acquire, memory_order_relaxed);
}

/// A short wait for a holder that runs on another CPU. Ends at once when others sleep already: they were first.
static bool spin(berthi_mutex *mutex) {
  for (int i = 0; i < SPIN_ROUNDS; i++) {
    uint32_t word = atomic_load_explicit(&mutex->word, memory_order_relaxed);
    if (word == HELD_WAITERS) return false;
    if (word == FREE && take_free(mutex)) return true;
    cpu_pause();
  }
  return false;
}

static BERTHI_COLD bool lock_contended(berthi_mutex *mutex, int64_t deadline) {
  if (spin(mutex)) return true;
  while (atomic_exchange_explicit(&mutex->word, HELD_WAITERS, memory_order_acquire) != FREE) {
    if (deadline != BERTH_NO_DEADLINE && berthi_now() >= deadline) return false;
    berthi_futex_wait(&mutex->word, HELD_WAITERS, deadline);
  }
  return true;
}

void berthi_mutex_lock(berthi_mutex *mutex) BERTHI_NO_TSA {
  berthi_rank_check(mutex);
  if (BERTHI_UNLIKELY(!take_free(mutex))) lock_contended(mutex, BERTH_NO_DEADLINE);
  berthi_rank_push(mutex);
}

bool berthi_mutex_try_lock(berthi_mutex *mutex) BERTHI_NO_TSA {
  if (!take_free(mutex)) return false;
  berthi_rank_push(mutex);
  return true;
}

bool berthi_mutex_lock_until(berthi_mutex *mutex, int64_t deadline) BERTHI_NO_TSA {
  berthi_rank_check(mutex);
  if (BERTHI_UNLIKELY(!take_free(mutex)) && !lock_contended(mutex, deadline)) return false;
  berthi_rank_push(mutex);
  return true;
}

void berthi_mutex_unlock(berthi_mutex *mutex) BERTHI_NO_TSA {
  berthi_rank_pop(mutex);
  if (BERTHI_UNLIKELY(atomic_exchange_explicit(&mutex->word, FREE, memory_order_release) == HELD_WAITERS)) {
    berthi_futex_wake(&mutex->word, 1);
  }
}

void berthi_event_init(berthi_event *event) { atomic_init(&event->word, CLEAR); }

void berthi_event_set(berthi_event *event) {
  // Release pairs with the acquire of every wait, is_set and clear that finds it set; acquire orders a set after the clear it overwrites.
  if (atomic_exchange_explicit(&event->word, SET, memory_order_acq_rel) == CLEAR_WAITERS) berthi_futex_wake(&event->word, INT_MAX);
}

void berthi_event_clear(berthi_event *event) {
  // Only a set event changes, so the mark of sleepers survives. Acquire pairs with the set that is being consumed: what its setter did
  // before is seen by the re-check that follows.
  uint32_t expected = SET;
  atomic_compare_exchange_strong_explicit(&event->word, &expected, CLEAR, memory_order_acq_rel, memory_order_relaxed);
}

bool berthi_event_is_set(berthi_event *event) { return atomic_load_explicit(&event->word, memory_order_acquire) == SET; }

/// Marks the event as slept on; false when it is set.
static bool mark_waiting(berthi_event *event) {
  uint32_t expected = CLEAR;
  if (atomic_compare_exchange_strong_explicit(&event->word, &expected, CLEAR_WAITERS, memory_order_acquire, memory_order_acquire)) return true;
  return expected != SET;
}

static BERTHI_COLD bool wait_asleep(berthi_event *event, int64_t deadline, const char *place) {
  bool set = false;
  berthi_atomic32 *counter = NULL;
  while (!(set = !mark_waiting(event))) {
    if (deadline != BERTH_NO_DEADLINE && berthi_now() >= deadline) break;
    if (counter == NULL) counter = berthi_wait_place_enter(place);
    berthi_futex_wait(&event->word, CLEAR_WAITERS, deadline);
  }
  berthi_wait_place_leave(counter);
  return set;
}

bool berthi_event_wait(berthi_event *event, int64_t deadline, const char *place) {
  if (berthi_event_is_set(event)) return true;
  return wait_asleep(event, deadline, place);
}

#endif
