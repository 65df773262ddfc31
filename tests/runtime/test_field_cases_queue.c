// SPDX-License-Identifier: Apache-2.0
// Faults that users reported of other systems, each with the small input that shows it: cancel, limits and timeouts of queues, callbacks that run twice
// or never (docs/field-cases.md, C4, C5 and C8). The name of a test begins with its case.
#include <stdatomic.h>

#include "base/lock.h"
#include "runtime/fixture.h"

// ---- C4: cancel that does not free, or frees the wrong one ----------------------------------------------------------------------------------

// Aborted in the middle of a load: the bytes come back with the execution, and the one behind it is granted.
static void c_20_abort_during_load(void **state) {
  (void)state;
  fx f;
  fx_job loading, untaken, next;
  void *memory = NULL;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &loading, 100, 1);
  fx_ok(berth_exec_alloc(loading.exec, 100 * FX_UNIT, &memory, NULL), NULL);
  fx_submit_units(&f, &untaken, 100);
  fx_submit_units(&f, &next, 100);
  assert_int_equal(berth_admission_cancel(loading.admission), BERTH_CANCEL_FIRED);
  fx_expect(berth_exec_check(loading.exec, &loading.error), &loading.error, BERTH_CANCELLED, "cancelled");
  berth_exec_release(loading.exec); // as it is, with what it had loaded
  loading.exec = NULL;
  assert_true(fx_report(&loading).cancel_latency >= 0);
  assert_int_equal(fx_state(&untaken), BERTH_ADMISSION_GRANTED);
  assert_int_equal(berth_admission_cancel(untaken.admission), BERTH_CANCEL_FIRED); // nobody will ever come for it
  assert_int_equal(fx_state(&next), BERTH_ADMISSION_GRANTED);
  fx_drop(&loading);
  fx_drop(&untaken);
  fx_drop(&next);
  fx_close(&f);
}

// One runs, two are queued, and both queued ones are cancelled: at once, while the first goes on.
static void c_22_cancel_both_queued(void **state) {
  (void)state;
  fx f;
  fx_job running, queued[2];
  fx_open(&f, NULL, NULL);
  fx_start(&f, &running, 100, 1);
  for (int i = 0; i < 2; i++) fx_submit_units(&f, &queued[i], 100);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(berth_admission_cancel(queued[i].admission), BERTH_CANCEL_FIRED);
    assert_int_equal(fx_state(&queued[i]), BERTH_ADMISSION_CANCELLED);
    assert_int_equal(fx_metrics(&f).queued, 1 - i);
    assert_int_equal(fx_report(&queued[i]).outcome, BERTH_OUTCOME_CANCELLED);
    fx_drop(&queued[i]);
  }
  fx_ok(berth_exec_check(running.exec, NULL), NULL);
  fx_drop(&running);
  fx_close(&f);
}

// Room for one. A runs, B is queued, B's client goes away: A is not touched.
static void c_23_queued_cancel_spares_the_running(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  fx_spec spec = {.slots = 1};
  fx_open(&f, &spec, NULL);
  for (int how = 0; how < 3; how++) {
    fx_start(&f, &a, 1, 1);
    fx_submit_units(&f, &b, 1);
    berth_cancel *token = berth_attempt_cancel_token(b.attempt);
    if (how == 0) (void)berth_admission_cancel(b.admission);
    if (how == 1) (void)berth_cancel_fire(token);
    fx_drop(&b); // or just dropped
    fx_ok(berth_exec_check(a.exec, NULL), NULL);
    fx_finish(&a, BERTH_SUCCEEDED);
    berth_report_info info = fx_report(&a);
    assert_int_equal(info.outcome, BERTH_SUCCEEDED);
    assert_int_equal(info.cancel_cause, BERTH_CANCEL_NONE);
    berth_cancel_release(token);
    fx_drop(&a);
  }
  fx_close(&f);
}

typedef struct loop {
  const fx *f;
  berth_cancel *token;
  fx_flag inside;
  berth_status seen;
} loop;

static intptr_t until_cancelled(berth_exec *exec, void *arg) {
  loop *l = arg;
  void *memory = NULL;
  fx_check(berth_exec_alloc(exec, 100 * FX_UNIT, &memory, NULL) == BERTH_OK);
  l->inside = 1;
  while ((l->seen = berth_exec_check(exec, NULL)) == BERTH_OK) sched_yield();
  return 7;
}

