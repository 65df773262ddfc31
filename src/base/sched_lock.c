// SPDX-License-Identifier: Apache-2.0
/// Mutexes and events under the deterministic scheduler. Words are 0 and 1 only: who can run is tested, not woken.
#include "base/lock.h"

#if defined(BERTHI_SCHED)

#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rank.h"
#include "base/sched_core.h"

static bool take(berthi_atomic32 *word) { return atomic_exchange_explicit(word, 1, memory_order_relaxed) == 0; }

static void wait_for(berthi_sched_wait wait, int64_t deadline, const char *place) {
  berthi_sched_thread *self = berthi_sched_current();
  berthi_assert(berthi_world.active, "base: a wait outside of a schedule never ends");
  self->wait = wait;
  self->deadline = deadline;
  self->place = place;
  berthi_sched_block("wait");
}

void berthi_mutex_init(berthi_mutex *mutex, berthi_rank rank) {
  atomic_init(&mutex->word, 0);
  mutex->rank = (uint32_t)rank;
  mutex->owner = 0;
}

static bool lock_until(berthi_mutex *mutex, int64_t deadline) {
  berthi_rank_check(mutex);
  berthi_sched_step_at("lock");
  while (!take(&mutex->word)) {
    if (deadline <= berthi_world.now) return false;
    if (berthi_world.active) berthi_sched_current()->on.mutex = mutex;
    wait_for(BERTHI_SCHED_WAIT_MUTEX, deadline, NULL);
  }
  berthi_rank_push(mutex);
  return true;
}

void berthi_mutex_lock(berthi_mutex *mutex) BERTHI_NO_TSA { lock_until(mutex, BERTH_NO_DEADLINE); }

bool berthi_mutex_lock_until(berthi_mutex *mutex, int64_t deadline) BERTHI_NO_TSA { return lock_until(mutex, deadline); }

bool berthi_mutex_try_lock(berthi_mutex *mutex) BERTHI_NO_TSA {
  berthi_sched_step_at("trylock");
  if (!take(&mutex->word)) return false;
  berthi_rank_push(mutex);
  return true;
}

void berthi_mutex_unlock(berthi_mutex *mutex) BERTHI_NO_TSA {
  berthi_sched_step_at("unlock");
  berthi_rank_pop(mutex);
  atomic_store_explicit(&mutex->word, 0, memory_order_relaxed);
}

void berthi_event_init(berthi_event *event) { atomic_init(&event->word, 0); }

void berthi_event_set(berthi_event *event) {
  berthi_sched_step_at("set");
  atomic_store_explicit(&event->word, 1, memory_order_relaxed);
}

void berthi_event_clear(berthi_event *event) {
  berthi_sched_step_at("clear");
  atomic_store_explicit(&event->word, 0, memory_order_relaxed);
}

static bool is_set(berthi_event *event) { return atomic_load_explicit(&event->word, memory_order_relaxed) != 0; }

bool berthi_event_is_set(berthi_event *event) {
  berthi_sched_step_at("isset");
  return is_set(event);
}

bool berthi_event_wait(berthi_event *event, int64_t deadline, const char *place) {
  berthi_sched_step_at("wait");
  while (!is_set(event)) {
    if (deadline <= berthi_world.now) return false;
    if (berthi_world.active) berthi_sched_current()->on.event = event;
    wait_for(BERTHI_SCHED_WAIT_EVENT, deadline, place);
  }
  return true;
}

uint32_t berthi_wait_place_count(const char *place) {
  uint32_t count = 0;
  for (uint64_t left = berthi_world.live; left != 0; left &= left - 1) {
    const berthi_sched_thread *thread = &berthi_world.threads[__builtin_ctzll(left)];
    if (thread->wait == BERTHI_SCHED_WAIT_EVENT && thread->place != NULL && strcmp(thread->place, place) == 0) count++;
  }
  return count;
}

#endif
