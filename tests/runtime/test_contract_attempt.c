// SPDX-License-Identifier: Apache-2.0
// BCK-1 to BCK-5, SES-1 to SES-4, ATT-1 to ATT-7.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "runtime/core.h"
#include "runtime/fixture.h"

// ---- backend -------------------------------------------------------------------------------------------------------------------------------------

static void bck_1_invalid_configuration_acquires_nothing(void **state) {
  (void)state;
  fx f;
  berth_error err = BERTH_ERROR_INIT;
  uint64_t blocks = fx_blocks();
  uint32_t tasks = fx_task_count();
  fx_spec spec = {.devices = 2, .parameters_of1 = "no_such_parameter=1"};
  assert_int_equal(fx_try_open(&f, &spec, NULL, &err), BERTH_INVALID_ARGUMENT);
  assert_string_equal(err.reason, "invalid_configuration");
  assert_non_null(strstr(err.message, "no_such_parameter"));
  assert_null(f.backend);
  assert_int_equal(fx_blocks(), blocks);
  assert_int_equal(fx_task_count(), tasks);
  fx_open(&f, NULL, NULL);  // no lease was taken
  fx_close(&f);
}

static void bck_2_second_open_tells_who_holds_it(void **state) {
  (void)state;
  fx f, g;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_expect(fx_try_open(&g, NULL, NULL, &err), &err, BERTH_ALREADY_EXISTS, "backend_already_live");
  assert_string_equal(err.facts[0].key, "holder");
  assert_int_equal(err.facts[0].value, (int64_t)berth_session_identity(f.session).backend_id);
  assert_int_equal(err.facts[1].value, (int64_t)berth_session_identity(f.session).generation);
  assert_int_equal(err.facts[2].value, 0);
  berth_backend_close(f.backend);
  fx_until(fx_try_open(&g, NULL, NULL, &err) == BERTH_ALREADY_EXISTS && err.facts[2].value == 1);  // draining
  fx_expect(berth_lease_wait("sim:0", berth_now() + FX_MILLISECOND, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  fx_drop(&job);
  fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, &err), &err);
  fx_open(&g, NULL, NULL);
  assert_true(berth_session_identity(g.session).generation > berth_session_identity(f.session).generation);
  fx_close(&g);
  fx_close(&f);
}

static void bck_4_failed_open_rolls_back(void **state) {
  (void)state;
  fx f;
  berth_error err = BERTH_ERROR_INIT;
  uint64_t blocks = fx_blocks();
  fx_spec spec = {.devices = 2, .parameters_of1 = "fail_open=1"};
  fx_expect(fx_try_open(&f, &spec, NULL, &err), &err, BERTH_UNAVAILABLE, "device_unavailable");
  bool told = false;
  for (uint32_t i = 0; i < err.fact_count; i++) told |= strcmp(err.facts[i].key, "rollback_quiescent") == 0 && err.facts[i].value == 1;
  assert_true(told);
  fx_until(fx_blocks() <= blocks);
  spec.parameters_of1 = "nonsense=3";  // starts as something else than its profile (BCK-3)
  fx_expect(fx_try_open(&f, &spec, NULL, &err), &err, BERTH_INTERNAL, "profile_mismatch");
  fx_until(fx_blocks() <= blocks);
  spec.parameters_of1 = NULL;
  fx_open(&f, &spec, NULL);
  fx_close(&f);
}

static void bck_5_last_release_closes_and_never_waits(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  berth_backend *more = berth_backend_retain(f.backend);
  berth_backend_release(f.backend);
  assert_false(berth_session_is_closing(f.session));
  berth_backend_release(more);  // returns though an execution runs
  assert_true(berth_session_is_closing(f.session));
  berth_attempt *attempt = NULL;
  fx_expect(berth_session_begin_attempt(f.session, NULL, &attempt, &job.error), &job.error, BERTH_CANCELLED, "backend_closing");
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).outcome, BERTH_SUCCEEDED);
  fx_drop(&job);
  fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, NULL), NULL);
  berth_session_release(f.session);
  fx_until(fx_blocks() <= f.blocks);
}

// ---- session -------------------------------------------------------------------------------------------------------------------------------------

