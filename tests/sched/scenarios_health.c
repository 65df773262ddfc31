// SPDX-License-Identifier: Apache-2.0
/// Health against admission, release and close: SUSPECT keeps its waiters and resolves, out of service refuses them, healing brings everything back (HLT-1).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct ward {
  scene scene;
  scene_held held;
  uint32_t taken, refused;
  berthi_fault_class fault;
} ward;

static berth_health health(const ward *w) { return scene_device(&w->scene, 0).health; }

// A client of a device that may fall ill: granted, or refused for the right reason.
static void patient(void *arg) {
  ward *w = arg;
  berth_request request = scene_units(1);
  scene_end end;
  scene_attempt(&w->scene, NULL, &request, &end);
  if (end.taken) {
    w->taken++;
    return;
  }
  w->refused++;
  berthi_sched_check(!end.begun || scene_reason_is(&end.report.cause, "device_quarantined") ||
                     scene_reason_is(&end.report.cause, "backend_unhealthy") || scene_reason_is(&end.report.cause, "backend_closing"));
}

static void works_on_faulty(void *arg) {
  ward *w = arg;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berthi_sim_inject_fault(0, w->fault);
  scene_finish(&w->scene, &w->held, BERTH_SUCCEEDED, &info);
  berthi_sched_check(w->fault == BERTHI_DEVICE_FINE || info.health_after != BERTH_HEALTH_OK || info.cleanup == BERTH_CLEANUP_FAILED);
}

static void until_healthy(ward *w) {
  for (int i = 0; i < 20 && health(w) != BERTH_HEALTH_OK; i++) scene_sleep(SCENE_SECOND / 2);
  berthi_sched_check(health(w) == BERTH_HEALTH_OK);
  berthi_sched_check(scene_device(&w->scene, 0).withheld_bytes == 0);
  scene_end end;
  scene_attempt(&w->scene, NULL, NULL, &end);
  berthi_sched_check(end.taken);
}

// A sticky fault in the middle of work; waiters; a probe brings the device back.
static void sticky_fault(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_STICKY};
  berthi_thread threads[3];
  scene_open(&w.scene, &(scene_setup){.units = 1, .slots = 1, .options = {.probe_limit = 5}, .parameters = "probe_fails=1,probe_latency=10ns"});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "patient", patient, &w);
  scene_start(&threads[1], "patient", patient, &w);
  scene_start(&threads[2], "faulty", works_on_faulty, &w);
  scene_join(threads, 3);
  until_healthy(&w);
  scene_close(&w.scene);
}

// The fault is gone when the device's thread looks: SUSPECT resolves to OK and its waiters are granted, never refused.
static void cures(void *arg) {
  ward *w = arg;
  while (health(w) == BERTH_HEALTH_OK) berthi_thread_yield();
  berthi_sim_inject_fault(0, BERTHI_DEVICE_FINE);
}

static void suspect_resolves(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_STICKY};
  berthi_thread threads[3];
  scene_open(&w.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "patient", patient, &w);
  scene_start(&threads[1], "faulty", works_on_faulty, &w);
  scene_start(&threads[2], "cure", cures, &w);
  scene_join(threads, 3);
  berthi_sched_check(w.taken + w.refused == 1);
  until_healthy(&w);
  scene_close(&w.scene);
}

