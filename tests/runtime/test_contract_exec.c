// SPDX-License-Identifier: Apache-2.0
// LED-1, LED-2, LED-5, EXE-1 to EXE-3, RUN-1 to RUN-6, USR-1 to USR-3.
#include <setjmp.h>

#include "base/lock.h"
#include "runtime/exec_ops.h"
#include "runtime/fixture.h"

// ---- ledger --------------------------------------------------------------------------------------------------------------------------------------

static void led_2_allocator_enforces_the_grant(void **state) {
  (void)state;
  fx f;
  fx_job job, other;
  void *memory = NULL;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  fx_start(&f, &other, 10, 1);
  fx_expect(berth_exec_alloc(job.exec, 11 * FX_UNIT, &memory, &job.error), &job.error, BERTH_RESOURCE_EXHAUSTED, "grant_exhausted");
  fx_expect(berth_exec_alloc(job.exec, UINT64_MAX, &memory, &job.error), &job.error, BERTH_RESOURCE_EXHAUSTED, "grant_exhausted");
  fx_ok(berth_exec_alloc(job.exec, 9 * FX_UNIT, &memory, &job.error), &job.error);
  assert_int_equal((uintptr_t)memory % 64, 0);
  fx_ok(berth_exec_charge(job.exec, (int64_t)FX_UNIT / 2, &job.error), &job.error);
  fx_expect(berth_exec_charge(job.exec, (int64_t)FX_UNIT, &job.error), &job.error, BERTH_RESOURCE_EXHAUSTED, "grant_exhausted");
  fx_ok(berth_exec_charge(job.exec, INT64_MIN, &job.error), &job.error);  // a credit of more than there is credits what is there
  fx_ok(berth_exec_alloc(other.exec, 10 * FX_UNIT, &memory, &job.error), &job.error);
  fx_finish(&job, BERTH_FAILED);
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.health_after, BERTH_HEALTH_OK);
  assert_true(info.bytes_peak >= 9 * FX_UNIT + FX_UNIT / 2 && info.bytes_peak <= 10 * FX_UNIT);
  fx_drop(&job);
  fx_drop(&other);
  fx_close(&f);
}

static void led_2_device_exhausted_is_no_fault(void **state) {
  (void)state;
  fx f;
  fx_job job;
  void *memory = NULL;
  fx_spec spec = {.parameters = "fail_alloc=1"};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &job, 10, 1);
  fx_expect(berth_exec_alloc(job.exec, 64, &memory, &job.error), &job.error, BERTH_RESOURCE_EXHAUSTED, "device_exhausted");
  fx_ok(berth_exec_alloc(job.exec, 64, &memory, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).health_after, BERTH_HEALTH_OK);
  fx_drop(&job);
  fx_close(&f);
}

static void led_5_external_stops_new_grants_parked_ones_too(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 3; i++) fx_run_plain(&f);
  fx_start(&f, &job, 40, 1);
  fx_ok(berth_device_charge(f.backend, 0, (int64_t)(100 * FX_UNIT), NULL), NULL);
  fx_ok(berth_exec_check(job.exec, NULL), NULL);  // old ones are not broken
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.deadline = berth_now() + 2 * FX_MILLISECOND;
  fx_expect(berth_run(f.session, &options, fx_fn_42, NULL, NULL, &err), &err, BERTH_DEADLINE_EXCEEDED, "deadline_exceeded");
  berth_request request = BERTH_REQUEST_INIT;
  fx_job late;
  fx_submit(&f, &late, &request, NULL);
  fx_ok(late.status, &late.error);
  assert_int_equal(fx_state(&late), BERTH_ADMISSION_QUEUED);
  fx_drop(&late);
  fx_drop(&job);
  fx_submit(&f, &late, &request, NULL);
  assert_int_equal(fx_state(&late), BERTH_ADMISSION_QUEUED);
  fx_ok(berth_device_charge(f.backend, 0, -(int64_t)(100 * FX_UNIT), NULL), NULL);
  assert_int_equal(fx_state(&late), BERTH_ADMISSION_GRANTED);
  fx_expect(berth_device_charge(f.backend, 0, -1, &err), &err, BERTH_INVALID_ARGUMENT, "invalid_argument");
  fx_drop(&late);
  fx_run_plain(&f);
  fx_close(&f);
}

