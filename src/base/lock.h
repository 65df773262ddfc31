// SPDX-License-Identifier: Apache-2.0
/// Mutexes with ranks, and events. Nothing else in the library blocks.
///
/// Guarantees: lock and unlock order as acquire and release. An event's `set` happens before the return of every wait that sees it.
/// Ranks rise while locks are taken; builds with asserts abort on a wrong order. The list of ranks is the list of all locks.
#ifndef BERTHI_LOCK_H
#define BERTHI_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/annotate.h"
#include "base/atomic.h"

typedef enum berthi_rank {
  BERTHI_RANK_DEFAULT = 15,   ///< the process's default backend (runtime/default.c)
  BERTHI_RANK_CANCEL = 18,    ///< hook and followers of one cancel token (runtime/cancel.c)
  BERTHI_RANK_ADMISSION = 20, ///< ledgers, queue, timers, counters of one backend (runtime/core.c)
  BERTHI_RANK_ATTEMPT = 50,   ///< receivers and events of one attempt (runtime/attempt.c)
  BERTHI_RANK_REGISTRY = 65,  ///< process-wide leases (runtime/lease.c)
  BERTHI_RANK_NOTIFIER = 70,  ///< notifier's queue of one backend (runtime/notifier.c)
  BERTHI_RANK_TELEMETRY = 75, ///< last telemetry samples (runtime/telemetry.c)
  BERTHI_RANK_CACHE = 78,     ///< entries of one cache (runtime/cache.c)
  BERTHI_RANK_LANES = 80,     ///< workers of one lane set (device/cpu/worker_pool.c)
  BERTHI_RANK_DEVICE = 85,    ///< device-private
  BERTHI_RANK_LEAF = 90       ///< guards a few words; takes nothing
} berthi_rank;

typedef struct BERTHI_CAPABILITY("mutex") berthi_mutex {
  berthi_atomic32 word; ///< 0 free, 1 held, 2 held with waiters (futex)
  uint32_t rank;
  uint64_t owner; ///< thread that holds it; for asserts and the deterministic scheduler
} berthi_mutex;

void berthi_mutex_init(berthi_mutex *mutex, berthi_rank rank);
void berthi_mutex_lock(berthi_mutex *mutex) BERTHI_ACQUIRE(*mutex);
bool berthi_mutex_try_lock(berthi_mutex *mutex) BERTHI_TRY_ACQUIRE(true, *mutex);
/// Tries until the absolute deadline, at least once; true when taken.
bool berthi_mutex_lock_until(berthi_mutex *mutex, int64_t deadline) BERTHI_TRY_ACQUIRE(true, *mutex);
void berthi_mutex_unlock(berthi_mutex *mutex) BERTHI_RELEASE(*mutex);
/// Asserts that the caller holds it (builds with asserts).
void berthi_mutex_assert_held(const berthi_mutex *mutex);

/// An event: set stays set until cleared. The single consumer that clears it re-checks its predicate after the clear.
typedef struct berthi_event {
  berthi_atomic32 word; ///< 0 clear, 1 set, 2 clear with waiters (futex)
} berthi_event;

void berthi_event_init(berthi_event *event);
void berthi_event_set(
    berthi_event *event); ///< Wakes all waiters. Async-signal-safe. The event may be freed once a waiter saw it set AND set() returned.
void berthi_event_clear(berthi_event *event);
bool berthi_event_is_set(berthi_event *event);
/// Waits until set or until the absolute deadline; true when set. `place` is a static name that shows in traces and that tests wait for
/// (berthi_wait_place_count). Not a cancellation point (USR-1).
bool berthi_event_wait(berthi_event *event, int64_t deadline, const char *place);

/// The number of threads that wait at `place` now (tests wait for this instead of sleeping).
uint32_t berthi_wait_place_count(const char *place);

#endif
