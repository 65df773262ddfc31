// SPDX-License-Identifier: Apache-2.0
/// Opens that fail and roll back, backends beside each other, leases, closes that time out, clean-ups that hang (BCK-2 to BCK-5, CLS-2 to CLS-4).
#include <string.h>

#include "base/annotate.h"
#include "base/memory.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct pair {
  scene a, b;
  scene_held held;
  uint32_t opened, refused;
} pair;

// After any failure a backend on the same devices opens and works.
static void opens_again(const scene_setup *setup) {
  scene s;
  berth_error err = BERTH_ERROR_INIT;
  for (uint32_t i = 0; i < (setup->devices != 0 ? setup->devices : 1); i++) {
    scene_ok(berth_lease_wait(i == 0 ? "sim:0" : "sim:1", BERTH_NO_DEADLINE, &err), &err);
  }
  scene_open(&s, &(scene_setup){.devices = setup->devices});
  berthi_sched_check(scene_run(&s, NULL, NULL));
  scene_close(&s);
}

// The Nth allocation or thread fails: the right error, everything given back.
static void open_fails(void *arg) {
  (void)arg;
  scene s;
  berth_error err = BERTH_ERROR_INIT;
  scene_setup setup = {.devices = 2, .options = {.telemetry_interval = SCENE_SECOND}};
  bool threads = berthi_sched_random(2) != 0;
  berthi_fault_plan(threads ? BERTHI_FAULT_THREAD : BERTHI_FAULT_ALLOC, 1 + berthi_sched_random(threads ? 6 : 10), berthi_sched_random(2) != 0);
  berth_status status = scene_try_open(&s, &setup, &err);
  (void)berthi_fault_plan_end();
  if (status == BERTH_OK) {
    scene_close(&s);
  } else {
    berthi_sched_check(status == BERTH_RESOURCE_EXHAUSTED);
    berthi_sched_check(scene_reason_is(&err, "host_exhausted") || scene_reason_is(&err, "thread_unavailable") ||
                       scene_reason_is(&err, "device_exhausted"));
  }
  opens_again(&setup);
}

// The last of two devices does not open, or is not what its profile says.
static void device_fails(void *arg) {
  (void)arg;
  scene s;
  berth_error err = BERTH_ERROR_INIT;
  bool mismatch = berthi_sched_random(2) != 0;
  scene_setup setup = {.devices = 2, .last_parameters = mismatch ? "nonsense=3" : "fail_open=1,open_latency=10ns"};
  berth_status status = scene_try_open(&s, &setup, &err);
  berthi_sched_check(status == (mismatch ? BERTH_INTERNAL : BERTH_UNAVAILABLE));
  berthi_sched_check(scene_reason_is(&err, mismatch ? "profile_mismatch" : "device_unavailable"));
  bool told = false;
  for (uint32_t i = 0; i < err.fact_count; i++) told = told || strcmp(err.facts[i].key, "rollback_quiescent") == 0;
  berthi_sched_check(told); // BCK-4
  opens_again(&setup);
}

// The first device hangs in the clean-up of the rollback: handed over, and said so.
static void rollback_hangs(void *arg) {
  (void)arg;
  scene s;
  berth_error err = BERTH_ERROR_INIT;
  scene_setup setup = {.devices = 2, .parameters = "hang_close=1", .last_parameters = "fail_open=1", .options = {.cleanup_limit = 10 * SCENE_SECOND}};
  berthi_sched_check(scene_try_open(&s, &setup, &err) == BERTH_UNAVAILABLE);
  for (uint32_t i = 0; i < err.fact_count; i++) {
    if (strcmp(err.facts[i].key, "rollback_quiescent") == 0) berthi_sched_check(err.facts[i].value == 0);
  }
  berth_error held = BERTH_ERROR_INIT;
  berthi_sched_check(scene_try_open(&s, &(scene_setup){.devices = 1}, &held) == BERTH_ALREADY_EXISTS &&
                     scene_reason_is(&held, "backend_already_live"));
  berthi_sim_release_hang(0);
  opens_again(&setup);
}

// ---- two backends ------------------------------------------------------------------------------------------------------------------------------------------

static void client_of_a(void *arg) {
  pair *p = arg;
  scene_end end;
  for (int i = 0; i < 2; i++) scene_attempt(&p->a, NULL, NULL, &end);
}

