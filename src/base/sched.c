// SPDX-License-Identifier: Apache-2.0
/// The deterministic scheduler: who runs next, virtual time, the life of one schedule and the loop over schedules.
#include "base/sched.h"

#if defined(BERTHI_SCHED)

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/annotate.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/sched_core.h"

#define START_TIME INT64_C(1000000000)
#define DEFAULT_DEPTH 200000
#define DEFAULT_SCHEDULES 10000

berthi_sched_world berthi_world = {.now = START_TIME, .epoch = 1};

static uint64_t bit(uint32_t slot) { return UINT64_C(1) << slot; }

bool berthi_sched_active(void) { return berthi_world.active; }

bool berthi_sched_alive(uint64_t handle) {
  uint32_t slot = (uint32_t)(handle & 0xFF);
  return (berthi_world.live & bit(slot)) != 0 && berthi_world.threads[slot].id == handle >> 8;
}

/// Whether the thread could go on now. Reads the mutex or event itself: that it may not be gone while waited for is part of the contract.
static bool can_run(const berthi_sched_thread *thread) {
  switch (thread->wait) {
  case BERTHI_SCHED_READY:
    return true;
  case BERTHI_SCHED_WAIT_MUTEX:
    if (atomic_load_explicit(&thread->on.mutex->word, memory_order_relaxed) == 0) return true;
    break;
  case BERTHI_SCHED_WAIT_EVENT:
    if (atomic_load_explicit(&thread->on.event->word, memory_order_relaxed) != 0) return true;
    break;
  case BERTHI_SCHED_WAIT_JOIN:
    return !berthi_sched_alive(thread->on.handle);
  }
  return thread->deadline <= berthi_world.now;
}

static uint64_t runnable_slots(void) {
  uint64_t runnable = 0;
  for (uint64_t left = berthi_world.live; left != 0; left &= left - 1) {
    uint32_t slot = (uint32_t)__builtin_ctzll(left);
    if (can_run(&berthi_world.threads[slot])) runnable |= bit(slot);
  }
  return runnable;
}

/// Who may be chosen: those that can run and have not yielded to another that can. When all have, all may.
static uint64_t eligible_slots(uint64_t runnable) {
  uint64_t eligible = runnable;
  for (uint64_t left = berthi_world.yielded & runnable; left != 0; left &= left - 1) {
    uint32_t slot = (uint32_t)__builtin_ctzll(left);
    if ((berthi_world.threads[slot].yielded_to & runnable) != 0) eligible &= ~bit(slot);
  }
  return eligible != 0 ? eligible : runnable;
}

/// Everybody waits: time goes to the earliest deadline. False when there is none.
static bool jump_time(void) {
  int64_t earliest = BERTH_NO_DEADLINE;
  for (uint64_t left = berthi_world.live; left != 0; left &= left - 1) {
    const berthi_sched_thread *thread = &berthi_world.threads[__builtin_ctzll(left)];
    if (thread->deadline < earliest) earliest = thread->deadline;
  }
  if (earliest == BERTH_NO_DEADLINE) return false;
  berthi_world.now = earliest;
  return true;
}

/// The chosen thread has its turn: it no longer yields, and nobody yields to it any more.
static void take_turn(uint32_t slot) {
  if (berthi_world.yielded == 0) return;
  berthi_world.yielded &= ~bit(slot);
  berthi_world.threads[slot].yielded_to = 0;
  for (uint64_t left = berthi_world.yielded; left != 0; left &= left - 1) {
    uint32_t other = (uint32_t)__builtin_ctzll(left);
    berthi_world.threads[other].yielded_to &= ~bit(slot);
    if (berthi_world.threads[other].yielded_to == 0) berthi_world.yielded &= ~bit(other);
  }
}

/// The slot to run next. `stays`: the current thread is alive and not yielding, so another choice preempts it.
static uint32_t choose_next(bool stays) {
  uint8_t candidates[BERTHI_SCHED_THREADS];
  uint32_t count = 0;
  uint64_t runnable = runnable_slots();
  while (runnable == 0) {
    if (!jump_time()) berthi_sched_fail("deadlock: every thread waits, and for no time");
    runnable = runnable_slots();
  }
  uint64_t eligible = eligible_slots(runnable);
  bool runs_on = stays && (eligible & bit(berthi_world.current)) != 0;
  if (runs_on) candidates[count++] = (uint8_t)berthi_world.current;
  for (uint64_t left = eligible; left != 0; left &= left - 1) {
    uint32_t slot = (uint32_t)__builtin_ctzll(left);
    if (!runs_on || slot != berthi_world.current) candidates[count++] = (uint8_t)slot;
  }
  uint32_t slot = candidates[berthi_choice_thread(candidates, count, runs_on)];
  take_turn(slot);
  return slot;
}

