// SPDX-License-Identifier: Apache-2.0
// Faults that users reported of other systems, each with the small input that shows it: CPUs, devices that fall ill, leaks and wrong metrics
// (docs/field-cases.md, C10 to C12). The name of a test begins with its case.
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "device/sim/sim.h"
#include "runtime/fixture.h"

// ---- C10: threads and affinity -----------------------------------------------------------------------------------------------------------------

static intptr_t which_cpu(berth_exec *exec, void *arg) {
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  (void)arg;
  fx_check(berth_exec_get_info(exec, &info, NULL) == BERTH_OK && info.lanes == 1);
  return sched_getcpu();
}

static void wait_elsewhere(void *arg) {
  fx_job *job = arg;
  fx_check(berth_admission_wait(job->admission, berth_now() + FX_PATIENCE, NULL) == BERTH_OK);
}

// The last of the CPUs that this process may use, and no other.
static int keep_one_cpu(void) {
  cpu_set_t allowed, one;
  int last = -1;
  fx_check(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  }
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  fx_check(sched_setaffinity(0, sizeof one, &one) == 0);
  return last;
}

// Submitted on one thread, waited for on another, on a machine of one CPU.
static void submit_here_wait_there(berth_session *session) {
  fx f = {.session = session};
  fx_job holder, job;
  fx_thread thread;
  fx_start(&f, &holder, 1, 1);
  berth_request request = fx_request(1, 1);
  fx_submit(&f, &job, &request, NULL);
  fx_check(!job.status);
  fx_thread_start(&thread, wait_elsewhere, &job);
  fx_until(berthi_wait_place_count("admission.wait") == 1);
  fx_drop(&holder);
  fx_thread_join(&thread);
  fx_drop(&job);
}

static void live_on_one_cpu(void) {
  int cpu = keep_one_cpu();
  berth_backend_options options = fx_options();
  berth_backend *backend = NULL;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_lanes *lanes = NULL;
  berth_error err = BERTH_ERROR_INIT;
  fx_check(berth_backend_open(&options, &backend, &err) == BERTH_OK);
  berth_session *session = berth_backend_session(backend);
  fx_check(berth_session_startup_record(session, 0, &record, NULL) == BERTH_OK && record.lanes == 1);
  fx_check(berth_run(session, NULL, which_cpu, NULL, &result, NULL) == BERTH_OK && result.value == cpu && result.cleanup == BERTH_OK);
  const uint32_t mine[] = {(uint32_t)cpu};
  berth_lanes_options named = BERTH_LANES_OPTIONS_INIT;
  named.cpus = mine;
  named.cpu_count = 1;
  fx_check(berth_lanes_create(session, &named, &lanes, NULL) == BERTH_OK);
  berth_run_options pinned = BERTH_RUN_OPTIONS_INIT;
  pinned.lane_set = lanes;
  fx_check(berth_run(session, &pinned, which_cpu, NULL, &result, NULL) == BERTH_OK && result.value == cpu && result.cleanup == BERTH_OK);
  berth_lanes_release(lanes);
  const uint32_t other[] = {(uint32_t)cpu + 1}; // one that this process may not use
  named.cpus = other;
  fx_check(berth_lanes_create(session, &named, &lanes, &err) == BERTH_INVALID_ARGUMENT);
  submit_here_wait_there(session);
  fx_check(berth_backend_close_wait(backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL) == BERTH_OK);
  berth_session_release(session);
  berth_backend_release(backend);
}

// A process that may use one CPU of many: one lane, on that CPU, and everything works.
static void c_64_c_65_one_allowed_cpu(void **state) {
  (void)state;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    (void)alarm((unsigned)(FX_PATIENCE / FX_SECOND));
    live_on_one_cpu();
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// What a device says of itself is checked before anything stands on it, and the error says so.
static void c_68_nonsense_is_found_at_open(void **state) {
  (void)state;
  static const char *const nonsense[] = {"memory=1GiB,nonsense=2", "memory=1GiB,nonsense=3", "memory=1GiB,nonsense=4"};
  for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
    berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
    berth_backend_options options = fx_options();
    berth_backend *backend = NULL;
    berth_error err = BERTH_ERROR_INIT;
    device.name = "sim:0";
    device.parameters = nonsense[i];
    options.devices = &device;
    options.device_count = 1;
    if (berth_backend_open(&options, &backend, &err) == BERTH_OK) fail_msg("%s was opened", nonsense[i]);
    assert_null(backend);
    assert_true(strcmp(err.reason, "profile_mismatch") == 0 || strcmp(err.reason, "invalid_configuration") == 0);
    fx_ok(berth_lease_wait("sim:0", berth_now() + FX_PATIENCE, &err), &err);
  }
}