static void client_of_b(void *arg) {
  pair *p = arg;
  scene_end end;
  for (int i = 0; i < 2; i++) {
    scene_attempt(&p->b, NULL, NULL, &end);
    berthi_sched_check(end.taken); // whatever happens to the other backend
  }
}

static void closes_a(void *arg) {
  pair *p = arg;
  scene_close(&p->a);
}

static void disjoint(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berthi_thread threads[3];
  scene_open(&p.a, NULL);
  scene_open(&p.b, &(scene_setup){.first = 1});
  berthi_sched_check(!berth_session_same_backend(p.a.session, p.b.session));
  // What belongs to one is refused by the other.
  berth_attempt *attempt = scene_begin(&p.a, NULL);
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berthi_sched_check(berth_session_admit(p.b.session, attempt, NULL, &admission, &err) != BERTH_OK && scene_reason_is(&err, "incompatible_context"));
  berth_attempt_release(attempt);
  scene_start(&threads[0], "a", client_of_a, &p);
  scene_start(&threads[1], "b", client_of_b, &p);
  berthi_thread_join(&threads[0]);
  scene_start(&threads[2], "close", closes_a, &p);
  scene_join(threads + 1, 2);
  scene_close(&p.b);
}

// Two open the same device: one has it, the other is told who; the lease comes to it when the first closes.
static void rival(void *arg) {
  pair *p = arg;
  scene s;
  berth_error err = BERTH_ERROR_INIT;
  for (;;) {
    berth_status status = scene_try_open(&s, &(scene_setup){.devices = 1}, &err);
    if (status == BERTH_OK) break;
    berthi_sched_check(status == BERTH_ALREADY_EXISTS && scene_reason_is(&err, "backend_already_live"));
    p->refused++;
    status = berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err);
    scene_ok(status, &err);
  }
  p->opened++;
  berthi_sched_check(scene_run(&s, NULL, NULL));
  (void)scene_wait_closed(&s);
  scene_release(&s);
}

static void rivals(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berthi_thread threads[3];
  for (int i = 0; i < 3; i++) scene_start(&threads[i], "rival", rival, &p);
  scene_join(threads, 3);
  berthi_sched_check(p.opened == 3);
}

// ---- close -------------------------------------------------------------------------------------------------------------------------------------------------

static void ends_holder(void *arg) {
  pair *p = arg;
  scene_finish(&p->a, &p->held, BERTH_SUCCEEDED, NULL);
}

// A wait that times out says who holds what; a later one succeeds (CLS-2).
static void close_times_out(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berthi_thread thread;
  berth_holder holders[2];
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_open(&p.a, NULL);
  berth_request request = scene_units(1);
  scene_hold(&p.a, &request, &p.held);
  report.holders = holders;
  report.holder_capacity = 2;
  int64_t deadline = berthi_now() + 100;
  berthi_sched_check(berth_backend_close_wait(p.a.backend, deadline, BERTH_NO_DEADLINE, &report, &err) == BERTH_DEADLINE_EXCEEDED);
  berthi_sched_check(berthi_now() == deadline);
  berthi_sched_check(report.state == BERTH_STATE_CLOSING && report.holders_total == 1 && report.holder_count == 1 && report.bytes_held == SCENE_UNIT);
  berthi_sched_check(holders[0].attempt_id == berth_attempt_id(p.held.attempt) && holders[0].phase == BERTH_PHASE_RUNNING);
  berthi_sched_check(report.active_device_permits == 1 && report.active_observation_permits == 1 && report.deadlines_elapsed == 1);
  // Running executions may join fragments while the backend closes.
  scene_ok(berth_exec_join_fragment(p.held.exec, 0, &err), &err);
  scene_start(&thread, "end", ends_holder, &p);
  (void)scene_wait_closed(&p.a);
  berthi_thread_join(&thread);
  scene_close(&p.a);
}

// Devices are quiescent while an attempt without device work is still open (CLS-3).
static void quiescent_first(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berth_error err = BERTH_ERROR_INIT;
  scene_open(&p.a, NULL);
  berth_attempt *attempt = scene_begin(&p.a, NULL);
  berth_backend_close(p.a.backend);
  scene_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err);
  scene_open(&p.b, NULL); // the devices are free already
  berthi_sched_check(scene_run(&p.b, NULL, NULL));
  scene_close(&p.b);
  int64_t now = berthi_now();
  berth_attempt_release(attempt);
  (void)scene_wait_closed(&p.a);
  berthi_sched_check(berthi_now() == now); // the last permit is what CLOSED waits for, not a timer
  p.a.device_count = p.b.device_count;     // both ends are checked against what was there before the first
  scene_close(&p.a);
}

