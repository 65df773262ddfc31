// SPDX-License-Identifier: Apache-2.0
// Faults that users reported of other systems, each with the small input that shows it: hang or crash at shutdown, use after close, fork
// (docs/field-cases.md, C2, C3 and C9). The name of a test begins with its case.
#include <sys/wait.h>
#include <unistd.h>

#include "device/sim/sim.h"
#include "runtime/fixture.h"

static berth_backend *open_named(const char *name, const char *parameters) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options options = fx_options();
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  device.name = name;
  device.parameters = parameters;
  options.devices = &device;
  options.device_count = 1;
  fx_ok(berth_backend_open(&options, &backend, &err), &err);
  return backend;
}

// Runs `body` in a child, which has to end by itself with status 0 in the time that is patient enough.
static void in_child(void (*body)(void *), void *arg) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    (void)alarm((unsigned)(FX_PATIENCE / FX_SECOND));
    body(arg);
    _exit(99); // a body ends the process in its own way
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status)) fail_msg("the child ended by signal %d", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

// ---- C2: hang or crash at shutdown -------------------------------------------------------------------------------------------------------------

typedef enum leaving { WITHOUT_CLOSE, CLOSE_SIGNALLED, CLOSE_HANGS, CLOSED_CLEANLY, LEAVINGS } leaving;

static intptr_t some_work(berth_exec *exec, void *arg) {
  void *memory = NULL;
  (void)arg;
  fx_check(berth_exec_alloc(exec, 4096, &memory, NULL) == BERTH_OK);
  memset(memory, 1, 4096);
  return 0;
}

static void leave_main(void *arg) {
  leaving how = *(leaving *)arg;
  berth_backend *backend = open_named("sim:3", how == CLOSE_HANGS ? "memory=1GiB,hang_close=1" : "memory=1GiB");
  berth_session *session = berth_backend_session(backend);
  for (int i = 0; i < 3; i++) fx_check(berth_run(session, NULL, some_work, NULL, NULL, NULL) == BERTH_OK);
  if (how == CLOSE_SIGNALLED || how == CLOSE_HANGS) berth_backend_close(backend);
  if (how == CLOSED_CLEANLY) fx_check(berth_backend_close_wait(backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL) == BERTH_OK);
  exit(0); // exit handlers and destructors run, as after a return from main
}

// Work was done, then the process ends: with or without a close, with the threads of the library in the middle of anything.
static void c_10_c_11_process_ends(void **state) {
  (void)state;
  for (leaving how = WITHOUT_CLOSE; how < LEAVINGS; how++) in_child(leave_main, &how);
}

static void ignore_phase(void *arg, const char *phase, bool begin, uint64_t id, int64_t time) {
  (void)id;
  (void)time;
  fx_check(phase != NULL);
  if (begin) (*(fx_flag *)arg)++;
}

// With the trace hook on and something open in every phase, a close with a deadline names what is open, and ends when that has ended.
static void c_13_close_names_who_is_there(void **state) {
  (void)state;
  fx f;
  fx_job running, granted, queued;
  fx_flag phases = 0;
  berth_holder holders[4];
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  berth_backend_options options = fx_options();
  options.trace = ignore_phase;
  options.observer_arg = &phases;
  fx_open(&f, NULL, &options);
  berth_attempt *open = fx_begin(&f);
  fx_start(&f, &running, 60, 1);
  fx_submit_units(&f, &granted, 40);
  fx_submit_units(&f, &queued, 40);
  report.holders = holders;
  report.holder_capacity = 4;
  berth_backend_close(f.backend);
  fx_until(fx_metrics(&f).closed == 1 && fx_state(&queued) == BERTH_ADMISSION_CLOSED);
  fx_expect(berth_backend_close_wait(f.backend, berth_now() + FX_MILLISECOND, BERTH_NO_DEADLINE, &report, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  assert_int_equal(report.state, BERTH_STATE_CLOSING);
  assert_int_equal(report.queued_ended, 1);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_CLOSED);
  bool saw_open = false, saw_running = false;
  for (uint32_t i = 0; i < report.holder_count; i++) {
    saw_open |= holders[i].phase == BERTH_PHASE_OPEN && holders[i].attempt_id == berth_attempt_id(open);
    saw_running |= holders[i].phase == BERTH_PHASE_RUNNING && holders[i].bytes == 60 * FX_UNIT && holders[i].attempt_id == berth_attempt_id(running.attempt);
  }
  assert_true(saw_open && saw_running);
  assert_true(report.active_observation_permits >= 2);
  berth_attempt_release(open);
  fx_drop(&running);
  fx_drop(&granted);
  fx_drop(&queued);
  fx_close(&f);
  assert_true(phases > 0);
}

// Two backends. One is closed while something on the other one runs and does not end; and of two devices of one backend one hangs.
static void c_14_close_waits_for_its_own_only(void **state) {
  (void)state;
  fx f;
  fx_job spinning;
  berth_error err = BERTH_ERROR_INIT;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &spinning, 100, 8);
  berth_backend *other = open_named("sim:3", "memory=1GiB");
  fx_ok(berth_backend_close_wait(other, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, &report, &err), &err);
  assert_int_equal(report.state, BERTH_STATE_CLOSED);
  berth_backend_release(other);
  fx_ok(berth_exec_check(spinning.exec, NULL), NULL);
  fx_drop(&spinning);
  fx_close(&f);

  fx_spec spec = {.devices = 2, .parameters_of1 = "hang_close=1"};
  berth_backend_options options = fx_options();
  options.cleanup_limit = FX_SECOND / 2;
  fx_open(&f, &spec, &options);
  report = (berth_close_report)BERTH_CLOSE_REPORT_INIT;
  fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, &report, &err), &err);
  assert_int_equal(report.devices_leaked, 2); // device 1, by name
  assert_int_equal(report.devices_released, 1);
  fx_ok(berth_lease_wait("sim:0", berth_now(), &err), &err);
  berthi_sim_release_hang(1);
  fx_ok(berth_lease_wait("sim:1", berth_now() + FX_PATIENCE, &err), &err);
  fx_release(&f);
}