static void go_to(uint32_t slot, bool ends) {
  berthi_coroutine *from = berthi_sched_current()->coroutine;
  if (slot == berthi_world.current && !ends) return;
  berthi_world.current = slot;
  berthi_coroutine_switch(from, berthi_world.threads[slot].coroutine, ends);
}

static void count_point(const char *what) {
  berthi_world.trace[berthi_world.traced++ % BERTHI_SCHED_TRACE] = (berthi_sched_step){.id = berthi_sched_current()->id, .what = what};
  if (++berthi_world.points > berthi_world.depth) berthi_sched_fail("livelock: more than %llu points", (unsigned long long)berthi_world.depth);
}

void berthi_sched_step_at(const char *what) {
  if (!berthi_world.active) return;
  count_point(what);
  go_to(choose_next(true), false);
}

void berthi_sched_point(void) { berthi_sched_step_at("atomic"); }

void berthi_sched_block(const char *what) {
  berthi_sched_thread *self = berthi_sched_current();
  count_point(what);
  // What waits cannot be preempted, so being chosen again at once costs nothing either.
  go_to(choose_next(false), false);
  self->wait = BERTHI_SCHED_READY;
  self->deadline = BERTH_NO_DEADLINE;
  self->place = NULL;
}

void berthi_thread_yield(void) {
  if (!berthi_world.active) return;
  count_point("yield");
  uint64_t others = runnable_slots() & ~bit(berthi_world.current);
  berthi_sched_current()->yielded_to = others;
  if (others != 0) berthi_world.yielded |= bit(berthi_world.current);
  go_to(choose_next(others == 0), false);
}

/// The running coroutine's last act: on to another thread, or back to the loop over schedules.
__attribute__((noreturn)) static void leave_for_good(void) {
  berthi_sched_thread *self = berthi_sched_current();
  berthi_coroutine *coroutine = self->coroutine;
  if (!berthi_world.failed) {
    berthi_world.live &= ~bit(berthi_world.current);
    berthi_world.yielded &= ~bit(berthi_world.current);
    berthi_coroutine_release(coroutine);
  }
  if (berthi_world.failed || berthi_world.live == 0) {
    berthi_coroutine_switch(coroutine, berthi_coroutine_root(), true);
  } else {
    go_to(choose_next(false), true);
  }
  __builtin_trap();
}

static void thread_main(void *arg) {
  berthi_sched_thread *self = arg;
  self->fn(self->arg);
  if ((self->state.entries != NULL || self->state.spare_entries != NULL) && berthi_world.exit_hook != NULL) berthi_world.exit_hook(&self->state);
  leave_for_good();
}

bool berthi_sched_spawn(const char *name, berthi_thread_fn fn, void *arg, uint64_t *out_handle) {
  if (berthi_world.live == UINT64_MAX) return false;
  uint32_t slot = (uint32_t)__builtin_ctzll(~berthi_world.live);
  berthi_sched_thread *thread = &berthi_world.threads[slot];
  berthi_coroutine *coroutine = berthi_coroutine_create(thread_main, thread);
  if (coroutine == NULL) return false;
  *thread = (berthi_sched_thread){.coroutine = coroutine, .id = ++berthi_world.next_id, .deadline = BERTH_NO_DEADLINE, .fn = fn, .arg = arg};
  snprintf(thread->name, sizeof thread->name, "%s", name);
  thread->priority = berthi_choice_priority();
  thread->state.id = thread->id;
  thread->state.stripe = (uint32_t)thread->id - 1;
  berthi_world.live |= bit(slot);
  *out_handle = thread->id << 8 | slot;
  return true;
}

void berthi_sched_fail(const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (!berthi_world.active) {
    fprintf(stderr, "berth: outside of a schedule: %s\n", text);
    abort();
  }
  berthi_report_failure(text);
  leave_for_good();
}

