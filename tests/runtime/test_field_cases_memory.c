// SPDX-License-Identifier: Apache-2.0
// Faults that users reported of other systems, each with the small input that shows it: memory under concurrency, starvation and unfairness
// (docs/field-cases.md, C1 and C6). The name of a test begins with its case.
#include <stdatomic.h>

#include "base/lock.h"
#include "device/sim/sim.h"
#include "runtime/fixture.h"

// ---- C1: out of memory under concurrency ------------------------------------------------------------------------------------------------------

typedef struct greedy {
  const fx *f;
  uint32_t units, rounds;
  fx_flag refused;
  const char *reason;
  _Atomic uint64_t *inside;
  uint64_t limit; ///< units that may be inside at once
  fx_flag *stop;
} greedy;

static intptr_t fill_grant(berth_exec *exec, void *arg) {
  greedy *g = arg;
  void *memory = NULL;
  fx_check(atomic_fetch_add(g->inside, g->units) + g->units <= g->limit);
  fx_check(berth_exec_alloc(exec, g->units * FX_UNIT, &memory, NULL) == BERTH_OK);
  sched_yield();
  atomic_fetch_sub(g->inside, g->units);
  return 1;
}

static void run_greedily(void *arg) {
  greedy *g = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.bytes = g->units * FX_UNIT;
  for (uint32_t i = 0; g->stop ? !*g->stop : i < g->rounds; i++) {
    berth_error err = BERTH_ERROR_INIT;
    if (berth_run(g->f->session, &options, fill_grant, g, NULL, &err) == BERTH_OK) continue;
    g->refused++;
    g->reason = err.reason;
  }
}

// Two threads, each with exactly the whole budget in one piece: each runs alone in its turn, and nobody is told to take less.
static void c_1_whole_budget_each(void **state) {
  (void)state;
  fx f;
  fx_thread threads[2];
  _Atomic uint64_t inside = 0;
  greedy g[2];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 2; i++) {
    g[i] = (greedy){.f = &f, .units = 100, .rounds = 100, .inside = &inside, .limit = 100};
    fx_thread_start(&threads[i], run_greedily, &g[i]);
  }
  for (int i = 0; i < 2; i++) fx_thread_join(&threads[i]);
  assert_int_equal(g[0].refused + g[1].refused, 0);
  assert_int_equal(fx_metrics(&f).granted, 200);
  fx_close(&f);
}

// A request for one and a half times the limit, for ever, beside one for a tenth of it, which must never fail.
static void c_1_large_refusal_fails_nobody_else(void **state) {
  (void)state;
  fx f;
  fx_thread thread;
  _Atomic uint64_t inside = 0;
  fx_flag stop = 0;
  fx_open(&f, NULL, NULL);
  greedy large = {.f = &f, .units = 150, .inside = &inside, .limit = 100, .stop = &stop};
  greedy small = {.f = &f, .units = 10, .rounds = 2000, .inside = &inside, .limit = 100};
  fx_thread_start(&thread, run_greedily, &large);
  run_greedily(&small);
  fx_until(large.refused > 0);
  stop = 1;
  fx_thread_join(&thread);
  assert_int_equal(small.refused, 0);
  assert_string_equal(large.reason, "request_exceeds_device");
  fx_close(&f);
}

typedef struct nibbler {
  berth_exec *child;
  uint64_t bytes;
  fx_flag *stop;
  uint32_t failed;
} nibbler;

static void nibble(void *arg) {
  nibbler *n = arg;
  for (int i = 0; n->stop ? !*n->stop : i < 2000; i++) {
    void *memory = NULL;
    if (berth_exec_alloc(n->child, n->bytes, &memory, NULL)) n->failed++;
    berth_exec_free(n->child, memory);
  }
}

// The same inside one grant: an allocation that is refused adds nothing, not even for a moment.
static void c_1_large_refusal_inside_a_grant(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_thread thread;
  fx_flag stop = 0;
  nibbler large = {.bytes = 15 * FX_UNIT, .stop = &stop}, small = {.bytes = FX_UNIT};
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  fx_ok(berth_exec_child(job.exec, &large.child, NULL), NULL);
  fx_ok(berth_exec_child(job.exec, &small.child, NULL), NULL);
  fx_thread_start(&thread, nibble, &large);
  nibble(&small);
  stop = 1;
  fx_thread_join(&thread);
  assert_int_equal(small.failed, 0);
  berth_exec_release(large.child);
  berth_exec_release(small.child);
  fx_drop(&job);
  fx_close(&f);
}

