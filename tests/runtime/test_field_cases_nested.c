// SPDX-License-Identifier: Apache-2.0
// Faults that users reported of other systems, each with the small input that shows it: nested calls, re-entry, callbacks that call
// (docs/field-cases.md, C7). The name of a test begins with its case.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "runtime/fixture.h"

// ---- a job with several threads ----------------------------------------------------------------------------------------------------------------

typedef struct half {
  berth_exec *child;
  fx_flag *turn;
  int mine;
} half;

// Writer and reader of one job: each needs the other to go on, and both allocate.
static void hand_to_and_fro(void *arg) {
  half *h = arg;
  for (int i = 0; i < 100; i++) {
    void *memory = NULL;
    fx_until(*h->turn == h->mine);
    fx_check(berth_exec_alloc(h->child, FX_UNIT, &memory, NULL) == BERTH_OK);
    berth_exec_free(h->child, memory);
    *h->turn = 1 - h->mine;
  }
  berth_exec_release(h->child);
}

// The permit is the job's, so its second thread needs none of its own, though the device is full and others wait.
static void c_46_permit_belongs_to_the_job(void **state) {
  (void)state;
  fx f;
  fx_job job, waiting;
  fx_thread threads[2];
  half halves[2];
  fx_flag turn = 0;
  fx_spec spec = {.slots = 1};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &job, 100, 8);
  fx_submit_units(&f, &waiting, 1);
  for (int i = 0; i < 2; i++) {
    halves[i] = (half){.turn = &turn, .mine = i};
    fx_ok(berth_exec_child(job.exec, &halves[i].child, NULL), NULL);
    fx_thread_start(&threads[i], hand_to_and_fro, &halves[i]);
  }
  for (int i = 0; i < 2; i++) fx_thread_join(&threads[i]);
  assert_int_equal(fx_metrics(&f).submitted, 2);
  assert_int_equal(fx_state(&waiting), BERTH_ADMISSION_QUEUED);
  fx_drop(&job);
  fx_drop(&waiting);
  fx_close(&f);
}

// ---- callbacks ---------------------------------------------------------------------------------------------------------------------------------

typedef struct gatekeeper {
  fx_flag inside, go_on;
} gatekeeper;

static void blocks_in_callback(void *arg, berth_admission_state state) {
  gatekeeper *g = arg;
  (void)state;
  g->inside = 1;
  fx_until(g->go_on);
}

static void run_some(void *arg) {
  for (int i = 0; i < 50; i++) fx_run_plain(arg);
}

// A callback of the user's that does not return: nobody waits for it, no lock is held around it.
static void c_47_nobody_waits_for_user_code(void **state) {
  (void)state;
  fx f;
  fx_job holder, told, next;
  fx_thread threads[5];
  gatekeeper g = {.inside = 0};
  char text[1 << 14];
  size_t length = 0;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 90, 1);
  fx_submit_units(&f, &told, 20);
  fx_ok(berth_admission_notify(told.admission, -1, blocks_in_callback, &g, NULL), NULL);
  (void)berth_admission_cancel(told.admission);
  fx_until(g.inside);
  for (int i = 0; i < 5; i++) fx_thread_start(&threads[i], run_some, &f);
  for (int i = 0; i < 5; i++) fx_thread_join(&threads[i]);
  fx_submit_units(&f, &next, 20);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(next.admission, &why, NULL), NULL);
  fx_ok(berth_diagnostics_json(f.session, text, sizeof text, &length, NULL), NULL);
  fx_drop(&holder);
  assert_int_equal(fx_state(&next), BERTH_ADMISSION_GRANTED);
  fx_drop(&next);
  g.go_on = 1;
  fx_drop(&told);
  fx_close(&f);
}

typedef struct busy_callback {
  const fx *f;
  fx_job *job;
  berth_cancel *token;
  fx_flag calls;
} busy_callback;

// Touches everything that its own attempt has, and releases it.
static void touches_its_own(void *arg, berth_report *report) {
  busy_callback *b = arg;
  berth_report *again = NULL;
  fx_check(berth_cancel_fire(b->token) == BERTH_CANCEL_ALREADY_FINISHED);
  fx_check(berth_completion_poll(b->job->completion, &again, NULL) == BERTH_OK && again == report);
  berth_report_release(again);
  if (b->job->admission) (void)berth_admission_cancel(b->job->admission);
  berth_completion_release(b->job->completion);
  berth_admission_release(b->job->admission);
  berth_attempt_release(b->job->attempt);
  berth_cancel_release(b->token);
  b->job->completion = NULL;
  b->job->admission = NULL;
  b->job->attempt = NULL;
  (void)fx_metrics(b->f);
  b->calls++;
}