static void ses_1_session_is_weak(void **state) {
  (void)state;
  fx f, g;
  fx_open(&f, NULL, NULL);
  berth_backend_release(f.backend);
  fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, NULL), NULL);
  fx_open(&g, NULL, NULL);  // the device is free though the session is held
  assert_false(berth_session_same_backend(f.session, g.session));
  fx_close(&g);
  berth_session_release(f.session);
}

static void ses_2_clones_are_the_same_capability(void **state) {
  (void)state;
  fx f;
  char text[200];
  fx_open(&f, NULL, NULL);
  berth_session *clone = berth_session_retain(f.session);
  assert_true(berth_session_same_backend(clone, f.session));
  assert_int_equal(berth_session_identity(clone).process, getpid());
  assert_true(berth_session_describe(clone, text, sizeof text) < sizeof text);
  assert_non_null(strstr(text, "sim:0"));
  berth_session_release(clone);
  fx_close(&f);
}

static void ses_3_what_answers_after_close(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  berth_metrics m = BERTH_METRICS_INIT;
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_report *reports[2];
  berth_attempt *attempt = NULL;
  char text[64];
  fx_open(&f, NULL, NULL);
  berth_identity before = berth_session_identity(f.session);
  fx_start(&f, &job, 1, 1);
  berth_backend_close(f.backend);
  const char *reason[] = {"backend_closing", "backend_closed"};
  for (int closed = 0; closed < 2; closed++) {
    if (closed) {
      fx_drop(&job);
      fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err), &err);
    }
    fx_expect(berth_session_begin_attempt(f.session, NULL, &attempt, &err), &err, BERTH_CANCELLED, reason[closed]);
    fx_expect(berth_run(f.session, NULL, fx_fn_42, NULL, NULL, &err), &err, BERTH_CANCELLED, reason[closed]);
    fx_expect(berth_diagnostics_json(f.session, text, sizeof text, NULL, &err), &err, BERTH_CANCELLED, reason[closed]);
    fx_expect(berth_session_telemetry(f.session, 0, &sample, &err), &err, BERTH_CANCELLED, reason[closed]);
    assert_int_equal(berth_session_identity(f.session).generation, before.generation);
    assert_true(berth_session_is_closing(f.session));
    assert_true(berth_session_describe(f.session, text, sizeof text) > 0);
    fx_ok(berth_session_metrics(f.session, &m, &err), &err);
    assert_int_equal(m.begun, 1);
    assert_int_equal(m.sealed, closed);
    assert_int_equal(berth_session_attempt_counters(f.session).begun, 1);
    fx_ok(berth_session_startup_record(f.session, 0, &record, &err), &err);
    assert_string_equal(record.name, "sim:0");
    assert_int_equal(berth_session_take_abandoned(f.session, reports, 2), 0);
  }
  fx_release(&f);
}

static void ses_4_planning_never_starts_in_a_closing_backend(void **state) {
  (void)state;
  fx f;
  fx_job job = {0}, dropped = {0};
  fx_open(&f, NULL, NULL);
  job.attempt = fx_begin(&f);
  job.completion = berth_attempt_completion(job.attempt);
  dropped.attempt = fx_begin(&f);
  dropped.completion = berth_attempt_completion(dropped.attempt);
  berth_backend_close(f.backend);
  fx_expect(berth_attempt_plan_started(job.attempt, &job.error), &job.error, BERTH_CANCELLED, "backend_closing");
  fx_ok(berth_attempt_finish(job.attempt, BERTH_OUTCOME_CANCELLED, NULL, NULL), NULL);
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.disposition, BERTH_UNPLANNED);
  assert_int_equal(info.outcome, BERTH_OUTCOME_CANCELLED);
  assert_string_equal(info.cause.reason, "backend_closing");
  fx_expect(berth_attempt_plan_started(dropped.attempt, &job.error), &job.error, BERTH_CANCELLED, "backend_closing");
  berth_attempt_release(dropped.attempt);
  dropped.attempt = NULL;
  assert_string_equal(fx_report(&dropped).cause.reason, "backend_closing");
  fx_drop(&job);
  fx_drop(&dropped);
  fx_close(&f);
}

// ---- attempt -------------------------------------------------------------------------------------------------------------------------------------

