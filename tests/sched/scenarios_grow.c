// SPDX-License-Identifier: Apache-2.0
/// Grow and shrink: a deadlock has exactly one victim, a waiting grow comes before admissions, and every end of a wait leaves the grant as it was (LED-3).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct growth {
  scene scene;
  scene_held held[3];
  uint32_t next;
  uint32_t grown, victims, other;
  int64_t deadline;
  berth_cancel *token;
  const char *last;
  uint32_t order; // grants and grows, as they came
  uint32_t grow_order, admit_order;
} growth;

static uint64_t grant_of(const berth_exec *exec) {
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  scene_ok(berth_exec_get_info(exec, &info, NULL), &(berth_error)BERTH_ERROR_INIT);
  return info.grant_bytes;
}

// Grows by one unit, then ends.
static void grows(void *arg) {
  growth *g = arg;
  scene_held *held = &g->held[g->next++];
  uint64_t before = grant_of(held->exec);
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_exec_grow(held->exec, SCENE_UNIT, g->deadline, &err);
  if (status == BERTH_OK) {
    g->grown++;
    g->grow_order = ++g->order;
    void *memory = NULL;
    scene_ok(berth_exec_alloc(held->exec, before + SCENE_UNIT / 2, &memory, &err), &err); // it is really there
  } else if (scene_reason_is(&err, "would_deadlock")) {
    g->victims++;
  } else {
    g->other++;
    g->last = err.reason;
  }
  berthi_sched_check(grant_of(held->exec) == before + (status == BERTH_OK ? SCENE_UNIT : 0));
  scene_finish(&g->scene, held, BERTH_SUCCEEDED, NULL);
}

static void finishes_last(void *arg) {
  growth *g = arg;
  scene_finish(&g->scene, &g->held[2], BERTH_SUCCEEDED, NULL);
}

static void hold_units(growth *g, uint32_t index, uint32_t units) {
  berth_request request = scene_units(units);
  scene_hold(&g->scene, &request, &g->held[index]);
}

static void open_growth(growth *g, uint32_t units) {
  *g = (growth){.deadline = BERTH_NO_DEADLINE};
  scene_open(&g->scene, &(scene_setup){.units = units, .slots = 4, .lanes = 4});
}

// Two hold everything and both want more: exactly one is told, the other completes.
static void grow_grow(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 4);
  hold_units(&g, 0, 2);
  hold_units(&g, 1, 2);
  for (int i = 0; i < 2; i++) scene_start(&threads[i], "grow", grows, &g);
  (void)scene_laws(&g.scene);
  scene_join(threads, 2);
  berthi_sched_check(g.victims == 1 && g.grown == 1);
  berth_metrics m = scene_laws(&g.scene);
  berthi_sched_check(m.grows == 1 && m.grows_refused == 1);
  scene_close(&g.scene);
}

// Three, one of them only holds and ends: it is assumed to finish, so nobody need be a victim before two block each other.
static void grow_three(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[3];
  open_growth(&g, 3);
  for (uint32_t i = 0; i < 3; i++) hold_units(&g, i, 1);
  for (int i = 0; i < 2; i++) scene_start(&threads[i], "grow", grows, &g);
  scene_start(&threads[2], "finish", finishes_last, &g);
  (void)scene_laws(&g.scene);
  scene_join(threads, 3);
  berthi_sched_check(g.other == 0 && g.grown >= 1 && g.grown + g.victims == 2);
  scene_close(&g.scene);
}

static void grow_release(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  scene_start(&threads[0], "grow", grows, &g);
  scene_start(&threads[1], "finish", finishes_last, &g);
  scene_join(threads, 2);
  berthi_sched_check(g.grown == 1);
  scene_close(&g.scene);
}

static void canceller(void *arg) { (void)berth_cancel_fire(((growth *)arg)->token); }

static void clock_hand(void *arg) {
  (void)arg;
  berthi_sched_advance(1000);
}

static void closes_and_cancels(void *arg) {
  growth *g = arg;
  (void)berth_backend_close_wait(g->scene.backend, BERTH_NO_DEADLINE, berthi_now(), NULL, NULL);
}

// A waiting grow against cancel, close that cancels, its deadline and the release that would satisfy it.
static void grow_racers(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[5];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  g.token = berth_attempt_cancel_token(g.held[0].attempt);
  g.deadline = berthi_now() + 1000;
  scene_start(&threads[0], "grow", grows, &g);
  scene_start(&threads[1], "finish", finishes_last, &g);
  scene_start(&threads[2], "cancel", canceller, &g);
  scene_start(&threads[3], "expiry", clock_hand, &g);
  scene_start(&threads[4], "close", closes_and_cancels, &g);
  (void)scene_laws(&g.scene);
  scene_join(threads, 5);
  berthi_sched_check(g.victims == 0 && g.grown + g.other == 1);
  berth_cancel_release(g.token);
  scene_close(&g.scene);
}