// Something never ends, then a clean-up hangs: the one deadline covers all of it, and a later wait succeeds.
static void c_16_one_deadline_for_the_close(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  fx_spec spec = {.parameters = "hang_close=1"};
  berth_backend_options options = fx_options();
  options.cleanup_limit = FX_PATIENCE;
  fx_open(&f, &spec, &options);
  fx_start(&f, &job, 100, 1);
  for (int i = 0; i < 3; i++) {
    int64_t deadline = berth_now() + 5 * FX_MILLISECOND;
    fx_expect(berth_backend_close_wait(f.backend, deadline, BERTH_NO_DEADLINE, NULL, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
    assert_true(berth_now() >= deadline);
    if (i == 1) fx_drop(&job); // from now on it is the clean-up that lasts
  }
  berthi_sim_release_hang(0);
  fx_close(&f);
}

// There is a call after which all work of a device has ended: for one execution, and for the backend.
static void c_17_all_work_can_be_waited_for(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berthi_sim_counters before, after;
  fx_spec spec = {.parameters = "settle_latency=1ms"};
  fx_open(&f, &spec, NULL);
  berthi_sim_read_counters(0, &before);
  fx_start(&f, &job, 1, 1);
  fx_ok(berth_exec_synchronize(job.exec, NULL), NULL);
  berthi_sim_read_counters(0, &after);
  assert_int_equal(after.settles, before.settles + 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  berthi_sim_read_counters(0, &after);
  assert_true(after.settles >= before.settles + 2); // EXE-2: also before the report
  fx_drop(&job);
  fx_close(&f);
  berthi_sim_read_counters(0, &after);
  assert_int_equal(after.live_devices, 0);
  assert_int_equal(after.live_blocks, 0);
}

// ---- C3: use after close -----------------------------------------------------------------------------------------------------------------------

typedef struct runner {
  berth_session *session;
  fx_flag inside, go_on;
  intptr_t value;
} runner;

static intptr_t run_on(berth_exec *exec, void *arg) {
  runner *r = arg;
  r->inside = 1;
  fx_until(r->go_on);
  return some_work(exec, NULL) + 5;
}

static void run_one(void *arg) {
  runner *r = arg;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  fx_check(berth_run(r->session, NULL, run_on, r, &result, NULL) == BERTH_OK);
  r->value = result.value;
}

// One thread runs, another closes, then a new session: the run ends, the old session answers an error, the new one works.
static void c_19_close_during_a_run(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  for (int round = 0; round < 10; round++) {
    fx f;
    fx_thread thread;
    fx_open(&f, NULL, NULL);
    runner r = {.session = f.session};
    fx_thread_start(&thread, run_one, &r);
    fx_until(r.inside);
    berth_backend_close(f.backend);
    fx_expect(berth_run(f.session, NULL, fx_fn_42, NULL, NULL, &err), &err, BERTH_CANCELLED, "backend_closing");
    r.go_on = 1;
    fx_thread_join(&thread);
    assert_int_equal(r.value, 5);
    berth_session *old = berth_session_retain(f.session);
    fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err), &err);
    fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, &err), &err);
    berth_session_release(f.session);
    berth_backend_release(f.backend);
    fx_open(&f, NULL, NULL);
    fx_run_plain(&f);
    fx_expect(berth_run(old, NULL, fx_fn_42, NULL, NULL, &err), &err, BERTH_CANCELLED, "backend_closed");
    assert_false(berth_session_same_backend(old, f.session));
    berth_session_release(old);
    fx_close(&f);
  }
}