static void run_loop(void *arg) {
  loop *l = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.bytes = 100 * FX_UNIT;
  options.cancel = l->token;
  options.report = true;
  fx_check(berth_run(l->f->session, &options, until_cancelled, l, &result, NULL) == BERTH_OK);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  fx_check(berth_report_get(result.report, &info, NULL) == BERTH_OK);
  fx_check(result.value == 7 && info.outcome == BERTH_OUTCOME_CANCELLED);
  fx_check(info.cancel_latency >= 0 && info.capacity == BERTH_CAPACITY_RETURNED); // it says when the memory was really free
  berth_report_release(result.report);
}

// Interrupted from another thread, through another session.
static void c_25_interrupt_from_elsewhere(void **state) {
  (void)state;
  fx f;
  fx_thread thread;
  loop l = {.f = &f};
  fx_open(&f, NULL, NULL);
  berth_session *other = berth_session_retain(f.session);
  fx_ok(berth_cancel_create(other, &l.token, NULL), NULL);
  fx_thread_start(&thread, run_loop, &l);
  fx_until(l.inside);
  assert_int_equal(berth_cancel_fire(l.token), BERTH_CANCEL_FIRED);
  fx_thread_join(&thread);
  assert_int_equal(l.seen, BERTH_CANCELLED);
  berth_cancel_release(l.token);
  berth_session_release(other);
  fx_close(&f);
}

// A token stops whatever names it, what began before it was fired too, and nothing else.
static void c_26_token_covers_earlier_calls(void **state) {
  (void)state;
  fx f;
  fx_job with[3], later, without;
  berth_cancel *token = NULL;
  fx_open(&f, NULL, NULL);
  fx_ok(berth_cancel_create(f.session, &token, NULL), NULL);
  berth_request request = fx_request(10, 1);
  fx_start(&f, &without, 10, 1);
  request.cancel = token;
  for (int i = 0; i < 3; i++) {
    fx_submit(&f, &with[i], &request, NULL);
    fx_wait_take(&with[i]);
  }
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  for (int i = 0; i < 3; i++) {
    fx_expect(berth_exec_check(with[i].exec, &with[i].error), &with[i].error, BERTH_CANCELLED, "cancelled");
    fx_drop(&with[i]);
  }
  fx_submit(&f, &later, &request, NULL);
  fx_expect(later.status, &later.error, BERTH_CANCELLED, "cancelled");
  fx_ok(berth_exec_check(without.exec, NULL), NULL);
  fx_drop(&later);
  fx_drop(&without);
  berth_cancel_release(token);
  fx_close(&f);
}

// The client's deadline passes in the queue: it leaves the queue then, and never runs.
static void c_28_deadline_leaves_the_queue(void **state) {
  (void)state;
  fx f;
  fx_job running, queued;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &running, 100, 1);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.deadline = berth_now() + 5 * FX_MILLISECOND;
  berth_request request = fx_request(100, 1);
  fx_submit(&f, &queued, &request, &options);
  berth_report_info info = fx_report(&queued);
  assert_int_equal(info.cause.code, BERTH_DEADLINE_EXCEEDED);
  assert_true(info.sealed_at >= options.deadline);
  assert_int_equal(fx_metrics(&f).queued, 0);
  fx_drop(&running);
  assert_int_equal(fx_metrics(&f).granted, 1);
  assert_int_equal(info.granted_at, BERTH_NO_TIME);
  fx_drop(&queued);
  fx_close(&f);
}

static void end_in_way(fx_job *job, int way) {
  if (way == 0) fx_finish(job, BERTH_SUCCEEDED);
  if (way == 1) fx_finish(job, BERTH_FAILED);
  if (way == 2) (void)berth_admission_cancel(job->admission);
  if (way == 3) (void)berth_attempt_finish(job->attempt, BERTH_FAILED, NULL, NULL);
}

// Twelve thousand that ended in five ways hold nothing.
static void c_29_twelve_thousand_finished(void **state) {
  (void)state;
  fx f;
  berth_backend_options options = fx_options();
  options.abandoned_max = BERTH_NONE_U32;
  fx_open(&f, NULL, &options);
  uint64_t blocks = 0;
  for (int i = 0; i < 12000; i++) {
    fx_job job;
    void *memory = NULL;
    fx_start(&f, &job, 100, 8); // everything there is: what one kept, the next would miss
    fx_ok(berth_exec_alloc(job.exec, 4096, &memory, NULL), NULL);
    end_in_way(&job, i % 5);
    fx_drop(&job);
    if (i == 1000) blocks = fx_blocks();
  }
  assert_true(fx_blocks() <= blocks + 16);
  assert_int_equal(fx_metrics(&f).promised_bytes, 0);
  fx_close(&f);
}

