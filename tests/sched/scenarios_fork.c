// SPDX-License-Identifier: Apache-2.0
/// A fork at any point of the other threads: what the child inherited answers `forked` and takes no lock, a fresh open works (CLS-6).
/// What the other threads held is lost with them, so these scenarios check no counts; the scheduler checks no leak after a fork.
#include "base/annotate.h"
#include "base/lock.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct family {
  scene scene;
  scene_held held;
  berth_cancel *token;
  uint32_t ran;
} family;

static void parent_works(void *arg) {
  family *f = arg;
  scene_end end;
  (void)scene_run(&f->scene, NULL, NULL);
  scene_attempt(&f->scene, NULL, NULL, &end);
  (void)scene_run(&f->scene, NULL, NULL);
}

static void parent_waits(void *arg) {
  family *f = arg;
  berth_request request = scene_units(2);
  scene_end end;
  request.queue_deadline = berthi_now() + 10;
  scene_attempt(&f->scene, NULL, &request, &end);
}

static void forked(berth_status status, const berth_error *err) {
  berthi_sched_check(status == BERTH_FAILED_PRECONDITION && scene_reason_is(err, "forked"));
}

static intptr_t never(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  berthi_sched_fail("an entry ran on an inherited backend");
}

static void session_answers(family *f) {
  berth_error err = BERTH_ERROR_INIT;
  berth_session *session = f->scene.session;
  berth_attempt *attempt = NULL;
  berth_metrics metrics = BERTH_METRICS_INIT;
  berth_report *reports[1];
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_cancel *token = NULL;
  char text[64];
  berthi_sched_check(berth_session_is_closing(session));
  forked(berth_session_begin_attempt(session, NULL, &attempt, &err), &err);
  forked(berth_run(session, NULL, never, NULL, NULL, &err), &err);
  forked(berth_session_metrics(session, &metrics, &err), &err);
  forked(berth_session_telemetry(session, 0, &sample, &err), &err);
  forked(berth_diagnostics_json(session, text, sizeof text, NULL, &err), &err);
  forked(berth_cancel_create(session, &token, &err), &err);
  berthi_sched_check(berth_session_take_abandoned(session, reports, 1) == 0);
  berthi_sched_check(berth_session_same_backend(session, session));
  (void)berth_session_describe(session, text, sizeof text);
  (void)berth_session_attempt_counters(session);
  berth_session_release(berth_session_retain(session));
}

static void backend_answers(family *f) {
  berth_error err = BERTH_ERROR_INIT;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  forked(berth_backend_close_wait(f->scene.backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err), &err);
  forked(berth_backend_close_state(f->scene.backend, &report, &err), &err);
  forked(berth_device_quarantine(f->scene.backend, 0, &err), &err);
  forked(berth_device_charge(f->scene.backend, 0, 1, &err), &err);
  forked(berth_group_set(f->scene.backend, "tenant", &limits, &err), &err);
  forked(berth_backend_heal(f->scene.backend, NULL, &err), &err);
  berth_backend_close(f->scene.backend);
  berth_backend_release(berth_backend_retain(f->scene.backend));
}

static void handles_answer(family *f) {
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  berth_exec *exec = NULL;
  berth_why why = BERTH_WHY_INIT;
  void *memory = NULL;
  scene_held *h = &f->held;
  forked(berth_attempt_finish(h->attempt, BERTH_FAILED, NULL, &err), &err);
  forked(berth_attempt_plan_started(h->attempt, &err), &err);
  forked(berth_session_admit(f->scene.session, h->attempt, NULL, &h->admission, &err), &err);
  forked(berth_admission_wait(h->admission, BERTH_NO_DEADLINE, &err), &err);
  forked(berth_admission_take(h->admission, &exec, &err), &err);
  forked(berth_admission_why(h->admission, &why, &err), &err);
  forked(berth_completion_poll(h->completion, &report, &err), &err);
  forked(berth_completion_wait(h->completion, BERTH_NO_DEADLINE, &report, &err), &err);
  forked(berth_exec_alloc(h->exec, 64, &memory, &err), &err);
  forked(berth_exec_check(h->exec, &err), &err);
  forked(berth_exec_grow(h->exec, 64, BERTH_NO_DEADLINE, &err), &err);
  forked(berth_exec_shrink(h->exec, 64, NULL, &err), &err);
  forked(berth_exec_run(h->exec, never, NULL, NULL, &err), &err);
  forked(berth_exec_finish(h->exec, BERTH_SUCCEEDED, NULL, &err), &err);
  forked(berth_cancel_hook(f->token, NULL, NULL, &err), &err);
  berthi_sched_check(berth_cancel_fire(f->token) == BERTH_CANCEL_ALREADY_FINISHED);
  berth_attempt_record(h->attempt, "event", 1);
  berth_cancel_release(f->token);
  berth_exec_release(h->exec);
  berth_admission_release(h->admission);
  berth_attempt_release(h->attempt);
  berth_completion_release(h->completion);
}

