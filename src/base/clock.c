// SPDX-License-Identifier: Apache-2.0
/// The monotonic clock on the processor's time stamp counter.
///
/// Time is a line through an anchor: nanoseconds = anchor + (counter - anchor's counter) x rate. About every 100 ms the caller that
/// notices measures CLOCK_MONOTONIC again and publishes a new line; everybody else goes on with the old one and never waits.
///
/// Guarantees
/// * Readers do not block: two anchors are written in turn, the generation tells which is current, and a reader that was overtaken retries.
/// * Never back: a new line begins above what the old one can have answered, and comes down on the system's clock by a smaller rate.
///   The counter is read by rdtscp, which does not run ahead of the loads before it, so the order holds across synchronization too.
/// * Lines lie on or above the system's clock by less than a microsecond, so a caller that has to ask the system itself stays in order.
/// * Where the counter turns out wrong (it went back, or leaves the system's clock), the system's clock takes over for good.
#include "base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/annotate.h"
#include "base/atomic.h"
#include "base/memory.h"
#include "berth/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int64_t berthi_time_add(int64_t time, int64_t span) {
  int64_t sum = 0;
  if (span <= 0) return time;
  return __builtin_add_overflow(time, span, &sum) ? BERTH_NO_DEADLINE : sum;
}

int64_t berth_now(void) { return berthi_now(); }

#if !defined(BERTHI_SCHED)

static int64_t system_time(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t berthi_wall_now(void) { return system_time(CLOCK_REALTIME); }

#if !defined(__x86_64__)

int64_t berthi_now(void) { return system_time(CLOCK_MONOTONIC); }
const char *berthi_clock_source(void) { return "clock_gettime"; }

#else

#define FIRST_SPAN 10000000   // 10 ms: the first rate needs this long; until then the system's clock answers. Also the first line's life.
#define ANCHOR_SPAN 100000000 // 100 ms: age at which a line is renewed in the long run
#define HARD_SPAN 2000000000  // 2 s: a line this old answers nobody
#define RATE_SHIFT 32
#define WIDEST_READ 1000      // counter ticks around a system read that can still be believed
#define DISCONTINUITY 1000000 // 1 ms: a line this far ahead means that the system's clock stood still (suspend), not that the rate was off
#define PATIENCE 1000         // renewals in a row that fail before the counter is given up

enum { SOURCE_STARTING = 0, SOURCE_TSC = 1, SOURCE_SYSTEM = 2 };

// Written by the holder of `renewing`, the slot that is not current first, then the generation (release). A reader takes the generation
// (acquire), the fields (acquire, so that the second look at the generation comes after them), the counter, and the generation again.
berthi_clock_lines berthi_clock;

// Constant after the first line, or owned by the holder of `renewing`.
static struct {
  atomic_flag renewing;
  _Atomic uint64_t hard_ticks;
  uint64_t counter; // the last measurement, as it was read: where the next rate is measured from
  int64_t time;
  int64_t span;          // life of the current line
  uint32_t failures;     // measurements in a row that cannot be believed
  _Atomic int64_t floor; // the most that was answered before the counter was given up
} clock_care = {.renewing = ATOMIC_FLAG_INIT};

typedef struct line_copy {
  uint64_t counter;
  int64_t time;
  uint64_t rate;
} line_copy;

static inline uint64_t read_counter(void) {
  unsigned int cpu;
  return __rdtscp(&cpu);
}

static inline int64_t on_line(const line_copy *line, uint64_t ticks) {
  return line->time + (int64_t)(((unsigned __int128)ticks * line->rate) >> RATE_SHIFT);
}

/// Copies the current line and reads the counter. The line was current when the counter was read, or an instant before.
static inline uint64_t sample(line_copy *out) {
  for (;;) {
    uint32_t generation = atomic_load_explicit(&berthi_clock.generation, memory_order_acquire);
    berthi_clock_line *line = &berthi_clock.lines[generation & 1];
    out->counter = atomic_load_explicit(&line->counter, memory_order_acquire);
    out->time = atomic_load_explicit(&line->time, memory_order_acquire);
    out->rate = atomic_load_explicit(&line->rate, memory_order_acquire);
    uint64_t counter = read_counter();
    if (BERTHI_LIKELY(atomic_load_explicit(&berthi_clock.generation, memory_order_acquire) == generation)) return counter;
  }
}

static void publish(const line_copy *line) {
  uint32_t next = atomic_load_explicit(&berthi_clock.generation, memory_order_relaxed) + 1;
  berthi_clock_line *slot = &berthi_clock.lines[next & 1];
  // Release, each: a reader of any new field then also sees the generation before this one, and retries.
  atomic_store_explicit(&slot->counter, line->counter, memory_order_release);
  atomic_store_explicit(&slot->time, line->time, memory_order_release);
  atomic_store_explicit(&slot->rate, line->rate, memory_order_release);
  atomic_store_explicit(&berthi_clock.generation, next, memory_order_release);
}

/// Reads both clocks. The system's time belongs to a moment before `*counter` and after `*counter - *width`.
static int64_t read_both(uint64_t *counter, uint64_t *width) {
  int64_t best_time = 0;
  *width = UINT64_MAX;
  for (int attempt = 0; attempt < 3; attempt++) {
    uint64_t before = read_counter();
    int64_t time = system_time(CLOCK_MONOTONIC);
    uint64_t after = read_counter();
    if (after - before < *width) {
      *width = after - before;
      *counter = after;
      best_time = time;
    }
    if (*width < WIDEST_READ / 8) break;
  }
  return best_time;
}

static bool counter_trusted(void) {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || (d & (1u << 8)) == 0) return false;  // invariant: constant and non-stop
  if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || (d & (1u << 27)) == 0) return false; // rdtscp
  char name[32] = "";
  FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (file == NULL) return false;
  if (fgets(name, sizeof name, file) == NULL) name[0] = '\0';
  fclose(file);
  // The kernel itself watches the counter and leaves it when processors disagree.
  return strcmp(name, "tsc\n") == 0 || strcmp(name, "kvm-clock\n") == 0;
}