typedef struct beginner {
  fx *f;
  fx_flag *go;
  uint64_t won, lost;
} beginner;

static void begin_until_closed(void *arg) {
  beginner *b = arg;
  for (;;) {
    berth_attempt *attempt = NULL;
    berth_error err = BERTH_ERROR_INIT;
    if (berth_session_begin_attempt(b->f->session, NULL, &attempt, &err)) {
      fx_check(strcmp(err.reason, "backend_closing") == 0 || strcmp(err.reason, "backend_closed") == 0);
      b->lost++;
      return;
    }
    b->won++;
    *b->go = 1;
    berth_attempt_release(attempt);
  }
}

static void att_1_begin_is_linearized_against_close(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    fx f;
    fx_flag go = 0;
    fx_thread threads[3];
    beginner b[3];
    fx_open(&f, NULL, NULL);
    for (int i = 0; i < 3; i++) {
      b[i] = (beginner){.f = &f, .go = &go};
      fx_thread_start(&threads[i], begin_until_closed, &b[i]);
    }
    fx_until(go);
    berth_backend_close(f.backend);
    uint64_t won = 0;
    for (int i = 0; i < 3; i++) {
      fx_thread_join(&threads[i]);
      won += b[i].won;
    }
    fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL), NULL);
    berth_metrics m = fx_metrics(&f);
    assert_int_equal(m.begun, won);   // a loser leaves nothing counted
    assert_int_equal(m.sealed, won);  // and CLOSED comes after every report
    fx_release(&f);
  }
}

static void att_2_begin_takes_no_device_permit(void **state) {
  (void)state;
  fx f;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  fx_job holder, queued;
  fx_open(&f, NULL, NULL);
  berth_attempt *attempt = fx_begin(&f);
  fx_ok(berth_backend_close_state(f.backend, &report, NULL), NULL);
  assert_int_equal(report.active_observation_permits, 1);
  assert_int_equal(report.active_device_permits, 0);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &queued, 1);
  fx_ok(berth_backend_close_state(f.backend, &report, NULL), NULL);
  assert_int_equal(report.active_device_permits, 2);  // ADM-2: held while it waits
  assert_int_equal(report.active_observation_permits, 3);
  fx_drop(&queued);
  fx_drop(&holder);
  fx_ok(berth_backend_close_state(f.backend, &report, NULL), NULL);
  assert_int_equal(report.active_device_permits, 0);
  berth_attempt_release(attempt);
  fx_close(&f);
}

static void att_3_texts_are_refused_never_cut(void **state) {
  (void)state;
  fx f;
  static char text[1100];
  memset(text, 'q', sizeof text);
  struct { size_t query, trace; const char *literal; bool good; } rows[] = {
      {1, 1, NULL, true}, {256, 1024, NULL, true}, {257, 0, NULL, false}, {0, 1025, NULL, false},
      {0, 0, "", false}, {0, 0, " \t\n", false}, {0, 0, "\xff\xfe", false}, {0, 0, "\xc0\xaf", false}, {0, 0, "\xed\xa0\x80", false},
      {0, 0, "\xf5\x80\x80\x80", false}, {0, 0, "\xe2\x82", false}, {0, 0, "\xe2\x82\xac", true}, {0, 0, "\xf0\x9f\x98\x80", true},
  };
  fx_open(&f, NULL, NULL);
  uint64_t begun = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char query[300], trace[1100];
    berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
    berth_attempt *attempt = NULL;
    snprintf(query, sizeof query, "%.*s", (int)rows[i].query, text);
    snprintf(trace, sizeof trace, "%.*s", (int)rows[i].trace, text);
    options.query_id = rows[i].literal ? rows[i].literal : rows[i].query ? query : NULL;
    options.trace_context = rows[i].trace ? trace : NULL;
    berth_error err = BERTH_ERROR_INIT;
    berth_status status = berth_session_begin_attempt(f.session, &options, &attempt, &err);
    if ((status == BERTH_OK) != rows[i].good) fail_msg("row %zu: %s", i, err.message);
    if (!rows[i].good) fx_expect(status, &err, BERTH_INVALID_ARGUMENT, "invalid_argument");
    begun += status == BERTH_OK;
    berth_attempt_release(attempt);
  }
  assert_int_equal(fx_metrics(&f).begun, begun);
  fx_close(&f);
}

