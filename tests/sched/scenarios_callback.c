// SPDX-License-Identifier: Apache-2.0
/// User code that calls back: completions that begin and close, admission callbacks that take, hooks that unhook (USR-1, USR-2, ATT-7, ADM-10, CLS-1).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct caller {
  scene scene;
  scene_held held;
  berth_attempt *attempt;
  berth_admission *admission;
  berth_completion *completion;
  berth_cancel *token;
  uint32_t calls, hooks;
  bool inside, closes, drops_handle;
} caller;

static void may_not_wait(caller *c) {
  berth_error err = BERTH_ERROR_INIT;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_status status = berth_backend_close_wait(c->scene.backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err);
  berthi_sched_check(status == BERTH_ABORTED && scene_reason_is(&err, "would_deadlock"));
}

// Begins another attempt, ends it, and perhaps closes the backend or gives its last handle up.
static void completed(void *arg, berth_report *report) {
  caller *c = arg;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_ok(berth_report_get(report, &info, NULL), &(berth_error)BERTH_ERROR_INIT);
  c->calls++;
  berth_attempt *another = scene_begin(&c->scene, NULL);
  if (another != NULL) (void)berth_attempt_finish(another, BERTH_FAILED, NULL, NULL);
  berth_attempt_release(another);
  if (c->closes) may_not_wait(c);
  if (c->drops_handle) {
    berth_backend_release(c->scene.backend);
    c->scene.backend = NULL;
  }
}

static void canceller(void *arg) { (void)berth_cancel_fire(((caller *)arg)->token); }

static void ends_holder(void *arg) {
  caller *c = arg;
  scene_finish(&c->scene, &c->held, BERTH_SUCCEEDED, NULL);
}

static void begin_caller(caller *c, bool queued) {
  berth_error err = BERTH_ERROR_INIT;
  scene_open(&c->scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  if (queued) scene_hold(&c->scene, &request, &c->held);
  c->attempt = scene_begin(&c->scene, NULL);
  c->completion = berth_attempt_completion(c->attempt);
  c->token = berth_attempt_cancel_token(c->attempt);
  scene_ok(berth_completion_notify(c->completion, -1, completed, c, &err), &err);
  c->admission = scene_admit(&c->scene, c->attempt, &request);
}

static void give_up(caller *c) {
  berth_cancel_release(c->token);
  berth_admission_release(c->admission);
  berth_attempt_release(c->attempt);
  scene_report(&c->scene, c->completion, NULL);
  berth_completion_release(c->completion);
}

// On the thread that finishes its own work.
static void completion_calls(void *arg) {
  (void)arg;
  caller c = {.closes = berthi_sched_random(2) != 0};
  begin_caller(&c, false);
  (void)berth_exec_finish(scene_take(c.admission), BERTH_SUCCEEDED, NULL, NULL);
  berthi_sched_check(c.calls == 1);
  give_up(&c);
  berthi_sched_check(!c.closes || berth_session_is_closing(c.scene.session));
  scene_close(&c.scene);
}

// Ended by another: on the notifier, or on the stack of the owner, never on the one who cancels.
static void completion_on_notifier(void *arg) {
  (void)arg;
  caller c = {.closes = berthi_sched_random(2) != 0, .drops_handle = berthi_sched_random(2) != 0};
  berthi_thread threads[2];
  begin_caller(&c, true);
  scene_start(&threads[0], "cancel", canceller, &c);
  scene_start(&threads[1], "end", ends_holder, &c);
  berth_exec *exec = NULL;
  if (berth_admission_wait(c.admission, BERTH_NO_DEADLINE, NULL) == BERTH_OK && berth_admission_take(c.admission, &exec, NULL) == BERTH_OK) {
    berth_exec_release(exec);
  }
  scene_join(threads, 2);
  give_up(&c);
  while (c.calls == 0 || (c.drops_handle && c.scene.backend != NULL)) berthi_thread_yield();
  if (!c.drops_handle) {
    scene_close(&c.scene);
    berthi_sched_check(c.calls == 1);
    return;
  }
  berthi_sched_check(berth_session_is_closing(c.scene.session) && c.calls == 1);
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err);
  berthi_sched_check(scene_laws(&c.scene).open <= 1);
  scene_release(&c.scene);
}