// ---- C11: devices that fall ill ----------------------------------------------------------------------------------------------------------------

static berth_health health(const fx *f, uint32_t device) { return fx_metrics(f).devices[device].health; }

// One works on the device when it falls ill.
static void make_ill(const fx *f, fx_job *job, berthi_fault_class fault) {
  (void)f;
  berthi_sim_inject_fault(0, fault);
  berth_exec *exec = job->exec;
  job->exec = NULL;
  assert_int_not_equal(berth_exec_finish(exec, BERTH_FAILED, NULL, &job->error), BERTH_OK);
}

// A sticky error stays known: no new work is taken, at once and with the reason, however long it lasts.
static void c_70_sick_device_is_not_ready(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_backend_options options = fx_options();
  options.probe_interval = 3600 * FX_SECOND;
  fx_open(&f, NULL, &options);
  fx_start(&f, &job, 10, 1);
  make_ill(&f, &job, BERTHI_DEVICE_STICKY);
  berth_report_info info = fx_report(&job);
  assert_int_equal(info.outcome, BERTH_FAILED);
  assert_string_equal(info.cause.reason, "device_fault"); // the first cause stays with the attempt
  assert_int_not_equal(info.health_after, BERTH_HEALTH_OK);
  fx_drop(&job);
  fx_until(health(&f, 0) == BERTH_HEALTH_QUARANTINED);
  for (int i = 0; i < 50; i++) {
    fx_submit(&f, &job, NULL, NULL);
    fx_expect(job.status, &job.error, BERTH_UNAVAILABLE, "backend_unhealthy");
    fx_drop(&job);
    berth_error err = BERTH_ERROR_INIT;
    fx_expect(berth_run(f.session, NULL, fx_fn_42, NULL, NULL, &err), &err, BERTH_UNAVAILABLE, "backend_unhealthy");
  }
  assert_int_equal(fx_metrics(&f).refusals[BERTH_REFUSED_UNHEALTHY], 100);
  berthi_sim_reset(0);
  fx_close(&f);
}

// Healthy again, and in service again: probes go on by themselves, and an operator can ask for one.
static void c_71_healthy_again(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_spec spec = {.parameters = "probe_fails=1"};
  berth_backend_options options = fx_options();
  options.probe_interval = FX_MILLISECOND;
  fx_open(&f, &spec, &options);
  fx_start(&f, &job, 10, 1);
  make_ill(&f, &job, BERTHI_DEVICE_STICKY);
  fx_drop(&job);
  fx_until(fx_metrics(&f).devices[0].quarantines == 1 && health(&f, 0) == BERTH_HEALTH_OK);
  assert_int_equal(fx_metrics(&f).devices[0].withheld_bytes, 0);
  assert_int_equal(fx_metrics(&f).devices[0].faults, 1);
  fx_start(&f, &job, 100, 8);
  fx_drop(&job);
  fx_ok(berth_device_quarantine(f.backend, 0, NULL), NULL);
  assert_int_equal(health(&f, 0), BERTH_HEALTH_QUARANTINED);
  fx_ok(berth_device_restore(f.backend, 0, NULL), NULL);
  fx_until(health(&f, 0) == BERTH_HEALTH_OK);
  fx_run_plain(&f);
  berthi_sim_reset(0);
  fx_close(&f);
}

// A sensor that takes its time: nobody waits for it, and what was read last has an age and a status.
static void c_73_slow_sensor(void **state) {
  (void)state;
  fx f;
  fx_spec spec = {.parameters = "telemetry_latency=300ms"};
  berth_backend_options options = fx_options();
  options.telemetry_interval = FX_MILLISECOND;
  berthi_sim_counters before, during;
  berthi_sim_read_counters(0, &before);
  fx_open(&f, &spec, &options);
  fx_until((berthi_sim_read_counters(0, &during), during.telemetries > before.telemetries) || berthi_wait_place_count("sim latency") > 0);
  for (int i = 0; i < 1000; i++) fx_run_plain(&f);
  for (int i = 0; i < 1000; i++) {
    berth_telemetry sample = BERTH_TELEMETRY_INIT;
    fx_ok(berth_session_telemetry(f.session, 0, &sample, NULL), NULL);
    assert_true(sample.status != BERTH_OK || sample.age >= 0);
  }
  fx_close(&f);
}

