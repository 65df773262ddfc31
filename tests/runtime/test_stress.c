// SPDX-License-Identifier: Apache-2.0
// Everything at once, on a small simulated device and on the CPU: scoped entries, attempts, cancels, deadlines, releases, dropped completions, groups,
// grows, children, health, external charges. A reader checks the laws of every snapshot all the time (MET-1, LED-1, LED-4); the end is a close with a
// zero ledger and no block left.
#include "base/clock.h"
#include "runtime/fixture.h"
#include "runtime/runtime_support.h"

#define THREADS 8
#define SPAN (1200 * FX_MILLISECOND)

typedef struct shared {
  fx f;
  uint64_t unit;  ///< bytes of one unit of a request
  uint32_t lanes;
  bool sim;
  int64_t until;
  fx_flag stop;
} shared;

typedef struct worker {
  shared *s;
  uint64_t seed;
  uint64_t ended;
} worker;

static uint64_t next(worker *w, uint64_t bound) {
  w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
  return (w->seed >> 33) % bound;
}

static intptr_t use(berth_exec *exec, void *arg) {
  worker *w = arg;
  void *memory = NULL;
  if (berth_exec_alloc(exec, 1 + next(w, 3000), &memory, NULL)) return 0;
  memset(memory, 1, 1);
  if (next(w, 4)) berth_exec_free(exec, memory);
  return 1;
}

static void scoped(worker *w) {
  static const char *const groups[] = {NULL, NULL, "a", "b"};
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.bytes = next(w, 3) ? 0 : (1 + next(w, 30)) * w->s->unit;
  options.lanes = (uint32_t)next(w, 2) + 1;
  if (options.lanes > w->s->lanes) options.lanes = 1;
  options.group = groups[next(w, 4)];
  options.report = next(w, 3) == 0;
  options.priority = (int32_t)next(w, 5) - 2;
  if (next(w, 2)) options.deadline = berth_now() + (int64_t)next(w, 3000000);
  if (next(w, 3) == 0) (void)berth_run(w->s->f.session, NULL, use, w, NULL, NULL);
  else (void)berth_run(w->s->f.session, &options, use, w, &result, NULL);
  berth_report_release(result.report);
}

static void with_execution(worker *w, berth_exec *exec) {
  (void)use(exec, w);
  if (next(w, 4) == 0) (void)berth_exec_shrink(exec, w->s->unit, NULL, NULL);
  if (next(w, 6) == 0) (void)berth_exec_grow(exec, next(w, 20) * w->s->unit, berth_now() + (int64_t)next(w, 1000000), NULL);
  if (next(w, 6) == 0) {
    berth_exec *child = NULL;
    if (!berth_exec_child(exec, &child, NULL)) (void)use(child, w);
    berth_exec_release(child);
  }
  if (next(w, 3)) (void)berth_exec_finish(exec, (int)next(w, 3), NULL, NULL);
  else berth_exec_release(exec);
}

static void attempt(worker *w) {
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  berth_attempt *owner = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  if (next(w, 4) == 0) options.group = "a";
  if (next(w, 4) == 0) options.deadline = berth_now() + (int64_t)next(w, 2000000);
  if (next(w, 4) == 0) options.max_events = 2;
  if (next(w, 2)) request.bytes = (1 + next(w, 40)) * w->s->unit;
  if (next(w, 3) == 0) request.queue_deadline = berth_now() + (int64_t)next(w, 2000000);
  if (berth_session_begin_attempt(w->s->f.session, &options, &owner, NULL)) return;
  w->ended++;
  berth_completion *completion = next(w, 3) ? berth_attempt_completion(owner) : NULL;
  berth_cancel *token = next(w, 3) == 0 ? berth_attempt_cancel_token(owner) : NULL;
  berth_attempt_record(owner, "step", 1);
  if (next(w, 5) == 0) (void)berth_attempt_plan_started(owner, NULL);
  if (next(w, 8) && !berth_session_admit(w->s->f.session, owner, next(w, 2) ? &request : NULL, &admission, NULL)) {
    uint64_t choice = next(w, 6);
    if (choice == 0) (void)berth_admission_cancel(admission);
    if (choice == 1) (void)berth_attempt_finish(owner, BERTH_FAILED, NULL, NULL);
    if (choice > 1) (void)berth_admission_wait(admission, berth_now() + (int64_t)next(w, 3000000), NULL);
    if (choice != 2 && !berth_admission_take(admission, &exec, NULL)) {
      if (token && next(w, 2)) (void)berth_cancel_fire(token);
      with_execution(w, exec);
    }
  }
  if (token && next(w, 3) == 0) (void)berth_cancel_fire(token);
  berth_admission_release(admission);
  berth_attempt_release(owner);
  if (completion && next(w, 2)) {
    berth_report *report = NULL;
    fx_check(!berth_completion_wait(completion, berth_now() + FX_PATIENCE, &report, NULL));
    berth_report_release(report);
  }
  berth_completion_release(completion);
  berth_cancel_release(token);
}

