// SPDX-License-Identifier: Apache-2.0
/// The order of locks, checked per thread in builds with asserts. Both the futex mutex and the scheduler's go through here.
#ifndef BERTHI_RANK_H
#define BERTHI_RANK_H

#include "base/lock.h"

#if !defined(NDEBUG) || defined(BERTHI_SCHED)
#define BERTHI_RANK_CHECKS 1
void berthi_rank_check(const berthi_mutex *mutex); ///< Asserts that every lock the thread holds has a lower rank.
void berthi_rank_push(berthi_mutex *mutex);        ///< The thread has taken it.
void berthi_rank_pop(berthi_mutex *mutex);         ///< Asserts that the thread holds it, and that it is about to let go.
#else
static inline void berthi_rank_check(const berthi_mutex *mutex) { (void)mutex; }
static inline void berthi_rank_push(berthi_mutex *mutex) { (void)mutex; }
static inline void berthi_rank_pop(berthi_mutex *mutex) { (void)mutex; }
#endif

#endif