// Cancel alone must end the wait: nobody else does.
static void grow_cancel(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  g.token = berth_attempt_cancel_token(g.held[0].attempt);
  scene_start(&threads[0], "grow", grows, &g);
  scene_start(&threads[1], "cancel", canceller, &g);
  scene_join(threads, 2);
  berthi_sched_check(g.other == 1);
  finishes_last(&g);
  berth_cancel_release(g.token);
  scene_close(&g.scene);
}

static void grow_close(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  scene_start(&threads[0], "grow", grows, &g);
  scene_start(&threads[1], "close", closes_and_cancels, &g);
  berthi_thread_join(&threads[0]);
  berthi_sched_check(g.other == 1);
  finishes_last(&g);
  berthi_thread_join(&threads[1]);
  scene_close(&g.scene);
}

// An execution without an attempt has no token that the close could fire: the close's own word must reach its wait.
static intptr_t grows_inside(berth_exec *exec, void *arg) {
  growth *g = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_exec_grow(exec, SCENE_UNIT, BERTH_NO_DEADLINE, &err);
  berthi_sched_check(status == BERTH_CANCELLED && scene_reason_is(&err, "backend_closing"));
  g->other++;
  return 0;
}

static void enters(void *arg) {
  growth *g = arg;
  if (berth_run(g->scene.session, NULL, grows_inside, g, NULL, NULL) != BERTH_OK) g->other++;
}

static void grow_close_entry(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 2);
  hold_units(&g, 2, 1);
  scene_start(&threads[0], "entry", enters, &g);
  scene_start(&threads[1], "close", closes_and_cancels, &g);
  berthi_thread_join(&threads[0]);
  berthi_sched_check(g.other == 1);
  finishes_last(&g);
  berthi_thread_join(&threads[1]);
  scene_close(&g.scene);
}

static void admits(void *arg) {
  growth *g = arg;
  berth_request request = scene_units(1);
  berth_attempt *attempt = scene_begin(&g->scene, NULL);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = scene_admit(&g->scene, attempt, &request);
  berth_exec *exec = scene_take(admission);
  g->admit_order = ++g->order;
  (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
  scene_report(&g->scene, completion, NULL);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  berth_completion_release(completion);
}

// The request waits longer, the grow comes first all the same.
static void grow_first(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[3];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  scene_start(&threads[0], "admit", admits, &g);
  scene_await_queued(&g.scene, 1);
  scene_start(&threads[1], "grow", grows, &g);
  scene_await("execution.grow", 1);
  scene_start(&threads[2], "finish", finishes_last, &g);
  scene_join(threads, 3);
  berthi_sched_check(g.grown == 1 && g.grow_order < g.admit_order);
  scene_close(&g.scene);
}

// Shrinking makes room for a waiter and for a grow; nobody need end.
static void shrinks(void *arg) {
  growth *g = arg;
  uint64_t grant = 0;
  scene_ok(berth_exec_shrink(g->held[2].exec, SCENE_UNIT, &grant, NULL), &(berth_error)BERTH_ERROR_INIT);
  berthi_sched_check(grant == SCENE_UNIT);
}

static void shrink_feeds(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[3];
  open_growth(&g, 4);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 3);
  scene_start(&threads[0], "admit", admits, &g);
  scene_start(&threads[1], "grow", grows, &g);
  scene_start(&threads[2], "shrink", shrinks, &g);
  (void)scene_laws(&g.scene);
  scene_join(threads, 3);
  berthi_sched_check(g.grown == 1);
  finishes_last(&g);
  scene_close(&g.scene);
}

// A device that goes out of service ends the waits on it.
static void quarantines(void *arg) {
  growth *g = arg;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_device_quarantine(g->scene.backend, 0, &err), &err);
}

static void grow_quarantine(void *arg) {
  (void)arg;
  growth g;
  berthi_thread threads[2];
  open_growth(&g, 2);
  hold_units(&g, 0, 1);
  hold_units(&g, 2, 1);
  scene_start(&threads[0], "grow", grows, &g);
  scene_start(&threads[1], "quarantine", quarantines, &g);
  scene_join(threads, 2);
  berthi_sched_check(g.other == 1 && g.grown == 0);
  finishes_last(&g);
  scene_close(&g.scene);
}

const sched_scenario scenarios_grow[] = {
    {"grow_grow", grow_grow, 1000, 4000},
    {"grow_three", grow_three, 1500, 0},
    {"grow_release", grow_release, 500, 4000},
    {"grow_racers", grow_racers, 2000, 0},
    {"grow_cancel", grow_cancel, 750, 4000},
    {"grow_close", grow_close, 750, 3000},
    {"grow_close_entry", grow_close_entry, 1000, 3000},
    {"grow_first", grow_first, 750, 0},
    {"shrink_feeds", shrink_feeds, 1000, 0},
    {"grow_quarantine", grow_quarantine, 750, 0},
    {NULL, NULL, 0, 0},
};