static void disturb(worker *w) {
  uint64_t choice = next(w, 40);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_report *reports[4];
  limits.max_active = 1 + (uint32_t)next(w, 3);
  if (choice == 0) (void)berth_group_set(w->s->f.backend, "a", &limits, NULL);
  if (choice == 1 && !berth_device_charge(w->s->f.backend, 0, (int64_t)(10 * w->s->unit), NULL)) {
    fx_check(!berth_device_charge(w->s->f.backend, 0, -(int64_t)(10 * w->s->unit), NULL));
  }
  if (choice == 2 && w->s->sim) {
    (void)berth_device_quarantine(w->s->f.backend, 0, NULL);
    (void)berth_device_restore(w->s->f.backend, 0, NULL);
  }
  if (choice == 3) {
    uint32_t taken = berth_session_take_abandoned(w->s->f.session, reports, 4);
    for (uint32_t i = 0; i < taken; i++) berth_report_release(reports[i]);
  }
}

static void work(void *arg) {
  worker *w = arg;
  while (berth_now() < w->s->until) {
    if (next(w, 2)) scoped(w);
    else attempt(w);
    disturb(w);
  }
}

static void read_laws(void *arg) {
  shared *s = arg;
  char text[256];
  while (!s->stop) {
    for (int i = 0; i < 50; i++) (void)support_metrics(s->f.session);
    (void)berth_diagnostics_json(s->f.session, text, sizeof text, NULL, NULL);
  }
}

static void hammer(shared *s) {
  fx_thread threads[THREADS], reader;
  worker workers[THREADS];
  s->until = berth_now() + SPAN;
  fx_thread_start(&reader, read_laws, s);
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.s = s, .seed = (uint64_t)i * 7919 + 17};
    fx_thread_start(&threads[i], work, &workers[i]);
  }
  for (int i = 0; i < THREADS; i++) fx_thread_join(&threads[i]);
  s->stop = 1;
  fx_thread_join(&reader);
  berth_metrics m = fx_metrics(&s->f);
  assert_int_equal(m.open, 0);
  assert_int_equal(m.promised_bytes, 0);
  assert_true(m.granted > 100);
  assert_true(m.sealed > 100);
}

static void on_the_simulated_device(void **state) {
  (void)state;
  shared s = {.unit = FX_UNIT, .lanes = 3, .sim = true};
  fx_spec spec = {.lanes = 3, .slots = 4, .grant = 20};
  berth_backend_options options = fx_options();
  options.max_queued = 6;
  options.max_bypass = 3;
  options.bypass_after = 1000;
  options.abandoned_max = 2;
  options.abandoned_detail = 1;
  options.queue_deadline = 20 * FX_MILLISECOND;
  options.telemetry_interval = FX_MILLISECOND;
  fx_open(&s.f, &spec, &options);
  hammer(&s);
  fx_close(&s.f);
}

static void on_the_cpu(void **state) {
  (void)state;
  berth_error err = BERTH_ERROR_INIT;
  shared s = {.unit = 65536, .f = {.devices = 1, .blocks = fx_blocks()}};
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "cpu:0";
  device.capacity_bytes = 8 * FX_UNIT;
  device.cache_bytes = FX_UNIT;
  device.default_grant_bytes = FX_UNIT;
  berth_backend_options options = fx_options();
  options.devices = &device;
  options.device_count = 1;
  options.telemetry_interval = FX_MILLISECOND;
  fx_ok(berth_backend_open(&options, &s.f.backend, &err), &err);
  s.f.session = berth_backend_session(s.f.backend);
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  fx_ok(berth_session_startup_record(s.f.session, 0, &record, &err), &err);
  s.lanes = record.lanes;
  hammer(&s);
  fx_close(&s.f);
}

// Close in the middle of it all: every attempt that began is sealed, and the ledger is zero (CLS-1, ATT-1).
static void close_in_the_middle(void **state) {
  (void)state;
  for (int round = 0; round < 5; round++) {
    shared s = {.unit = FX_UNIT, .lanes = 3, .sim = true};
    fx_spec spec = {.lanes = 3, .slots = 4, .grant = 20};
    fx_thread threads[THREADS];
    worker workers[THREADS];
    fx_open(&s.f, &spec, NULL);
    s.until = berth_now() + 60 * FX_MILLISECOND;
    for (int i = 0; i < THREADS; i++) {
      workers[i] = (worker){.s = &s, .seed = (uint64_t)(i + round * 31) * 104729 + 7};
      fx_thread_start(&threads[i], work, &workers[i]);
    }
    int64_t at = berth_now() + 20 * FX_MILLISECOND;
    fx_until(berth_now() > at);
    berth_error err = BERTH_ERROR_INIT;
    fx_ok(berth_backend_close_wait(s.f.backend, berth_now() + FX_PATIENCE, berth_now() + FX_MILLISECOND, NULL, &err), &err);
    for (int i = 0; i < THREADS; i++) fx_thread_join(&threads[i]);
    berth_metrics m = fx_metrics(&s.f);
    assert_int_equal(m.open, 0);
    assert_int_equal(m.begun, m.sealed);
    fx_release(&s.f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_the_simulated_device),
      cmocka_unit_test(on_the_cpu),
      cmocka_unit_test(close_in_the_middle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