static void led_5_plain_entries_wait_for_external_use(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 3; i++) fx_run_plain(&f);  // one grant is parked
  fx_ok(berth_device_charge(f.backend, 0, (int64_t)(100 * FX_UNIT), NULL), NULL);
  fx_job job;
  fx_submit(&f, &job, NULL, NULL);  // plain: the kind that takes a parked grant
  assert_int_equal(fx_state(&job), BERTH_ADMISSION_QUEUED);
  fx_drop(&job);
  fx_ok(berth_device_charge(f.backend, 0, -(int64_t)(100 * FX_UNIT), NULL), NULL);
  fx_close(&f);
}

// ---- execution -----------------------------------------------------------------------------------------------------------------------------------

static void exe_1_concurrent_use_is_reported(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  berth_exec *child = NULL;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_ok(berthi_exec_op_begin(job.exec, "add", &err), &err);
  fx_expect(berthi_exec_op_begin(job.exec, "multiply", &err), &err, BERTH_FAILED_PRECONDITION, "concurrent_use");
  assert_non_null(strstr(err.message, "add"));
  fx_ok(berth_exec_child(job.exec, &child, &err), &err);
  fx_ok(berthi_exec_op_begin(child, "multiply", &err), &err);
  berthi_exec_op_end(child, 8, 8);
  berthi_exec_op_end(job.exec, 16, 8);
  berth_exec_release(child);
  fx_finish(&job, BERTH_SUCCEEDED);
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.operations, 2);
  assert_int_equal(info.bytes_moved, 40);
  fx_drop(&job);
  fx_close(&f);
}

typedef struct ends {
  fx *f;
  fx_job *job;
  fx_flag completed, released;
} ends;

static void end_completed(void *arg, berth_report *report) {
  ends *e = arg;
  berth_report *sealed = NULL;
  (void)report;
  fx_check(berth_completion_poll(e->job->completion, &sealed, NULL) == BERTH_OK);
  berth_report_release(sealed);
  berth_metrics m = BERTH_METRICS_INIT;
  berth_close_report close = BERTH_CLOSE_REPORT_INIT;
  fx_check(berth_session_metrics(e->f->session, &m, NULL) == BERTH_OK);
  fx_check(m.promised_bytes == 0);  // capacity is exposed before the callbacks
  fx_check(berth_backend_close_state(e->f->backend, &close, NULL) == BERTH_OK);
  fx_check(close.active_device_permits == 0);
  fx_check(close.active_observation_permits == 1);  // given after them
  fx_check(!e->released);
  e->completed = 1;
}

static void end_released(void *arg) {
  ends *e = arg;
  berth_close_report close = BERTH_CLOSE_REPORT_INIT;
  fx_check(e->completed);
  fx_check(berth_backend_close_state(e->f->backend, &close, NULL) == BERTH_OK);
  fx_check(close.active_observation_permits == 0);
  e->released = 1;
}

static void exe_2_release_order(void **state) {
  (void)state;
  fx f;
  fx_job job = {0};
  void *memory;
  fx_open(&f, NULL, NULL);
  ends e = {.f = &f, .job = &job};
  berth_request request = fx_request(10, 1);
  request.activity = &e;
  request.activity_release = end_released;
  fx_submit(&f, &job, &request, NULL);
  fx_wait_take(&job);
  fx_ok(berth_exec_alloc(job.exec, FX_UNIT, &memory, NULL), NULL);
  fx_ok(berth_completion_notify(job.completion, -1, end_completed, &e, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_until(e.released);
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.bytes_held, FX_UNIT);
  assert_int_equal(info.cleanup, BERTH_CLEANUP_PROVEN);
  assert_int_equal(info.capacity, BERTH_CAPACITY_RETURNED);
  assert_true(info.submitted_at <= info.granted_at && info.granted_at <= info.taken_at && info.taken_at <= info.sealed_at);
  fx_drop(&job);
  fx_close(&f);
}

static void exe_2_failed_settle_is_told(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_spec spec = {.parameters = "fail_settle=1"};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &job, 1, 1);
  fx_expect(berth_exec_finish(job.exec, BERTH_SUCCEEDED, NULL, &job.error), &job.error, BERTH_INTERNAL, "device_fault");
  job.exec = NULL;
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.cleanup, BERTH_CLEANUP_FAILED);
  assert_int_equal(info.outcome, BERTH_FAILED);  // what did not settle has not succeeded
  assert_string_equal(info.cause.reason, "device_fault");
  fx_drop(&job);
  fx_run_plain(&f);
  fx_close(&f);
}

