// SPDX-License-Identifier: Apache-2.0
// The main path through both doors, on a simulated device: open, run, attempt, admit, take, finish, report, close.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "berth/runtime.h"

static berth_backend *open_sim(const char *parameters, uint64_t capacity) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "sim:0";
  device.parameters = parameters;
  device.capacity_bytes = capacity;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = &device;
  options.device_count = 1;
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_backend_open(&options, &backend, &err);
  if (status) print_message("%s\n", err.message);
  assert_int_equal(status, BERTH_OK);
  return backend;
}

static intptr_t use_memory(berth_exec *exec, void *arg) {
  void *memory = NULL;
  (void)arg;
  if (berth_exec_alloc(exec, 1000, &memory, NULL)) return -1;
  memset(memory, 1, 1000);
  return 42;
}

static void close_exactly(berth_backend *backend) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  assert_int_equal(berth_backend_close_wait(backend, berth_now() + 10000000000, BERTH_NO_DEADLINE, &report, NULL), BERTH_OK);
  assert_int_equal(report.state, BERTH_STATE_CLOSED);
  assert_int_equal(report.devices_leaked, 0);
  assert_int_equal(report.active_device_permits, 0);
  assert_int_equal(report.active_observation_permits, 0);
}

static void scoped(void **state) {
  (void)state;
  berth_backend *backend = open_sim("memory=1GiB,lanes=4", 0);
  berth_session *session = berth_backend_session(backend);
  for (int i = 0; i < 5; i++) {
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    berth_error err = BERTH_ERROR_INIT;
    assert_int_equal(berth_run(session, NULL, use_memory, NULL, &result, &err), BERTH_OK);
    assert_true(result.ran);
    assert_int_equal(result.value, 42);
    assert_int_equal(result.cleanup, BERTH_OK);
  }
  berth_metrics m = BERTH_METRICS_INIT;
  assert_int_equal(berth_session_metrics(session, &m, NULL), BERTH_OK);
  assert_int_equal(m.submitted, 5);
  assert_int_equal(m.granted, 5);
  assert_int_equal(m.promised_bytes, 0);
  close_exactly(backend);
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_run(session, NULL, use_memory, NULL, NULL, &err), BERTH_CANCELLED);
  assert_string_equal(err.reason, "backend_closed");
  berth_session_release(session);
  berth_backend_release(backend);
}

static void attempts(void **state) {
  (void)state;
  berth_backend *backend = open_sim("memory=1GiB,lanes=4", 0);
  berth_session *session = berth_backend_session(backend);
  for (int i = 0; i < 5; i++) {
    berth_attempt *attempt = NULL;
    berth_admission *admission = NULL;
    berth_exec *exec = NULL;
    berth_report *report = NULL;
    assert_int_equal(berth_session_begin_attempt(session, NULL, &attempt, NULL), BERTH_OK);
    berth_completion *completion = berth_attempt_completion(attempt);
    assert_int_equal(berth_session_admit(session, attempt, NULL, &admission, NULL), BERTH_OK);
    assert_int_equal(berth_admission_wait(admission, BERTH_NO_DEADLINE, NULL), BERTH_OK);
    assert_int_equal(berth_admission_take(admission, &exec, NULL), BERTH_OK);
    assert_int_equal(berth_completion_poll(completion, &report, NULL), BERTH_NOT_FOUND);
    assert_int_equal(use_memory(exec, NULL), 42);
    assert_int_equal(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL), BERTH_OK);
    assert_int_equal(berth_completion_poll(completion, &report, NULL), BERTH_OK);
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    assert_int_equal(berth_report_get(report, &info, NULL), BERTH_OK);
    assert_int_equal(info.outcome, BERTH_SUCCEEDED);
    assert_int_equal(info.disposition, BERTH_NATIVE);
    assert_true(info.bytes_peak >= 1000);
    berth_admission_release(admission);
    berth_report_release(report);
    berth_completion_release(completion);
    berth_attempt_release(attempt);
  }
  berth_metrics m = BERTH_METRICS_INIT;
  assert_int_equal(berth_session_metrics(session, &m, NULL), BERTH_OK);
  assert_int_equal(m.begun, 5);
  assert_int_equal(m.sealed, 5);
  assert_int_equal(m.delivered, 5);
  close_exactly(backend);
  berth_session_release(session);
  berth_backend_release(backend);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(scoped), cmocka_unit_test(attempts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
