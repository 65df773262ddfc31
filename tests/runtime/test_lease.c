// SPDX-License-Identifier: Apache-2.0
/// Leases: one live lease per device in a process; waiting for one, and forcing a leaked one (BCK-2).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "device/sim/sim.h"
#include "runtime/runtime_support.h"

#define MS ((int64_t)1000000)

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN true
#elif defined(__has_feature)
#define UNDER_TSAN __has_feature(thread_sanitizer)
#else
#define UNDER_TSAN false
#endif

static int64_t fact(const berth_error *err, const char *key) {
  for (uint32_t i = 0; i < err->fact_count; i++) {
    if (strcmp(err->facts[i].key, key) == 0) return err->facts[i].value;
  }
  fail_msg("no fact %s in %s", key, err->message);
  return 0;
}

/// Tries to open the simulated device; the caller expects a refusal.
static berth_status try_open(const char *name, berth_error *err) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berth_backend *backend = NULL;
  device.name = name;
  options.devices = &device;
  options.device_count = 1;
  options.telemetry_interval = -1;
  berth_status status = berth_backend_open(&options, &backend, err);
  if (status == BERTH_OK) support_close(backend);
  return status;
}

static berth_identity identity_of(berth_backend *backend) {
  berth_session *session = berth_backend_session(backend);
  berth_identity identity = berth_session_identity(session);
  berth_session_release(session);
  return identity;
}

static void a_second_open_is_told_who_holds_it(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  berth_backend *backend = support_open(1, NULL);
  berth_identity identity = identity_of(backend);
  assert_int_equal(try_open("sim:0", &err), BERTH_ALREADY_EXISTS);
  assert_string_equal(err.reason, "backend_already_live");
  assert_int_equal(fact(&err, "holder"), identity.backend_id);
  assert_int_equal(fact(&err, "generation"), identity.generation);
  assert_int_equal(fact(&err, "state"), 0);
  assert_int_equal(try_open("sim:1", &err), BERTH_OK); // disjoint backends coexist
  support_close(backend);
  assert_int_equal(try_open("sim:0", &err), BERTH_OK);
}

static void draining_is_told_and_waited_for(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  berth_backend *backend = support_open(1, NULL);
  berth_session *session = berth_backend_session(backend);
  berth_attempt *attempt = support_begin(session);
  berth_admission *admission = support_admit(session, attempt, NULL);
  berth_exec *exec = support_take(admission);
  berth_backend_close(backend);
  assert_int_equal(try_open("sim:0", &err), BERTH_ALREADY_EXISTS);
  assert_in_range(fact(&err, "state"), 0, 1);
  assert_int_equal(berth_lease_wait("sim:0", berth_now() + 2 * MS, &err), BERTH_DEADLINE_EXCEEDED);
  assert_string_equal(err.reason, "wait_timeout");
  assert_int_equal(fact(&err, "holder"), identity_of(backend).backend_id);
  berth_exec_release(exec);
  support_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err); // CLS-3: also while the observation permit remains
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  berth_session_release(session);
  support_close(backend);
}

static void waiting_for_a_free_lease_is_no_wait(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_lease_wait("sim:9", 0, &err), &err);
  assert_int_equal(berth_lease_wait("sim:999", 0, &err), BERTH_NOT_FOUND);
  assert_string_equal(err.reason, "unknown_device");
  assert_int_equal(berth_lease_wait(NULL, 0, &err), BERTH_INVALID_ARGUMENT);
}

static void wait_for_lease(void *out) {
  berth_error err = BERTH_ERROR_INIT;
  *(berth_status *)out = berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err);
}