static void att_4_first_decision_wins(void **state) {
  (void)state;
  fx f;
  fx_job job = {0};
  fx_open(&f, NULL, NULL);
  job.attempt = fx_begin(&f);
  job.completion = berth_attempt_completion(job.attempt);
  berth_error cause = BERTH_ERROR_INIT;
  cause.code = BERTH_DATA_LOSS;
  cause.reason = "host_specific";
  snprintf(cause.message, sizeof cause.message, "host_specific: row 7");
  fx_expect(berth_attempt_finish(job.attempt, BERTH_DROPPED, NULL, &job.error), &job.error, BERTH_INVALID_ARGUMENT, "invalid_argument");
  fx_ok(berth_attempt_finish(job.attempt, BERTH_FAILED, &cause, NULL), NULL);
  fx_expect(berth_attempt_finish(job.attempt, BERTH_SUCCEEDED, NULL, &job.error), &job.error, BERTH_FAILED_PRECONDITION, "already_terminal");
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.outcome, BERTH_FAILED);
  assert_int_equal(info.cause.code, BERTH_DATA_LOSS);
  assert_string_equal(info.cause.message, "host_specific: row 7");
  fx_drop(&job);
  fx_close(&f);
}

static void att_4_finish_while_running_records_and_cancels(void **state) {
  (void)state;
  fx f;
  fx_job holder, queued, running;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &queued, 1);
  fx_ok(berth_attempt_finish(queued.attempt, BERTH_FAILED, NULL, NULL), NULL);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_CANCELLED);
  assert_int_equal(fx_report(&queued).outcome, BERTH_FAILED);
  fx_drop(&holder);
  fx_start(&f, &running, 1, 1);
  fx_ok(berth_attempt_finish(running.attempt, BERTH_FAILED, NULL, NULL), NULL);
  berth_report *none = NULL;
  fx_expect(berth_completion_poll(running.completion, &none, &running.error), &running.error, BERTH_NOT_FOUND, "not_ready");
  fx_expect(berth_exec_check(running.exec, &running.error), &running.error, BERTH_CANCELLED, "cancelled");
  fx_finish(&running, BERTH_SUCCEEDED);  // later: the first one stands
  assert_int_equal(fx_report(&running).outcome, BERTH_FAILED);
  fx_drop(&queued);
  fx_drop(&running);
  fx_close(&f);
}

static void finish_exec(void *arg) {
  fx_job *job = arg;
  fx_check(berth_exec_finish(job->exec, BERTH_SUCCEEDED, NULL, NULL) == BERTH_OK);
}

static void att_4_owner_and_execution_race(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 200; i++) {
    fx_job job;
    fx_thread thread;
    fx_start(&f, &job, 1, 1);
    fx_thread_start(&thread, finish_exec, &job);
    berth_error cause = BERTH_ERROR_INIT;
    cause.code = BERTH_DATA_LOSS;
    cause.reason = "mine";
    bool mine = berth_attempt_finish(job.attempt, BERTH_FAILED, &cause, NULL) == BERTH_OK;
    fx_thread_join(&thread);
    job.exec = NULL;
    berth_report_info info = fx_report(&job);
    assert_int_equal(info.outcome, mine ? BERTH_FAILED : BERTH_SUCCEEDED);
    if (mine) assert_string_equal(info.cause.reason, "mine");
    fx_drop(&job);
  }
  fx_close(&f);
}

static void att_5_dispositions_and_outcomes(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int d = BERTH_UNPLANNED; d <= BERTH_NATIVE; d++) {
    for (int o = BERTH_SUCCEEDED; o <= BERTH_OUTCOME_CANCELLED; o++) {
      fx_job job = {0};
      job.attempt = fx_begin(&f);
      job.completion = berth_attempt_completion(job.attempt);
      fx_ok(berth_attempt_plan_started(job.attempt, NULL), NULL);
      fx_ok(berth_attempt_plan_finished(job.attempt, (berth_disposition)d, "scan", NULL), NULL);
      fx_ok(berth_attempt_finish(job.attempt, (berth_outcome)o, NULL, NULL), NULL);
      berth_report_info info = fx_report(&job);
      assert_int_equal(info.disposition, d);
      assert_int_equal(info.outcome, o);
      assert_string_equal(info.plan, "scan");
      assert_true(info.plan_finished_at >= info.plan_started_at && info.plan_started_at >= info.begun_at);
      fx_drop(&job);
    }
  }
  assert_int_equal(fx_metrics(&f).sealed, 12);
  fx_close(&f);
}

