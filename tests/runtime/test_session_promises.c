// SPDX-License-Identifier: Apache-2.0
// Promises of the two published interfaces that no other test shows (docs/interfaces.md).
#include "base/lock.h"
#include "runtime/fixture.h"
#include "runtime/lanes.h"

// ---- the query backend session ---------------------------------------------------------------------------------------------------------------

// Copy assignment is to take a reference of the new one and to give up the old one's, and is safe when they are the same.
static void clone_from_replaces_the_old_one(void **state) {
  (void)state;
  fx f, g;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options options = fx_options();
  device.name = "sim:2";
  options.devices = &device;
  options.device_count = 1;
  g = (fx){.devices = 1};
  fx_ok(berth_backend_open(&options, &g.backend, &err), &err);
  g.session = berth_backend_session(g.backend);
  berth_session *held = berth_session_retain(f.session);
  berth_session *old = held;
  held = berth_session_retain(g.session);
  berth_session_release(old);
  assert_true(berth_session_same_backend(held, g.session));
  assert_false(berth_session_same_backend(held, f.session));
  assert_false(berth_session_identity(held).backend_id == berth_session_identity(f.session).backend_id);
  old = held;
  held = berth_session_retain(held); // from itself
  berth_session_release(old);
  assert_true(berth_session_same_backend(held, g.session));
  berth_session_release(held);
  fx_run_plain(&g);
  fx_ok(berth_backend_close_wait(g.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err), &err);
  berth_session_release(g.session);
  berth_backend_release(g.backend);
  fx_close(&f);
}

static void expect_still_open(const fx *f) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  fx_expect(berth_backend_close_wait(f->backend, berth_now(), BERTH_NO_DEADLINE, &report, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  assert_true(report.state < BERTH_STATE_CLOSED);
}

// An attempt that is begun, that waits for its grant to be taken, or that runs, holds the generation; close waits for its report.
static void close_waits_for_every_attempt(void **state) {
  (void)state;
  fx f;
  fx_job running, granted, begun = {0};
  fx_open(&f, NULL, NULL);
  begun.attempt = fx_begin(&f);
  begun.completion = berth_attempt_completion(begun.attempt);
  fx_start(&f, &running, 50, 1);
  fx_submit_units(&f, &granted, 50);
  expect_still_open(&f);
  fx_finish(&running, BERTH_SUCCEEDED);
  fx_drop(&running);
  expect_still_open(&f);
  fx_drop(&granted);
  expect_still_open(&f);
  fx_ok(berth_attempt_finish(begun.attempt, BERTH_FAILED, NULL, NULL), NULL);
  (void)fx_report(&begun);
  fx_drop(&begun);
  fx_close(&f);
}

typedef struct waiter {
  fx_job *job;
  berth_status status;
  uint64_t attempt_id;
} waiter;

static void wait_and_take(void *arg) {
  waiter *w = arg;
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  w->status = berth_admission_wait(w->job->admission, berth_now() + FX_PATIENCE, NULL);
  fx_check(w->status == BERTH_OK);
  fx_check(berth_admission_take(w->job->admission, &w->job->exec, NULL) == BERTH_OK);
  fx_check(berth_exec_get_info(w->job->exec, &info, NULL) == BERTH_OK);
  w->attempt_id = info.attempt_id;
}

// Submitted by one thread, awaited and taken by another, finished by the first.
static void admission_is_awaited_anywhere(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_thread thread;
  waiter w = {.job = &job};
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 10);
  fx_thread_start(&thread, wait_and_take, &w);
  fx_until(berthi_wait_place_count("admission.wait") == 1);
  fx_drop(&holder);
  fx_thread_join(&thread);
  assert_int_equal(w.attempt_id, berth_attempt_id(job.attempt));
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_drop(&job);
  fx_close(&f);
}

// Field by field the same, whichever session it is read through.
static void metrics_are_the_backends(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  berth_session *other = berth_backend_session(f.backend);
  fx_start(&f, &job, 10, 1);
  fx_drop(&job);
  berth_metrics a = BERTH_METRICS_INIT, b = BERTH_METRICS_INIT;
  fx_ok(berth_session_metrics(f.session, &a, NULL), NULL);
  fx_ok(berth_session_metrics(other, &b, NULL), NULL);
  assert_int_equal(a.sequence, b.sequence);
  assert_memory_equal(&a, &b, sizeof a);
  berth_attempt_counters counters = berth_session_attempt_counters(other);
  assert_int_equal(counters.begun, a.begun);
  assert_int_equal(counters.sealed, a.sealed);
  berth_session_release(other);
  fx_close(&f);
}

// Up to `max` are taken, oldest first; each is the caller's to share, and stays when the backend is gone.
static void abandoned_reports_are_shared(void **state) {
  (void)state;
  fx f;
  uint64_t ids[3];
  berth_report *reports[3] = {NULL, NULL, NULL};
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 3; i++) {
    berth_attempt *attempt = fx_begin(&f);
    ids[i] = berth_attempt_id(attempt);
    berth_attempt_release(attempt);
  }
  assert_int_equal(berth_session_take_abandoned(f.session, reports, 2), 2);
  assert_int_equal(berth_session_take_abandoned(f.session, &reports[2], 2), 1);
  assert_int_equal(berth_session_take_abandoned(f.session, reports, 0), 0);
  for (int i = 0; i < 3; i++) {
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    berth_report *mine = berth_report_retain(reports[i]);
    berth_report_release(reports[i]);
    fx_ok(berth_report_get(mine, &info, NULL), NULL);
    assert_int_equal(info.attempt_id, ids[i]);
    berth_report_release(mine);
  }
  fx_close(&f);
}

