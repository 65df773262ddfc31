// SPDX-License-Identifier: Apache-2.0
/// Time: an expiry is never late, whatever the keeper is doing; deadlines of attempts and entries; waits that time out change nothing (ADM-5, ATT-5).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct hour {
  scene scene;
  scene_held held;
  int64_t start;
} hour;

typedef struct alarm_clock {
  hour *hour;
  int64_t after;
} alarm_clock;

static void begin_hour(hour *h) {
  *h = (hour){.start = 0};
  scene_open(&h->scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&h->scene, &request, &h->held);
  h->start = berthi_now();
}

static void end_hour(hour *h) {
  scene_finish(&h->scene, &h->held, BERTH_SUCCEEDED, NULL);
  scene_close(&h->scene);
}

// Nobody moves time but the waits themselves, so the decision must come at the deadline exactly.
static void expires(void *arg) {
  alarm_clock *a = arg;
  berth_request request = scene_units(1);
  scene_end end;
  request.queue_deadline = a->hour->start + a->after;
  scene_attempt(&a->hour->scene, NULL, &request, &end);
  berthi_sched_check(!end.taken && scene_reason_is(&end.report.cause, "queue_wait_elapsed") && end.report.outcome == BERTH_FAILED);
  berthi_sched_check(berthi_now() >= a->hour->start + a->after);
  berthi_sched_check(end.report.sealed_at == a->hour->start + a->after);
}

// Armed in any order, also an earlier one while the keeper sleeps for a later one.
static void never_late(void *arg) {
  (void)arg;
  hour h;
  berthi_thread threads[3];
  alarm_clock clocks[3];
  begin_hour(&h);
  for (int i = 0; i < 3; i++) {
    clocks[i] = (alarm_clock){.hour = &h, .after = 100 + (int64_t)berthi_sched_random(3) * 50};
    scene_start(&threads[i], "expires", expires, &clocks[i]);
  }
  scene_join(threads, 3);
  berthi_sched_check(scene_laws(&h.scene).expired == 3);
  end_hour(&h);
}

// Alone, against the keeper on its way to sleep.
static void never_late_one(void *arg) {
  (void)arg;
  hour h;
  alarm_clock clock = {.hour = &h, .after = 100};
  begin_hour(&h);
  expires(&clock);
  end_hour(&h);
}

static void entry_expires(void *arg) {
  alarm_clock *a = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.deadline = a->hour->start + a->after;
  berthi_sched_check(!scene_run(&a->hour->scene, &options, &err) && scene_reason_is(&err, "deadline_exceeded"));
  berthi_sched_check(berthi_now() >= options.deadline);
}

static void entries_expire(void *arg) {
  (void)arg;
  hour h;
  berthi_thread threads[2];
  alarm_clock clocks[2];
  begin_hour(&h);
  for (int i = 0; i < 2; i++) {
    clocks[i] = (alarm_clock){.hour = &h, .after = 100 - 30 * i};
    scene_start(&threads[i], "entry", entry_expires, &clocks[i]);
  }
  scene_join(threads, 2);
  berthi_sched_check(berthi_now() == h.start + 100);
  end_hour(&h);
}

// The attempt's own deadline comes before the queue's: cancelled by it, not expired as overload (ADM-4, ATT-5).
static void attempt_deadline_queued(void *arg) {
  (void)arg;
  hour h;
  scene_end end;
  begin_hour(&h);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.deadline = h.start + 100;
  berth_request request = scene_units(1);
  scene_attempt(&h.scene, &options, &request, &end);
  berthi_sched_check(!end.taken && end.status == BERTH_DEADLINE_EXCEEDED && end.report.outcome == BERTH_OUTCOME_CANCELLED);
  berthi_sched_check(end.report.sealed_at == h.start + 100 && scene_reason_is(&end.report.cause, "deadline_exceeded"));
  end_hour(&h);
}

static void hook(void *arg, berth_cancel_cause cause) {
  int64_t *at = arg;
  berthi_sched_check(cause == BERTH_CANCEL_BY_DEADLINE);
  *at = berthi_now();
}

// A deadline while it runs: the execution and the hook are told at that time.
static void attempt_deadline_running(void *arg) {
  (void)arg;
  hour h = {.start = 0};
  int64_t told = 0;
  scene_open(&h.scene, NULL);
  h.start = berthi_now();
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.deadline = h.start + 100;
  berth_attempt *attempt = scene_begin(&h.scene, &options);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_cancel *token = berth_attempt_cancel_token(attempt);
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_cancel_hook(token, hook, &told, &err), &err);
  berth_admission *admission = scene_admit(&h.scene, attempt, NULL);
  berth_exec *exec = scene_take(admission);
  scene_ok(berth_exec_check(exec, &err), &err);
  scene_sleep(101);
  berthi_sched_check(told == h.start + 100);
  berthi_sched_check(berth_exec_check(exec, &err) == BERTH_DEADLINE_EXCEEDED && berth_cancel_check(token) == BERTH_CANCEL_BY_DEADLINE);
  berth_exec_release(exec);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_report(&h.scene, completion, &info);
  berthi_sched_check(info.outcome == BERTH_OUTCOME_CANCELLED && info.cancelled_at == h.start + 100);
  berth_cancel_release(token);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  berth_completion_release(completion);
  scene_close(&h.scene);
}

