// SPDX-License-Identifier: Apache-2.0
/// The monotonic clock: calibrated TSC where it is constant and non-stop, clock_gettime elsewhere, virtual under the deterministic scheduler.
#ifndef BERTHI_CLOCK_H
#define BERTHI_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/annotate.h"

#if defined(__x86_64__) && !defined(BERTHI_SCHED)
#include <x86intrin.h>

// A line: time = its time + (counter - its counter) x its rate. See clock.c for who writes it and why readers need not wait.
typedef struct berthi_clock_line {
  _Atomic uint64_t counter;
  _Atomic int64_t time;
  _Atomic uint64_t rate; ///< nanoseconds per tick, 32 fraction bits
} berthi_clock_line;

typedef struct berthi_clock_lines {
  _Atomic uint64_t soft_ticks; ///< a line this old asks for its renewal; 0 while there is none, so that everybody takes the slow path
  _Atomic uint32_t generation;
  _Atomic uint32_t source;
  berthi_clock_line lines[2];
} BERTHI_ALIGNED_LINE berthi_clock_lines;
extern berthi_clock_lines berthi_clock;

BERTHI_COLD int64_t berthi_now_slow(void); ///< Only for berthi_now.

static inline int64_t berthi_clock_read(bool ordered) {
  uint32_t generation = atomic_load_explicit(&berthi_clock.generation, memory_order_acquire);
  berthi_clock_line *line = &berthi_clock.lines[generation & 1];
  uint64_t start = atomic_load_explicit(&line->counter, memory_order_acquire);
  int64_t time = atomic_load_explicit(&line->time, memory_order_acquire);
  uint64_t rate = atomic_load_explicit(&line->rate, memory_order_acquire);
  uint64_t soft = atomic_load_explicit(&berthi_clock.soft_ticks, memory_order_acquire);
  if (BERTHI_UNLIKELY(soft == 0)) return berthi_now_slow(); // perhaps not even the instruction exists
  unsigned int cpu;
  uint64_t ticks = (ordered ? __rdtscp(&cpu) : __rdtsc()) - start;
  uint32_t after = atomic_load_explicit(&berthi_clock.generation, memory_order_relaxed);
  if (BERTHI_UNLIKELY(ticks >= soft || after != generation)) return berthi_now_slow();
  return time + (int64_t)((ticks * rate) >> 32); // below `soft` the product is below 2^59
}

/// Nanoseconds on CLOCK_MONOTONIC. Never goes back as seen by one thread or across a synchronization.
static inline int64_t berthi_now(void) { return berthi_clock_read(true); }
/// The same for statistics, some 8 ns cheaper: the processor may read the counter before earlier loads of this thread have finished, so
/// against other threads it may be early by the depth of the pipeline (about 100 ns). Not for deadlines, keys or order.
static inline int64_t berthi_now_loose(void) { return berthi_clock_read(false); }
#else
/// Nanoseconds on CLOCK_MONOTONIC. Never goes back as seen by one thread or across a synchronization.
int64_t berthi_now(void);
static inline int64_t berthi_now_loose(void) { return berthi_now(); }
#endif
/// Nanoseconds since the Unix epoch, for reports.
int64_t berthi_wall_now(void);
/// Adds a span to a time; saturates at BERTH_NO_DEADLINE. Spans below 0 count as 0.
int64_t berthi_time_add(int64_t time, int64_t span);
/// "tsc" or "clock_gettime" or "virtual": which source is in use.
const char *berthi_clock_source(void);

#endif