static void closes(void *arg) {
  pair *p = arg;
  berth_backend_close(p->a.backend);
}

static void waits_closed(void *arg) {
  pair *p = arg;
  (void)scene_wait_closed(&p->a);
}

// Idempotent, from many threads at once.
static void many_closers(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berthi_thread threads[4];
  scene_open(&p.a, NULL);
  scene_start(&threads[0], "close", closes, &p);
  scene_start(&threads[1], "close", closes, &p);
  scene_start(&threads[2], "wait", waits_closed, &p);
  scene_start(&threads[3], "wait", waits_closed, &p);
  scene_join(threads, 4);
  scene_close(&p.a);
}

// One of two devices hangs: it is leaked, named and keeps its lease; the other is released; a late success is counted (CLS-4).
static void hanging_cleanup(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  bool force = berthi_sched_random(2) != 0;
  scene_open(&p.a, &(scene_setup){.devices = 2, .last_parameters = "hang_close=1", .options = {.cleanup_limit = 1000}});
  berthi_sched_check(scene_run(&p.a, NULL, NULL));
  scene_ok(berth_backend_close_wait(p.a.backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err), &err);
  berthi_sched_check(report.devices_leaked == 2 && report.devices_released == 1 && report.late_successes == 0);
  scene_ok(berth_lease_wait("sim:0", berthi_now(), &err), &err);
  berthi_sched_check(berth_lease_force("sim:0", "test", &err) != BERTH_OK);
  if (force) {
    scene_ok(berth_lease_force("sim:1", "test", &err), &err);
    scene_open(&p.b, &(scene_setup){.first = 1});
    berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
    scene_ok(berth_session_startup_record(p.b.session, 0, &record, &err), &err);
    berthi_sched_check(strcmp(record.forced_by, "test") == 0);
  }
  berthi_sim_release_hang(1);
  while (report.late_successes == 0) {
    berthi_thread_yield();
    scene_ok(berth_backend_close_state(p.a.backend, &report, &err), &err);
  }
  berthi_sched_check(report.devices_leaked == 0 && report.devices_released == 3);
  scene_release(&p.a);
  if (force) { // the late success of the old holder leaves the new one its lease
    berthi_sched_check(scene_try_open(&p.a, &(scene_setup){.first = 1}, &err) == BERTH_ALREADY_EXISTS);
    berthi_sched_check(scene_run(&p.b, NULL, NULL));
    (void)scene_wait_closed(&p.b);
    scene_release(&p.b);
  }
}

// The handles go before the clean-up ends: the threads keep what they need.
static void hanging_without_handle(void *arg) {
  (void)arg;
  scene s;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_open(&s, &(scene_setup){.parameters = "hang_close=1", .options = {.cleanup_limit = 1000}});
  scene_ok(berth_backend_close_wait(s.backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err), &err);
  berthi_sched_check(report.devices_leaked == 1);
  scene_release(&s);
  berthi_sim_release_hang(0);
  scene_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err);
}

// Telemetry is inside the device when the close comes (TEL-1): the clean-up waits for it, admission never did.
static void telemetry_close(void *arg) {
  (void)arg;
  pair p = {.opened = 0};
  scene_open(&p.a, &(scene_setup){.parameters = "telemetry_latency=50ns", .options = {.telemetry_interval = 100}});
  berthi_sched_check(scene_run(&p.a, NULL, NULL));
  if (berthi_sched_random(2) != 0) scene_sleep((int64_t)berthi_sched_random(4) * 40 + 1);
  scene_close(&p.a);
}

const sched_scenario scenarios_open[] = {
    {"open_fails", open_fails, 1250, 0},
    {"device_fails", device_fails, 750, 0},
    {"rollback_hangs", rollback_hangs, 300, 0},
    {"disjoint", disjoint, 750, 0},
    {"rivals", rivals, 750, 0},
    {"close_times_out", close_times_out, 500, 0},
    {"quiescent_first", quiescent_first, 500, 0},
    {"many_closers", many_closers, 750, 0},
    {"hanging_cleanup", hanging_cleanup, 500, 0},
    {"hanging_without_handle", hanging_without_handle, 300, 0},
    {"telemetry_close", telemetry_close, 1000, 0},
    {NULL, NULL, 0, 0},
};