// ---- C5: limits and timeouts of the queue ----------------------------------------------------------------------------------------------------

// A runs and does not end. B's time in the queue ends all the same.
static void c_31_timeout_while_another_runs(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &a, 100, 8);
  berth_request request = fx_request(1, 1);
  request.queue_deadline = berth_now() + 10 * FX_MILLISECOND;
  fx_submit(&f, &b, &request, NULL);
  if (!b.status) b.status = berth_admission_wait(b.admission, berth_now() + FX_PATIENCE, &b.error); // else it came too late already
  fx_expect(b.status, &b.error, BERTH_UNAVAILABLE, "queue_wait_elapsed");
  assert_true(berth_now() >= request.queue_deadline);
  fx_ok(berth_exec_check(a.exec, NULL), NULL); // still there
  assert_int_equal(fx_metrics(&f).live_grants, 1);
  fx_drop(&b);
  fx_drop(&a);
  fx_close(&f);
}

typedef struct burst {
  const fx *f;
  pthread_barrier_t *start;
  fx_job job;
} burst;

static void submit_in_burst(void *arg) {
  burst *b = arg;
  berth_request request = fx_request(100, 1);
  (void)pthread_barrier_wait(b->start);
  fx_check(berth_session_begin_attempt(b->f->session, NULL, &b->job.attempt, NULL) == BERTH_OK);
  b->job.status = berth_session_admit(b->f->session, b->job.attempt, &request, &b->job.admission, &b->job.error);
}

// One runs, the limit is k, and k + 2 come at the same moment: k wait, two are told, every time.
static void c_32_burst_of_k_and_two(void **state) {
  (void)state;
  enum { K = 3 };
  fx f;
  berth_backend_options options = fx_options();
  options.max_queued = K;
  fx_open(&f, NULL, &options);
  for (int round = 0; round < 20; round++) {
    fx_job running;
    burst b[K + 2];
    fx_thread threads[K + 2];
    pthread_barrier_t start;
    fx_check(pthread_barrier_init(&start, NULL, K + 2) == 0);
    fx_start(&f, &running, 100, 1);
    for (int i = 0; i < K + 2; i++) {
      b[i] = (burst){.f = &f, .start = &start};
      fx_thread_start(&threads[i], submit_in_burst, &b[i]);
    }
    int refused = 0;
    for (int i = 0; i < K + 2; i++) {
      fx_thread_join(&threads[i]);
      if (!b[i].job.status) continue;
      fx_expect(b[i].job.status, &b[i].job.error, BERTH_UNAVAILABLE, "admission_queue_full");
      refused++;
    }
    assert_int_equal(refused, 2);
    assert_int_equal(fx_metrics(&f).queued, K);
    fx_drop(&running);
    for (int i = 0; i < K + 2; i++) fx_drop(&b[i].job);
    (void)pthread_barrier_destroy(&start);
  }
  assert_int_equal(fx_metrics(&f).queue_high_watermark, K);
  fx_close(&f);
}

// Cancelled in the middle of the queue: noticed there and then, and its place is another's.
static void c_34_cancelled_in_the_middle(void **state) {
  (void)state;
  fx f;
  fx_job running, queued[5], again;
  berth_backend_options options = fx_options();
  options.max_queued = 5;
  fx_open(&f, NULL, &options);
  fx_start(&f, &running, 100, 1);
  for (int i = 0; i < 5; i++) fx_submit_units(&f, &queued[i], 1);
  (void)berth_admission_cancel(queued[3].admission);
  assert_int_equal(fx_metrics(&f).queued, 4);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(queued[4].admission, &why, NULL), NULL);
  assert_int_equal(why.ahead, 3);
  fx_submit_units(&f, &again, 1);
  assert_int_equal(fx_state(&again), BERTH_ADMISSION_QUEUED);
  fx_drop(&running);
  for (int i = 0; i < 5; i++) fx_drop(&queued[i]);
  fx_drop(&again);
  fx_close(&f);
}

typedef struct hurried {
  const fx *f;
  uint32_t failed, early;
} hurried;