// Two scans at once, and the device faults under one of them: both end, and nobody who comes later waits for ever.
static void c_74_fault_under_one_of_two(void **state) {
  (void)state;
  fx f;
  fx_job scans[2], queued, later;
  berth_backend_options options = fx_options();
  options.probe_interval = 3600 * FX_SECOND;
  fx_open(&f, NULL, &options);
  for (int i = 0; i < 2; i++) fx_start(&f, &scans[i], 50, 1);
  fx_submit_units(&f, &queued, 50);
  make_ill(&f, &scans[0], BERTHI_DEVICE_STICKY);
  (void)berth_admission_wait(queued.admission, berth_now() + FX_PATIENCE, &queued.error);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_REFUSED);
  berth_exec_release(scans[1].exec);
  scans[1].exec = NULL;
  for (int i = 0; i < 2; i++) {
    (void)fx_report(&scans[i]);
    fx_drop(&scans[i]);
  }
  fx_submit(&f, &later, NULL, NULL);
  assert_int_not_equal(later.status, BERTH_OK);
  fx_drop(&later);
  fx_drop(&queued);
  berthi_sim_reset(0);
  fx_close(&f);
}

// ---- C12: leaks and wrong metrics --------------------------------------------------------------------------------------------------------------

// What an execution's user forgot goes with it: blocks, blocks of no bytes, and what children allocated.
static void c_76_children_and_empty_blocks(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_exec *children[3];
  berthi_sim_counters counters;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  for (int i = 0; i < 3; i++) {
    void *memory = NULL, *empty = NULL;
    fx_ok(berth_exec_child(job.exec, &children[i], NULL), NULL);
    fx_ok(berth_exec_alloc(children[i], 1000, &memory, NULL), NULL);
    fx_ok(berth_exec_alloc(children[i], 0, &empty, NULL), NULL);
    assert_non_null(empty);
    assert_ptr_not_equal(empty, memory);
  }
  berth_exec_free(job.exec, NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_true(fx_report(&job).bytes_held > 0); // told, and freed
  berthi_sim_read_counters(0, &counters);
  assert_int_equal(counters.live_blocks, 0);
  for (int i = 0; i < 3; i++) berth_exec_release(children[i]);
  fx_drop(&job);
  fx_close(&f);
}

// A second one never ends the first in silence: it is refused, and the first goes on.
static void c_77_second_does_not_end_the_first(void **state) {
  (void)state;
  fx f, again;
  fx_job job;
  berth_admission *second = NULL;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  berth_request request = fx_request(10, 1);
  fx_expect(berth_session_admit(f.session, job.attempt, &request, &second, &err), &err, BERTH_FAILED_PRECONDITION, "already_admitted");
  fx_expect(fx_try_open(&again, NULL, NULL, &err), &err, BERTH_ALREADY_EXISTS, "backend_already_live");
  fx_ok(berth_exec_check(job.exec, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).outcome, BERTH_SUCCEEDED);
  fx_drop(&job);
  fx_close(&f);
}

// Every request is counted where it is, in every snapshot: waiting, running, over.
static void c_79_pending_is_exact(void **state) {
  (void)state;
  fx f;
  fx_job running, queued[3];
  fx_open(&f, NULL, NULL);
  fx_start(&f, &running, 100, 1);
  for (int i = 0; i < 3; i++) {
    fx_submit_units(&f, &queued[i], 100);
    assert_int_equal(fx_metrics(&f).queued, i + 1);
  }
  fx_drop(&running);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(fx_metrics(&f).live_grants, 1);
    assert_int_equal(fx_metrics(&f).queued, 2 - i);
    fx_wait_take(&queued[i]);
    fx_drop(&queued[i]);
  }
  assert_int_equal(fx_metrics(&f).live_grants, 0);
  fx_close(&f);
}

static void expect_outcomes(const fx *f, uint64_t succeeded, uint64_t failed, uint64_t cancelled, uint64_t dropped) {
  berth_metrics m = fx_metrics(f);
  assert_int_equal(m.outcomes[BERTH_SUCCEEDED], succeeded);
  assert_int_equal(m.outcomes[BERTH_FAILED], failed);
  assert_int_equal(m.outcomes[BERTH_OUTCOME_CANCELLED], cancelled);
  assert_int_equal(m.outcomes[BERTH_DROPPED], dropped);
  assert_int_equal(m.outcomes[BERTH_CRASHED], 0);
}

