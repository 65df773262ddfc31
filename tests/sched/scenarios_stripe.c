// SPDX-License-Identifier: Apache-2.0
/// Parked permits and grants of several threads, against a waiter who needs them and against close (stripe.c, RUN-3, RUN-6, ADM-7).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct mix {
  scene scene;
  int64_t queue_deadline;
  uint32_t units;
} mix;

static void plain_runs(void *arg) {
  mix *m = arg;
  for (int i = 0; i < 3; i++) {
    berth_error err = BERTH_ERROR_INIT;
    if (!scene_run(&m->scene, NULL, &err)) berthi_sched_check(scene_reason_is(&err, "backend_closing") || scene_reason_is(&err, "backend_closed"));
  }
}

static void plain_attempts(void *arg) {
  mix *m = arg;
  for (int i = 0; i < 2; i++) {
    scene_end end;
    scene_attempt(&m->scene, NULL, NULL, &end);
    berthi_sched_check(!end.begun || end.taken || end.status == BERTH_CANCELLED);
  }
}

// A request for more than is free while the others run: what is parked counts as free and must come.
static void wants_all(void *arg) {
  mix *m = arg;
  berth_request request = scene_units(m->units);
  scene_end end;
  scene_attempt(&m->scene, NULL, &request, &end);
  berthi_sched_check(!end.begun || end.taken || (end.status == BERTH_CANCELLED && berth_session_is_closing(m->scene.session)));
}

static void closer(void *arg) { berth_backend_close(((mix *)arg)->scene.backend); }

// No lost wake-up: if the waiter were not granted, everybody would wait for no time.
static void stripe_waiter(void *arg) {
  (void)arg;
  mix m = {.units = 3};
  berthi_thread threads[4];
  scene_open(&m.scene, &(scene_setup){.units = 3, .slots = 3, .lanes = 3});
  for (int i = 0; i < 3; i++) scene_start(&threads[i], "run", plain_runs, &m);
  scene_start(&threads[3], "waiter", wants_all, &m);
  (void)scene_laws(&m.scene);
  scene_join(threads, 4);
  berth_metrics metrics = scene_laws(&m.scene);
  berthi_sched_check(metrics.granted == 10 && metrics.queued == 0);
  scene_close(&m.scene);
}

// The smallest case: one parks, one waits.
static void stripe_two(void *arg) {
  (void)arg;
  mix m = {.units = 1};
  berthi_thread thread;
  scene_open(&m.scene, &(scene_setup){.units = 1, .slots = 1, .lanes = 1});
  scene_start(&thread, "run", plain_runs, &m);
  wants_all(&m);
  berthi_thread_join(&thread);
  scene_close(&m.scene);
}

static void one_run(void *arg) {
  mix *m = arg;
  berthi_sched_check(scene_run(&m->scene, NULL, NULL));
}

// One give from a stripe against one who begins to wait: the whole of the protocol, and nothing behind it that could repair a lost wake-up.
static void stripe_give(void *arg) {
  (void)arg;
  mix m = {.units = 1};
  berthi_thread thread;
  scene_open(&m.scene, &(scene_setup){.units = 1, .slots = 1, .lanes = 1});
  one_run(&m); // parks its grant on this thread's stripe
  scene_start(&thread, "waiter", wants_all, &m);
  one_run(&m); // takes it from there and gives it back
  berthi_thread_join(&thread);
  scene_close(&m.scene);
}

static void stripe_attempts(void *arg) {
  (void)arg;
  mix m = {.units = 2};
  berthi_thread threads[4];
  scene_open(&m.scene, NULL);
  scene_start(&threads[0], "attempt", plain_attempts, &m);
  scene_start(&threads[1], "attempt", plain_attempts, &m);
  scene_start(&threads[2], "run", plain_runs, &m);
  scene_start(&threads[3], "waiter", wants_all, &m);
  (void)scene_laws(&m.scene);
  scene_join(threads, 4);
  berthi_sched_check(scene_laws(&m.scene).sealed == 5);
  scene_close(&m.scene);
}

