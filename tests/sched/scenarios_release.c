// SPDX-License-Identifier: Apache-2.0
/// The order in which an end gives back (EXE-2, ADM-2), and the activity lease that goes last and may close the backend (CLS-1, CLS-3).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct ending {
  scene scene;
  scene_held holder;
  berth_attempt *attempt;
  berth_admission *admission;
  berth_completion *completion;
  berth_cancel *token;
  bool over;
  uint32_t released;
  bool wait_for_closed, drops_handle;
} ending;

static bool sealed(const ending *e) {
  berth_report *report = NULL;
  if (berth_completion_poll(e->completion, &report, NULL) != BERTH_OK) return false;
  berth_report_release(report);
  return true;
}

static uint64_t device_permits(const ending *e) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  scene_ok(berth_backend_close_state(e->scene.backend, &report, NULL), &(berth_error)BERTH_ERROR_INIT);
  return report.active_device_permits;
}

// ---- after an execution: the report is visible before the capacity is (EXE-2) ----------------------------------------------------------------------------

static void watch_capacity(void *arg) {
  ending *e = arg;
  bool seen = false;
  while (!seen) {
    seen = e->over || scene_laws(&e->scene).promised_bytes == 0 || device_permits(e) == 0;
    if (seen)
      berthi_sched_check(sealed(e));
    else
      berthi_thread_yield();
  }
}

static void exe2_order(void *arg) {
  (void)arg;
  ending e = {.over = false};
  berthi_thread thread;
  scene_open(&e.scene, NULL);
  berth_request request = scene_units(1);
  request.lanes = berthi_sched_random(2) != 0 ? 2 : 1;
  // From the stripe's books, too: the first attempt parks its grant.
  scene_end first;
  scene_attempt(&e.scene, NULL, NULL, &first);
  scene_hold(&e.scene, berthi_sched_random(2) != 0 ? &request : NULL, &e.holder);
  e.completion = berth_completion_retain(e.holder.completion);
  scene_start(&thread, "watch", watch_capacity, &e);
  scene_finish(&e.scene, &e.holder, BERTH_SUCCEEDED, NULL);
  e.over = true;
  berthi_thread_join(&thread);
  berth_completion_release(e.completion);
  scene_close(&e.scene);
}