/// Several waiters, each in its own thread, are told by the one change.
static void every_waiter_is_told(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  berth_backend *backend = support_open(1, NULL);
  berthi_thread threads[3];
  berth_status statuses[3] = {BERTH_UNKNOWN, BERTH_UNKNOWN, BERTH_UNKNOWN};
  for (int i = 0; i < 3; i++) support_ok(berthi_thread_start(&threads[i], "waiter", wait_for_lease, &statuses[i], &err), &err);
  while (berthi_wait_place_count("lease.wait") < 3) berthi_thread_yield();
  support_close(backend);
  for (int i = 0; i < 3; i++) {
    berthi_thread_join(&threads[i]);
    assert_int_equal(statuses[i], BERTH_OK);
  }
}

static void only_a_leak_can_be_forced(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_lease_force("sim:0", "ops", &err), BERTH_FAILED_PRECONDITION);
  assert_string_equal(err.reason, "not_leaked");
  berth_backend *backend = support_open(1, NULL);
  assert_int_equal(berth_lease_force("sim:0", "ops", &err), BERTH_FAILED_PRECONDITION);
  assert_int_equal(fact(&err, "state"), 0);
  assert_int_equal(berth_lease_force("sim:0", "", &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_lease_force("sim:0", NULL, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_lease_force("tpu:0", "ops", &err), BERTH_NOT_FOUND);
  support_close(backend);
}

static char logged[256];

static void keep_log(void *arg, berth_log_level level, const char *message) {
  (void)arg;
  if (level == BERTH_LOG_WARNING && strstr(message, "forced") != NULL) snprintf(logged, sizeof(logged), "%s", message);
}

/// A device whose clean-up hangs is leaked; forcing frees its lease, and the next holder's record and log say who did it.
static void forcing_a_leak_is_audited(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.telemetry_interval = -1;
  options.cleanup_limit = MS;
  berth_backend *leaking = support_open_with(&options, 1, "hang_close=1");
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_backend_close(leaking);
  do {
    (void)berth_backend_close_wait(leaking, berth_now() + MS, BERTH_NO_DEADLINE, &report, &err);
  } while (report.devices_leaked != 1);
  assert_int_equal(try_open("sim:0", &err), BERTH_ALREADY_EXISTS);
  assert_int_equal(fact(&err, "state"), 2);
  support_ok(berth_lease_force("sim:0", "night shift", &err), &err);
  assert_int_equal(berth_lease_force("sim:0", "day shift", &err), BERTH_FAILED_PRECONDITION);
  options.log = keep_log;
  berth_backend *next = support_open_with(&options, 1, NULL);
  berth_session *session = berth_backend_session(next);
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  support_ok(berth_session_startup_record(session, 0, &record, &err), &err);
  assert_string_equal(record.forced_by, "night shift");
  assert_non_null(strstr(logged, "night shift"));
  berth_session_release(session);
  berthi_sim_release_hang(0); // the late clean-up gives back nothing that is not its own
  support_close(leaking);
  assert_int_equal(try_open("sim:0", &err), BERTH_ALREADY_EXISTS);
  support_close(next);
  berth_backend *last = support_open(1, NULL);
  session = berth_backend_session(last);
  support_ok(berth_session_startup_record(session, 0, &record, &err), &err);
  assert_string_equal(record.forced_by, "");
  berth_session_release(session);
  support_close(last);
}

/// CLS-6: in a forked child the inherited leases are void, and a fresh open works.
static void a_child_begins_without_leases(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  if (UNDER_TSAN) skip(); // it does not support threads that a child of a threaded process starts
  berth_backend *backend = support_open(1, NULL);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    bool fine = berth_lease_wait("sim:0", 0, &err) == BERTH_OK && try_open("sim:0", &err) == BERTH_OK;
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(try_open("sim:0", &err), BERTH_ALREADY_EXISTS); // and the parent's lease stands
  support_close(backend);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_second_open_is_told_who_holds_it),  cmocka_unit_test(draining_is_told_and_waited_for),
      cmocka_unit_test(waiting_for_a_free_lease_is_no_wait), cmocka_unit_test(every_waiter_is_told),
      cmocka_unit_test(only_a_leak_can_be_forced),           cmocka_unit_test(forcing_a_leak_is_audited),
      cmocka_unit_test(a_child_begins_without_leases),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
