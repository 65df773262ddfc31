// SPDX-License-Identifier: Apache-2.0
/// Shared by the files of `berth drill`: threads that ask for more than a device has, while a reader checks every law.
#ifndef CLI_DRILL_H
#define CLI_DRILL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "berth/berth.h"

#define DRILL_REASONS 24
#define DRILL_WAITS 1024
#define DRILL_BROKEN 8
#define DRILL_GROUPS 16

typedef struct drill_range {
  uint64_t least, most;
} drill_range;

typedef struct drill_options {
  const char *device, *parameters, *faults;
  uint64_t threads, jobs, seed, queue, max_bypass;
  int64_t time, bypass_after, queue_deadline;
  drill_range bytes, lanes, work, priority;
  uint64_t groups, group_active, group_bytes, group_queued;
  uint64_t cancel, expire, drop, grow, entries, oversize; ///< percent of the jobs
  bool spin, why, json;
} drill_options;

typedef struct drill_reason {
  const char *name;
  uint64_t count;
} drill_reason;

/// What a worker saw; in the end the sum over all.
typedef struct drill_counts {
  uint64_t attempts, entries;  ///< begun; scoped entries called
  uint64_t submitted, granted; ///< calls that submitted; executions used
  uint64_t outcomes[5];        ///< of reports received
  uint64_t grown, shrunk;
  uint64_t why[6]; ///< reports that queued for the reason of that bit
  uint64_t queued; ///< reports that queued
  uint64_t wrong;  ///< answers that no rule allows
  const char *first_wrong;
  uint32_t overtakes; ///< most of one report
  drill_reason reasons[DRILL_REASONS];
  uint64_t waits[DRILL_WAITS]; ///< submission to grant, by drill_wait_index
  uint64_t wait_max;
} drill_counts;

typedef struct drill drill;

typedef struct drill_worker {
  drill *drill;
  pthread_t thread;
  uint64_t random;
  drill_counts counts;
  char groups[DRILL_GROUPS][16];
  // The pause of a job, ended by its cancel or by the end of the drill.
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool cancelled; ///< under lock
  // A token to fire, and when; under the canceller's lock.
  berth_cancel *fire;
  int64_t fire_at;
} drill_worker;

struct drill {
  drill_options options;
  berth_backend *backend;
  berth_session *session;
  berth_startup_record record;
  uint64_t query_limit; ///< Q
  drill_worker *workers;
  atomic_bool stop;                   // relaxed: seen at the next turn; sleepers are woken
  atomic_uint_fast64_t jobs, working; // relaxed: counts
  int64_t began, ended;
  bool interrupted;
  // Canceller.
  pthread_t canceller;
  pthread_mutex_t cancel_lock;
  pthread_cond_t cancel_wake;
  bool cancel_stop;  ///< under cancel_lock
  uint64_t fired[3]; ///< by berth_cancel_result; of the canceller, read after its end
  // Reader.
  pthread_t reader;
  atomic_bool reader_stop; // relaxed
  uint64_t snapshots;      // of the reader, read after its end
  const char *broken[DRILL_BROKEN];
  uint32_t broken_count;
  // The main thread's.
  uint64_t abandoned_outcomes[5];
  drill_counts total;
  berth_metrics metrics; ///< the last snapshot, before the close
  berth_device_metrics figures;
  berth_close_report closed;
  berth_status close_status;
};

// drill_load.c
void *drill_worker_main(void *worker);
/// Wakes a worker that pauses.
void drill_worker_wake(drill_worker *worker);

// drill_cancel.c
void *drill_canceller_main(void *drill);
/// Takes a reference of the token and fires it at that time, unless the worker hands over another one first.
void drill_fire_at(drill_worker *worker, berth_cancel *token, int64_t at);
void drill_canceller_stop(drill *d);

// drill_count.c
uint64_t drill_random(uint64_t *state, drill_range range);
bool drill_dice(uint64_t *state, uint64_t percent);
void drill_count_reason(drill_counts *counts, const char *reason);
void drill_count_wrong(drill_counts *counts, const char *what);
void drill_count_wait(drill_counts *counts, int64_t nanoseconds);
void drill_count_report(drill_counts *counts, berth_report *report);
void drill_count_add(drill_counts *to, const drill_counts *from);
/// The wait that `share` of all waits do not exceed, to about 6 %.
uint64_t drill_wait_quantile(const drill_counts *counts, double share);

// drill_laws.c
void *drill_reader_main(void *drill);
/// Checks what must be true when all has ended, after the close.
void drill_check_end(drill *d);
void drill_broken(drill *d, const char *law);

// drill_print.c
void drill_print_live(const drill *d, bool terminal);
void drill_print_end(const drill *d);
void drill_print_json(const drill *d);

#endif