// A failure is a failure and is counted once, in each place where it belongs.
static void c_80_c_82_each_outcome_is_counted_once(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_drop(&job);
  expect_outcomes(&f, 1, 0, 0, 0);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_FAILED);
  fx_drop(&job);
  expect_outcomes(&f, 1, 1, 0, 0);
  berth_request request = fx_request(101, 1);
  fx_submit(&f, &job, &request, NULL); // refused
  fx_drop(&job);
  expect_outcomes(&f, 1, 2, 0, 0);
  assert_int_equal(fx_metrics(&f).refused, 1);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_OUTCOME_CANCELLED);
  fx_drop(&job);
  expect_outcomes(&f, 1, 2, 1, 0);
  fx_start(&f, &job, 1, 1);
  fx_drop(&job);
  expect_outcomes(&f, 1, 2, 1, 1);
  assert_int_equal(fx_metrics(&f).submitted, 5);
  assert_int_equal(fx_metrics(&f).granted, 4);
  fx_close(&f);
}

// The counters count whatever options an entry has.
static void c_81_counters_count_under_every_option(void **state) {
  (void)state;
  fx f;
  berth_run_options plain = BERTH_RUN_OPTIONS_INIT, bytes = plain, reported = plain, grouped = plain, urgent = plain, cached = plain;
  berth_run_options *all[] = {&plain, &bytes, &reported, &grouped, &urgent, &cached, NULL};
  fx_open(&f, NULL, NULL);
  bytes.bytes = FX_UNIT;
  reported.report = true;
  grouped.group = "tenant";
  urgent.deadline = berth_now() + FX_PATIENCE;
  urgent.priority = 3;
  fx_ok(berth_cache_create(f.session, NULL, &cached.cache, NULL), NULL);
  for (uint64_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    fx_ok(berth_run(f.session, all[i], fx_fn_42, NULL, &result, NULL), NULL);
    berth_metrics m = fx_metrics(&f);
    assert_int_equal(m.submitted, i + 1);
    assert_int_equal(m.granted, i + 1);
    assert_int_equal(m.wait.count, i + 1); // the summary and the counter are of one transition
    assert_int_equal(m.sealed, i >= 2);
    assert_int_equal(m.duration.count, m.sealed);
    berth_report_release(result.report);
  }
  berth_cache_release(cached.cache);
  fx_close(&f);
}

// Timeouts, cancels, refusals and new attempts after them: every gauge comes back to nothing, and none is below it on the way.
static void c_83_gauges_come_back(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 50; i++) {
    fx_start(&f, &holder, 100, 1);
    for (int way = 0; way < 4; way++) {
      berth_request request = fx_request(1, 1);
      if (way == 0) request.queue_deadline = berth_now() + 50000;
      fx_submit(&f, &job, &request, NULL);
      if (way == 0 && !job.status) (void)berth_admission_wait(job.admission, BERTH_NO_DEADLINE, NULL);
      if (way == 1) (void)berth_admission_cancel(job.admission);
      if (way == 2) (void)berth_attempt_finish(job.attempt, BERTH_FAILED, NULL, NULL);
      fx_drop(&job);
      berth_metrics m = fx_metrics(&f);
      assert_int_equal(m.queued, 0);
      assert_int_equal(m.live_grants, 1);
      assert_int_equal(m.open, 1);
    }
    fx_drop(&holder);
    berth_metrics m = fx_metrics(&f);
    assert_int_equal(m.live_grants, 0);
    assert_int_equal(m.open, 0);
    assert_int_equal(m.devices[0].active, 0);
    assert_int_equal(m.devices[0].lanes_promised, 0);
  }
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(c_64_c_65_one_allowed_cpu),
      cmocka_unit_test(c_68_nonsense_is_found_at_open),
      cmocka_unit_test(c_70_sick_device_is_not_ready),
      cmocka_unit_test(c_71_healthy_again),
      cmocka_unit_test(c_73_slow_sensor),
      cmocka_unit_test(c_74_fault_under_one_of_two),
      cmocka_unit_test(c_76_children_and_empty_blocks),
      cmocka_unit_test(c_77_second_does_not_end_the_first),
      cmocka_unit_test(c_79_pending_is_exact),
      cmocka_unit_test(c_80_c_82_each_outcome_is_counted_once),
      cmocka_unit_test(c_81_counters_count_under_every_option),
      cmocka_unit_test(c_83_gauges_come_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
