// SPDX-License-Identifier: Apache-2.0
/// Between the parts of the deterministic scheduler. Everything runs on one operating system thread: nothing here is atomic.
#ifndef BERTHI_SCHED_CORE_H
#define BERTHI_SCHED_CORE_H

#include "base/coroutine.h"
#include "base/lock.h"
#include "base/sched.h"
#include "base/thread.h"

#define BERTHI_SCHED_THREADS 64 // one bit each in the masks
#define BERTHI_SCHED_TRACE 32   // steps kept for the message; a power of two

typedef enum berthi_sched_wait { BERTHI_SCHED_READY = 0, BERTHI_SCHED_WAIT_MUTEX, BERTHI_SCHED_WAIT_EVENT, BERTHI_SCHED_WAIT_JOIN } berthi_sched_wait;

/// A thread of a scenario. Whether it can run is not stored but tested at every choice: a mutex that is free, an event that is set, a
/// deadline that has come, a thread that has ended. So no wake can be lost by the scheduler itself.
typedef struct berthi_sched_thread {
  berthi_coroutine *coroutine;
  uint64_t id;
  berthi_sched_wait wait;
  union {
    berthi_mutex *mutex;
    berthi_event *event;
    uint64_t handle;
  } on;
  int64_t deadline;
  const char *place;
  uint64_t yielded_to; // slots that go first after a yield
  uint64_t priority;   // BERTHI_SCHED_PRIORITY
  berthi_thread_fn fn;
  void *arg;
  char name[16];
  berthi_thread_state state;
} berthi_sched_thread;

typedef struct berthi_sched_step {
  uint64_t id;
  const char *what;
} berthi_sched_step;

typedef struct berthi_sched_world {
  bool active; // a schedule runs
  bool failed;
  bool forked;
  bool calm; // berthi_sched_calm
  uint32_t current; // slot
  uint64_t live;    // slots in use
  uint64_t yielded; // slots with yielded_to
  uint64_t next_id;
  int64_t now;
  uint32_t epoch;
  uint64_t points;
  uint64_t depth; // most points of a schedule
  uint64_t seed;
  berthi_sched_step trace[BERTHI_SCHED_TRACE];
  uint64_t traced;
  const berthi_sched_options *options;
  berthi_sched_result *result;
  void (*exit_hook)(berthi_thread_state *state);
  berthi_sched_thread threads[BERTHI_SCHED_THREADS];
} berthi_sched_world;
extern berthi_sched_world berthi_world;

static inline berthi_sched_thread *berthi_sched_current(void) { return &berthi_world.threads[berthi_world.current]; }

// sched.c
void berthi_sched_step_at(const char *what); ///< A scheduling point; the caller goes on when it is chosen again.
void berthi_sched_block(const char *what);   ///< The same, with `wait` of the current thread set; returns once that is over.
bool berthi_sched_alive(uint64_t handle);
bool berthi_sched_spawn(const char *name, berthi_thread_fn fn, void *arg, uint64_t *out_handle);

// sched_choice.c: the choices of one schedule
bool berthi_choice_open(const berthi_sched_options *options); ///< False: no memory.
void berthi_choice_close(void);
void berthi_choice_begin(uint64_t seed);
bool berthi_choice_next_schedule(void); ///< Exhaustive mode: false when all is covered.
/// Picks 0..count-1. `candidates` are slots, the running one first when `runs_on` (then picking another is a preemption).
uint32_t berthi_choice_thread(const uint8_t *candidates, uint32_t count, bool runs_on);
uint64_t berthi_choice_value(uint64_t bound);
uint64_t berthi_choice_priority(void); ///< For a new thread.

// sched_report.c
void berthi_report_failure(const char *text);

#endif