typedef struct grower {
  berth_exec *exec;
  uint32_t units;
  berth_status status;
  berth_error error;
  fx_flag done;
} grower;

static void grow(void *arg) {
  grower *g = arg;
  g->status = berth_exec_grow(g->exec, g->units * FX_UNIT, BERTH_NO_DEADLINE, &g->error);
  g->done = 1;
}

// Two grow, a third holds and will end: nobody is a victim before it is known that waiting cannot help.
static void c_2_no_victim_while_another_may_finish(void **state) {
  (void)state;
  fx f;
  fx_job jobs[2], holder;
  fx_thread threads[2];
  grower g[2];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 2; i++) fx_start(&f, &jobs[i], 40, 1);
  fx_start(&f, &holder, 20, 1);
  for (int i = 0; i < 2; i++) {
    g[i] = (grower){.exec = jobs[i].exec, .units = 20};
    fx_thread_start(&threads[i], grow, &g[i]);
  }
  fx_until(berthi_wait_place_count("execution.grow") == 2);
  assert_int_equal(fx_metrics(&f).grows_refused, 0);
  fx_drop(&holder);
  fx_until(g[0].done || g[1].done); // there is room for one
  int done = g[0].done ? 0 : 1;
  fx_thread_join(&threads[done]);
  fx_drop(&jobs[done]);
  fx_thread_join(&threads[1 - done]);
  for (int i = 0; i < 2; i++) fx_ok(g[i].status, &g[i].error);
  assert_int_equal(fx_metrics(&f).grows_refused, 0);
  fx_drop(&jobs[1 - done]);
  fx_close(&f);
}

// A holder that gives nothing back: no retry without progress, the one who waits for ever is told at once.
static void c_4_holder_that_gives_nothing(void **state) {
  (void)state;
  fx f;
  fx_job stubborn, other;
  fx_thread thread;
  void *memory = NULL, *more = NULL;
  uint64_t left = 0;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &stubborn, 60, 1);
  fx_start(&f, &other, 40, 1);
  fx_ok(berth_exec_alloc(stubborn.exec, 60 * FX_UNIT, &memory, NULL), NULL);
  fx_ok(berth_exec_shrink(stubborn.exec, 0, &left, NULL), NULL); // it looks as if something could be spilled, and nothing is
  assert_int_equal(left, 60 * FX_UNIT);
  fx_expect(berth_exec_alloc(stubborn.exec, FX_UNIT, &more, &err), &err, BERTH_RESOURCE_EXHAUSTED, "grant_exhausted");
  grower g = {.exec = stubborn.exec, .units = 10};
  fx_thread_start(&thread, grow, &g);
  fx_until(berthi_wait_place_count("execution.grow") == 1);
  fx_expect(berth_exec_grow(other.exec, 10 * FX_UNIT, BERTH_NO_DEADLINE, &err), &err, BERTH_ABORTED, "would_deadlock");
  fx_drop(&other);
  fx_thread_join(&thread);
  fx_ok(g.status, &g.error);
  fx_drop(&stubborn);
  fx_close(&f);
}