// ---- the session host ------------------------------------------------------------------------------------------------------------------------

typedef struct entered {
  int calls;
  intptr_t answer;
  pthread_t thread;
} entered;

static intptr_t answer(berth_exec *exec, void *arg) {
  entered *e = arg;
  (void)exec;
  e->calls++;
  e->thread = pthread_self();
  return e->answer;
}

// The callback's own value comes back as it is, a failure of its own too, and the entry itself has not failed.
static void callbacks_value_is_untouched(void **state) {
  (void)state;
  fx f;
  static const intptr_t values[] = {0, 1, -1, BERTH_CANCELLED, BERTH_UNAVAILABLE, INTPTR_MAX, INTPTR_MIN};
  fx_open(&f, NULL, NULL);
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    entered e = {.answer = values[i]};
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    berth_error err = BERTH_ERROR_INIT;
    fx_ok(berth_run(f.session, NULL, answer, &e, &result, &err), &err);
    assert_true(result.ran && result.value == values[i] && result.cleanup == BERTH_OK);
    assert_int_equal(e.calls, 1);
    assert_true(pthread_equal(e.thread, pthread_self()));
    assert_int_equal(err.code, BERTH_OK);
  }
  fx_close(&f);
}

static int no_executor(void *arg, uint64_t count, void (*body)(void *, uint64_t), void *body_arg) {
  (void)arg;
  (void)count;
  (void)body;
  (void)body_arg;
  return 1;
}

// The lanes cannot be entered: the callback does not run, and what was admitted is given back.
static void executor_that_cannot_be_entered(void **state) {
  (void)state;
  fx f;
  berth_error err = BERTH_ERROR_INIT;
  berth_lanes *lanes = NULL;
  berth_lanes_options options = BERTH_LANES_OPTIONS_INIT;
  berth_run_options run = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  entered e = {.answer = 1};
  fx_spec spec = {.parameters = "fail_enter=1"};
  fx_open(&f, &spec, NULL);
  options.executor = no_executor;
  options.executor_lanes = 1;
  fx_ok(berth_lanes_create(f.session, &options, &lanes, &err), &err);
  lanes->executor = NULL; // a managed set of a simulated device, which has no CPU numbers to make one from
  berthi_lanes_set(&lanes->mask, 0);
  run.lane_set = lanes;
  fx_expect(berth_run(f.session, &run, answer, &e, &result, &err), &err, BERTH_FAILED_PRECONDITION, "executor");
  assert_false(result.ran);
  assert_int_equal(e.calls, 0);
  assert_int_equal(fx_metrics(&f).live_grants, 0);
  fx_ok(berth_run(f.session, &run, answer, &e, &result, &err), &err); // the next one can
  assert_int_equal(e.calls, 1);
  berth_lanes_release(lanes);
  fx_close(&f);
}

// The host of the CPU is there without any configuration; it stays open when its user lets go of it, and is opened anew after a close.
static void cpu_is_a_host(void **state) {
  (void)state;
  uint64_t first = 0;
  for (int round = 0; round < 3; round++) {
    berth_backend *backend = NULL;
    berth_error err = BERTH_ERROR_INIT;
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    fx_ok(berth_backend_default(&backend, &err), &err);
    berth_session *session = berth_backend_session(backend);
    uint64_t generation = berth_session_identity(session).generation;
    if (round == 0) first = generation;
    assert_true(round < 2 ? generation == first : generation > first);
    fx_ok(berth_run(session, NULL, fx_fn_42, NULL, &result, &err), &err);
    assert_int_equal(result.value, 42);
    if (round >= 1) fx_ok(berth_backend_close_wait(backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err), &err);
    berth_session_release(session);
    berth_backend_release(backend);
  }
}

// The cached entry gives the same and differs in the cache only.
static void cached_entry_is_the_same_entry(void **state) {
  (void)state;
  fx f;
  berth_cache *cache = NULL;
  berth_cache_stats stats = BERTH_CACHE_STATS_INIT;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  fx_open(&f, NULL, NULL);
  fx_ok(berth_cache_create(f.session, NULL, &cache, NULL), NULL);
  options.cache = cache;
  for (int i = 0; i < 3; i++) {
    entered e = {.answer = 17};
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    fx_ok(berth_run(f.session, &options, answer, &e, &result, NULL), NULL);
    assert_true(result.value == 17 && e.calls == 1);
  }
  fx_ok(berth_cache_get_stats(cache, &stats, NULL), NULL);
  assert_int_equal(stats.entries, 0); // empty by default
  berth_cache_clear(cache);
  berth_cache_release(cache);
  assert_int_equal(fx_metrics(&f).granted, 3);
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clone_from_replaces_the_old_one),
      cmocka_unit_test(close_waits_for_every_attempt),
      cmocka_unit_test(admission_is_awaited_anywhere),
      cmocka_unit_test(metrics_are_the_backends),
      cmocka_unit_test(abandoned_reports_are_shared),
      cmocka_unit_test(callbacks_value_is_untouched),
      cmocka_unit_test(executor_that_cannot_be_entered),
      cmocka_unit_test(cpu_is_a_host),
      cmocka_unit_test(cached_entry_is_the_same_entry),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