// ---- scoped entry --------------------------------------------------------------------------------------------------------------------------------

typedef struct run {
  fx *f;
  int calls;
  intptr_t value;
  berth_status inner[6];
  const char *reason[6];
} run;

static intptr_t count_calls(berth_exec *exec, void *arg) {
  run *r = arg;
  r->calls++;
  fx_check(berth_exec_check(exec, NULL) == BERTH_OK);
  return r->value;
}

static void run_1_three_results(void **state) {
  (void)state;
  fx f;
  run r = {.value = INTPTR_MIN};
  berth_error err = BERTH_ERROR_INIT;
  fx_spec spec = {.parameters = "fail_settle=1"};
  fx_open(&f, &spec, NULL);
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  fx_ok(berth_run(f.session, NULL, count_calls, &r, &result, &err), &err);
  assert_true(result.ran);
  assert_true(result.value == INTPTR_MIN);
  assert_int_equal(result.cleanup, BERTH_INTERNAL);
  assert_string_equal(result.cleanup_error.reason, "device_fault");
  assert_int_equal(r.calls, 1);
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.bytes = 1000 * FX_UNIT;
  result = (berth_run_result)BERTH_RUN_RESULT_INIT;
  fx_expect(berth_run(f.session, &options, count_calls, &r, &result, &err), &err, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  assert_false(result.ran);
  assert_int_equal(r.calls, 1);  // never after a failed admission
  options.report = true;
  fx_expect(berth_run(f.session, &options, count_calls, &r, &result, &err), &err, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  assert_non_null(result.report);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  fx_ok(berth_report_get(result.report, &info, NULL), NULL);
  assert_string_equal(info.cause.reason, "request_exceeds_device");
  berth_report_release(result.report);
  fx_close(&f);
}

static void waiting_run(void *arg) {
  run *r = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.lanes = 2;
  fx_check(berth_run(r->f->session, &options, count_calls, r, NULL, NULL) == BERTH_OK);
}

static void run_2_waits_for_lanes_of_others(void **state) {
  (void)state;
  fx f;
  fx_job holder;
  fx_thread threads[3];
  run r[3];
  fx_spec spec = {.lanes = 2};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &holder, 1, 1);
  for (int i = 0; i < 3; i++) {
    r[i] = (run){.f = &f};
    fx_thread_start(&threads[i], waiting_run, &r[i]);
  }
  fx_until(berthi_wait_place_count("run.wait") == 3);
  for (int i = 0; i < 3; i++) assert_int_equal(r[i].calls, 0);
  fx_drop(&holder);
  for (int i = 0; i < 3; i++) {
    fx_thread_join(&threads[i]);
    assert_int_equal(r[i].calls, 1);
  }
  fx_close(&f);
}

static intptr_t reenter(berth_exec *exec, void *arg) {
  run *r = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_exec *held = NULL;
  r->inner[0] = berth_run(r->f->session, NULL, count_calls, r, NULL, &err);
  r->reason[0] = err.reason;
  r->inner[1] = berth_exec_hold(r->f->session, NULL, &held, &err);
  r->reason[1] = err.reason;
  r->inner[2] = berth_exec_run(exec, count_calls, r, NULL, &err);
  r->reason[2] = err.reason;
  r->inner[3] = berth_backend_close_wait(r->f->backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, NULL, &err);
  r->reason[3] = err.reason;
  return 7;
}

static void run_2_reentry_is_an_error_before_fn(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  run r = {.f = &f};
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  fx_ok(berth_run(f.session, NULL, reenter, &r, &result, NULL), NULL);
  assert_int_equal(result.value, 7);
  assert_int_equal(r.calls, 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(r.inner[i], BERTH_FAILED_PRECONDITION);
    assert_string_equal(r.reason[i], "reentered");
  }
  assert_int_equal(r.inner[3], BERTH_ABORTED);
  assert_string_equal(r.reason[3], "would_deadlock");  // CLS-2
  assert_true(berth_session_is_closing(f.session));
  fx_close(&f);
}


static int inline_executor(void *arg, uint64_t count, void (*body)(void *, uint64_t), void *body_arg) {
  (void)arg;
  for (uint64_t i = 0; i < count; i++) body(body_arg, i);
  return 0;
}

static void run_2_caller_managed_lanes_are_contended_and_come_back(void **state) {
  (void)state;
  fx f;
  fx_job a, b, holder;
  berth_lanes *lanes = NULL;
  berth_lanes_options options = BERTH_LANES_OPTIONS_INIT;
  options.executor = inline_executor;
  options.executor_lanes = 2;
  fx_open(&f, NULL, NULL);
  fx_ok(berth_lanes_create(f.session, &options, &lanes, NULL), NULL);
  berth_request request = fx_request(10, 2);
  request.lane_set = lanes;
  fx_submit(&f, &a, &request, NULL);
  fx_ok(a.status, &a.error);
  fx_submit(&f, &b, &request, NULL);
  fx_expect(b.status, &b.error, BERTH_ABORTED, "contended");
  fx_drop(&b);
  fx_drop(&a);  // untaken: the set is free again
  fx_start(&f, &holder, 100, 1);
  for (int i = 0; i < 3; i++) {
    fx_submit(&f, &a, &request, NULL);
    fx_ok(a.status, &a.error);
    (void)berth_admission_cancel(a.admission);  // cancelled in the queue
    fx_drop(&a);
  }
  berth_request large = request;
  large.bytes = 1000 * FX_UNIT;
  fx_submit(&f, &a, &large, NULL);  // refused
  fx_expect(a.status, &a.error, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  fx_drop(&a);
  fx_drop(&holder);
  fx_submit(&f, &a, &request, NULL);
  fx_ok(a.status, &a.error);
  fx_wait_take(&a);
  fx_drop(&a);
  berth_run_options scoped = BERTH_RUN_OPTIONS_INIT;
  scoped.lane_set = lanes;
  scoped.bytes = FX_UNIT;
  for (int i = 0; i < 2; i++) fx_ok(berth_run(f.session, &scoped, fx_fn_42, NULL, NULL, NULL), NULL);
  berth_lanes_release(lanes);
  fx_close(&f);
}

static void run_2_incompatible_context(void **state) {
  (void)state;
  fx f;
  berth_backend *other = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_lanes *lanes = NULL;
  berth_cancel *token = NULL;
  fx_open(&f, NULL, NULL);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "sim:3";
  berth_backend_options options = fx_options();
  options.devices = &device;
  options.device_count = 1;
  fx_ok(berth_backend_open(&options, &other, &err), &err);  // disjoint backends coexist
  berth_session *session = berth_backend_session(other);
  berth_lanes_options lane_options = BERTH_LANES_OPTIONS_INIT;
  lane_options.executor = inline_executor;
  lane_options.executor_lanes = 1;
  fx_ok(berth_lanes_create(session, &lane_options, &lanes, &err), &err);
  fx_ok(berth_cancel_create(session, &token, &err), &err);
  berth_run_options scoped = BERTH_RUN_OPTIONS_INIT;
  scoped.lane_set = lanes;
  fx_expect(berth_run(f.session, &scoped, fx_fn_42, NULL, NULL, &err), &err, BERTH_FAILED_PRECONDITION, "incompatible_context");
  scoped.lane_set = NULL;
  scoped.cancel = token;
  fx_expect(berth_run(f.session, &scoped, fx_fn_42, NULL, NULL, &err), &err, BERTH_FAILED_PRECONDITION, "incompatible_context");
  berth_attempt *attempt = fx_begin(&f);
  berth_admission *admission = NULL;
  fx_expect(berth_session_admit(session, attempt, NULL, &admission, &err), &err, BERTH_FAILED_PRECONDITION, "incompatible_context");
  berth_attempt_release(attempt);
  berth_lanes_release(lanes);
  berth_cancel_release(token);
  fx_ok(berth_backend_close_wait(other, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL), NULL);
  berth_session_release(session);
  berth_backend_release(other);
  fx_close(&f);
}

typedef struct meeting {
  fx *f;
  pthread_barrier_t both;
} meeting;

static intptr_t meet(berth_exec *exec, void *arg) {
  (void)exec;
  pthread_barrier_wait(&((meeting *)arg)->both);
  return 0;
}

static void meet_main(void *arg) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.lanes = 1;
  fx_check(berth_run(((meeting *)arg)->f->session, &options, meet, arg, NULL, NULL) == BERTH_OK);
}

static void run_3_disjoint_entries_run_at_the_same_time(void **state) {
  (void)state;
  fx f;
  fx_thread threads[4];
  fx_spec spec = {.lanes = 4};
  fx_open(&f, &spec, NULL);
  meeting m = {.f = &f};
  pthread_barrier_init(&m.both, NULL, 4);
  for (int i = 0; i < 4; i++) fx_thread_start(&threads[i], meet_main, &m);
  for (int i = 0; i < 4; i++) fx_thread_join(&threads[i]);
  pthread_barrier_destroy(&m.both);
  fx_close(&f);
}

static void run_5_hold_and_many_calls(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int reported = 0; reported < 2; reported++) {
    run r = {.f = &f, .value = 9};
    berth_exec *held = NULL;
    berth_error err = BERTH_ERROR_INIT;
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.report = reported;
    intptr_t value = 0;
    fx_ok(berth_exec_hold(f.session, &options, &held, &err), &err);
    uint64_t submitted = fx_metrics(&f).submitted;
    for (int i = 0; i < 5; i++) fx_ok(berth_exec_run(held, count_calls, &r, &value, &err), &err);
    assert_int_equal(r.calls, 5);
    assert_int_equal(value, 9);
    assert_int_equal(fx_metrics(&f).submitted, submitted);
    fx_ok(berth_exec_finish(held, BERTH_SUCCEEDED, NULL, &err), &err);
  }
  fx_close(&f);
}