static void stripe_close(void *arg) {
  (void)arg;
  mix m = {.units = 2};
  berthi_thread threads[4];
  scene_open(&m.scene, NULL);
  scene_start(&threads[0], "run", plain_runs, &m);
  scene_start(&threads[1], "attempt", plain_attempts, &m);
  scene_start(&threads[2], "waiter", wants_all, &m);
  scene_start(&threads[3], "close", closer, &m);
  (void)scene_laws(&m.scene);
  scene_join(threads, 4);
  scene_close(&m.scene);
}

static void stripe_close_two(void *arg) {
  (void)arg;
  mix m = {.units = 1};
  berthi_thread thread;
  scene_open(&m.scene, &(scene_setup){.units = 1, .slots = 1, .lanes = 1});
  scene_start(&thread, "run", plain_runs, &m);
  berth_backend_close(m.scene.backend);
  berthi_thread_join(&thread);
  scene_close(&m.scene);
}

// Snapshots while the stripes move: each coherent, and none goes back.
static void reader(void *arg) {
  mix *m = arg;
  berth_metrics before = scene_laws(&m->scene);
  for (int i = 0; i < 4; i++) {
    berth_metrics now = scene_laws(&m->scene);
    berthi_sched_check(now.sequence >= before.sequence && now.begun >= before.begun && now.sealed >= before.sealed && now.granted >= before.granted);
    before = now;
  }
}

static void stripe_snapshots(void *arg) {
  (void)arg;
  mix m = {.units = 2};
  berthi_thread threads[4];
  scene_open(&m.scene, NULL);
  scene_start(&threads[0], "read", reader, &m);
  scene_start(&threads[1], "attempt", plain_attempts, &m);
  scene_start(&threads[2], "run", plain_runs, &m);
  scene_start(&threads[3], "waiter", wants_all, &m);
  scene_join(threads, 4);
  scene_close(&m.scene);
}

// A grant that leaves its stripe in the middle of an execution.
static intptr_t moves(berth_exec *exec, void *arg) {
  (void)arg;
  uint64_t grant = 0;
  if (berthi_sched_random(2) != 0) scene_ok(berth_exec_shrink(exec, SCENE_UNIT / 2, &grant, NULL), &(berth_error)BERTH_ERROR_INIT);
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_exec_grow(exec, SCENE_UNIT / 2, BERTH_NO_DEADLINE, &err);
  berthi_sched_check(status == BERTH_OK || scene_reason_is(&err, "would_deadlock"));
  return 0;
}

static void moving_runs(void *arg) {
  mix *m = arg;
  for (int i = 0; i < 2; i++) (void)berth_run(m->scene.session, NULL, moves, NULL, NULL, NULL);
}

static void stripe_moves(void *arg) {
  (void)arg;
  mix m = {.units = 2};
  berthi_thread threads[3];
  scene_open(&m.scene, NULL);
  scene_start(&threads[0], "moves", moving_runs, &m);
  scene_start(&threads[1], "run", plain_runs, &m);
  scene_start(&threads[2], "waiter", wants_all, &m);
  (void)scene_laws(&m.scene);
  scene_join(threads, 3);
  scene_close(&m.scene);
}

const sched_scenario scenarios_stripe[] = {
    {"stripe_waiter", stripe_waiter, 2000, 0},       {"stripe_two", stripe_two, 1000, 60000}, {"stripe_give", stripe_give, 1000, 30000},
    {"stripe_attempts", stripe_attempts, 2000, 0},   {"stripe_close", stripe_close, 2000, 0}, {"stripe_close_two", stripe_close_two, 1000, 20000},
    {"stripe_snapshots", stripe_snapshots, 1500, 0}, {"stripe_moves", stripe_moves, 1500, 0}, {NULL, NULL, 0, 0},
};