static intptr_t runs_into_deadline(berth_exec *exec, void *arg) {
  hour *h = arg;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_exec_check(exec, &err), &err);
  // LED-3: the deadline ends a wait for more, too.
  berth_status status = berth_exec_grow(exec, SCENE_UNIT, BERTH_NO_DEADLINE, &err);
  berthi_sched_check(status == BERTH_DEADLINE_EXCEEDED && berthi_now() == h->start + 100);
  berthi_sched_check(berth_exec_check(exec, &err) == BERTH_DEADLINE_EXCEEDED);
  return 1;
}

static void entry_deadline_running(void *arg) {
  (void)arg;
  hour h = {.start = 0};
  scene_open(&h.scene, NULL);
  berth_request request = scene_units(1);
  scene_hold(&h.scene, &request, &h.held);
  h.start = berthi_now();
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.deadline = h.start + 100;
  options.report = berthi_sched_random(2) != 0;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_run(h.scene.session, &options, runs_into_deadline, &h, &result, &err), &err);
  if (result.report != NULL) h.scene.begun++;
  berth_report_release(result.report);
  end_hour(&h);
}

// A wait that times out does not expire the request.
static void waits_change_nothing(void *arg) {
  (void)arg;
  hour h;
  begin_hour(&h);
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  berth_request request = scene_units(1);
  berth_attempt *attempt = scene_begin(&h.scene, NULL);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = scene_admit(&h.scene, attempt, &request);
  berthi_sched_check(berth_admission_wait(admission, h.start + 50, &err) == BERTH_DEADLINE_EXCEEDED && scene_reason_is(&err, "wait_timeout"));
  berthi_sched_check(berthi_now() == h.start + 50 && berth_admission_poll(admission, NULL) == BERTH_ADMISSION_QUEUED);
  berthi_sched_check(berth_completion_wait(completion, h.start + 80, &report, &err) == BERTH_DEADLINE_EXCEEDED);
  scene_finish(&h.scene, &h.held, BERTH_SUCCEEDED, NULL);
  (void)berth_exec_finish(scene_take(admission), BERTH_SUCCEEDED, NULL, NULL);
  scene_report(&h.scene, completion, NULL);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  scene_close(&h.scene);
}

// A deadline that has passed still gets one uncontended try.
static void one_try(void *arg) {
  (void)arg;
  hour h;
  begin_hour(&h);
  berth_request request = scene_units(1);
  scene_end end;
  request.queue_deadline = h.start - 1;
  scene_attempt(&h.scene, NULL, &request, &end);
  berthi_sched_check(!end.taken && end.report.queued_for == 0);
  scene_finish(&h.scene, &h.held, BERTH_SUCCEEDED, NULL);
  scene_attempt(&h.scene, NULL, &request, &end);
  berthi_sched_check(end.taken);
  berthi_sched_check(scene_laws(&h.scene).expired == 1);
  scene_close(&h.scene);
}

// A default deadline: overload ends in thirty seconds, and says that it was overload.
static void default_deadline(void *arg) {
  (void)arg;
  hour h;
  begin_hour(&h);
  scene_end end;
  scene_attempt(&h.scene, NULL, NULL, &end);
  berthi_sched_check(end.status == BERTH_UNAVAILABLE && scene_reason_is(&end.error, "queue_wait_elapsed") &&
                     berthi_now() == h.start + 30 * SCENE_SECOND);
  end_hour(&h);
}

// A timer that is no longer wanted does not fire: granted, then time goes on far beyond the deadline.
static void disarmed(void *arg) {
  (void)arg;
  hour h;
  begin_hour(&h);
  berth_request request = scene_units(1);
  request.queue_deadline = h.start + 100;
  berth_attempt *attempt = scene_begin(&h.scene, NULL);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = scene_admit(&h.scene, attempt, &request);
  scene_finish(&h.scene, &h.held, BERTH_SUCCEEDED, NULL);
  berth_exec *exec = scene_take(admission);
  scene_sleep(1000);
  berthi_sched_check(scene_laws(&h.scene).expired == 0);
  (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_report(&h.scene, completion, &info);
  berthi_sched_check(info.outcome == BERTH_SUCCEEDED);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  scene_sleep(1000);
  scene_close(&h.scene);
}

const sched_scenario scenarios_time[] = {
    {"never_late", never_late, 1500, 0},
    {"never_late_one", never_late_one, 500, 10000},
    {"entries_expire", entries_expire, 1000, 0},
    {"attempt_deadline_queued", attempt_deadline_queued, 750, 0},
    {"attempt_deadline_running", attempt_deadline_running, 750, 0},
    {"entry_deadline_running", entry_deadline_running, 750, 0},
    {"waits_change_nothing", waits_change_nothing, 300, 0},
    {"one_try", one_try, 300, 0},
    {"default_deadline", default_deadline, 300, 0},
    {"disarmed", disarmed, 400, 0},
    {NULL, NULL, 0, 0},
};