// ---- the admission's callback: takes, works, ends, on the notifier -------------------------------------------------------------------------------------

static void takes_there(void *arg, berth_admission_state state) {
  caller *c = arg;
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT;
  c->calls++;
  if (state != BERTH_ADMISSION_GRANTED) return;
  // A call that would wait answers at once.
  berth_request request = scene_units(1);
  berth_attempt *another = scene_begin(&c->scene, NULL);
  berth_admission *waiting = NULL;
  if (another != NULL && berth_session_admit(c->scene.session, another, &request, &waiting, &err) == BERTH_OK) {
    berth_status status = berth_admission_wait(waiting, BERTH_NO_DEADLINE, &err);
    berthi_sched_check(status == BERTH_OK || scene_reason_is(&err, "contended") || scene_reason_is(&err, "backend_closing"));
    berth_admission_release(waiting);
  }
  berth_attempt_release(another);
  if (berth_admission_take(c->admission, &exec, &err) == BERTH_OK) (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
}

static void asks(void *arg) {
  caller *c = arg;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_admission_notify(c->admission, -1, takes_there, c, &err), &err);
  berthi_sched_check(berth_admission_notify(c->admission, -1, takes_there, c, &err) != BERTH_OK);
}

static void closer(void *arg) { berth_backend_close(((caller *)arg)->scene.backend); }

// Asked before, during or after the decision: it runs once.
static void admission_callback(void *arg) {
  (void)arg;
  caller c = {.calls = 0};
  berthi_thread threads[3];
  scene_open(&c.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&c.scene, &request, &c.held);
  c.attempt = scene_begin(&c.scene, NULL);
  c.completion = berth_attempt_completion(c.attempt);
  c.admission = scene_admit(&c.scene, c.attempt, &request);
  scene_start(&threads[0], "ask", asks, &c);
  scene_start(&threads[1], "end", ends_holder, &c);
  bool close = berthi_sched_random(2) != 0;
  if (close) scene_start(&threads[2], "close", closer, &c);
  scene_join(threads, close ? 3 : 2);
  while (c.calls == 0) berthi_thread_yield();
  scene_report(&c.scene, c.completion, NULL);
  berth_admission_release(c.admission);
  berth_attempt_release(c.attempt);
  berth_completion_release(c.completion);
  scene_close(&c.scene);
  berthi_sched_check(c.calls == 1);
}

// ---- hooks -----------------------------------------------------------------------------------------------------------------------------------------------

static void hook(void *arg, berth_cancel_cause cause) {
  caller *c = arg;
  berthi_sched_check(cause == BERTH_CANCEL_BY_CALLER || cause == BERTH_CANCEL_BY_CLOSE);
  c->hooks++;
  c->inside = true;
  berthi_sched_point();
  if (berthi_sched_random(2) != 0) scene_ok(berth_cancel_hook(c->token, NULL, NULL, NULL), &(berth_error)BERTH_ERROR_INIT); // only unhooks, here
  berthi_sched_point();
  c->inside = false;
}

// After an unhook the callback does not run and does not start.
static void unhooks(void *arg) {
  caller *c = arg;
  scene_ok(berth_cancel_hook(c->token, NULL, NULL, NULL), &(berth_error)BERTH_ERROR_INIT);
  uint32_t seen = c->hooks;
  berthi_sched_check(!c->inside);
  for (int i = 0; i < 5; i++) berthi_sched_point();
  berthi_sched_check(c->hooks == seen);
}

