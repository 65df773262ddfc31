// SPDX-License-Identifier: Apache-2.0
/// Receivers against sealing, and the abandoned queue against those who take from it (ATT-5, ATT-6, SES-3).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct board {
  scene scene;
  berth_attempt *attempt;
  berth_completion *receivers[2];
  uint32_t next;
  uint32_t polled;
  uint32_t taken;
  uint32_t dropped;
} board;

static void dropper(void *arg) {
  board *b = arg;
  berth_completion *completion = b->receivers[b->next++];
  berth_report *report = NULL;
  if (berth_completion_poll(completion, &report, NULL) == BERTH_OK) b->polled++;
  berth_report_release(report);
  berth_completion_release(completion);
  b->dropped++;
}

static uint32_t take_some(board *b) {
  berth_report *reports[2];
  uint32_t count = berth_session_take_abandoned(b->scene.session, reports, 2);
  for (uint32_t i = 0; i < count; i++) {
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    scene_ok(berth_report_get(reports[i], &info, NULL), &(berth_error)BERTH_ERROR_INIT);
    berthi_sched_check(info.sealed_at != BERTH_NO_TIME);
    berth_report_release(reports[i]);
    b->taken++;
  }
  return count;
}

static void taker(void *arg) {
  for (int i = 0; i < 3; i++) (void)take_some(arg);
}

static void take_rest(board *b) {
  while (take_some(b) != 0) {
  }
}

static void finish_some_way(board *b) {
  berth_error err = BERTH_ERROR_INIT;
  if (berthi_sched_random(2) != 0) scene_ok(berth_attempt_finish(b->attempt, BERTH_FAILED, NULL, &err), &err);
  berth_attempt_release(b->attempt);
}

// Delivered or abandoned, once: whichever came first, the last drop or the seal.
static void drop_against_seal(void *arg) {
  (void)arg;
  board b = {.next = 0};
  berthi_thread threads[3];
  scene_open(&b.scene, &(scene_setup){.options = {.abandoned_max = berthi_sched_random(2) != 0 ? 1 : BERTH_NONE_U32}});
  b.attempt = scene_begin(&b.scene, NULL);
  for (int i = 0; i < 2; i++) b.receivers[i] = berth_attempt_completion(b.attempt);
  scene_start(&threads[0], "drop", dropper, &b);
  scene_start(&threads[1], "drop", dropper, &b);
  scene_start(&threads[2], "take", taker, &b);
  finish_some_way(&b);
  scene_join(threads, 3);
  take_rest(&b);
  berth_metrics m = scene_laws(&b.scene);
  berthi_sched_check(m.sealed == 1 && m.delivered + m.taken + m.held + m.overflowed == 1);
  berthi_sched_check(m.taken == b.taken && m.held == 0);
  if (b.polled != 0) berthi_sched_check(m.delivered == 1);
  scene_close(&b.scene);
}

static void drop_two(void *arg) {
  (void)arg;
  board b = {.next = 0};
  berthi_thread thread;
  scene_open(&b.scene, NULL);
  b.attempt = scene_begin(&b.scene, NULL);
  b.receivers[0] = berth_attempt_completion(b.attempt);
  scene_start(&thread, "drop", dropper, &b);
  berthi_sched_point();
  bool before = b.dropped == 1;
  berth_attempt_release(b.attempt);
  berthi_thread_join(&thread);
  berth_metrics m = scene_laws(&b.scene);
  berthi_sched_check(m.delivered + m.held == 1);
  if (before) berthi_sched_check(m.held == 1);
  if (b.polled != 0) berthi_sched_check(m.delivered == 1);
  scene_close(&b.scene);
}

static void abandons(void *arg) {
  board *b = arg;
  for (int i = 0; i < 2; i++) {
    berth_attempt *attempt = scene_begin(&b->scene, NULL);
    if (attempt == NULL) return;
    if (berthi_sched_random(2) != 0) {
      berth_admission *admission = NULL;
      if (berth_session_admit(b->scene.session, attempt, NULL, &admission, NULL) == BERTH_OK) (void)berth_admission_cancel(admission);
      berth_admission_release(admission);
    }
    berth_attempt_release(attempt);
  }
}

// More abandoned reports than places; two take, two abandon: every report goes one way.
static void abandoned_race(void *arg) {
  (void)arg;
  board b = {.next = 0};
  berthi_thread threads[4];
  scene_open(&b.scene, &(scene_setup){.options = {.abandoned_max = 2, .abandoned_detail = berthi_sched_random(2) != 0 ? 1 : BERTH_NONE_U32}});
  scene_start(&threads[0], "abandon", abandons, &b);
  scene_start(&threads[1], "abandon", abandons, &b);
  scene_start(&threads[2], "take", taker, &b);
  scene_start(&threads[3], "take", taker, &b);
  (void)scene_laws(&b.scene);
  scene_join(threads, 4);
  if (berthi_sched_random(2) != 0) take_rest(&b);
  berth_metrics m = scene_laws(&b.scene);
  berthi_sched_check(m.sealed == 4 && m.taken == b.taken && m.delivered == 0);
  scene_close(&b.scene);
}

static void closer(void *arg) { berth_backend_close(((board *)arg)->scene.backend); }

// Abandoned reports can be taken after the close, too (SES-3); what is left goes with the last session.
static void abandoned_close(void *arg) {
  (void)arg;
  board b = {.next = 0};
  berthi_thread threads[2];
  scene_open(&b.scene, &(scene_setup){.options = {.abandoned_max = 3}});
  scene_start(&threads[0], "abandon", abandons, &b);
  scene_start(&threads[1], "close", closer, &b);
  scene_join(threads, 2);
  berth_metrics m = scene_wait_closed(&b.scene);
  berthi_sched_check(m.held == m.sealed);
  if (berthi_sched_random(2) != 0) {
    take_rest(&b);
    berthi_sched_check(b.taken <= m.sealed && scene_laws(&b.scene).taken == b.taken);
  }
  scene_close(&b.scene);
}

typedef struct told {
  board *board;
  uint32_t calls;
} told;

static void completed(void *arg, berth_report *report) {
  told *t = arg;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_ok(berth_report_get(report, &info, NULL), &(berth_error)BERTH_ERROR_INIT);
  t->calls++;
}

static void asker(void *arg) {
  told *t = arg;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_completion_notify(t->board->receivers[0], -1, completed, t, &err), &err);
  berthi_sched_check(berth_completion_notify(t->board->receivers[0], -1, completed, t, &err) != BERTH_OK);
}

// Asked early or late, the callback runs once.
static void notify_against_seal(void *arg) {
  (void)arg;
  board b = {.next = 0};
  told t = {.board = &b};
  berthi_thread thread;
  scene_open(&b.scene, NULL);
  b.attempt = scene_begin(&b.scene, NULL);
  b.receivers[0] = berth_attempt_completion(b.attempt);
  scene_start(&thread, "ask", asker, &t);
  finish_some_way(&b);
  berthi_thread_join(&thread);
  while (t.calls == 0) berthi_thread_yield();
  berth_completion_release(b.receivers[0]);
  scene_close(&b.scene);
  berthi_sched_check(t.calls == 1);
}

const sched_scenario scenarios_report[] = {
    {"drop_against_seal", drop_against_seal, 2000, 0},
    {"drop_two", drop_two, 500, 20000},
    {"abandoned_race", abandoned_race, 1500, 0},
    {"abandoned_close", abandoned_close, 1000, 0},
    {"notify_against_seal", notify_against_seal, 1000, 5000},
    {NULL, NULL, 0, 0},
};