__attribute__((constructor)) static void clock_begin(void) {
  uint64_t width = 0;
  bool trusted = counter_trusted();
  if (trusted) clock_care.time = read_both(&clock_care.counter, &width);
  if (!trusted || width > WIDEST_READ) atomic_store_explicit(&berthi_clock.source, SOURCE_SYSTEM, memory_order_relaxed);
}

static void leave_counter(int64_t floor) {
  atomic_store_explicit(&clock_care.floor, floor, memory_order_relaxed);
  atomic_store_explicit(&berthi_clock.source, SOURCE_SYSTEM, memory_order_relaxed);
  atomic_store_explicit(&berthi_clock.soft_ticks, 0, memory_order_release);
}

static uint64_t ticks_of(int64_t nanoseconds, uint64_t rate) { return (uint64_t)(((unsigned __int128)nanoseconds << RATE_SHIFT) / rate); }

static int64_t time_of(uint64_t ticks, uint64_t rate) { return (int64_t)(((unsigned __int128)ticks * rate) >> RATE_SHIFT); }

/// Nanoseconds per tick since the last measurement; 0 when there is none to be had. The measurement becomes the last one.
static uint64_t measured_rate(uint64_t counter, int64_t time) {
  uint64_t ticks = counter - clock_care.counter;
  int64_t span = time - clock_care.time;
  clock_care.counter = counter;
  clock_care.time = time;
  if ((int64_t)ticks <= 0 || span <= 0) return 0;
  return (uint64_t)(((unsigned __int128)span << RATE_SHIFT) / ticks);
}

static void set_span(int64_t span, uint64_t rate) {
  clock_care.span = span;
  atomic_store_explicit(&berthi_clock.soft_ticks, ticks_of(span, rate), memory_order_release);
}

/// The first line, once the counter has been seen long enough beside the system's clock.
static void start_line(int64_t now) {
  uint64_t width = 0;
  line_copy line = {0};
  if (now - clock_care.time < FIRST_SPAN) return;
  line.time = read_both(&line.counter, &width);
  if (width > WIDEST_READ) {
    if (++clock_care.failures >= PATIENCE) leave_counter(0);
    return;
  }
  line.rate = measured_rate(line.counter, line.time);
  if (line.rate == 0) {
    leave_counter(0);
    return;
  }
  line.time += time_of(width, line.rate) + 1;
  publish(&line);
  clock_care.failures = 0;
  atomic_store_explicit(&clock_care.hard_ticks, ticks_of(HARD_SPAN, line.rate), memory_order_relaxed);
  atomic_store_explicit(&berthi_clock.source, SOURCE_TSC, memory_order_relaxed);
  set_span(FIRST_SPAN, line.rate);
}

