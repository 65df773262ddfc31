// SPDX-License-Identifier: Apache-2.0
/// One request, several who would decide it: grant, expiry, cancel, close; and a grant that nobody has taken yet (ADM-1, ADM-5, ADM-7, ATT-4, ATT-7).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

#define PATIENCE 1000

typedef struct race {
  scene scene;
  scene_held holder;
  berth_attempt *attempt;
  berth_admission *admission;
  berth_cancel *token;
  bool queued_at_close;
  uint32_t takes;
} race;

static void closer(void *arg) { berth_backend_close(((race *)arg)->scene.backend); }
static void canceller(void *arg) { (void)berth_cancel_fire(((race *)arg)->token); }
static void clock_hand(void *arg) {
  (void)arg;
  berthi_sched_advance(PATIENCE);
}
static void grantor(void *arg) {
  race *r = arg;
  scene_finish(&r->scene, &r->holder, BERTH_SUCCEEDED, NULL);
}

static void begin_race(race *r, berth_request *request) {
  *r = (race){.takes = 0};
  scene_open(&r->scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request whole = scene_units(1);
  scene_hold(&r->scene, &whole, &r->holder);
  r->attempt = scene_begin(&r->scene, NULL);
  request->queue_deadline = berthi_now() + PATIENCE;
}

static void check_one_decision(const berth_metrics *m, uint64_t granted) {
  berthi_sched_check(m->submitted == granted + 1);
  berthi_sched_check(m->granted - granted + m->expired + m->cancelled + m->closed + m->refused == 1);
}

// What the report says must be what the one decision was.
static void check_outcome(const scene_end *end, const berth_metrics *m) {
  const berth_report_info *r = &end->report;
  if (m->expired != 0) berthi_sched_check(r->outcome == BERTH_FAILED && scene_reason_is(&r->cause, "queue_wait_elapsed"));
  if (m->closed != 0) berthi_sched_check(r->outcome == BERTH_OUTCOME_CANCELLED && scene_reason_is(&r->cause, "backend_closing"));
  if (m->cancelled != 0) berthi_sched_check(r->outcome == BERTH_OUTCOME_CANCELLED && r->cancel_cause == BERTH_CANCEL_BY_CALLER);
  if (end->taken) berthi_sched_check(r->granted_at != BERTH_NO_TIME && r->taken_at != BERTH_NO_TIME);
}

static void end_race(race *r, scene_end *end, berth_completion *completion) {
  berth_exec *exec = NULL;
  end->status = berth_admission_wait(r->admission, BERTH_NO_DEADLINE, &end->error);
  end->granted = end->status == BERTH_OK;
  if (end->granted) end->taken = berth_admission_take(r->admission, &exec, &end->error) == BERTH_OK;
  if (end->taken) (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
  scene_report(&r->scene, completion, &end->report);
  berth_completion_release(completion);
}

// The four racers on one queued request of an attempt.
static void four_racers(void *arg) {
  (void)arg;
  race r;
  berthi_thread threads[4];
  scene_end end = {.begun = true};
  berth_request request = scene_units(1);
  begin_race(&r, &request);
  berth_completion *completion = berth_attempt_completion(r.attempt);
  r.admission = scene_admit(&r.scene, r.attempt, &request);
  r.token = berth_attempt_cancel_token(r.attempt);
  berthi_sched_check(scene_laws(&r.scene).queued == 1);
  scene_start(&threads[0], "grant", grantor, &r);
  scene_start(&threads[1], "expiry", clock_hand, &r);
  scene_start(&threads[2], "cancel", canceller, &r);
  scene_start(&threads[3], "close", closer, &r);
  end_race(&r, &end, completion);
  scene_join(threads, 4);
  berth_metrics m = scene_wait_closed(&r.scene);
  check_one_decision(&m, 1);
  check_outcome(&end, &m);
  berthi_sched_check(m.delivered == 2 && r.scene.reports == 2);
  berth_cancel_release(r.token);
  berth_admission_release(r.admission);
  berth_attempt_release(r.attempt);
  scene_close(&r.scene);
}

// Grant against cancel alone, small enough to be exhausted.
static void grant_cancel(void *arg) {
  (void)arg;
  race r;
  berthi_thread thread;
  scene_end end = {.begun = true};
  berth_request request = scene_units(1);
  begin_race(&r, &request);
  berth_completion *completion = berth_attempt_completion(r.attempt);
  r.admission = scene_admit(&r.scene, r.attempt, &request);
  r.token = berth_attempt_cancel_token(r.attempt);
  scene_start(&thread, "cancel", canceller, &r);
  grantor(&r);
  end_race(&r, &end, completion);
  berthi_thread_join(&thread);
  berth_metrics m = scene_laws(&r.scene);
  check_one_decision(&m, 1);
  berthi_sched_check(m.cancels <= 1);
  berth_cancel_release(r.token);
  berth_admission_release(r.admission);
  berth_attempt_release(r.attempt);
  scene_close(&r.scene);
}

// The same racers on a scoped entry, which is a request without an attempt (RUN-6).
static void entry(void *arg) {
  race *r = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.bytes = SCENE_UNIT;
  options.cancel = r->token;
  options.deadline = berthi_now() + PATIENCE;
  if (scene_run(&r->scene, &options, &err)) return;
  berthi_sched_check(scene_reason_is(&err, "cancelled") || scene_reason_is(&err, "deadline_exceeded") || scene_reason_is(&err, "backend_closing") ||
                     scene_reason_is(&err, "backend_closed"));
}

static void four_racers_entry(void *arg) {
  (void)arg;
  race r = {.takes = 0};
  berthi_thread threads[5];
  scene_open(&r.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request whole = scene_units(1);
  scene_hold(&r.scene, &whole, &r.holder);
  scene_ok(berth_cancel_create(r.scene.session, &r.token, NULL), &(berth_error)BERTH_ERROR_INIT);
  scene_start(&threads[0], "entry", entry, &r);
  scene_start(&threads[1], "grant", grantor, &r);
  scene_start(&threads[2], "expiry", clock_hand, &r);
  scene_start(&threads[3], "cancel", canceller, &r);
  scene_start(&threads[4], "close", closer, &r);
  (void)scene_laws(&r.scene);
  scene_join(threads, 5);
  berth_metrics m = scene_wait_closed(&r.scene);
  berthi_sched_check(m.submitted <= 2 && m.granted + m.expired + m.cancelled + m.closed == m.submitted);
  berth_cancel_release(r.token);
  scene_close(&r.scene);
}

// ---- a grant that nobody has taken --------------------------------------------------------------------------------------------------------------------

static void taker(void *arg) {
  race *r = arg;
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT;
  if (berth_admission_take(r->admission, &exec, &err) == BERTH_OK) {
    r->takes++;
    berthi_sched_point();
    (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
    return;
  }
  berthi_sched_check(scene_reason_is(&err, "already_taken") || scene_reason_is(&err, "cancelled") || scene_reason_is(&err, "backend_closing"));
}

static void owner_finishes(void *arg) {
  race *r = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_attempt_finish(r->attempt, BERTH_FAILED, NULL, &err);
  berthi_sched_check(status == BERTH_OK || scene_reason_is(&err, "already_terminal"));
}

static void begin_untaken(race *r) {
  *r = (race){.takes = 0};
  scene_open(&r->scene, &(scene_setup){.units = 1, .slots = 1});
  r->attempt = scene_begin(&r->scene, NULL);
  berth_request request = scene_units(1);
  r->admission = scene_admit(&r->scene, r->attempt, berthi_sched_random(2) != 0 ? &request : NULL);
  berthi_sched_check(berth_admission_poll(r->admission, NULL) == BERTH_ADMISSION_GRANTED);
  r->token = berth_attempt_cancel_token(r->attempt);
}

static void end_untaken(race *r, berth_completion *completion) {
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_report(&r->scene, completion, &info);
  berthi_sched_check(info.capacity == BERTH_CAPACITY_RETURNED);
  berthi_sched_check((r->takes == 1) == (info.taken_at != BERTH_NO_TIME));
  berth_completion_release(completion);
  berth_cancel_release(r->token);
  berth_attempt_release(r->attempt);
  berth_metrics m = scene_wait_closed(&r->scene);
  berthi_sched_check(m.granted == 1 && m.sealed == 1);
  scene_close(&r->scene);
}

// Two takers, a cancel and the owner's finish: one of them has the grant.
static void untaken(void *arg) {
  (void)arg;
  race r;
  berthi_thread threads[4];
  begin_untaken(&r);
  berth_completion *completion = berth_attempt_completion(r.attempt);
  scene_start(&threads[0], "take", taker, &r);
  scene_start(&threads[1], "take", taker, &r);
  scene_start(&threads[2], "cancel", canceller, &r);
  scene_start(&threads[3], "finish", owner_finishes, &r);
  (void)scene_laws(&r.scene);
  scene_join(threads, 4);
  berthi_sched_check(r.takes <= 1);
  berth_admission_release(r.admission);
  end_untaken(&r, completion);
}

// The handle goes while the token fires and the backend closes: the grant comes back once.
static void untaken_release(void *arg) {
  (void)arg;
  race r;
  berthi_thread threads[2];
  begin_untaken(&r);
  berth_completion *completion = berth_attempt_completion(r.attempt);
  scene_start(&threads[0], "cancel", canceller, &r);
  scene_start(&threads[1], "close", closer, &r);
  berth_admission_release(r.admission);
  scene_join(threads, 2);
  end_untaken(&r, completion);
}

// Queued, and its handle goes at the moment of the grant.
static void queued_release(void *arg) {
  (void)arg;
  race r;
  berthi_thread thread;
  berth_request request = scene_units(1);
  begin_race(&r, &request);
  berth_completion *completion = berth_attempt_completion(r.attempt);
  r.admission = scene_admit(&r.scene, r.attempt, &request);
  scene_start(&thread, "grant", grantor, &r);
  berth_admission_release(r.admission);
  berthi_thread_join(&thread);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  scene_report(&r.scene, completion, &info);
  berthi_sched_check(info.taken_at == BERTH_NO_TIME && (info.outcome == BERTH_OUTCOME_CANCELLED || info.outcome == BERTH_DROPPED));
  berth_completion_release(completion);
  berth_attempt_release(r.attempt);
  scene_close(&r.scene);
}

// ---- one token, many requests ---------------------------------------------------------------------------------------------------------------------------

typedef struct follower {
  race *race;
  scene_end end;
} follower;

static void follow(void *arg) {
  follower *f = arg;
  berth_request request = scene_units(1);
  request.cancel = f->race->token;
  scene_attempt(&f->race->scene, NULL, &request, &f->end);
  // ATT-7: it never stops another.
  if (!f->end.taken) berthi_sched_check(scene_reason_is(&f->end.report.cause, "cancelled"));
}

static void one_token(void *arg) {
  (void)arg;
  race r = {.takes = 0};
  berthi_thread threads[4];
  follower followers[2] = {{.race = &r}, {.race = &r}};
  scene_open(&r.scene, &(scene_setup){.units = 1, .slots = 1});
  berth_request whole = scene_units(1);
  scene_hold(&r.scene, &whole, &r.holder);
  scene_ok(berth_cancel_create(r.scene.session, &r.token, NULL), &(berth_error)BERTH_ERROR_INIT);
  for (int i = 0; i < 2; i++) scene_start(&threads[i], "follow", follow, &followers[i]);
  scene_start(&threads[2], "cancel", canceller, &r);
  scene_start(&threads[3], "grant", grantor, &r);
  (void)scene_laws(&r.scene);
  scene_join(threads, 4);
  scene_end bystander;
  scene_attempt(&r.scene, NULL, NULL, &bystander);
  berthi_sched_check(bystander.taken);
  berth_cancel_release(r.token);
  scene_close(&r.scene);
}

// ---- a cancel before or during the submission --------------------------------------------------------------------------------------------------------

// Nobody else ends it: the holder stays until it is over.
static void admit_cancel(void *arg) {
  (void)arg;
  race r;
  berthi_thread thread;
  berth_error err = BERTH_ERROR_INIT;
  berth_request request = scene_units(1);
  begin_race(&r, &request);
  request.queue_deadline = BERTH_NO_DEADLINE;
  berth_completion *completion = berth_attempt_completion(r.attempt);
  bool own = berthi_sched_random(2) != 0;
  if (own)
    r.token = berth_attempt_cancel_token(r.attempt);
  else
    scene_ok(berth_cancel_create(r.scene.session, &r.token, &err), &err);
  if (!own) request.cancel = r.token;
  scene_start(&thread, "cancel", canceller, &r);
  berth_status status = berth_session_admit(r.scene.session, r.attempt, &request, &r.admission, &err);
  if (status == BERTH_OK) status = berth_admission_wait(r.admission, BERTH_NO_DEADLINE, &err);
  berthi_sched_check(status == BERTH_CANCELLED && scene_reason_is(&err, "cancelled"));
  berthi_thread_join(&thread);
  scene_report(&r.scene, completion, NULL);
  berth_completion_release(completion);
  berth_cancel_release(r.token);
  berth_admission_release(r.admission);
  berth_attempt_release(r.attempt);
  grantor(&r);
  scene_close(&r.scene);
}

const sched_scenario scenarios_decision[] = {
    {"admit_cancel", admit_cancel, 1000, 4000},        {"four_racers", four_racers, 2500, 0}, {"grant_cancel", grant_cancel, 500, 60000},
    {"four_racers_entry", four_racers_entry, 2000, 0}, {"untaken", untaken, 1500, 0},         {"untaken_release", untaken_release, 750, 4000},
    {"queued_release", queued_release, 750, 60000},    {"one_token", one_token, 1500, 0},     {NULL, NULL, 0, 0},
};