// The next in the queue gets its grant only when the report of the one before is there.
static void exe2_waiter(void *arg) {
  (void)arg;
  ending e = {.over = false};
  berthi_thread thread;
  scene_open(&e.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&e.scene, &request, &e.holder);
  berth_completion *first = berth_completion_retain(e.holder.completion);
  e.completion = first;
  e.attempt = scene_begin(&e.scene, NULL);
  e.admission = scene_admit(&e.scene, e.attempt, &request);
  scene_start(&thread, "watch", watch_capacity, &e);
  (void)berth_exec_finish(e.holder.exec, BERTH_SUCCEEDED, NULL, NULL);
  berth_exec *exec = scene_take(e.admission);
  berthi_sched_check(sealed(&e));
  e.over = true;
  (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
  berthi_thread_join(&thread);
  berth_completion_release(first);
  berth_completion_release(e.holder.completion);
  berth_admission_release(e.holder.admission);
  berth_attempt_release(e.holder.attempt);
  berth_admission_release(e.admission);
  berth_attempt_release(e.attempt);
  scene_close(&e.scene);
}

// ---- after a refusal: the device permit goes first, the report next (ADM-2) -------------------------------------------------------------------------------

static void watch_permit(void *arg) {
  ending *e = arg;
  while (!sealed(e)) berthi_thread_yield();
  berthi_sched_check(device_permits(e) <= 1); // the holder's
}

static void canceller(void *arg) { (void)berth_cancel_fire(((ending *)arg)->token); }
static void closer(void *arg) { berth_backend_close(((ending *)arg)->scene.backend); }

static void adm2_order(void *arg) {
  (void)arg;
  ending e = {.over = false};
  berthi_thread threads[3];
  scene_open(&e.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&e.scene, &request, &e.holder);
  e.attempt = scene_begin(&e.scene, NULL);
  e.completion = berth_attempt_completion(e.attempt);
  e.token = berth_attempt_cancel_token(e.attempt);
  request.queue_deadline = berthi_now() + 100;
  e.admission = scene_admit(&e.scene, e.attempt, &request);
  scene_start(&threads[0], "watch", watch_permit, &e);
  scene_start(&threads[1], "cancel", canceller, &e);
  scene_start(&threads[2], "close", closer, &e);
  berthi_sched_check(berth_admission_wait(e.admission, BERTH_NO_DEADLINE, NULL) != BERTH_OK);
  scene_join(threads, 3);
  scene_finish(&e.scene, &e.holder, BERTH_SUCCEEDED, NULL);
  berth_cancel_release(e.token);
  berth_completion_release(e.completion);
  berth_admission_release(e.admission);
  berth_attempt_release(e.attempt);
  scene_close(&e.scene);
}

// ---- the activity lease ------------------------------------------------------------------------------------------------------------------------------------

static void release_activity(void *activity) {
  ending *e = activity;
  e->released++;
  if (e->completion != NULL) berthi_sched_check(sealed(e)); // last of all
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  if (e->drops_handle) {
    berth_backend_release(e->scene.backend); // one of two
    return;
  }
  berth_backend_close(e->scene.backend);
  // Inside a callback nothing is waited for (CLS-2).
  berth_status status = berth_backend_close_wait(e->scene.backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err);
  berthi_sched_check(status == BERTH_ABORTED && scene_reason_is(&err, "would_deadlock"));
  while (e->wait_for_closed && report.state != BERTH_STATE_CLOSED) { // CLS-3: CLOSED does not wait for this
    berthi_thread_yield();
    scene_ok(berth_backend_close_state(e->scene.backend, &report, &err), &err);
  }
}

static void begin_activity(ending *e, berth_request *request) {
  e->attempt = scene_begin(&e->scene, NULL);
  e->completion = berth_attempt_completion(e->attempt);
  e->token = berth_attempt_cancel_token(e->attempt);
  request->activity = e;
  request->activity_release = release_activity;
}

static void end_activity(ending *e) {
  berth_completion *completion = e->completion;
  scene_report(&e->scene, completion, NULL);
  berth_admission_release(e->admission);
  berth_attempt_release(e->attempt);
  berth_cancel_release(e->token);
  (void)scene_wait_closed(&e->scene);
  while (e->released == 0) berthi_thread_yield();
  berthi_sched_check(e->released == 1);
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  for (report.activity_leases_pending = 1; report.activity_leases_pending != 0; berthi_thread_yield()) {
    scene_ok(berth_backend_close_state(e->scene.backend, &report, NULL), &(berth_error)BERTH_ERROR_INIT);
  }
  berth_completion_release(completion);
  scene_close(&e->scene);
}

static void activity_run(void *arg) {
  (void)arg;
  ending e = {.wait_for_closed = berthi_sched_random(2) != 0};
  scene_open(&e.scene, NULL);
  berth_request request = scene_units(1);
  begin_activity(&e, &request);
  e.admission = scene_admit(&e.scene, e.attempt, &request);
  (void)berth_exec_finish(scene_take(e.admission), BERTH_SUCCEEDED, NULL, NULL);
  end_activity(&e);
}

// Ended by another: the destructor runs on the notifier, or on the stack of the one who ends his own work, and closes the backend.
static void activity_queued(void *arg) {
  (void)arg;
  ending e = {.wait_for_closed = berthi_sched_random(2) != 0};
  berthi_thread threads[2];
  scene_open(&e.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&e.scene, &request, &e.holder);
  begin_activity(&e, &request);
  e.admission = scene_admit(&e.scene, e.attempt, &request);
  scene_start(&threads[0], "cancel", canceller, &e);
  uint64_t how = berthi_sched_random(3);
  if (how == 0)
    scene_start(&threads[1], "close", closer, &e);
  else
    scene_start(&threads[1], "cancel", canceller, &e);
  scene_finish(&e.scene, &e.holder, BERTH_SUCCEEDED, NULL);
  if (berth_admission_wait(e.admission, BERTH_NO_DEADLINE, NULL) == BERTH_OK) {
    berth_exec *exec = NULL;
    if (berth_admission_take(e.admission, &exec, NULL) == BERTH_OK) berth_exec_release(exec);
  }
  scene_join(threads, 2);
  end_activity(&e);
}

// Refused at once, or lost to the close: the lease is released all the same.
static void activity_refused(void *arg) {
  (void)arg;
  ending e = {.wait_for_closed = false};
  berthi_thread thread;
  scene_open(&e.scene, NULL);
  berth_request request = scene_units(7);
  begin_activity(&e, &request);
  scene_start(&thread, "close", closer, &e);
  berth_error err = BERTH_ERROR_INIT;
  berthi_sched_check(berth_session_admit(e.scene.session, e.attempt, &request, &e.admission, &err) != BERTH_OK);
  berthi_sched_check(scene_reason_is(&err, "request_exceeds_device") || scene_reason_is(&err, "backend_closing") ||
                     scene_reason_is(&err, "backend_closed"));
  berthi_thread_join(&thread);
  end_activity(&e);
}

// The destructor gives up the last handle but one; the session is all that stays.
static void activity_drops_handle(void *arg) {
  (void)arg;
  ending e = {.drops_handle = true};
  scene_open(&e.scene, NULL);
  berth_backend *kept = berth_backend_retain(e.scene.backend);
  berth_request request = scene_units(1);
  begin_activity(&e, &request);
  e.admission = scene_admit(&e.scene, e.attempt, &request);
  (void)berth_exec_finish(scene_take(e.admission), BERTH_SUCCEEDED, NULL, NULL);
  berthi_sched_check(e.released == 1 && !berth_session_is_closing(e.scene.session));
  berth_admission_release(e.admission);
  berth_attempt_release(e.attempt);
  berth_cancel_release(e.token);
  berth_completion_release(e.completion);
  e.scene.backend = kept;
  scene_close(&e.scene);
}

const sched_scenario scenarios_release[] = {
    {"exe2_order", exe2_order, 1500, 0},
    {"exe2_waiter", exe2_waiter, 1500, 0},
    {"adm2_order", adm2_order, 2000, 0},
    {"activity_run", activity_run, 750, 3000},
    {"activity_queued", activity_queued, 2000, 0},
    {"activity_refused", activity_refused, 750, 3000},
    {"activity_drops_handle", activity_drops_handle, 300, 0},
    {NULL, NULL, 0, 0},
};
