// SPDX-License-Identifier: Apache-2.0
/// Snapshots are coherent: no law is ever broken, whatever the writers do (MET-1), and reading stops nobody and resets nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/thread.h"
#include "runtime/core.h"
#include "runtime/runtime_support.h"

#define WRITERS 4
#define ROUNDS 400

typedef struct world {
  berth_backend *backend;
  berth_session *session;
  berthi_atomic32 writing; ///< writers that go on
} world;

static intptr_t nothing(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  return 0;
}

// ---- what writers do -----------------------------------------------------------------------------------------------------------------------------------

static void run_entry(berth_session *session, bool report) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.report = report;
  (void)berth_run(session, &options, nothing, NULL, &result, NULL);
  berth_report_release(result.report);
}

static void refuse_one(berth_session *session) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = (uint64_t)1 << 50;
  if (berth_session_begin_attempt(session, NULL, &attempt, NULL) != BERTH_OK) return;
  (void)berth_session_admit(session, attempt, &request, &admission, NULL);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
}

/// An attempt that ends in one of the ways there are, with or without a receiver.
static void attempt_once(berth_session *session, int way) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  if (berth_session_begin_attempt(session, NULL, &attempt, NULL) != BERTH_OK) return;
  berth_completion *completion = way & 1 ? berth_attempt_completion(attempt) : NULL;
  if (way & 2) (void)berth_attempt_plan_finished(attempt, BERTH_NATIVE, "p", NULL);
  if ((way & 4) && berth_session_admit(session, attempt, NULL, &admission, NULL) == BERTH_OK &&
      berth_admission_wait(admission, BERTH_NO_DEADLINE, NULL) == BERTH_OK && berth_admission_take(admission, &exec, NULL) == BERTH_OK) {
    (void)berth_exec_finish(exec, way & 8 ? BERTH_FAILED : BERTH_SUCCEEDED, NULL, NULL);
  } else if (way & 8) {
    (void)berth_attempt_finish(attempt, BERTH_FAILED, NULL, NULL);
  }
  berth_admission_release(admission);
  berth_completion_release(completion);
  berth_attempt_release(attempt);
}

static void write_for_a_while(void *arg) {
  world *w = arg;
  for (int i = 0; i < ROUNDS; i++) {
    run_entry(w->session, false);
    run_entry(w->session, true);
    attempt_once(w->session, i % 16);
    if (i % 8 == 0) refuse_one(w->session);
    if (i % 32 == 0) {
      berth_report *reports[8];
      uint32_t taken = berth_session_take_abandoned(w->session, reports, 8);
      for (uint32_t k = 0; k < taken; k++) berth_report_release(reports[k]);
    }
  }
  berthi_sub(&w->writing, 1, release);
}

// ---- the tests -----------------------------------------------------------------------------------------------------------------------------------------

