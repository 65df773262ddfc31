// SPDX-License-Identifier: Apache-2.0
/// Threads, fork detection and the clock under the deterministic scheduler.
#include "base/thread.h"

#if defined(BERTHI_SCHED)

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sched_core.h"

#define WALL_BASE INT64_C(1700000000000000000)
#define FIRST_PROCESS_ID 1000

// Of the code around schedules: set-up and checks of a test.
static berthi_thread_state outside = {.id = UINT32_MAX};

berthi_thread_state *berthi_thread_self(void) { return berthi_world.active ? &berthi_sched_current()->state : &outside; }
uint64_t berthi_thread_id(void) { return berthi_thread_self()->id; }

void berthi_thread_on_exit(void (*fn)(berthi_thread_state *state)) { berthi_world.exit_hook = fn; }

bool berthi_thread_pin(int cpu) { return cpu >= 0; }

static berth_status start(const char *name, berthi_thread_fn fn, void *arg, uint64_t *out_handle, berth_error *err) {
  berthi_sched_step_at("start");
  if (berthi_fault_fires(BERTHI_FAULT_THREAD, name)) return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: injected", name);
  if (!berthi_world.active) return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: outside of a schedule", name);
  if (!berthi_sched_spawn(name, fn, arg, out_handle)) {
    return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: a schedule has at most %d threads", name, BERTHI_SCHED_THREADS);
  }
  return BERTH_OK;
}

berth_status berthi_thread_start(berthi_thread *thread, const char *name, berthi_thread_fn fn, void *arg, berth_error *err) {
  thread->started = false;
  BERTHI_TRY(start(name, fn, arg, &thread->handle, err));
  thread->started = true;
  return BERTH_OK;
}

berth_status berthi_thread_start_detached(const char *name, berthi_thread_fn fn, void *arg, berth_error *err) {
  uint64_t handle = 0;
  return start(name, fn, arg, &handle, err);
}

void berthi_thread_join(berthi_thread *thread) {
  if (!thread->started) return;
  berthi_sched_step_at("join");
  if (berthi_world.active && berthi_sched_alive(thread->handle)) {
    berthi_sched_thread *self = berthi_sched_current();
    self->wait = BERTHI_SCHED_WAIT_JOIN;
    self->on.handle = thread->handle;
    berthi_sched_block("joining");
  }
  thread->started = false;
}

uint32_t berthi_fork_epoch(void) { return berthi_world.epoch; }
int32_t berthi_process_id(void) { return FIRST_PROCESS_ID + (int32_t)berthi_world.epoch; }

int64_t berthi_now(void) {
  berthi_sched_step_at("now");
  return berthi_world.now;
}

int64_t berthi_wall_now(void) { return WALL_BASE + berthi_world.now; }
const char *berthi_clock_source(void) { return "virtual"; }

#endif