static void hook_race(void *arg) {
  (void)arg;
  caller c = {.calls = 0};
  berthi_thread threads[3];
  scene_open(&c.scene, NULL);
  scene_hold(&c.scene, NULL, &c.held);
  c.token = berth_attempt_cancel_token(c.held.attempt);
  scene_ok(berth_cancel_hook(c.token, hook, &c, NULL), &(berth_error)BERTH_ERROR_INIT);
  scene_start(&threads[0], "cancel", canceller, &c);
  scene_start(&threads[1], "unhook", unhooks, &c);
  scene_start(&threads[2], "cancel", canceller, &c);
  scene_join(threads, 3);
  berthi_sched_check(c.hooks <= 1);
  berth_error err = BERTH_ERROR_INIT;
  berthi_sched_check(berth_exec_check(c.held.exec, &err) == BERTH_CANCELLED);
  scene_finish(&c.scene, &c.held, BERTH_OUTCOME_CANCELLED, NULL);
  berthi_sched_check(berth_cancel_fire(c.token) == BERTH_CANCEL_ALREADY_FINISHED);
  berth_cancel_release(c.token);
  scene_close(&c.scene);
}

// Two who unhook while the callback runs: both wait for it.
static void unhook_twice(void *arg) {
  (void)arg;
  caller c = {.calls = 0};
  berthi_thread threads[3];
  scene_open(&c.scene, NULL);
  scene_ok(berth_cancel_create(c.scene.session, &c.token, NULL), &(berth_error)BERTH_ERROR_INIT);
  scene_ok(berth_cancel_hook(c.token, hook, &c, NULL), &(berth_error)BERTH_ERROR_INIT);
  scene_start(&threads[0], "cancel", canceller, &c);
  scene_start(&threads[1], "unhook", unhooks, &c);
  scene_start(&threads[2], "unhook", unhooks, &c);
  scene_join(threads, 3);
  // Hooked late it runs all the same.
  uint32_t before = c.hooks;
  scene_ok(berth_cancel_hook(c.token, hook, &c, NULL), &(berth_error)BERTH_ERROR_INIT);
  while (c.hooks == before) berthi_thread_yield();
  unhooks(&c);
  berth_cancel_release(c.token);
  scene_close(&c.scene);
}

// The close cancels what runs: the hook is told, and the execution ends.
static intptr_t runs_until_cancelled(berth_exec *exec, void *arg) {
  (void)arg;
  while (berth_exec_check(exec, NULL) == BERTH_OK) scene_sleep(5);
  return 0;
}

static void endless(void *arg) {
  caller *c = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_run(c->scene.session, NULL, runs_until_cancelled, NULL, NULL, &err);
  berthi_sched_check(status == BERTH_OK || status == BERTH_CANCELLED);
}

static void close_cancels(void *arg) {
  (void)arg;
  caller c = {.calls = 0};
  berthi_thread thread;
  scene_open(&c.scene, NULL);
  berth_request request = scene_units(1);
  scene_hold(&c.scene, &request, &c.held);
  c.token = berth_attempt_cancel_token(c.held.attempt);
  scene_ok(berth_cancel_hook(c.token, hook, &c, NULL), &(berth_error)BERTH_ERROR_INIT);
  scene_start(&thread, "endless", endless, &c);
  berth_error err = BERTH_ERROR_INIT;
  int64_t now = berthi_now();
  berth_status status = berth_backend_close_wait(c.scene.backend, now + 100, now + 10, NULL, &err);
  berthi_sched_check(status == BERTH_DEADLINE_EXCEEDED);
  while (c.hooks == 0) berthi_thread_yield();
  berthi_thread_join(&thread);
  berthi_sched_check(berth_exec_check(c.held.exec, &err) == BERTH_CANCELLED && scene_reason_is(&err, "backend_closing"));
  scene_finish(&c.scene, &c.held, BERTH_OUTCOME_CANCELLED, NULL);
  scene_ok(berth_cancel_hook(c.token, NULL, NULL, NULL), &(berth_error)BERTH_ERROR_INIT);
  berth_cancel_release(c.token);
  scene_close(&c.scene);
}

const sched_scenario scenarios_callback[] = {
    {"completion_calls", completion_calls, 750, 0},
    {"completion_on_notifier", completion_on_notifier, 1500, 0},
    {"admission_callback", admission_callback, 1500, 0},
    {"hook_race", hook_race, 1250, 0},
    {"unhook_twice", unhook_twice, 1000, 0},
    {"close_cancels", close_cancels, 750, 0},
    {NULL, NULL, 0, 0},
};