static world make_world(uint32_t devices, const char *parameters) {
  world w = {.backend = support_open(devices, parameters)};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static void a_fresh_backend_counts_nothing(void **state) {
  (void)state;
  world w = make_world(3, "memory=1GiB,lanes=2");
  berth_metrics m = support_metrics(w.session);
  assert_int_equal(m.begun, 0);
  assert_int_equal(m.submitted, 0);
  assert_int_equal(m.promised_bytes, 0);
  assert_int_equal(m.device_count, 3);
  assert_int_equal(m.devices[2].free_bytes, (uint64_t)1 << 30);
  assert_int_equal(m.devices[2].health, BERTH_HEALTH_OK);
  end_world(&w);
}

static void each_transition_is_counted(void **state) {
  (void)state;
  world w = make_world(1, "memory=1GiB,lanes=2");
  berth_attempt *attempt = support_begin(w.session);
  assert_int_equal(support_metrics(w.session).open, 1);
  berth_admission *admission = support_admit(w.session, attempt, NULL);
  berth_metrics m = support_metrics(w.session);
  assert_int_equal(m.live_grants, 1);
  assert_int_equal(m.devices[0].active, 1);
  assert_int_equal(m.devices[0].lanes_promised, 1);
  assert_true(m.promised_bytes > 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  (void)berth_exec_finish(support_take(admission), BERTH_FAILED, NULL, NULL);
  m = support_metrics(w.session);
  assert_int_equal(m.live_grants, 0);
  assert_int_equal(m.promised_bytes, 0);
  assert_int_equal(m.outcomes[BERTH_FAILED], 1);
  assert_int_equal(m.delivered, 1);
  assert_int_equal(m.open, 0);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  refuse_one(w.session);
  m = support_metrics(w.session);
  assert_int_equal(m.refusals[BERTH_REFUSED_EXCEEDS_DEVICE], 1);
  assert_int_equal(m.held, 1);
  end_world(&w);
}

/// The number rises with each change, and a quiet backend keeps it.
static void the_number_rises_with_each_change(void **state) {
  (void)state;
  world w = make_world(1, "memory=1GiB,lanes=2");
  for (int i = 0; i < 64; i++) {
    uint64_t before = support_metrics(w.session).sequence;
    assert_int_equal(support_metrics(w.session).sequence, before);
    if (i % 2 == 0)
      run_entry(w.session, i % 4 == 0);
    else
      attempt_once(w.session, i % 16);
    assert_true(support_metrics(w.session).sequence > before);
  }
  end_world(&w);
}

/// A sealed report that somebody saw is sealed in every later snapshot.
static void what_is_seen_is_counted(void **state) {
  (void)state;
  world w = make_world(1, "memory=1GiB,lanes=2");
  for (uint64_t i = 1; i <= 200; i++) {
    berth_report_release(support_whole(w.session, i % 5 == 0 ? BERTH_FAILED : BERTH_SUCCEEDED));
    berth_metrics m = support_metrics(w.session);
    assert_int_equal(m.sealed, i);
    assert_int_equal(m.duration.count, i);
    assert_int_equal(m.outcomes[BERTH_FAILED], i / 5);
    assert_int_equal(m.outcomes[BERTH_SUCCEEDED], i - i / 5);
  }
  end_world(&w);
}

static void assert_never_falls(const berth_metrics *before, const berth_metrics *now) {
  assert_true(now->sequence >= before->sequence);
  assert_true(now->begun >= before->begun && now->sealed >= before->sealed && now->submitted >= before->submitted && now->granted >= before->granted);
  for (int i = 0; i < 5; i++) assert_true(now->outcomes[i] >= before->outcomes[i]);
  for (int i = 0; i < 4; i++) assert_true(now->dispositions[i] >= before->dispositions[i]);
  for (int i = 0; i < BERTH_WAIT_BUCKETS; i++) assert_true(now->wait.buckets[i] >= before->wait.buckets[i]);
  for (int i = 0; i < BERTH_WAIT_BUCKETS; i++) assert_true(now->duration.buckets[i] >= before->duration.buckets[i]);
}

static void laws_hold_under_load(uint32_t devices, const char *parameters) {
  world w = make_world(devices, parameters);
  berthi_thread threads[WRITERS];
  berth_error err = BERTH_ERROR_INIT;
  berthi_store(&w.writing, WRITERS, relaxed);
  for (int i = 0; i < WRITERS; i++) support_ok(berthi_thread_start(&threads[i], "writer", write_for_a_while, &w, &err), &err);
  berth_metrics before = support_metrics(w.session);
  do {
    berth_metrics now = support_metrics(w.session);
    assert_never_falls(&before, &now);
    before = now;
  } while (berthi_load(&w.writing, acquire) > 0);
  for (int i = 0; i < WRITERS; i++) berthi_thread_join(&threads[i]);
  berth_metrics last = support_metrics(w.session);
  assert_int_equal(last.open, 0);
  assert_int_equal(last.queued, 0);
  assert_int_equal(last.live_grants, 0);
  assert_int_equal(last.promised_bytes, 0);
  assert_int_equal(last.duration.count, last.sealed);
  assert_int_equal(last.begun, WRITERS * (ROUNDS * 2 + ROUNDS / 8));
  end_world(&w);
}

static void laws_hold_with_room_for_all(void **state) {
  (void)state;
  laws_hold_under_load(4, "memory=1GiB,lanes=8");
}

static void laws_hold_while_most_wait(void **state) {
  (void)state;
  laws_hold_under_load(1, "memory=64MiB,lanes=1,slots=1");
}

static void one_who_holds_the_lock_stops_no_reader_for_good(void **state) {
  (void)state;
  world w = make_world(1, NULL);
  berthi_core *core = berthi_core_of_session(w.session);
  berthi_after after;
  berthi_lock(core, &after);
  berth_metrics m = {0};
  berthi_unlock(core, &after);
  berthi_mutex_lock(&core->lock); // held without a change: nobody has to wait
  berthi_metrics_read(core, &m);
  berthi_mutex_unlock(&core->lock);
  assert_int_equal(m.device_count, 1);
  end_world(&w);
}

/// LED-4: what a lowered limit and others' use take shows as external, capped by what promises leave.
static void external_closes_the_ledger(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  world w = make_world(1, "memory=1GiB,lanes=2");
  uint64_t gib = (uint64_t)1 << 30;
  berthi_core *core = berthi_core_of_session(w.session);
  berth_attempt *attempt = support_begin(w.session);
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = 600 << 20;
  berth_admission *admission = support_admit(w.session, attempt, &request);
  support_ok(berth_device_charge(w.backend, 0, 100 << 20, &err), &err);
  berth_metrics m = support_metrics(w.session);
  assert_int_equal(m.devices[0].external_bytes, 100 << 20);
  assert_int_equal(m.devices[0].free_bytes, gib - (700 << 20));
  support_ok(berth_device_charge(w.backend, 0, (int64_t)gib, &err), &err);
  m = support_metrics(w.session);
  assert_int_equal(m.devices[0].external_bytes, gib - (600 << 20));
  assert_int_equal(m.devices[0].free_bytes, 0);
  assert_int_equal(m.devices[0].grant_bytes, 600 << 20); // it stops new grants before it breaks old ones (LED-5)
  support_ok(berth_device_charge(w.backend, 0, -(int64_t)(gib + (100 << 20)), &err), &err);
  berthi_after after;
  berthi_lock(core, &after);
  berthi_put(&core->devices[0].ledger.query_limit, berthi_get(&core->devices[0].ledger.query_limit) - (50 << 20));
  berthi_unlock(core, &after);
  m = support_metrics(w.session);
  assert_int_equal(m.devices[0].external_bytes, 50 << 20);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  end_world(&w);
}

static void a_small_array_gets_what_fits(void **state) {
  (void)state;
  world w = make_world(3, "memory=1GiB");
  berth_device_metrics devices[3];
  memset(devices, 0x5a, sizeof(devices));
  berth_metrics m = BERTH_METRICS_INIT;
  m.devices = devices;
  m.device_capacity = 2;
  assert_int_equal(berth_session_metrics(w.session, &m, NULL), BERTH_OK);
  assert_int_equal(m.device_count, 3);
  assert_int_equal(devices[1].total_bytes, (uint64_t)1 << 30);
  assert_int_equal(devices[2].total_bytes, 0x5a5a5a5a5a5a5a5a);
  m.struct_size = 0;
  assert_int_equal(berth_session_metrics(w.session, &m, NULL), BERTH_INVALID_ARGUMENT);
  struct old {
    size_t struct_size;
    uint64_t sequence, backend_id;
  } old = {sizeof(old), 0, 0};
  assert_int_equal(berth_session_metrics(w.session, (berth_metrics *)(void *)&old, NULL), BERTH_OK);
  assert_int_equal(old.backend_id, berth_session_identity(w.session).backend_id);
  end_world(&w);
}

/// SES-3: final values after the close, the same counters through the narrow door.
static void they_answer_after_close(void **state) {
  (void)state;
  world w = make_world(1, NULL);
  for (int i = 0; i < 5; i++) attempt_once(w.session, 15);
  refuse_one(w.session);
  support_close(w.backend);
  berth_metrics m = support_metrics(w.session);
  assert_int_equal(m.begun, 6);
  assert_int_equal(m.sealed, 6);
  berth_attempt_counters counters = berth_session_attempt_counters(w.session);
  assert_int_equal(counters.begun, 6);
  assert_int_equal(counters.sealed, 6);
  assert_int_equal(counters.abandoned, 1);
  berth_session_release(w.session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fresh_backend_counts_nothing),
      cmocka_unit_test(each_transition_is_counted),
      cmocka_unit_test(the_number_rises_with_each_change),
      cmocka_unit_test(what_is_seen_is_counted),
      cmocka_unit_test(laws_hold_with_room_for_all),
      cmocka_unit_test(laws_hold_while_most_wait),
      cmocka_unit_test(one_who_holds_the_lock_stops_no_reader_for_good),
      cmocka_unit_test(external_closes_the_ledger),
      cmocka_unit_test(a_small_array_gets_what_fits),
      cmocka_unit_test(they_answer_after_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
