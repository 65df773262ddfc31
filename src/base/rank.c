// SPDX-License-Identifier: Apache-2.0
#include "base/rank.h"

#include "base/assert.h"
#include "base/thread.h"

#if defined(BERTHI_RANK_CHECKS)

// The owner word is read by other threads when an assert asks, so it is accessed as a relaxed atomic; only "is it me" is ever decided by it.
static uint64_t owner_of(const berthi_mutex *mutex) { return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED); }

void berthi_rank_check(const berthi_mutex *mutex) {
  const berthi_thread_state *self = berthi_thread_self();
  for (uint32_t i = 0; i < self->held_count; i++) {
    berthi_assert(self->held_ranks[i] < mutex->rank, "lock rank: a lock of this or a higher rank is held");
  }
}

void berthi_rank_push(berthi_mutex *mutex) {
  berthi_thread_state *self = berthi_thread_self();
  berthi_assert(self->held_count < BERTHI_COUNTOF(self->held_ranks), "lock rank: too many locks held");
  self->held_ranks[self->held_count++] = mutex->rank;
  __atomic_store_n(&mutex->owner, self->id, __ATOMIC_RELAXED);
}

void berthi_rank_pop(berthi_mutex *mutex) {
  berthi_thread_state *self = berthi_thread_self();
  berthi_assert(owner_of(mutex) == self->id, "lock owner: unlock by a thread that does not hold it");
  __atomic_store_n(&mutex->owner, 0, __ATOMIC_RELAXED);
  uint32_t i = self->held_count;
  while (i > 0 && self->held_ranks[i - 1] != mutex->rank) i--;
  berthi_assert(i > 0, "lock rank: the lock is not among those held");
  for (; i < self->held_count; i++) self->held_ranks[i - 1] = self->held_ranks[i];
  self->held_count--;
}

void berthi_mutex_assert_held(const berthi_mutex *mutex) {
  berthi_assert(owner_of(mutex) == berthi_thread_id(), "lock owner: the caller must hold it");
}

#else

void berthi_mutex_assert_held(const berthi_mutex *mutex) { (void)mutex; }

#endif