/// True within 1000 ppm; else one of the two clocks stood still or jumped in between.
static bool rate_fits(uint64_t rate, uint64_t expected) {
  uint64_t distance = rate > expected ? rate - expected : expected - rate;
  return distance < expected / 1000;
}

/// The line through a measurement that is nowhere below what the old line can have answered.
static line_copy line_above(const line_copy *old, uint64_t counter, int64_t truth, uint64_t rate, int64_t span) {
  uint64_t ticks = counter - old->counter;
  uint64_t hard = atomic_load_explicit(&clock_care.hard_ticks, memory_order_relaxed);
  int64_t floor = on_line(old, ticks < hard ? ticks : hard) + 1;
  if (floor - truth > DISCONTINUITY) floor = truth + 1000; // nobody was answered what the line would say by now
  line_copy line = {.counter = counter, .time = truth > floor ? truth : floor};
  // What the line is ahead is given back over its life, at most 500 ppm.
  int64_t ahead = line.time - truth;
  uint64_t give_back = ahead < span / 2000 ? (uint64_t)(((unsigned __int128)rate * (uint64_t)ahead) / (uint64_t)span) : rate / 2000;
  line.rate = rate - give_back;
  return line;
}

static void renew_line(void) {
  line_copy old;
  uint64_t counter = 0;
  uint64_t width = 0;
  (void)sample(&old);
  int64_t time = read_both(&counter, &width);
  if (width > WIDEST_READ && ++clock_care.failures < PATIENCE) return; // interrupted; the next caller measures again
  uint64_t rate = measured_rate(counter, time);
  if (rate == 0 || clock_care.failures >= PATIENCE) {
    leave_counter(time + 1000);
    return;
  }
  bool fits = rate_fits(rate, old.rate);
  // Alone it may have been a suspend: keep the rate, look again soon.
  clock_care.failures = fits ? 0 : clock_care.failures + PATIENCE / 4;
  if (!fits) rate = old.rate;
  int64_t span = !fits ? FIRST_SPAN : clock_care.span < ANCHOR_SPAN / 2 ? clock_care.span * 2 : ANCHOR_SPAN;
  line_copy line = line_above(&old, counter, time + time_of(width, rate), rate, span);
  publish(&line);
  set_span(span, rate);
}

/// The one that gets here first and is free to do so looks after the line; the others do not wait for it.
static void care_for_line(int64_t now) {
  if (atomic_flag_test_and_set_explicit(&clock_care.renewing, memory_order_acquire)) return;
  line_copy line;
  uint64_t soft = atomic_load_explicit(&berthi_clock.soft_ticks, memory_order_acquire);
  if (atomic_load_explicit(&berthi_clock.source, memory_order_relaxed) == SOURCE_STARTING) {
    start_line(now);
  } else if (soft != 0 && sample(&line) - line.counter >= soft) {
    renew_line();
  }
  atomic_flag_clear_explicit(&clock_care.renewing, memory_order_release);
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t berthi_now_slow(void) {
  uint32_t source = atomic_load_explicit(&berthi_clock.source, memory_order_relaxed);
  int64_t time = system_time(CLOCK_MONOTONIC);
  if (source != SOURCE_SYSTEM) care_for_line(time);
  source = atomic_load_explicit(&berthi_clock.source, memory_order_relaxed);
  if (source == SOURCE_STARTING) return time;
  if (source == SOURCE_SYSTEM) return later(time, atomic_load_explicit(&clock_care.floor, memory_order_relaxed));
  line_copy line;
  uint64_t ticks = sample(&line) - line.counter;
  uint64_t hard = atomic_load_explicit(&clock_care.hard_ticks, memory_order_relaxed);
  // Too old to answer: its renewal is under way in another thread, and the system's clock lies below what comes.
  return ticks < hard ? on_line(&line, ticks) : time;
}

const char *berthi_clock_source(void) {
  return atomic_load_explicit(&berthi_clock.source, memory_order_relaxed) == SOURCE_TSC ? "tsc" : "clock_gettime";
}

#endif
#endif