static void att_5_caller_outranks_deadline(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  fx_open(&f, NULL, NULL);
  for (int64_t span = 5 * FX_MILLISECOND;; span *= 2) {  // on a busy machine the first ones may pass before the submission
    options.deadline = berth_now() + span;
    fx_submit(&f, &job, NULL, &options);
    if (!job.status && fx_state(&job) == BERTH_ADMISSION_GRANTED && !berth_admission_take(job.admission, &job.exec, NULL)) break;
    fx_drop(&job);
  }
  berth_cancel *token = berth_attempt_cancel_token(job.attempt);
  fx_until(berth_cancel_check(token) == BERTH_CANCEL_BY_DEADLINE);
  fx_expect(berth_exec_check(job.exec, &job.error), &job.error, BERTH_DEADLINE_EXCEEDED, "deadline_exceeded");
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  assert_int_equal(berth_cancel_check(token), BERTH_CANCEL_BY_CALLER);
  fx_expect(berth_exec_check(job.exec, &job.error), &job.error, BERTH_CANCELLED, "cancelled");
  berth_cancel_release(token);
  berth_exec_release(job.exec);
  job.exec = NULL;
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.outcome, BERTH_OUTCOME_CANCELLED);
  assert_int_equal(info.cancel_cause, BERTH_CANCEL_BY_CALLER);
  assert_true(info.cancel_latency >= 0);
  fx_drop(&job);
  fx_close(&f);
}

// ATT-6 ------------------------------------------------------------------------------------------------------------------------------------------

static void abandon(const fx *f, int index) {
  char id[16];
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  snprintf(id, sizeof id, "q%d", index);
  options.query_id = id;
  options.max_events = 2;
  fx_ok(berth_session_begin_attempt(f->session, &options, &attempt, NULL), NULL);
  for (int i = 0; i < 3; i++) berth_attempt_record(attempt, "step", i);
  berth_attempt_release(attempt);
}

static void att_6_abandoned_queue_is_counted_exactly(void **state) {
  (void)state;
  fx f;
  berth_report *reports[8];
  berth_backend_options options = fx_options();
  options.abandoned_max = 4;
  options.abandoned_detail = 2;
  fx_open(&f, NULL, &options);
  for (int i = 0; i < 10; i++) abandon(&f, i);
  berth_metrics m = fx_metrics(&f);
  assert_int_equal(m.held, 4);
  assert_int_equal(m.overflowed, 6);
  assert_int_equal(berth_session_attempt_counters(f.session).abandoned, 10);
  assert_int_equal(berth_session_take_abandoned(f.session, reports, 3), 3);
  for (int i = 0; i < 3; i++) {
    char id[16];
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    fx_ok(berth_report_get(reports[i], &info, NULL), NULL);
    snprintf(id, sizeof id, "q%d", 6 + i);  // the oldest first
    assert_string_equal(info.query_id, id);
    assert_int_equal(info.outcome, BERTH_DROPPED);
    assert_int_equal(info.summary_only, i < 2);
    assert_int_equal(info.events + info.events_lost, 3);
    berth_report_release(reports[i]);
  }
  m = fx_metrics(&f);
  assert_int_equal(m.taken, 3);
  assert_int_equal(m.held, 1);
  fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL), NULL);
  assert_int_equal(berth_session_take_abandoned(f.session, reports, 8), 1);  // also after close
  berth_report_release(reports[0]);
  fx_release(&f);
}

static void att_6_no_queue(void **state) {
  (void)state;
  fx f;
  berth_report *reports[2];
  berth_backend_options options = fx_options();
  options.abandoned_max = BERTH_NONE_U32;
  fx_open(&f, NULL, &options);
  for (int i = 0; i < 3; i++) abandon(&f, i);
  assert_int_equal(berth_session_take_abandoned(f.session, reports, 2), 0);
  assert_int_equal(fx_metrics(&f).overflowed, 3);
  fx_close(&f);
}