static void run_hurriedly(void *arg) {
  hurried *h = arg;
  for (int i = 0; i < 100; i++) {
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.bytes = 100 * FX_UNIT;
    options.deadline = berth_now() + 200000;
    berth_error err = BERTH_ERROR_INIT;
    if (berth_run(h->f->session, &options, fx_fn_42, NULL, NULL, &err) == BERTH_OK) continue;
    h->failed++;
    h->early += berth_now() < options.deadline || strcmp(err.reason, "deadline_exceeded") != 0;
  }
}

// Ten threads with deadlines of 200 us each: who is told that time is up is told the truth, by the one clock.
static void c_35_one_absolute_deadline(void **state) {
  (void)state;
  fx f;
  fx_thread threads[10];
  hurried h[10];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 10; i++) {
    h[i] = (hurried){.f = &f};
    fx_thread_start(&threads[i], run_hurriedly, &h[i]);
  }
  for (int i = 0; i < 10; i++) {
    fx_thread_join(&threads[i]);
    assert_int_equal(h[i].early, 0);
  }
  fx_close(&f);
}

typedef struct heavy {
  const fx *f;
  const char *group;
  pthread_barrier_t *start;
  _Atomic int *inside;
} heavy;

static intptr_t heavy_query(berth_exec *exec, void *arg) {
  heavy *h = arg;
  (void)exec;
  fx_check(atomic_fetch_add(h->inside, 1) == 0); // the group's cap is one of these
  for (int i = 0; i < 20; i++) sched_yield();
  atomic_fetch_sub(h->inside, 1);
  return 0;
}

static void run_heavy(void *arg) {
  heavy *h = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.bytes = FX_UNIT;
  options.group = h->group;
  (void)pthread_barrier_wait(h->start);
  fx_check(berth_run(h->f->session, &options, heavy_query, h, NULL, NULL) == BERTH_OK);
}

// Two groups with 1 % each, and eight heavy queries that start together and use nothing yet: promises count, so one of each group runs at a time.
static void c_37_simultaneous_heavy_queries(void **state) {
  (void)state;
  fx f;
  fx_thread threads[8];
  heavy h[8];
  _Atomic int inside[2] = {0, 0};
  static const char *const groups[] = {"one", "two"};
  pthread_barrier_t start;
  fx_check(pthread_barrier_init(&start, NULL, 8) == 0);
  fx_open(&f, NULL, NULL);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_bytes = FX_UNIT; // of 100
  for (int g = 0; g < 2; g++) fx_ok(berth_group_set(f.backend, groups[g], &limits, NULL), NULL);
  for (int i = 0; i < 8; i++) {
    h[i] = (heavy){.f = &f, .group = groups[i % 2], .start = &start, .inside = &inside[i % 2]};
    fx_thread_start(&threads[i], run_heavy, &h[i]);
  }
  for (int i = 0; i < 8; i++) fx_thread_join(&threads[i]);
  (void)pthread_barrier_destroy(&start);
  fx_close(&f);
}

static void finish_at(void *arg) {
  fx_job *job = arg;
  int64_t due = berth_now() + 300000;
  while (berth_now() < due) sched_yield();
  berth_exec *exec = job->exec;
  job->exec = NULL;
  fx_check(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL) == BERTH_OK);
}

// The queue's timeout and the service time are the same: each time one decision, the grant or the timeout, and no grant is lost.
static void c_38_grant_races_expiry(void **state) {
  (void)state;
  fx f;
  uint64_t granted = 0, expired = 0;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 300; i++) {
    fx_job a, b;
    fx_thread thread;
    fx_start(&f, &a, 100, 1);
    berth_request request = fx_request(100, 1);
    fx_thread_start(&thread, finish_at, &a);
    request.queue_deadline = berth_now() + 300000 + (i % 7 - 3) * 20000;
    fx_submit(&f, &b, &request, NULL);
    if (!b.status) b.status = berth_admission_wait(b.admission, BERTH_NO_DEADLINE, &b.error);
    if (b.status) fx_expect(b.status, &b.error, BERTH_UNAVAILABLE, "queue_wait_elapsed");
    if (b.status) expired++;
    else granted++;
    fx_thread_join(&thread);
    fx_drop(&b);
    fx_drop(&a);
    assert_int_equal(fx_metrics(&f).promised_bytes, 0);
  }
  berth_metrics m = fx_metrics(&f);
  assert_int_equal(m.granted, 300 + granted);
  assert_int_equal(m.expired, expired);
  fx_close(&f);
}

// ---- C8: callbacks ---------------------------------------------------------------------------------------------------------------------------