// Everything that could be let go of is let go of, and the state that the execution still uses is there.
static void c_19_state_outlives_the_handles(void **state) {
  (void)state;
  fx f;
  fx_job job;
  void *memory = NULL;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 100, 1);
  fx_ok(berth_exec_alloc(job.exec, 4 * FX_UNIT, &memory, NULL), NULL);
  berth_admission_release(job.admission);
  berth_attempt_release(job.attempt);
  berth_session_release(f.session);
  berth_backend_release(f.backend); // the last one: it closes
  memset(memory, 7, 4 * FX_UNIT);
  fx_ok(berth_exec_check(job.exec, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).outcome, BERTH_SUCCEEDED);
  berth_completion_release(job.completion);
  fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, &err), &err);
  fx_until(fx_blocks() <= f.blocks);
}

// A child that is used after its execution has ended is told so; it finds no freed memory.
static void c_19_child_after_the_end(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_exec *child = NULL;
  void *memory = NULL;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  fx_ok(berth_exec_child(job.exec, &child, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_expect(berth_exec_alloc(child, 1, &memory, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
  fx_expect(berth_exec_check(child, &err), &err, BERTH_FAILED_PRECONDITION, "execution_released");
  berth_exec_release(child);
  fx_drop(&job);
  fx_close(&f);
}

// ---- C9: fork ----------------------------------------------------------------------------------------------------------------------------------

typedef struct inherited {
  fx f;
  fx_job job;
} inherited;

static void destroy_in_child(void *arg) {
  inherited *i = arg;
  berth_error err = BERTH_ERROR_INIT;
  fx_check(berth_run(i->f.session, NULL, fx_fn_42, NULL, NULL, &err) == BERTH_FAILED_PRECONDITION && strcmp(err.reason, "forked") == 0);
  fx_drop(&i->job);
  berth_session_release(i->f.session);
  berth_backend_close(i->f.backend);
  berth_backend_release(i->f.backend);
  berth_backend *fresh = open_named("sim:0", "memory=1GiB"); // the parent's device
  berth_session *session = berth_backend_session(fresh);
  fx_check(berth_run(session, NULL, some_work, NULL, NULL, NULL) == BERTH_OK);
  fx_check(berth_backend_close_wait(fresh, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL) == BERTH_OK);
  berth_session_release(session);
  berth_backend_release(fresh);
  _exit(0);
}

// Open, fork, destroy in the child; no work is needed for it. The parent goes on as if nothing were.
static void c_62_destroyed_in_a_child(void **state) {
  (void)state;
  inherited i;
  fx_open(&i.f, NULL, NULL);
  fx_start(&i.f, &i.job, 10, 1);
  in_child(destroy_in_child, &i);
  fx_ok(berth_exec_check(i.job.exec, NULL), NULL);
  fx_finish(&i.job, BERTH_SUCCEEDED);
  fx_drop(&i.job);
  fx_run_plain(&i.f);
  fx_close(&i.f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(c_10_c_11_process_ends),
      cmocka_unit_test(c_13_close_names_who_is_there),
      cmocka_unit_test(c_14_close_waits_for_its_own_only),
      cmocka_unit_test(c_16_one_deadline_for_the_close),
      cmocka_unit_test(c_17_all_work_can_be_waited_for),
      cmocka_unit_test(c_19_close_during_a_run),
      cmocka_unit_test(c_19_state_outlives_the_handles),
      cmocka_unit_test(c_19_child_after_the_end),
      cmocka_unit_test(c_62_destroyed_in_a_child),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