static void att_6_dropping_a_completion_cancels_nothing(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  berth_completion *more = berth_completion_retain(job.completion);
  berth_completion_release(job.completion);
  fx_ok(berth_exec_check(job.exec, NULL), NULL);
  berth_completion_release(more);
  job.completion = NULL;
  fx_ok(berth_exec_check(job.exec, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_metrics(&f).held, 1);
  fx_drop(&job);
  fx_close(&f);
}

typedef struct told {
  fx_flag count;
  _Atomic uint64_t attempt_id;
  pthread_t thread;
} told;

static void be_told(void *arg, berth_report *report) {
  told *t = arg;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  fx_check(berth_report_get(report, &info, NULL) == BERTH_OK);
  t->attempt_id = info.attempt_id;
  t->thread = pthread_self();
  t->count++;
}

static void att_6_completion_notifies_once(void **state) {
  (void)state;
  fx f;
  fx_job job;
  told t = {0}, late = {0};
  uint64_t value = 0;
  int fd = eventfd(0, EFD_NONBLOCK);
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_ok(berth_completion_notify(job.completion, fd, be_told, &t, NULL), NULL);
  fx_expect(berth_completion_notify(job.completion, fd, be_told, &t, &job.error), &job.error, BERTH_FAILED_PRECONDITION, "already_taken");
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(t.count, 1);  // on the thread that finished it, which is the user's (USR-2)
  assert_true(pthread_equal(t.thread, pthread_self()));
  assert_int_equal(t.attempt_id, berth_attempt_id(job.attempt));
  assert_int_equal(read(fd, &value, sizeof value), sizeof value);
  assert_int_equal(value, 1);
  assert_true(read(fd, &value, sizeof value) < 0);
  fx_drop(&job);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_ok(berth_completion_notify(job.completion, -1, be_told, &late, NULL), NULL);  // asked late
  fx_until(late.count == 1);
  assert_false(pthread_equal(late.thread, pthread_self()));
  fx_drop(&job);
  fx_close(&f);
  close(fd);
}

// ATT-7 ------------------------------------------------------------------------------------------------------------------------------------------

typedef struct hooked {
  fx_flag count, cause;
  pthread_t thread;
} hooked;

static void hook(void *arg, berth_cancel_cause cause) {
  hooked *h = arg;
  h->cause = (int)cause;
  h->thread = pthread_self();
  h->count++;
}

static void att_7_cancel_answers_what_happened(void **state) {
  (void)state;
  fx f;
  fx_job job, other;
  hooked h = {0}, late = {0}, unhooked = {0};
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_start(&f, &other, 1, 1);
  berth_cancel *token = berth_attempt_cancel_token(job.attempt);
  fx_ok(berth_cancel_hook(token, hook, &unhooked, NULL), NULL);
  fx_ok(berth_cancel_hook(token, NULL, NULL, NULL), NULL);
  fx_ok(berth_cancel_hook(token, hook, &h, NULL), NULL);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  fx_until(h.count);
  assert_int_equal(h.cause, BERTH_CANCEL_BY_CALLER);
  assert_false(pthread_equal(h.thread, pthread_self()));  // USR-2: never on the stack of whoever cancels
  fx_ok(berth_cancel_hook(token, hook, &late, NULL), NULL);
  fx_until(late.count);
  fx_ok(berth_exec_check(other.exec, NULL), NULL);  // it never stops another
  fx_finish(&job, BERTH_OUTCOME_CANCELLED);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_ALREADY_FINISHED);
  berth_cancel_release(token);
  fx_drop(&job);
  fx_drop(&other);
  fx_close(&f);
  assert_int_equal(h.count, 1);
  assert_int_equal(late.count, 1);
  assert_int_equal(unhooked.count, 0);
}

