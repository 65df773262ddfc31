// SPDX-License-Identifier: Apache-2.0
// Every public function of the runtime with NULL: fallible ones answer INVALID_ARGUMENT with a message, the others do nothing and answer harmlessly.
#include "runtime/fixture.h"

static fx f;
static fx_job job;

static int set_up(void **state) {
  (void)state;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  fx_drop(&job);
  fx_close(&f);
  return 0;
}

#define REFUSED(call) \
  do { \
    berth_error err = BERTH_ERROR_INIT; \
    berth_status status = (call); \
    if (status != BERTH_INVALID_ARGUMENT) fail_msg("%s: %s", #call, berth_status_name(status)); \
    assert_string_equal(err.reason, "invalid_argument"); \
    assert_true(strlen(err.message) > strlen("invalid_argument: ")); \
  } while (0)

static void first_argument(void **state) {
  (void)state;
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  berth_report *report = NULL;
  berth_cancel *cancel = NULL;
  berth_lanes *lanes = NULL;
  berth_cache *cache = NULL;
  berth_exec_info exec_info = BERTH_EXEC_INFO_INIT;
  berth_report_info report_info = BERTH_REPORT_INFO_INIT;
  berth_why why = BERTH_WHY_INIT;
  berth_close_report close = BERTH_CLOSE_REPORT_INIT;
  berth_metrics metrics = BERTH_METRICS_INIT;
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_cache_stats stats = BERTH_CACHE_STATS_INIT;
  berth_lanes_options lanes_options = BERTH_LANES_OPTIONS_INIT;
  berth_event event;
  void *memory = NULL;
  char text[8];
  REFUSED(berth_session_begin_attempt(NULL, NULL, &attempt, &err));
  REFUSED(berth_session_admit(NULL, job.attempt, NULL, &admission, &err));
  REFUSED(berth_session_admit(f.session, NULL, NULL, &admission, &err));
  REFUSED(berth_attempt_plan_started(NULL, &err));
  REFUSED(berth_attempt_plan_finished(NULL, BERTH_NATIVE, NULL, &err));
  REFUSED(berth_attempt_finish(NULL, BERTH_SUCCEEDED, NULL, &err));
  REFUSED(berth_admission_wait(NULL, 0, &err));
  REFUSED(berth_admission_notify(NULL, -1, NULL, NULL, &err));
  REFUSED(berth_admission_why(NULL, &why, &err));
  REFUSED(berth_admission_take(NULL, &exec, &err));
  REFUSED(berth_completion_poll(NULL, &report, &err));
  REFUSED(berth_completion_wait(NULL, 0, &report, &err));
  REFUSED(berth_completion_notify(NULL, -1, NULL, NULL, &err));
  REFUSED(berth_report_get(NULL, &report_info, &err));
  REFUSED(berth_report_event(NULL, 0, &event, &err));
  REFUSED(berth_cancel_create(NULL, &cancel, &err));
  REFUSED(berth_cancel_hook(NULL, NULL, NULL, &err));
  REFUSED(berth_exec_get_info(NULL, &exec_info, &err));
  REFUSED(berth_exec_alloc(NULL, 1, &memory, &err));
  REFUSED(berth_exec_charge(NULL, 1, &err));
  REFUSED(berth_exec_shrink(NULL, 1, NULL, &err));
  REFUSED(berth_exec_grow(NULL, 1, 0, &err));
  REFUSED(berth_exec_join_fragment(NULL, 0, &err));
  REFUSED(berth_exec_check(NULL, &err));
  REFUSED(berth_exec_synchronize(NULL, &err));
  REFUSED(berth_exec_child(NULL, &exec, &err));
  REFUSED(berth_exec_finish(NULL, 0, NULL, &err));
  REFUSED(berth_exec_run(NULL, fx_fn_42, NULL, NULL, &err));
  REFUSED(berth_exec_hold(NULL, NULL, &exec, &err));
  REFUSED(berth_run(NULL, NULL, fx_fn_42, NULL, NULL, &err));
  REFUSED(berth_lanes_create(NULL, &lanes_options, &lanes, &err));
  REFUSED(berth_cache_create(NULL, NULL, &cache, &err));
  REFUSED(berth_cache_get_stats(NULL, &stats, &err));
  REFUSED(berth_session_startup_record(NULL, 0, &record, &err));
  REFUSED(berth_session_metrics(NULL, &metrics, &err));
  REFUSED(berth_session_telemetry(NULL, 0, &sample, &err));
  REFUSED(berth_diagnostics_json(NULL, text, sizeof text, NULL, &err));
  REFUSED(berth_backend_close_wait(NULL, 0, BERTH_NO_DEADLINE, NULL, &err));
  REFUSED(berth_backend_close_state(NULL, &close, &err));
  REFUSED(berth_backend_heal(NULL, NULL, &err));
  REFUSED(berth_lease_wait(NULL, 0, &err));
  REFUSED(berth_lease_force(NULL, "who", &err));
  REFUSED(berth_lease_force("sim:0", NULL, &err));
  REFUSED(berth_device_quarantine(NULL, 0, &err));
  REFUSED(berth_device_restore(NULL, 0, &err));
  REFUSED(berth_device_charge(NULL, 0, 1, &err));
  REFUSED(berth_group_set(NULL, "g", &limits, &err));
  REFUSED(berth_group_get(NULL, "g", &limits, &err));
}

static void outputs(void **state) {
  (void)state;
  berth_report *report = NULL;
  fx_job done;
  fx_start(&f, &done, 1, 1);
  fx_finish(&done, BERTH_SUCCEEDED);
  fx_ok(berth_completion_poll(done.completion, &report, NULL), NULL);
  REFUSED(berth_backend_open(NULL, NULL, &err));
  REFUSED(berth_backend_default(NULL, &err));
  REFUSED(berth_session_begin_attempt(f.session, NULL, NULL, &err));
  REFUSED(berth_session_admit(f.session, job.attempt, NULL, NULL, &err));
  REFUSED(berth_admission_why(job.admission, NULL, &err));
  REFUSED(berth_admission_take(job.admission, NULL, &err));
  REFUSED(berth_completion_poll(job.completion, NULL, &err));
  REFUSED(berth_completion_wait(job.completion, 0, NULL, &err));
  REFUSED(berth_report_get(report, NULL, &err));
  REFUSED(berth_report_event(report, 0, NULL, &err));
  REFUSED(berth_cancel_create(f.session, NULL, &err));
  REFUSED(berth_exec_get_info(job.exec, NULL, &err));
  REFUSED(berth_exec_alloc(job.exec, 1, NULL, &err));
  REFUSED(berth_exec_child(job.exec, NULL, &err));
  REFUSED(berth_exec_hold(f.session, NULL, NULL, &err));
  REFUSED(berth_exec_run(job.exec, NULL, NULL, NULL, &err));
  REFUSED(berth_run(f.session, NULL, NULL, NULL, NULL, &err));
  REFUSED(berth_lanes_create(f.session, NULL, NULL, &err));
  REFUSED(berth_cache_create(f.session, NULL, NULL, &err));
  REFUSED(berth_session_startup_record(f.session, 0, NULL, &err));
  REFUSED(berth_session_metrics(f.session, NULL, &err));
  REFUSED(berth_session_telemetry(f.session, 0, NULL, &err));
  REFUSED(berth_backend_close_state(f.backend, NULL, &err));
  REFUSED(berth_group_set(f.backend, NULL, NULL, &err));
  REFUSED(berth_group_get(f.backend, NULL, NULL, &err));
  REFUSED(berth_devices_list(NULL, 1, NULL, &err));
  berth_report_release(report);
  fx_drop(&done);
}

static void structs_without_a_size(void **state) {
  (void)state;
  berth_attempt *attempt = NULL;
  berth_exec *exec = NULL;
  berth_attempt_options attempt_options = {0};
  berth_run_options run_options = {0};
  berth_run_result result = {0};
  berth_exec_info info = {0};
  berth_metrics metrics = {0};
  berth_backend *backend = NULL;
  berth_backend_options backend_options = {0};
  REFUSED(berth_session_begin_attempt(f.session, &attempt_options, &attempt, &err));
  REFUSED(berth_run(f.session, &run_options, fx_fn_42, NULL, NULL, &err));
  REFUSED(berth_run(f.session, NULL, fx_fn_42, NULL, &result, &err));
  REFUSED(berth_exec_hold(f.session, &run_options, &exec, &err));
  REFUSED(berth_exec_get_info(job.exec, &info, &err));
  REFUSED(berth_session_metrics(f.session, &metrics, &err));
  REFUSED(berth_backend_open(&backend_options, &backend, &err));
}

static void nothing_happens(void **state) {
  (void)state;
  char text[64];
  uint32_t count = 0;
  berth_report *reports[1];
  berth_backend_release(NULL);
  berth_backend_close(NULL);
  berth_session_release(NULL);
  berth_attempt_release(NULL);
  berth_attempt_record(NULL, "x", 1);
  berth_attempt_record(job.attempt, NULL, 1);
  berth_admission_release(NULL);
  berth_completion_release(NULL);
  berth_report_release(NULL);
  berth_cancel_release(NULL);
  berth_exec_release(NULL);
  berth_exec_free(NULL, NULL);
  berth_exec_free(NULL, text);
  berth_exec_free(job.exec, NULL);
  berth_lanes_release(NULL);
  berth_cache_release(NULL);
  berth_cache_clear(NULL);
  assert_null(berth_backend_retain(NULL));
  assert_null(berth_backend_session(NULL));
  assert_null(berth_session_retain(NULL));
  assert_null(berth_completion_retain(NULL));
  assert_null(berth_report_retain(NULL));
  assert_null(berth_cancel_retain(NULL));
  assert_null(berth_attempt_completion(NULL));
  assert_null(berth_attempt_cancel_token(NULL));
  assert_int_equal(berth_attempt_id(NULL), 0);
  assert_int_equal(berth_admission_poll(NULL, NULL), BERTH_ADMISSION_NEW);
  assert_int_equal(berth_admission_cancel(NULL), BERTH_CANCEL_ALREADY_FINISHED);
  assert_int_equal(berth_cancel_fire(NULL), BERTH_CANCEL_ALREADY_FINISHED);
  assert_int_equal(berth_cancel_check(NULL), BERTH_CANCEL_NONE);
  assert_int_equal(berth_session_identity(NULL).backend_id, 0);
  assert_true(berth_session_is_closing(NULL));
  assert_false(berth_session_same_backend(NULL, f.session));
  assert_false(berth_session_same_backend(NULL, NULL));
  assert_true(berth_session_describe(NULL, text, sizeof text) > 0);
  assert_int_equal(berth_session_attempt_counters(NULL).begun, 0);
  assert_int_equal(berth_session_take_abandoned(NULL, reports, 1), 0);
  assert_int_equal(berth_session_take_abandoned(f.session, NULL, 1), 0);
  assert_int_equal(berth_metrics_json(NULL, text, sizeof text), 0);
  assert_int_equal(berth_metrics_prometheus(NULL, text, sizeof text), 0);
  assert_int_equal(berth_report_json(NULL, text, sizeof text), 0);
  assert_non_null(berth_metrics_descriptors(NULL));
  assert_non_null(berth_metrics_descriptors(&count));
  assert_true(berth_metrics_json(f.session, NULL, 0) > 0);
  assert_true(count > 0);
}

// The error is the caller's, and may be missing.
static void without_an_error(void **state) {
  (void)state;
  assert_int_equal(berth_run(f.session, NULL, NULL, NULL, NULL, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_exec_alloc(job.exec, UINT64_MAX, NULL, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_backend_close_state(f.backend, NULL, NULL), BERTH_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_argument), cmocka_unit_test(outputs), cmocka_unit_test(structs_without_a_size), cmocka_unit_test(nothing_happens),
      cmocka_unit_test(without_an_error),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