// On the stack of the one who finishes, and on the notifier.
static void c_49_c_50_callback_touches_and_releases_its_own(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int queued = 0; queued < 2; queued++) {
    fx_job holder, job;
    fx_start(&f, &holder, queued ? 100 : 1, 1);
    fx_submit_units(&f, &job, 50);
    busy_callback b = {.f = &f, .job = &job, .token = berth_attempt_cancel_token(job.attempt)};
    fx_ok(berth_completion_notify(job.completion, -1, touches_its_own, &b, NULL), NULL);
    if (queued) {
      berth_cancel *token = berth_cancel_retain(b.token);
      (void)berth_cancel_fire(token);
      berth_cancel_release(token);
    } else {
      fx_wait_take(&job);
      berth_exec *exec = job.exec;
      fx_ok(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL), NULL);
    }
    fx_until(b.calls == 1);
    fx_drop(&holder);
  }
  fx_close(&f);
}

static void counts(void *arg, berth_report *report) {
  fx_check(report != NULL);
  (*(fx_flag *)arg)++;
}

static void wait_for_report(void *arg) {
  fx_job *job = arg;
  berth_report *report = NULL;
  fx_check(berth_completion_wait(job->completion, berth_now() + FX_PATIENCE, &report, NULL) == BERTH_OK);
  berth_report_release(report);
}

// One waits for the report, one asked to be called: both get it, and neither waits for the other.
static void c_51_callback_runs_beside_a_waiter(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_thread thread;
  fx_flag calls = 0;
  int fd = eventfd(0, EFD_NONBLOCK);
  uint64_t value = 0;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 1);
  fx_ok(berth_completion_notify(job.completion, fd, counts, &calls, NULL), NULL);
  fx_thread_start(&thread, wait_for_report, &job);
  fx_until(berthi_wait_place_count("completion.wait") == 1);
  (void)berth_admission_cancel(job.admission);
  fx_thread_join(&thread);
  fx_until(calls == 1);
  fx_until(read(fd, &value, sizeof value) == (ssize_t)sizeof value);
  assert_int_equal(value, 1);
  fx_drop(&job);
  fx_drop(&holder);
  fx_close(&f);
  assert_int_equal(calls, 1);
  close(fd);
}

enum { LINKS = 100 };

typedef struct chain_link {
  const fx *f;
  struct chain_link *next; ///< NULL: the last one
  int way;
  fx_job job;
  fx_flag calls;
} chain_link;

static void start_link(chain_link *l);

static void starts_next(void *arg, berth_report *report) {
  chain_link *l = arg;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  fx_check(berth_report_get(report, &info, NULL) == BERTH_OK && info.attempt_id == berth_attempt_id(l->job.attempt));
  if (l->next) start_link(l->next);
  l->calls++;
}

// Refused at once, cancelled in the queue or finished.
static void start_link(chain_link *l) {
  fx_job *job = &l->job;
  fx_check(berth_session_begin_attempt(l->f->session, NULL, &job->attempt, NULL) == BERTH_OK);
  job->completion = berth_attempt_completion(job->attempt);
  berth_request request = fx_request(l->way == 0 ? 101 : 1, 1);
  fx_check(berth_completion_notify(job->completion, -1, starts_next, l, NULL) == BERTH_OK);
  berth_status status = berth_session_admit(l->f->session, job->attempt, &request, &job->admission, NULL);
  fx_check(status == (l->way == 0 ? BERTH_OUT_OF_RANGE : BERTH_OK));
  if (l->way == 1) (void)berth_admission_cancel(job->admission);
  if (l->way != 2) return;
  berth_exec *exec = NULL;
  fx_check(berth_admission_take(job->admission, &exec, NULL) == BERTH_OK);
  berth_exec_release(exec);
}

// Each completion starts the next attempt from its callback: a hundred in a row, each called back once, nothing left in the counters.
static void c_52_callback_restarts(void **state) {
  (void)state;
  fx f;
  static chain_link links[LINKS];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < LINKS; i++) links[i] = (chain_link){.f = &f, .next = i + 1 < LINKS ? &links[i + 1] : NULL, .way = i % 3};
  start_link(&links[0]);
  for (int i = 0; i < LINKS; i++) fx_until(links[i].calls == 1);
  for (int i = 0; i < LINKS; i++) {
    assert_int_equal(links[i].calls, 1);
    fx_drop(&links[i].job);
  }
  berth_metrics m = fx_metrics(&f);
  assert_int_equal(m.begun, LINKS);
  assert_int_equal(m.open, 0);
  fx_close(&f);
}

// ---- nested waits ------------------------------------------------------------------------------------------------------------------------------

typedef struct nested {
  const fx *f;
  fx_job *queued;
  berth_status again, child_status;
  char reason[64];
} nested;