// Lost, or in need of a new process, or with unknown isolation: no waiter stays, and the report keeps the first cause.
static void fatal_fault(void *arg) {
  (void)arg;
  static const berthi_fault_class classes[] = {BERTHI_DEVICE_LOST, BERTHI_DEVICE_NEEDS_RESTART, BERTHI_DEVICE_UNKNOWN_ISOLATION};
  ward w = {.fault = classes[berthi_sched_random(3)]};
  berthi_thread threads[3];
  scene_open(&w.scene, &(scene_setup){.units = 1, .slots = 1, .options = {.probe_limit = 1, .probe_interval = 100}});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "patient", patient, &w);
  scene_start(&threads[1], "patient", patient, &w);
  scene_start(&threads[2], "faulty", works_on_faulty, &w);
  scene_join(threads, 3);
  berthi_sched_check(w.refused == 2);
  scene_sleep(SCENE_SECOND);
  berth_error err = BERTH_ERROR_INIT;
  berth_health now = health(&w);
  if (w.fault == BERTHI_DEVICE_NEEDS_RESTART)
    berthi_sched_check(now == BERTH_HEALTH_RESTART_REQUIRED);
  else
    berthi_sched_check(now == BERTH_HEALTH_LOST);
  berthi_sched_check(berth_device_quarantine(w.scene.backend, 0, &err) == BERTH_FAILED_PRECONDITION && scene_reason_is(&err, "device_state"));
  if (now == BERTH_HEALTH_LOST) { // an operator knows better
    berthi_sim_inject_fault(0, BERTHI_DEVICE_FINE);
    scene_ok(berth_device_restore(w.scene.backend, 0, &err), &err);
    until_healthy(&w);
  } else {
    berthi_sched_check(berth_device_restore(w.scene.backend, 0, &err) == BERTH_FAILED_PRECONDITION);
  }
  scene_close(&w.scene);
}

// What a probe finds may be worse than what was known.
static void probe_finds_worse(void *arg) {
  (void)arg;
  bool restart = berthi_sched_random(2) != 0;
  ward w = {.fault = BERTHI_DEVICE_STICKY};
  scene_open(
      &w.scene,
      &(scene_setup){.units = 1, .slots = 1, .parameters = restart ? "probe_latency=10ns" : "probe_lost=1", .options = {.probe_interval = 100}});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  works_on_faulty(&w);
  while (health(&w) != BERTH_HEALTH_QUARANTINED) berthi_thread_yield();
  scene_sleep(100);
  if (restart) berthi_sim_inject_fault(0, BERTHI_DEVICE_NEEDS_RESTART);
  scene_sleep(SCENE_SECOND);
  berthi_sched_check(health(&w) == (restart ? BERTH_HEALTH_RESTART_REQUIRED : BERTH_HEALTH_LOST));
  scene_close(&w.scene);
}

// ---- by hand ---------------------------------------------------------------------------------------------------------------------------------------------

static void quarantines(void *arg) {
  ward *w = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_device_quarantine(w->scene.backend, 0, &err);
  berthi_sched_check(status == BERTH_OK || status == BERTH_CANCELLED);
}

static void restores(void *arg) {
  ward *w = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_device_restore(w->scene.backend, 0, &err);
  berthi_sched_check(status == BERTH_OK || status == BERTH_CANCELLED || scene_reason_is(&err, "device_state"));
}

static void ends_holder(void *arg) {
  ward *w = arg;
  scene_finish(&w->scene, &w->held, BERTH_SUCCEEDED, NULL);
}

// Quarantine and restore while one ends and one waits: whatever was withheld is back when the device is in service.
static void by_hand(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_FINE};
  berthi_thread threads[5];
  scene_open(&w.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "patient", patient, &w);
  scene_start(&threads[1], "quarantine", quarantines, &w);
  scene_start(&threads[2], "restore", restores, &w);
  scene_start(&threads[3], "restore", restores, &w);
  scene_start(&threads[4], "end", ends_holder, &w);
  (void)scene_laws(&w.scene);
  scene_join(threads, 5);
  while (health(&w) == BERTH_HEALTH_PROBING) berthi_thread_yield();
  restores(&w);
  until_healthy(&w);
  scene_close(&w.scene);
}

// The end of an execution on a device that heals at the same moment.
static void withheld_comes_back(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_FINE};
  berthi_thread threads[2];
  scene_open(&w.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  quarantines(&w);
  scene_start(&threads[0], "end", ends_holder, &w);
  scene_start(&threads[1], "restore", restores, &w);
  scene_join(threads, 2);
  until_healthy(&w);
  scene_close(&w.scene);
}