// A thousand attempts from a thousand sessions: every byte has an owner in the ledger, or its request waits.
static void c_5_thousand_attempts(void **state) {
  (void)state;
  enum { ATTEMPTS = 1000 };
  static fx_job jobs[ATTEMPTS];
  static berth_session *sessions[ATTEMPTS];
  fx f;
  fx_spec spec = {.lanes = 256, .slots = 256};
  berth_backend_options options = fx_options();
  options.queue_deadline = 3600 * FX_SECOND;
  fx_open(&f, &spec, &options);
  for (int i = 0; i < ATTEMPTS; i++) {
    sessions[i] = berth_session_retain(f.session);
    fx_submit_units(&f, &jobs[i], 1);
    berth_metrics m = fx_metrics(&f);
    assert_true(m.promised_bytes <= 100 * FX_UNIT);
    assert_int_equal(m.promised_bytes, m.live_grants * FX_UNIT);
    assert_int_equal(m.live_grants + m.queued, i + 1);
  }
  for (int i = 0; i < ATTEMPTS; i++) {
    void *memory = NULL;
    fx_wait_take(&jobs[i]);
    fx_ok(berth_exec_charge(jobs[i].exec, (int64_t)FX_UNIT, NULL), NULL);
    fx_expect(berth_exec_alloc(jobs[i].exec, 1, &memory, &jobs[i].error), &jobs[i].error, BERTH_RESOURCE_EXHAUSTED, "grant_exhausted");
    fx_drop(&jobs[i]);
    berth_session_release(sessions[i]);
  }
  assert_int_equal(fx_metrics(&f).granted, ATTEMPTS);
  fx_close(&f);
}

// The device itself runs out under one job: that one is told, the others go on, the device stays in service.
static void c_7_one_job_fails_not_all(void **state) {
  (void)state;
  fx f;
  fx_job unlucky, other;
  void *memory = NULL;
  fx_spec spec = {.parameters = "fail_alloc=1"};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &unlucky, 50, 1);
  fx_start(&f, &other, 50, 1);
  fx_expect(berth_exec_alloc(unlucky.exec, FX_UNIT, &memory, &unlucky.error), &unlucky.error, BERTH_RESOURCE_EXHAUSTED, "device_exhausted");
  fx_ok(berth_exec_alloc(other.exec, 50 * FX_UNIT, &memory, NULL), NULL);
  fx_finish(&unlucky, BERTH_FAILED);
  fx_finish(&other, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&unlucky).outcome, BERTH_FAILED);
  assert_int_equal(fx_report(&other).outcome, BERTH_SUCCEEDED);
  assert_int_equal(fx_metrics(&f).devices[0].health, BERTH_HEALTH_OK);
  assert_int_equal(fx_metrics(&f).quarantines, 0);
  fx_run_plain(&f);
  fx_drop(&unlucky);
  fx_drop(&other);
  fx_close(&f);
}

// A hundred clients at once: one owner of the device, no thread and no context for each, four at a time.
static void c_8_hundred_clients(void **state) {
  (void)state;
  enum { CLIENTS = 100 };
  static fx_thread threads[CLIENTS];
  static greedy g[CLIENTS];
  fx f;
  berthi_sim_counters before, after;
  _Atomic uint64_t inside = 0;
  berthi_sim_read_counters(0, &before);
  fx_open(&f, NULL, NULL);
  uint32_t tasks = fx_task_count();
  for (int i = 0; i < CLIENTS; i++) {
    g[i] = (greedy){.f = &f, .units = 25, .rounds = 1, .inside = &inside, .limit = 100};
    fx_thread_start(&threads[i], run_greedily, &g[i]);
  }
  for (int i = 0; i < CLIENTS; i++) {
    fx_thread_join(&threads[i]);
    assert_int_equal(g[i].refused, 0);
  }
  berthi_sim_read_counters(0, &after);
  assert_int_equal(after.opens - before.opens, 1);
  fx_until(fx_task_count() <= tasks);
  assert_int_equal(fx_metrics(&f).granted, CLIENTS);
  fx_close(&f);
}

// ---- C6: starvation and unfairness ------------------------------------------------------------------------------------------------------------

// 16 units, 7.98 of them free. Who wants 8 waits; who comes after it and wants 1 goes past it, counted.
static void c_40_small_one_passes(void **state) {
  (void)state;
  fx f;
  fx_job holder, first, small;
  fx_spec spec = {.q = 16};
  fx_open(&f, &spec, NULL);
  berth_request request = fx_request(0, 1);
  request.bytes = 16 * FX_UNIT - 798 * FX_UNIT / 100;
  fx_submit(&f, &holder, &request, NULL);
  fx_wait_take(&holder);
  fx_submit_units(&f, &first, 8);
  assert_int_equal(fx_state(&first), BERTH_ADMISSION_QUEUED);
  fx_submit_units(&f, &small, 1);
  assert_int_equal(fx_state(&small), BERTH_ADMISSION_GRANTED);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(first.admission, &why, NULL), NULL);
  assert_int_equal(why.overtakes, 1);
  fx_drop(&small);
  fx_drop(&holder);
  assert_int_equal(fx_state(&first), BERTH_ADMISSION_GRANTED);
  fx_drop(&first);
  fx_close(&f);
}