static intptr_t enters_again(berth_exec *exec, void *arg) {
  nested *n = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_exec *child = NULL;
  void *memory = NULL;
  n->again = berth_run(n->f->session, NULL, fx_fn_42, NULL, NULL, &err);
  snprintf(n->reason, sizeof n->reason, "%s", err.reason);
  n->child_status = berth_exec_child(exec, &child, NULL);
  if (!n->child_status) n->child_status = berth_exec_alloc(child, 64, &memory, NULL);
  berth_exec_release(child);
  return 1;
}

// One place, one queued behind, and the one inside enters again: told at once, and nothing of the queue is stolen or lost.
static void c_53_nested_entry_in_the_only_slot(void **state) {
  (void)state;
  fx f;
  fx_job job, first;
  berth_error err = BERTH_ERROR_INIT;
  fx_spec spec = {.slots = 1, .lanes = 1};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &first, 1, 1);
  fx_submit_units(&f, &job, 1);
  nested n = {.f = &f, .queued = &job};
  intptr_t value = 0;
  fx_ok(berth_exec_run(first.exec, enters_again, &n, &value, &err), &err);
  assert_int_equal(value, 1);
  assert_int_equal(n.again, BERTH_FAILED_PRECONDITION);
  assert_string_equal(n.reason, "reentered");
  assert_int_equal(n.child_status, BERTH_OK); // the way down
  assert_int_equal(fx_state(&job), BERTH_ADMISSION_QUEUED);
  fx_drop(&first);
  assert_int_equal(fx_state(&job), BERTH_ADMISSION_GRANTED);
  fx_drop(&job);
  fx_close(&f);
}

// Every slot is taken and nothing moves: the one who waits can ask by whom, and the diagnostics say it too.
static void c_55_all_slots_blocked_is_told(void **state) {
  (void)state;
  fx f;
  fx_job holders[2], job;
  berth_holder who[2];
  berth_why why = BERTH_WHY_INIT;
  char text[1 << 14], id[64];
  size_t length = 0;
  fx_spec spec = {.slots = 2};
  fx_open(&f, &spec, NULL);
  for (int i = 0; i < 2; i++) fx_start(&f, &holders[i], 1, 1);
  fx_submit_units(&f, &job, 1);
  why.holders = who;
  why.holder_capacity = 2;
  fx_ok(berth_admission_why(job.admission, &why, NULL), NULL);
  assert_int_equal(why.mask, BERTH_WHY_SLOTS);
  assert_int_equal(why.holder_count, 2);
  fx_ok(berth_diagnostics_json(f.session, text, sizeof text, &length, NULL), NULL);
  assert_true(length < sizeof text);
  for (int i = 0; i < 2; i++) {
    assert_true(who[i].attempt_id == berth_attempt_id(holders[0].attempt) || who[i].attempt_id == berth_attempt_id(holders[1].attempt));
    snprintf(id, sizeof id, "%llu", (unsigned long long)who[i].attempt_id);
    assert_non_null(strstr(text, id));
  }
  for (int i = 0; i < 2; i++) fx_drop(&holders[i]);
  fx_drop(&job);
  fx_close(&f);
}

typedef struct grower {
  berth_exec *exec;
  berth_status status;
} grower;

static void grow_by_half(void *arg) {
  grower *g = arg;
  g->status = berth_exec_grow(g->exec, 50 * FX_UNIT, BERTH_NO_DEADLINE, NULL);
  berth_exec_release(g->exec);
}

// Two that hold half each and want the other half: found at once, one is told, the other gets it.
static void c_56_deadlock_is_found(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int round = 0; round < 20; round++) {
    fx_job jobs[2];
    fx_thread threads[2];
    grower g[2];
    for (int i = 0; i < 2; i++) fx_start(&f, &jobs[i], 50, 1);
    for (int i = 0; i < 2; i++) {
      g[i] = (grower){.exec = jobs[i].exec};
      jobs[i].exec = NULL;
      fx_thread_start(&threads[i], grow_by_half, &g[i]);
    }
    for (int i = 0; i < 2; i++) fx_thread_join(&threads[i]);
    for (int i = 0; i < 2; i++) {
      assert_true(g[i].status == BERTH_OK || g[i].status == BERTH_ABORTED);
      fx_drop(&jobs[i]);
    }
    assert_true(g[0].status == BERTH_OK || g[1].status == BERTH_OK);
  }
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(c_46_permit_belongs_to_the_job),
      cmocka_unit_test(c_47_nobody_waits_for_user_code),
      cmocka_unit_test(c_49_c_50_callback_touches_and_releases_its_own),
      cmocka_unit_test(c_51_callback_runs_beside_a_waiter),
      cmocka_unit_test(c_52_callback_restarts),
      cmocka_unit_test(c_53_nested_entry_in_the_only_slot),
      cmocka_unit_test(c_55_all_slots_blocked_is_told),
      cmocka_unit_test(c_56_deadlock_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