static void att_7_close_fires_the_hooks_of_what_runs(void **state) {
  (void)state;
  fx f;
  fx_job jobs[3];
  hooked h[3] = {{0}};
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 3; i++) {
    fx_submit(&f, &jobs[i], NULL, NULL);
    fx_wait_take(&jobs[i]);
    fx_finish(&jobs[i], BERTH_SUCCEEDED);  // so that the next ones find what is parked
    fx_drop(&jobs[i]);
  }
  for (int i = 0; i < 3; i++) {
    fx_submit(&f, &jobs[i], NULL, NULL);
    fx_wait_take(&jobs[i]);
    berth_cancel *token = berth_attempt_cancel_token(jobs[i].attempt);
    fx_ok(berth_cancel_hook(token, hook, &h[i], NULL), NULL);
    berth_cancel_release(token);
  }
  berth_error err = BERTH_ERROR_INIT;
  fx_expect(berth_backend_close_wait(f.backend, berth_now() + FX_MILLISECOND, berth_now(), NULL, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  for (int i = 0; i < 3; i++) {
    fx_until(h[i].count == 1);
    assert_int_equal(h[i].cause, BERTH_CANCEL_BY_CLOSE);
    fx_expect(berth_exec_check(jobs[i].exec, &err), &err, BERTH_CANCELLED, "backend_closing");
    berth_exec_release(jobs[i].exec);
    jobs[i].exec = NULL;
    berth_report_info info = fx_report(&jobs[i]);
    assert_int_equal(info.outcome, BERTH_OUTCOME_CANCELLED);
    assert_int_equal(info.cancel_cause, BERTH_CANCEL_BY_CLOSE);
    fx_drop(&jobs[i]);
  }
  fx_close(&f);
}

static void att_7_tokens_work_after_the_backend_is_gone(void **state) {
  (void)state;
  fx f;
  berth_cancel *tokens[2];
  hooked h[2] = {{0}};
  uint32_t tasks = fx_task_count();
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 2; i++) fx_ok(berth_cancel_create(f.session, &tokens[i], NULL), NULL);
  fx_ok(berth_cancel_hook(tokens[0], hook, &h[0], NULL), NULL);
  fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL), NULL);
  fx_until(fx_task_count() <= tasks);  // the notifier has ended
  assert_int_equal(berth_cancel_fire(tokens[0]), BERTH_CANCEL_FIRED);
  assert_int_equal(h[0].count, 1);
  assert_int_equal(berth_cancel_fire(tokens[1]), BERTH_CANCEL_FIRED);
  fx_ok(berth_cancel_hook(tokens[1], hook, &h[1], NULL), NULL);
  assert_int_equal(h[1].count, 1);
  for (int i = 0; i < 2; i++) berth_cancel_release(tokens[i]);
  fx_release(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bck_1_invalid_configuration_acquires_nothing),
      cmocka_unit_test(bck_2_second_open_tells_who_holds_it),
      cmocka_unit_test(bck_4_failed_open_rolls_back),
      cmocka_unit_test(bck_5_last_release_closes_and_never_waits),
      cmocka_unit_test(ses_1_session_is_weak),
      cmocka_unit_test(ses_2_clones_are_the_same_capability),
      cmocka_unit_test(ses_3_what_answers_after_close),
      cmocka_unit_test(ses_4_planning_never_starts_in_a_closing_backend),
      cmocka_unit_test(att_1_begin_is_linearized_against_close),
      cmocka_unit_test(att_2_begin_takes_no_device_permit),
      cmocka_unit_test(att_3_texts_are_refused_never_cut),
      cmocka_unit_test(att_4_first_decision_wins),
      cmocka_unit_test(att_4_finish_while_running_records_and_cancels),
      cmocka_unit_test(att_4_owner_and_execution_race),
      cmocka_unit_test(att_5_dispositions_and_outcomes),
      cmocka_unit_test(att_5_caller_outranks_deadline),
      cmocka_unit_test(att_6_abandoned_queue_is_counted_exactly),
      cmocka_unit_test(att_6_no_queue),
      cmocka_unit_test(att_6_dropping_a_completion_cancels_nothing),
      cmocka_unit_test(att_6_completion_notifies_once),
      cmocka_unit_test(att_7_cancel_answers_what_happened),
      cmocka_unit_test(att_7_close_fires_the_hooks_of_what_runs),
      cmocka_unit_test(att_7_tokens_work_after_the_backend_is_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
