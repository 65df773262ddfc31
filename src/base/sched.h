// SPDX-License-Identifier: Apache-2.0
/// The deterministic scheduler (only in the build with BERTHI_SCHED): the library's threads are coroutines, time is virtual, and each lock, wait,
/// wake, time read and protocol atomic is a scheduling point. A seed fixes a schedule; a failing one replays.
#ifndef BERTHI_SCHED_H
#define BERTHI_SCHED_H

#include <stdbool.h>
#include <stdint.h>

typedef enum berthi_sched_mode {
  BERTHI_SCHED_RANDOM = 0,    ///< uniform choice at each point, from the seed
  BERTHI_SCHED_PRIORITY = 1,  ///< random priorities with a few change points (finds rare orders)
  BERTHI_SCHED_EXHAUSTIVE = 2 ///< depth-first over all schedules with at most `preemptions` preemptions
} berthi_sched_mode;

typedef struct berthi_sched_options {
  berthi_sched_mode mode;
  uint64_t seed;        ///< first seed; schedule i uses seed + i (random, priority)
  uint64_t schedules;   ///< at most this many; 0: 10000 (random, priority), no limit (exhaustive)
  uint32_t preemptions; ///< bound for exhaustive mode (0: 2; UINT32_MAX: none)
  uint32_t depth;       ///< scheduling points after which a schedule counts as livelocked (default 200000)
  const char *name;     ///< scenario name, for messages
} berthi_sched_options;

typedef struct berthi_sched_result {
  uint64_t schedules; ///< run
  uint64_t points;    ///< scheduling points in all
  bool exhausted;     ///< exhaustive mode covered everything within its bound
  bool failed;
  uint64_t failing_seed;
  char message[2048]; ///< kind (check, assert, deadlock, livelock, leak), seed, where every thread stands, the last steps
} berthi_sched_result;

typedef void (*berthi_sched_scenario)(void *arg);

/// Runs `scenario` as the first coroutine of each schedule. A schedule ends when all its coroutines have ended; blocked coroutines and no timer is a
/// deadlock. Stops at the first failure. In exhaustive mode the failing seed is the schedule's index and replays with the same options.
void berthi_sched_explore(const berthi_sched_options *options, berthi_sched_scenario scenario, void *arg, berthi_sched_result *result);

// Inside a scenario:
void berthi_sched_point(void);
bool berthi_sched_active(void);
uint64_t berthi_sched_random(uint64_t bound);                                                    ///< a choice of the schedule (explored), 0..bound-1
void berthi_sched_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); ///< fails the schedule
void berthi_sched_advance(int64_t nanoseconds); ///< moves virtual time on, from deadline to deadline, a point at each
void berthi_sched_calm(bool on); ///< while on, exhaustive mode branches nowhere: for the set-up and the end of a scenario, which it need not explore
void berthi_sched_fork(void);    ///< the fork epoch rises, every other coroutine stops for good
#define berthi_sched_check(cond) ((cond) ? (void)0 : berthi_sched_fail("%s:%d: %s", __FILE__, __LINE__, #cond))

#endif