uint64_t berthi_sched_random(uint64_t bound) { return berthi_world.active ? berthi_choice_value(bound) : 0; }

void berthi_sched_advance(int64_t nanoseconds) {
  int64_t target = berthi_time_add(berthi_world.now, nanoseconds);
  while (berthi_world.active && berthi_world.now < target) {
    int64_t next = target;
    for (uint64_t left = berthi_world.live; left != 0; left &= left - 1) {
      int64_t deadline = berthi_world.threads[__builtin_ctzll(left)].deadline;
      if (deadline > berthi_world.now && deadline < next) next = deadline;
    }
    berthi_world.now = next;
    berthi_sched_step_at("advance");
  }
}

void berthi_sched_calm(bool on) { berthi_world.calm = on; }

void berthi_sched_fork(void) {
  berthi_sched_step_at("fork");
  for (uint64_t left = berthi_world.live & ~bit(berthi_world.current); left != 0; left &= left - 1) {
    berthi_coroutine_release(berthi_world.threads[__builtin_ctzll(left)].coroutine);
  }
  berthi_world.live = bit(berthi_world.current);
  berthi_world.yielded = 0;
  berthi_world.forked = true; // what the others held is lost, as in a real child
  berthi_world.epoch++;
}

static void reset_world(uint64_t seed) {
  berthi_world.failed = false;
  berthi_world.forked = false;
  berthi_world.calm = false;
  berthi_world.live = 0;
  berthi_world.yielded = 0;
  berthi_world.current = 0;
  berthi_world.next_id = 0;
  berthi_world.now = START_TIME;
  berthi_world.epoch = 1;
  berthi_world.points = 0;
  berthi_world.traced = 0;
  berthi_world.seed = seed;
}

static void drop_coroutines(void) {
  for (uint64_t left = berthi_world.live; left != 0; left &= left - 1) {
    berthi_coroutine_release(berthi_world.threads[__builtin_ctzll(left)].coroutine);
  }
  berthi_world.live = 0;
}

/// Runs one schedule from its first step to its last; false when it failed.
static bool run_schedule(uint64_t seed, berthi_sched_scenario scenario, void *arg) {
  uint64_t handle = 0;
  uint64_t blocks = berthi_alloc_live();
  reset_world(seed);
  berthi_choice_begin(seed);
  if (!berthi_sched_spawn("main", scenario, arg, &handle)) {
    berthi_report_failure("no memory for a stack");
    return false;
  }
  berthi_world.active = true;
  berthi_coroutine_switch(berthi_coroutine_root(), berthi_world.threads[0].coroutine, false);
  berthi_world.active = false;
  drop_coroutines();
  uint64_t left = berthi_alloc_live();
  if (!berthi_world.failed && !berthi_world.forked && left != blocks) {
    char text[96];
    snprintf(text, sizeof text, "leak: %lld blocks more than at the start", (long long)(left - blocks));
    berthi_report_failure(text);
  }
  return !berthi_world.failed;
}

static uint64_t schedule_limit(const berthi_sched_options *options) {
  if (options->schedules != 0) return options->schedules;
  return options->mode == BERTHI_SCHED_EXHAUSTIVE ? UINT64_MAX : DEFAULT_SCHEDULES;
}

void berthi_sched_explore(const berthi_sched_options *options, berthi_sched_scenario scenario, void *arg, berthi_sched_result *result) {
  uint64_t limit = schedule_limit(options);
  uint64_t first_seed = options->mode == BERTHI_SCHED_EXHAUSTIVE ? 0 : options->seed;
  memset(result, 0, sizeof *result);
  berthi_world.options = options;
  berthi_world.result = result;
  berthi_world.depth = options->depth != 0 ? options->depth : DEFAULT_DEPTH;
  if (!berthi_choice_open(options)) {
    berthi_report_failure("no memory for the path of choices");
    return;
  }
  for (uint64_t i = 0; i < limit; i++) {
    bool passed = run_schedule(first_seed + i, scenario, arg);
    result->schedules++;
    result->points += berthi_world.points;
    if (!passed) break;
    if (!berthi_choice_next_schedule()) {
      result->exhausted = true;
      break;
    }
  }
  berthi_choice_close();
}

#endif
