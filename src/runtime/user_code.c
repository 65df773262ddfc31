// SPDX-License-Identifier: Apache-2.0
/// The one file that calls user code (USR-1). Built with -fexceptions: when a C++ exception, pthread_exit or a cancellation unwinds a callback, the cleanup
/// attributes below run, permits come back, and the unwind goes on. No lock is held here.
#include "runtime/core.h"

typedef struct guard {
  void (*crashed)(void *arg);
  void *arg;
  bool returned;
  void *outer_backend; ///< of a callback: what the thread was in before
  berthi_core *core;   ///< of a callback
  bool callback;
} guard;

static void leave(guard *g) {
  if (g->callback) berthi_thread_self()->callback_backend = g->outer_backend;
  if (g->returned) return;
  if (g->crashed) g->crashed(g->arg);
  if (g->core && (berthi_thread_self()->flags & BERTHI_THREAD_NOTIFIER)) berthi_notifier_succeed(g->core);
}

static void enter_callback(guard *g, berthi_core *core) {
  berthi_thread_state *self = berthi_thread_self();
  g->callback = true;
  g->core = core;
  g->outer_backend = self->callback_backend;
  self->callback_backend = core;
}

intptr_t berthi_user_run(berth_run_fn fn, berth_exec *exec, void *arg, void (*crashed)(void *), void *crashed_arg) {
  guard g __attribute__((cleanup(leave))) = {.crashed = crashed, .arg = crashed_arg};
  intptr_t value = fn(exec, arg);
  g.returned = true;
  return value;
}

void berthi_user_cancelled(berthi_core *core, berth_cancel_fn fn, void *arg, berth_cancel_cause cause, void (*crashed)(void *), void *crashed_arg) {
  guard g __attribute__((cleanup(leave))) = {.crashed = crashed, .arg = crashed_arg};
  enter_callback(&g, core);
  fn(arg, cause);
  g.returned = true;
}

void berthi_user_completed(berthi_core *core, berth_completion_fn fn, void *arg, berth_report *report, void (*crashed)(void *), void *crashed_arg) {
  guard g __attribute__((cleanup(leave))) = {.crashed = crashed, .arg = crashed_arg};
  enter_callback(&g, core);
  fn(arg, report);
  g.returned = true;
}

void berthi_user_admitted(berthi_core *core, berth_admission_fn fn, void *arg, berth_admission_state state, void (*crashed)(void *), void *crashed_arg) {
  guard g __attribute__((cleanup(leave))) = {.crashed = crashed, .arg = crashed_arg};
  enter_callback(&g, core);
  fn(arg, state);
  g.returned = true;
}

void berthi_user_release(berthi_core *core, void (*release)(void *), void *activity, void (*crashed)(void *), void *crashed_arg) {
  guard g __attribute__((cleanup(leave))) = {.crashed = crashed, .arg = crashed_arg};
  enter_callback(&g, core);
  release(activity);
  g.returned = true;
}

int berthi_user_execute(berthi_core *core, berth_executor_fn executor, void *executor_arg, uint64_t count, void (*body)(void *, uint64_t), void *arg) {
  guard g __attribute__((cleanup(leave))) = {0};
  enter_callback(&g, core);
  int refused = executor(executor_arg, count, body, arg);
  g.returned = true;
  return refused;
}
