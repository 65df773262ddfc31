// SPDX-License-Identifier: Apache-2.0
/// Begin and admission against close (ATT-1, BCK-5, ADM-2, SES-4).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

static void just_run(void *arg) {
  (void)arg;
  scene s;
  scene_open(&s, NULL);
  berth_error err = BERTH_ERROR_INIT;
  berthi_sched_check(scene_run(&s, NULL, &err));
  scene_close(&s);
}

static void closer(void *arg) {
  scene *s = arg;
  berth_backend_close(s->backend);
}

// Begins and ends without an admission. The winner of the gate has a report; the loser leaves nothing.
static void begin_and_end(void *arg) {
  scene *s = arg;
  berth_attempt *attempt = scene_begin(s, NULL);
  if (attempt == NULL) return;
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_error err = BERTH_ERROR_INIT;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_status plan = berth_attempt_plan_started(attempt, &err);
  // SES-4: never planned after the gate was found closed.
  berthi_sched_check(plan == BERTH_OK || (plan == BERTH_CANCELLED && scene_reason_is(&err, "backend_closing")));
  if (berthi_sched_random(2) != 0) {
    scene_ok(berth_attempt_finish(attempt, BERTH_FAILED, plan != BERTH_OK ? &err : NULL, &err), &err);
  }
  berth_attempt_release(attempt);
  scene_report(s, completion, &info);
  berthi_sched_check(info.disposition == BERTH_UNPLANNED);
  berth_completion_release(completion);
}

static void begin_close(void *arg) {
  (void)arg;
  scene s;
  berthi_thread threads[3];
  scene_open(&s, NULL);
  scene_start(&threads[0], "begin", begin_and_end, &s);
  scene_start(&threads[1], "begin", begin_and_end, &s);
  scene_start(&threads[2], "close", closer, &s);
  (void)scene_laws(&s);
  scene_join(threads, 3);
  berthi_sched_check(s.begun + s.lost == 2 && s.reports == s.begun);
  berthi_sched_check(scene_wait_closed(&s).delivered == s.begun);
  scene_close(&s);
}

// The smallest one, for the exhaustive mode.
static void begin_close_two(void *arg) {
  (void)arg;
  scene s;
  berthi_thread thread;
  scene_open(&s, NULL);
  scene_start(&thread, "begin", begin_and_end, &s);
  berth_backend_close(s.backend);
  berthi_thread_join(&thread);
  berthi_sched_check(s.begun + s.lost == 1 && s.reports == s.begun);
  scene_close(&s);
}

static void whole_attempts(void *arg) {
  scene *s = arg;
  for (int i = 0; i < 2; i++) {
    scene_end end;
    scene_attempt(s, NULL, NULL, &end);
    if (!end.begun) continue;
    berthi_sched_check(end.taken || end.status == BERTH_CANCELLED);
    if (end.taken) berthi_sched_check(end.report.outcome == BERTH_SUCCEEDED && end.report.disposition == BERTH_NATIVE);
    // A close is its evidence (SES-4).
    if (!end.taken) berthi_sched_check(end.report.outcome == BERTH_OUTCOME_CANCELLED && scene_reason_is(&end.report.cause, "backend_closing"));
  }
}

static void admit_close(void *arg) {
  (void)arg;
  scene s;
  berthi_thread threads[3];
  scene_open(&s, &(scene_setup){.units = 1, .slots = 1});
  scene_start(&threads[0], "client", whole_attempts, &s);
  scene_start(&threads[1], "client", whole_attempts, &s);
  scene_start(&threads[2], "close", closer, &s);
  (void)scene_laws(&s);
  scene_join(threads, 3);
  berthi_sched_check(s.begun + s.lost == 4 && s.reports == s.begun);
  scene_close(&s);
}

static void runs(void *arg) {
  scene *s = arg;
  for (int i = 0; i < 2; i++) {
    berth_error err = BERTH_ERROR_INIT;
    if (!scene_run(s, NULL, &err)) berthi_sched_check(scene_reason_is(&err, "backend_closing") || scene_reason_is(&err, "backend_closed"));
  }
}

static void run_close(void *arg) {
  (void)arg;
  scene s;
  berthi_thread threads[3];
  scene_open(&s, &(scene_setup){.units = 1, .slots = 1});
  scene_start(&threads[0], "run", runs, &s);
  scene_start(&threads[1], "run", runs, &s);
  scene_start(&threads[2], "close", closer, &s);
  (void)scene_laws(&s);
  scene_join(threads, 3);
  scene_close(&s);
}

// ADM-1: after the signal nobody is granted any more, though there is room.
static void close_then_release(void *arg) {
  (void)arg;
  scene s;
  scene_held held;
  scene_open(&s, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&s, &request, &held);
  berth_attempt *attempt = scene_begin(&s, NULL);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = scene_admit(&s, attempt, &request);
  berth_error err = BERTH_ERROR_INIT;
  berth_backend_close(s.backend);
  scene_finish(&s, &held, BERTH_SUCCEEDED, NULL);
  berthi_sched_check(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err) == BERTH_CANCELLED && scene_reason_is(&err, "backend_closing"));
  scene_report(&s, completion, NULL);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  scene_close(&s);
}

// The last handle signals close exactly as close does, also while a session begins.
static void last_handle(void *arg) {
  (void)arg;
  scene s;
  berthi_thread threads[2];
  scene_open(&s, NULL);
  scene_start(&threads[0], "begin", begin_and_end, &s);
  scene_start(&threads[1], "run", runs, &s);
  berth_backend_release(s.backend);
  berthi_sched_check(berth_session_is_closing(s.session));
  scene_join(threads, 2);
  while (scene_laws(&s).open != 0) berthi_thread_yield();
  scene_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, NULL), &(berth_error)BERTH_ERROR_INIT);
  berth_session_release(s.session);
}

const sched_scenario scenarios_gate[] = {
    {"just_run", just_run, 300, 0},
    {"begin_close", begin_close, 1500, 0},
    {"begin_close_two", begin_close_two, 500, 90000},
    {"admit_close", admit_close, 2000, 0},
    {"run_close", run_close, 2000, 0},
    {"last_handle", last_handle, 750, 0},
    {"close_then_release", close_then_release, 500, 50000},
    {NULL, NULL, 0, 0},
};
