// SPDX-License-Identifier: Apache-2.0
/// The two futex calls. Neither is a cancellation point (USR-1); both leave errno as it was, so a signal handler may set an event.
#ifndef BERTHI_FUTEX_H
#define BERTHI_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "berth/base.h"

/// Sleeps while `*word` is `value`, until woken or until the absolute deadline on CLOCK_MONOTONIC. May return early: the caller re-checks.
static inline void berthi_futex_wait(berthi_atomic32 *word, uint32_t value, int64_t deadline) {
  int saved = errno;
  struct timespec until;
  struct timespec *timeout = NULL;
  if (deadline != BERTH_NO_DEADLINE) {
    until.tv_sec = (time_t)(deadline / 1000000000);
    until.tv_nsec = (long)(deadline % 1000000000);
    timeout = &until;
  }
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
  errno = saved;
}

/// Wakes at most `count` sleepers. Touches the address only, not the memory: the word may be gone by then.
static inline void berthi_futex_wake(berthi_atomic32 *word, int count) {
  int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
  errno = saved;
}

#endif