static void count_report(void *arg, berth_report *report) {
  fx_check(report != NULL);
  (*(fx_flag *)arg)++;
}
static void count_state(void *arg, berth_admission_state state) {
  fx_check(state != BERTH_ADMISSION_QUEUED);
  (*(fx_flag *)arg)++;
}
static void count_release(void *arg) { (*(fx_flag *)arg)++; }

static void fire(void *arg) { (void)berth_cancel_fire(arg); }

// A cancel and a finish at the same time: one completion, one report, and two sealings never.
static void c_58_cancel_races_finish(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 200; i++) {
    fx_job job;
    fx_thread thread;
    fx_flag completed = 0;
    fx_start(&f, &job, 1, 1);
    berth_cancel *token = berth_attempt_cancel_token(job.attempt);
    fx_ok(berth_completion_notify(job.completion, -1, count_report, &completed, NULL), NULL);
    fx_thread_start(&thread, fire, token);
    fx_finish(&job, BERTH_SUCCEEDED);
    fx_thread_join(&thread);
    fx_until(completed == 1);
    (void)berth_cancel_fire(token);
    fx_drop(&job);
    berth_cancel_release(token);
    assert_int_equal(completed, 1);
    assert_int_equal(fx_metrics(&f).sealed, i + 1);
  }
  fx_close(&f);
}

// Cancelled, expired, refused, closed or dropped: it is called back once, and its closure comes back once.
static void c_59_every_end_calls_back_once(void **state) {
  (void)state;
  for (int way = 0; way < 5; way++) {
    fx f;
    fx_job running, job;
    fx_flag completed = 0, told = 0, released = 0;
    fx_open(&f, NULL, NULL);
    fx_start(&f, &running, 100, 1);
    berth_request request = fx_request(1, 1);
    request.activity = &released;
    request.activity_release = count_release;
    if (way == 1) request.queue_deadline = berth_now() + FX_MILLISECOND;
    fx_submit(&f, &job, &request, NULL);
    bool asked = !job.status; // its time in the queue may be over before it is there
    if (asked) fx_ok(berth_admission_notify(job.admission, -1, count_state, &told, NULL), NULL);
    fx_ok(berth_completion_notify(job.completion, -1, count_report, &completed, NULL), NULL);
    if (way == 0) (void)berth_admission_cancel(job.admission);
    if (way == 2) berth_backend_close(f.backend);
    if (way == 3) {
      berth_admission_release(job.admission);
      job.admission = NULL;
    }
    if (way == 4) (void)berth_attempt_finish(job.attempt, BERTH_FAILED, NULL, NULL);
    fx_until(completed == 1 && released == 1 && (way == 3 || !asked || told == 1));
    fx_drop(&running);
    fx_drop(&job);
    fx_close(&f);
    assert_int_equal(completed, 1);
    assert_int_equal(released, 1);
    assert_true(told <= 1);
  }
}

// Firing says which of the two happened.
static void c_61_cancel_says_what_happened(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  berth_cancel *token = berth_attempt_cancel_token(job.attempt);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_ALREADY_FINISHED);
  assert_int_equal(berth_admission_cancel(job.admission), BERTH_CANCEL_ALREADY_FINISHED);
  assert_int_equal(fx_report(&job).outcome, BERTH_SUCCEEDED);
  fx_drop(&job);
  berth_cancel_release(token);
  fx_start(&f, &job, 1, 1);
  assert_int_equal(berth_admission_cancel(job.admission), BERTH_CANCEL_FIRED);
  fx_drop(&job);
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(c_20_abort_during_load),
      cmocka_unit_test(c_22_cancel_both_queued),
      cmocka_unit_test(c_23_queued_cancel_spares_the_running),
      cmocka_unit_test(c_25_interrupt_from_elsewhere),
      cmocka_unit_test(c_26_token_covers_earlier_calls),
      cmocka_unit_test(c_28_deadline_leaves_the_queue),
      cmocka_unit_test(c_29_twelve_thousand_finished),
      cmocka_unit_test(c_31_timeout_while_another_runs),
      cmocka_unit_test(c_32_burst_of_k_and_two),
      cmocka_unit_test(c_34_cancelled_in_the_middle),
      cmocka_unit_test(c_35_one_absolute_deadline),
      cmocka_unit_test(c_37_simultaneous_heavy_queries),
      cmocka_unit_test(c_38_grant_races_expiry),
      cmocka_unit_test(c_58_cancel_races_finish),
      cmocka_unit_test(c_59_every_end_calls_back_once),
      cmocka_unit_test(c_61_cancel_says_what_happened),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