// An operator's quarantine during a probe is not undone by the probe.
static void quarantine_in_probe(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_FINE};
  scene_open(&w.scene, &(scene_setup){.parameters = "probe_latency=100ns"});
  quarantines(&w);
  restores(&w);
  while (health(&w) != BERTH_HEALTH_PROBING) berthi_thread_yield();
  quarantines(&w);
  scene_sleep(10 * SCENE_SECOND);
  berthi_sched_check(health(&w) == BERTH_HEALTH_QUARANTINED);
  restores(&w);
  until_healthy(&w);
  scene_close(&w.scene);
}

// The other device goes on: nobody is refused, and what waits moves there.
static void other_device(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_STICKY};
  berthi_thread threads[3];
  scene_open(&w.scene, &(scene_setup){.devices = 2, .units = 1, .slots = 1});
  berth_request request = scene_units(1);
  request.devices = 1;
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "patient", patient, &w);
  scene_start(&threads[1], "patient", patient, &w);
  scene_start(&threads[2], "faulty", works_on_faulty, &w);
  scene_join(threads, 3);
  berthi_sched_check(w.refused == 0 && w.taken == 2);
  scene_close(&w.scene);
}

// ---- against close ---------------------------------------------------------------------------------------------------------------------------------------

static void closer(void *arg) { berth_backend_close(((ward *)arg)->scene.backend); }

// A probe is wanted, due or running when the close comes.
static void restore_close(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_FINE};
  berthi_thread threads[3];
  scene_open(&w.scene, &(scene_setup){.parameters = "probe_latency=10ns,close_latency=10ns"});
  quarantines(&w);
  scene_start(&threads[0], "restore", restores, &w);
  scene_start(&threads[1], "close", closer, &w);
  scene_start(&threads[2], "patient", patient, &w);
  scene_join(threads, 3);
  scene_close(&w.scene);
}

static void fault_close(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_STICKY};
  berthi_thread threads[3];
  scene_open(&w.scene,
             &(scene_setup){.units = 1, .slots = 1, .parameters = "probe_latency=10ns,close_latency=100ns", .options = {.probe_interval = 50}});
  berth_request request = scene_units(1);
  scene_hold(&w.scene, &request, &w.held);
  scene_start(&threads[0], "faulty", works_on_faulty, &w);
  scene_start(&threads[1], "close", closer, &w);
  scene_start(&threads[2], "patient", patient, &w);
  scene_join(threads, 3);
  if (berthi_sched_random(2) != 0) scene_sleep(60);
  scene_close(&w.scene);
}

// A clean-up that hangs behind a probe is still limited (CLS-4): the device counts as leaked, the close ends.
static void probe_then_hang(void *arg) {
  (void)arg;
  ward w = {.fault = BERTHI_DEVICE_FINE};
  bool passes = berthi_sched_random(2) != 0;
  scene_open(&w.scene, &(scene_setup){.parameters = passes ? "probe_latency=100ns,hang_close=1" : "probe_latency=100ns,probe_fails=9,hang_close=1",
                                      .options = {.cleanup_limit = 1000, .probe_interval = SCENE_SECOND}});
  quarantines(&w);
  restores(&w);
  while (health(&w) != BERTH_HEALTH_PROBING) berthi_thread_yield();
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_backend_close_wait(w.scene.backend, berthi_now() + 2000, BERTH_NO_DEADLINE, &report, &err), &err);
  berthi_sched_check(report.devices_leaked == 1 && report.state == BERTH_STATE_CLOSED);
  berthi_sim_release_hang(0);
  scene_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err);
  scene_release(&w.scene);
}

const sched_scenario scenarios_health[] = {
    {"sticky_fault", sticky_fault, 1250, 0},
    {"suspect_resolves", suspect_resolves, 1250, 0},
    {"fatal_fault", fatal_fault, 1250, 0},
    {"probe_finds_worse", probe_finds_worse, 300, 0},
    {"by_hand", by_hand, 1500, 0},
    {"withheld_comes_back", withheld_comes_back, 750, 3000},
    {"quarantine_in_probe", quarantine_in_probe, 300, 0},
    {"other_device", other_device, 1000, 0},
    {"restore_close", restore_close, 1250, 0},
    {"fault_close", fault_close, 1250, 0},
    {"probe_then_hang", probe_then_hang, 300, 0},
    {NULL, NULL, 0, 0},
};
