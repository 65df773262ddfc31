// SPDX-License-Identifier: Apache-2.0
/// Measurements of the runtime, shared by `berth bench` and bench_runtime. Public headers only.
///
/// A figure is the median of interleaved samples: each round takes one sample of Berth and one of the peer it is compared with, in alternating order,
/// so that both see the same machine. Ratios are medians of the rounds' own ratios.
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <pthread.h>
#include <stdio.h>

#include "berth/berth.h"

#define MEASURE_ROUNDS 25

typedef enum measure_bound { MEASURE_NO_BUDGET, MEASURE_AT_MOST, MEASURE_AT_LEAST } measure_bound;

typedef struct measure_result {
  const char *name;
  double value;
  const char *unit;
  measure_bound bound;
  double budget;
  const char *peer; ///< what stood beside it in the same rounds; NULL: nothing
  double peer_value;
  uint32_t samples;
  char note[128];
} measure_result;

typedef struct measure {
  double seconds; ///< to spend on one item, about
  void (*tell)(void *arg, const measure_result *result);
  void *arg;
  bool failed; ///< an item could not be measured; the reason went to stderr
} measure;

typedef struct measure_item {
  const char *name;
  const char *summary;
  void (*run)(measure *m);
} measure_item;

typedef struct measure_options {
  bool json, list;
  const char *only;  ///< name of an item, or the beginning of several; NULL: all
  double seconds;    ///< for each item
  const char *clock; ///< which source berth_now uses, where that is known; NULL
} measure_options;

/// The items that need the public headers only.
extern const measure_item measure_items[];
extern const uint32_t measure_item_count;

/// Runs the items and prints their results with the machine they come from. 0; 1: one could not be measured; 2: no such item. A missed budget is a result.
int measure_main(const measure_options *options, const measure_item *items, uint32_t count);

// ---- for the items ---------------------------------------------------------------------------------------------------------------------------

/// One sample: does its work and returns the figure, such as nanoseconds for each operation; negative: it failed.
typedef double (*measure_sample)(void *arg);

typedef struct measure_pair {
  double value, peer, ratio; ///< medians; `ratio` of value / peer
  uint32_t samples;
  bool ok;
} measure_pair;

/// Takes `rounds` samples of both, after one of each to warm up. `peer` may be NULL.
measure_pair measure_interleaved(uint32_t rounds, measure_sample value, measure_sample peer, void *arg);
double measure_median(double *values, uint32_t count);
/// How many operations fill one of `rounds` samples of two sides within the item's seconds, when `count` took `nanoseconds`.
uint64_t measure_fill(const measure *m, uint32_t rounds, uint64_t count, int64_t nanoseconds);

void measure_tell(measure *m, measure_result result);
/// Says on stderr why an item has no figure.
void measure_fail(measure *m, const char *item, const char *why);

/// A backend that serves one item.
typedef struct measure_world {
  berth_backend *backend;
  berth_session *session;
} measure_world;

/// Opens the devices. Options may be NULL.
bool measure_open(measure *m, measure_world *world, const char *item, const berth_device_options *devices, uint32_t count, uint32_t max_queued);
void measure_close(measure_world *world);

/// Threads that begin together. Each runs fn(arg, index) and the time is from the start to the last one's end.
typedef struct measure_crowd {
  uint32_t count;
  bool pinned;                             ///< thread i on the i-th CPU that this process may use, modulo their number
  bool one_cpu;                            ///< all on the first
  void (*warm)(void *arg, uint32_t index); ///< before the start; NULL
  void (*fn)(void *arg, uint32_t index);
  void *arg;
} measure_crowd;
/// Nanoseconds; negative when threads could not be started.
int64_t measure_together(const measure_crowd *crowd);
uint32_t measure_cpus(void);
/// Waits on the clock until the absolute time.
void measure_sleep_until(int64_t time);

/// Which law of MET-1 or LED-4 the snapshot breaks; NULL: none. `before` is an earlier snapshot of the same backend, or NULL.
const char *measure_broken_law(const berth_metrics *now, const berth_metrics *before);

// The machine, for the head of the output.
typedef struct measure_machine {
  char cpu[96], kernel[160], clocksource[32];
  uint32_t cpus;
  const char *compiler, *library;
} measure_machine;
void measure_describe_machine(measure_machine *out);

void measure_entries(measure *m);
void measure_attempts(measure *m);
void measure_refusals(measure *m);
void measure_handover(measure *m);
void measure_waiters(measure *m);
void measure_snapshots(measure *m);
void measure_memory(measure *m);
void measure_load(measure *m);
void measure_expiry(measure *m);
void measure_clock(measure *m);

#endif