static void run_5_child_that_outlives_its_execution(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int held = 0; held < 2; held++) {
    berth_exec *exec = NULL, *child = NULL, *more = NULL;
    fx_job job = {0};
    berth_error err = BERTH_ERROR_INIT;
    berth_exec_info info = BERTH_EXEC_INFO_INIT;
    void *memory = NULL;
    if (held) fx_ok(berth_exec_hold(f.session, NULL, &exec, &err), &err);
    else fx_start(&f, &job, 1, 1);
    if (!held) exec = job.exec;
    fx_ok(berth_exec_child(exec, &child, &err), &err);
    fx_ok(berth_exec_alloc(child, 64, &memory, &err), &err);
    fx_ok(berth_exec_run(child, fx_fn_42, NULL, NULL, &err), &err);
    fx_ok(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, &err), &err);
    job.exec = NULL;
    if (!held) fx_drop(&job);
    fx_expect(berth_exec_synchronize(child, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_check(child, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_get_info(child, &info, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_alloc(child, 64, &memory, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_charge(child, 64, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_join_fragment(child, 0, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_child(child, &more, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berth_exec_run(child, fx_fn_42, NULL, NULL, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    fx_expect(berthi_exec_op_begin(child, "add", &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
    berth_exec_free(child, NULL);
    berth_exec_release(child);
  }
  fx_close(&f);
}

static void run_6_entries_count_in_every_law(void **state) {
  (void)state;
  fx f;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 5; i++) fx_run_plain(&f);
  options.bytes = FX_UNIT * 3;
  for (int i = 0; i < 5; i++) fx_ok(berth_run(f.session, &options, fx_fn_42, NULL, NULL, NULL), NULL);
  options.report = true;
  options.query_id = "q";
  for (int i = 0; i < 5; i++) {
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    fx_ok(berth_run(f.session, &options, fx_fn_42, NULL, &result, NULL), NULL);
    fx_ok(berth_report_get(result.report, &info, NULL), NULL);
    assert_int_equal(info.outcome, BERTH_SUCCEEDED);
    assert_string_equal(info.query_id, "q");
    berth_report_release(result.report);
  }
  berth_metrics m = fx_metrics(&f);
  assert_int_equal(m.submitted, 15);
  assert_int_equal(m.granted, 15);
  assert_int_equal(m.begun, 5);
  fx_close(&f);
}

// ---- user code -----------------------------------------------------------------------------------------------------------------------------------

static jmp_buf over;
static intptr_t jump(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  longjmp(over, 1);
}

typedef struct jumper {
  fx *f;
  berth_run_options options;
  berth_exec *held;
} jumper;

static void lose(jumper *j) {
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  if (setjmp(over)) return;
  if (j->held) (void)berth_exec_run(j->held, jump, NULL, NULL, NULL);
  else (void)berth_run(j->f->session, &j->options, jump, NULL, &result, NULL);
  fx_check(false);
}

static void usr_1_longjmp_is_detected_and_healed(void **state) {
  (void)state;
  fx f;
  berth_error err = BERTH_ERROR_INIT;
  uint32_t healed = 0;
  fx_open(&f, NULL, NULL);
  for (int reported = 0; reported < 2; reported++) {
    jumper j = {.f = &f, .options = BERTH_RUN_OPTIONS_INIT};
    j.options.report = reported;
    lose(&j);
    fx_expect(berth_run(f.session, NULL, fx_fn_42, NULL, NULL, &err), &err, BERTH_FAILED_PRECONDITION, "resource_poisoned");
    assert_int_equal(fx_metrics(&f).live_grants, 1);
    fx_ok(berth_backend_heal(f.backend, &healed, &err), &err);
    assert_int_equal(healed, 1);
    assert_int_equal(fx_metrics(&f).live_grants, 0);
    fx_run_plain(&f);
  }
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  assert_int_equal(berth_session_take_abandoned(f.session, &report, 1), 1);  // whom it was for is gone
  fx_ok(berth_report_get(report, &info, NULL), NULL);
  assert_int_equal(info.outcome, BERTH_CRASHED);
  berth_report_release(report);
  jumper j = {.f = &f};
  fx_ok(berth_exec_hold(f.session, NULL, &j.held, NULL), NULL);
  lose(&j);
  fx_ok(berth_backend_heal(f.backend, &healed, &err), &err);
  assert_int_equal(healed, 1);
  fx_ok(berth_exec_run(j.held, fx_fn_42, NULL, NULL, &err), &err);  // the held one goes on
  berth_exec_release(j.held);
  assert_int_equal(fx_metrics(&f).crashes_healed, 3);
  fx_close(&f);
}

static intptr_t exit_in_fn(berth_exec *exec, void *arg) {
  void *memory;
  (void)arg;
  fx_check(berth_exec_alloc(exec, 1000, &memory, NULL) == BERTH_OK);
  pthread_exit(NULL);
}

static intptr_t cancel_in_fn(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  pthread_cancel(pthread_self());
  pthread_testcancel();
  return 0;
}

typedef struct dying {
  fx *f;
  berth_run_fn fn;
  int how; ///< 0 plain, 1 reported, 2 held
  berth_exec *held;
} dying;

static void die(void *arg) {
  dying *d = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.report = d->how == 1;
  if (d->how == 2) (void)berth_exec_run(d->held, d->fn, NULL, NULL, NULL);
  else (void)berth_run(d->f->session, &options, d->fn, NULL, &result, NULL);
  fx_check(false);
}

static void usr_1_thread_that_ends_inside_fn(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  const berth_run_fn fns[] = {exit_in_fn, cancel_in_fn};
  for (int i = 0; i < 6; i++) {
    dying d = {.f = &f, .fn = fns[i % 2], .how = i / 2};
    if (d.how == 2) fx_ok(berth_exec_hold(f.session, NULL, &d.held, NULL), NULL);
    fx_thread thread;
    fx_thread_start(&thread, die, &d);
    fx_thread_join(&thread);
    if (d.how == 2) fx_ok(berth_exec_run(d.held, fx_fn_42, NULL, NULL, NULL), NULL);
    berth_exec_release(d.held);
    assert_int_equal(fx_metrics(&f).live_grants, 0);
    fx_run_plain(&f);
  }
  assert_int_equal(fx_metrics(&f).outcomes[BERTH_CRASHED], 2);
  fx_close(&f);
}

static void lost_thread(void *arg) { lose(arg); }  // and the thread ends without healing

static void usr_1_thread_that_ends_with_a_lost_entry(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int reported = 0; reported < 2; reported++) {
    fx_thread thread;
    jumper j = {.f = &f, .options = BERTH_RUN_OPTIONS_INIT};
    j.options.report = reported;
    fx_thread_start(&thread, lost_thread, &j);
    fx_thread_join(&thread);
    assert_int_equal(fx_metrics(&f).live_grants, 0);
  }
  assert_int_equal(fx_metrics(&f).outcomes[BERTH_CRASHED], 1);
  fx_close(&f);
}

static void exit_in_completion(void *arg, berth_report *report) {
  (void)report;
  (*(fx_flag *)arg)++;
  pthread_exit(NULL);
}
static void exit_in_admission(void *arg, berth_admission_state state) {
  (void)state;
  (*(fx_flag *)arg)++;
  pthread_exit(NULL);
}
static void exit_in_hook(void *arg, berth_cancel_cause cause) {
  (void)cause;
  (*(fx_flag *)arg)++;
  pthread_exit(NULL);
}
static void exit_in_release(void *arg) {
  (*(fx_flag *)arg)++;
  pthread_exit(NULL);
}

typedef struct ending_job {
  fx *f;
  fx_flag *count;
} ending_job;

static void finish_and_die(void *arg) {
  ending_job *e = arg;
  fx_job job;
  berth_request request = fx_request(1, 1);
  request.activity = e->count;
  request.activity_release = exit_in_release;
  fx_submit(e->f, &job, &request, NULL);
  fx_wait_take(&job);
  berth_admission_release(job.admission);
  berth_completion_release(job.completion);
  berth_attempt_release(job.attempt);
  (void)berth_exec_finish(job.exec, BERTH_SUCCEEDED, NULL, NULL);
  fx_check(false);
}

static void complete_and_die(void *arg) {
  ending_job *e = arg;
  fx_job job;
  fx_submit(e->f, &job, NULL, NULL);
  fx_wait_take(&job);
  fx_check(berth_completion_notify(job.completion, -1, exit_in_completion, e->count, NULL) == BERTH_OK);
  berth_admission_release(job.admission);
  berth_completion_release(job.completion);
  berth_attempt_release(job.attempt);
  (void)berth_exec_finish(job.exec, BERTH_SUCCEEDED, NULL, NULL);
  fx_check(false);
}

// A callback that ends its thread: permits come back, and later callbacks run.
static void usr_1_callbacks_that_end_their_thread(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_flag count = 0;
  fx_open(&f, NULL, NULL);
  ending_job e = {.f = &f, .count = &count};
  fx_thread thread;
  fx_thread_start(&thread, finish_and_die, &e);
  fx_thread_join(&thread);
  fx_thread_start(&thread, complete_and_die, &e);
  fx_thread_join(&thread);
  assert_int_equal(count, 2);
  for (int round = 0; round < 3; round++) {  // on the notifier
    count = 0;
    fx_start(&f, &holder, 100, 1);
    berth_request request = fx_request(1, 1);
    request.activity = &count;
    request.activity_release = exit_in_release;
    fx_submit(&f, &job, &request, NULL);
    berth_cancel *token = berth_attempt_cancel_token(job.attempt);
    fx_ok(berth_cancel_hook(token, exit_in_hook, &count, NULL), NULL);
    fx_ok(berth_admission_notify(job.admission, -1, exit_in_admission, &count, NULL), NULL);
    fx_ok(berth_completion_notify(job.completion, -1, exit_in_completion, &count, NULL), NULL);
    assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
    fx_until(count == 4);
    fx_ok(berth_cancel_hook(token, NULL, NULL, NULL), NULL);  // does not wait for a hook that will not return
    berth_cancel_release(token);
    fx_drop(&job);
    fx_drop(&holder);
  }
  fx_close(&f);
}

// USR-2 and USR-3 --------------------------------------------------------------------------------------------------------------------------------

typedef struct notified {
  fx *f;
  fx_job *other;
  fx_flag done;
  berth_status wait, run, completion, close;
  const char *wait_reason, *run_reason, *completion_reason, *close_reason;
} notified;

static void on_notifier(void *arg, berth_admission_state state) {
  notified *n = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  (void)state;
  n->wait = berth_admission_wait(n->other->admission, BERTH_NO_DEADLINE, &err);
  n->wait_reason = err.reason;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.bytes = 50 * FX_UNIT;
  n->run = berth_run(n->f->session, &options, fx_fn_42, NULL, NULL, &err);
  n->run_reason = err.reason;
  n->completion = berth_completion_wait(n->other->completion, BERTH_NO_DEADLINE, &report, &err);
  n->completion_reason = err.reason;
  n->close = berth_backend_close_wait(n->f->backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, NULL, &err);
  n->close_reason = err.reason;
  n->done = 1;
}

static void usr_2_notifier_never_waits(void **state) {
  (void)state;
  fx f;
  fx_job holder, job, other;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 90, 1);
  fx_submit_units(&f, &job, 20);
  fx_submit_units(&f, &other, 60);
  notified n = {.f = &f, .other = &other};
  fx_ok(berth_admission_notify(job.admission, -1, on_notifier, &n, NULL), NULL);
  fx_ok(berth_exec_shrink(holder.exec, 80 * FX_UNIT, NULL, NULL), NULL);
  fx_until(n.done);
  assert_int_equal(n.wait, BERTH_ABORTED);
  assert_string_equal(n.wait_reason, "contended");
  assert_int_equal(n.run, BERTH_ABORTED);
  assert_string_equal(n.run_reason, "contended");
  assert_int_equal(n.completion, BERTH_ABORTED);
  assert_string_equal(n.completion_reason, "contended");
  assert_int_equal(n.close, BERTH_ABORTED);
  assert_string_equal(n.close_reason, "would_deadlock");
  fx_drop(&job);
  fx_drop(&other);
  fx_drop(&holder);
  fx_close(&f);
}

typedef struct observed {
  _Atomic int logs, begins, ends, depth_below_zero;
} observed;

static void on_log(void *arg, berth_log_level level, const char *message) {
  (void)level;
  fx_check(message && message[0]);
  ((observed *)arg)->logs++;
}

static void on_trace(void *arg, const char *phase, bool begin, uint64_t id, int64_t time) {
  observed *o = arg;
  (void)id;
  fx_check(phase && time > 0);
  if (begin) o->begins++;
  else o->ends++;
}

static void usr_3_log_and_trace(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  observed o = {0};
  berth_backend_options options = fx_options();
  options.log = on_log;
  options.trace = on_trace;
  options.observer_arg = &o;
  fx_open(&f, NULL, &options);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 1);
  fx_drop(&holder);
  fx_wait_take(&job);
  fx_drop(&job);
  fx_run_plain(&f);
  fx_close(&f);
  assert_true(o.logs > 0);
  assert_true(o.begins > 0);
  fx_until(o.begins == o.ends);  // each named phase begins and ends
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(led_2_allocator_enforces_the_grant),
      cmocka_unit_test(led_2_device_exhausted_is_no_fault),
      cmocka_unit_test(led_5_external_stops_new_grants_parked_ones_too),
      cmocka_unit_test(led_5_plain_entries_wait_for_external_use),
      cmocka_unit_test(exe_1_concurrent_use_is_reported),
      cmocka_unit_test(exe_2_release_order),
      cmocka_unit_test(exe_2_failed_settle_is_told),
      cmocka_unit_test(run_1_three_results),
      cmocka_unit_test(run_2_waits_for_lanes_of_others),
      cmocka_unit_test(run_2_reentry_is_an_error_before_fn),
      cmocka_unit_test(run_2_caller_managed_lanes_are_contended_and_come_back),
      cmocka_unit_test(run_2_incompatible_context),
      cmocka_unit_test(run_3_disjoint_entries_run_at_the_same_time),
      cmocka_unit_test(run_5_hold_and_many_calls),
      cmocka_unit_test(run_5_child_that_outlives_its_execution),
      cmocka_unit_test(run_6_entries_count_in_every_law),
      cmocka_unit_test(usr_1_longjmp_is_detected_and_healed),
      cmocka_unit_test(usr_1_thread_that_ends_inside_fn),
      cmocka_unit_test(usr_1_thread_that_ends_with_a_lost_entry),
      cmocka_unit_test(usr_1_callbacks_that_end_their_thread),
      cmocka_unit_test(usr_2_notifier_never_waits),
      cmocka_unit_test(usr_3_log_and_trace),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