// The same devices, opened anew in the child.
static void child_lives(uint32_t devices) {
  scene s;
  scene_open(&s, &(scene_setup){.devices = devices});
  scene_end end;
  scene_attempt(&s, NULL, NULL, &end);
  berthi_sched_check(end.taken && scene_run(&s, NULL, NULL));
  (void)scene_wait_closed(&s);
  scene_release(&s);
}

static void fork_anywhere(void *arg) {
  (void)arg;
  family f = {.ran = 0};
  berthi_thread threads[3];
  scene_open(&f.scene, NULL);
  berth_request request = scene_units(1);
  scene_hold(&f.scene, &request, &f.held);
  f.token = berth_attempt_cancel_token(f.held.attempt);
  scene_start(&threads[0], "works", parent_works, &f);
  scene_start(&threads[1], "works", parent_works, &f);
  scene_start(&threads[2], "waits", parent_waits, &f);
  for (uint64_t steps = berthi_sched_random(60); steps > 0; steps--) berthi_sched_point();
  berthi_sched_fork();
  session_answers(&f);
  backend_answers(&f);
  handles_answer(&f);
  berth_session_release(f.scene.session);
  berth_backend_release(f.scene.backend);
  child_lives(1);
}

static void parent_closes(void *arg) {
  family *f = arg;
  berth_backend_close(f->scene.backend);
}

static void parent_opens(void *arg) {
  (void)arg;
  scene s;
  scene_open(&s, &(scene_setup){.first = 1});
  (void)scene_wait_closed(&s);
  scene_release(&s);
}

// While the parent closes one backend and opens another: the registry of leases may be caught half-way, too.
static void fork_in_close(void *arg) {
  (void)arg;
  family f = {.ran = 0};
  berthi_thread threads[2];
  scene_open(&f.scene, NULL);
  scene_start(&threads[0], "close", parent_closes, &f);
  scene_start(&threads[1], "open", parent_opens, &f);
  for (uint64_t steps = berthi_sched_random(120); steps > 0; steps--) berthi_sched_point();
  berthi_sched_fork();
  session_answers(&f);
  backend_answers(&f);
  berth_backend_release(f.scene.backend);
  berth_session_release(f.scene.session);
  child_lives(2);
}

// The fork inside an entry: the child comes back from it with its value, and the entry is over.
static intptr_t forks(berth_exec *exec, void *arg) {
  family *f = arg;
  void *memory = NULL;
  berth_error err = BERTH_ERROR_INIT;
  for (uint64_t steps = berthi_sched_random(30); steps > 0; steps--) berthi_sched_point();
  berthi_sched_fork();
  forked(berth_exec_alloc(exec, 64, &memory, &err), &err);
  f->ran++;
  return 7;
}

static void fork_in_entry(void *arg) {
  (void)arg;
  family f = {.ran = 0};
  berthi_thread threads[2];
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_open(&f.scene, NULL);
  options.report = berthi_sched_random(2) != 0;
  options.bytes = berthi_sched_random(2) != 0 ? SCENE_UNIT / 2 : 0;
  scene_start(&threads[0], "works", parent_works, &f);
  scene_start(&threads[1], "works", parent_works, &f);
  (void)berth_run(f.scene.session, &options, forks, &f, &result, &err);
  berthi_sched_check(f.ran == 1 && result.ran && result.value == 7 && result.report == NULL);
  berthi_sched_check(result.cleanup == BERTH_FAILED_PRECONDITION && scene_reason_is(&result.cleanup_error, "forked"));
  session_answers(&f);
  berth_session_release(f.scene.session);
  berth_backend_release(f.scene.backend);
  child_lives(1);
}

const sched_scenario scenarios_fork[] = {
    {"fork_anywhere", fork_anywhere, 750, 0},
    {"fork_in_close", fork_in_close, 500, 0},
    {"fork_in_entry", fork_in_entry, 500, 0},
    {NULL, NULL, 0, 0},
};