// One of low priority, and at every moment one of high priority beside it: its waiting is worth more in the end.
static void c_41_low_priority_runs(void **state) {
  (void)state;
  fx f;
  fx_job running, low;
  berth_backend_options options = fx_options();
  options.aging_interval = FX_MILLISECOND / 10;
  fx_open(&f, NULL, &options);
  fx_start(&f, &running, 100, 1);
  fx_submit_units(&f, &low, 100);
  berth_request urgent = fx_request(100, 1);
  urgent.priority = 20;
  int64_t give_up = berth_now() + FX_PATIENCE;
  while (fx_state(&low) == BERTH_ADMISSION_QUEUED) {
    fx_job next;
    assert_true(berth_now() < give_up);
    fx_submit(&f, &next, &urgent, NULL);
    fx_ok(next.status, &next.error);
    fx_drop(&running);
    running = next;
  }
  assert_int_equal(fx_state(&low), BERTH_ADMISSION_GRANTED);
  assert_int_equal(fx_state(&running), BERTH_ADMISSION_QUEUED);
  fx_drop(&low);
  fx_drop(&running);
  fx_close(&f);
}

// A large one of high priority, and small ones of low priority that fit beside what runs: they pass it so many times and no more.
static void c_43_small_ones_do_not_pass_for_ever(void **state) {
  (void)state;
  fx f;
  fx_job half, large, small;
  berth_backend_options options = fx_options();
  options.max_bypass = 3;
  options.bypass_after = 1;
  fx_open(&f, NULL, &options);
  fx_start(&f, &half, 50, 1);
  berth_request important = fx_request(100, 1);
  important.priority = 10;
  fx_submit(&f, &large, &important, NULL);
  uint32_t passed = 0;
  for (int i = 0; i < 50; i++) {
    berth_request unimportant = fx_request(1, 1);
    unimportant.priority = -10;
    fx_submit(&f, &small, &unimportant, NULL);
    passed += fx_state(&small) == BERTH_ADMISSION_GRANTED;
    fx_drop(&small);
  }
  assert_int_equal(passed, 3);
  fx_drop(&half);
  assert_int_equal(fx_state(&large), BERTH_ADMISSION_GRANTED);
  fx_drop(&large);
  fx_close(&f);
}

// Two small sessions: one pool of lanes for both, disjoint ones at the same time, and never more promised than there are.
static void c_44_one_pool_of_lanes(void **state) {
  (void)state;
  fx f;
  fx_job one, two, three;
  fx_open(&f, NULL, NULL);
  berth_session *other = berth_backend_session(f.backend);
  fx second = f;
  second.session = other;
  fx_start(&f, &one, 1, 4);
  fx_start(&second, &two, 1, 4);
  assert_int_equal(fx_metrics(&f).devices[0].lanes_promised, 8);
  fx_submit_units(&second, &three, 1);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(three.admission, &why, NULL), NULL);
  assert_int_equal(why.mask, BERTH_WHY_LANES);
  fx_drop(&one);
  assert_int_equal(fx_state(&three), BERTH_ADMISSION_GRANTED);
  fx_drop(&two);
  fx_drop(&three);
  berth_session_release(other);
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(c_1_whole_budget_each),
      cmocka_unit_test(c_1_large_refusal_fails_nobody_else),
      cmocka_unit_test(c_1_large_refusal_inside_a_grant),
      cmocka_unit_test(c_2_no_victim_while_another_may_finish),
      cmocka_unit_test(c_4_holder_that_gives_nothing),
      cmocka_unit_test(c_5_thousand_attempts),
      cmocka_unit_test(c_7_one_job_fails_not_all),
      cmocka_unit_test(c_8_hundred_clients),
      cmocka_unit_test(c_40_small_one_passes),
      cmocka_unit_test(c_41_low_priority_runs),
      cmocka_unit_test(c_43_small_ones_do_not_pass_for_ever),
      cmocka_unit_test(c_44_one_pool_of_lanes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
