// SPDX-License-Identifier: Apache-2.0
// ADM-5, ADM-6: expiry, order, and the stated bound on waiting; LED-3: shrink and grow before admissions.
#include "base/lock.h"
#include "runtime/fixture.h"

// ADM-5 ------------------------------------------------------------------------------------------------------------------------------------------

static void adm_5_never_early_while_all_is_busy(void **state) {
  (void)state;
  fx f;
  fx_job holder, jobs[20];
  int64_t due[20];
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 8);  // bytes and lanes: every device is busy
  for (int i = 0; i < 20; i++) {
    berth_request request = fx_request(1, 1);
    due[i] = request.queue_deadline = berth_now() + (80 - i) * FX_MILLISECOND / 2;  // later ones first
    fx_submit(&f, &jobs[i], &request, NULL);
  }
  for (int i = 0; i < 20; i++) {
    assert_int_equal(berth_admission_wait(jobs[i].admission, BERTH_NO_DEADLINE, NULL), BERTH_UNAVAILABLE);
    berth_report_info info = fx_report(&jobs[i]);
    assert_true(info.sealed_at >= due[i]);
    fx_drop(&jobs[i]);
  }
  assert_int_equal(fx_metrics(&f).expired, 20);
  fx_drop(&holder);
  fx_close(&f);
}

static void adm_5_timed_out_wait_does_not_expire(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 1);
  for (int i = 0; i < 3; i++) {
    fx_expect(berth_admission_wait(job.admission, berth_now() - 1, &job.error), &job.error, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  }
  fx_drop(&holder);
  fx_wait_take(&job);
  fx_drop(&job);
  fx_close(&f);
}

// ADM-6 ------------------------------------------------------------------------------------------------------------------------------------------

static void adm_6_first_come_first_served(void **state) {
  (void)state;
  fx f;
  fx_job holder, jobs[6];
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  for (int i = 0; i < 6; i++) fx_submit_units(&f, &jobs[i], 100);
  fx_drop(&holder);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(fx_state(&jobs[i]), BERTH_ADMISSION_GRANTED);
    for (int k = i + 1; k < 6; k++) assert_int_equal(fx_state(&jobs[k]), BERTH_ADMISSION_QUEUED);
    fx_wait_take(&jobs[i]);
    fx_drop(&jobs[i]);
  }
  assert_int_equal(fx_metrics(&f).overtakes, 0);
  fx_close(&f);
}

static void adm_6_priority_is_worth_waiting_time(void **state) {
  (void)state;
  fx f;
  fx_job holder, low, high, aged;
  berth_backend_options options = fx_options();
  options.aging_interval = FX_MILLISECOND;
  fx_open(&f, NULL, &options);
  fx_start(&f, &holder, 100, 1);
  berth_request request = fx_request(100, 1);
  fx_submit(&f, &aged, &request, NULL);
  int64_t later = berth_now() + 5 * FX_MILLISECOND;
  fx_until(berth_now() > later);
  request.priority = 2;  // worth 2 ms: not before the one that has waited 5 ms
  fx_submit(&f, &low, &request, NULL);
  request.priority = 1000;
  fx_submit(&f, &high, &request, NULL);
  fx_drop(&holder);
  assert_int_equal(fx_state(&high), BERTH_ADMISSION_GRANTED);
  fx_drop(&high);
  assert_int_equal(fx_state(&aged), BERTH_ADMISSION_GRANTED);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(aged.admission, &why, NULL), NULL);
  assert_int_equal(why.overtakes, 0);  // a difference of priority alone is none
  fx_drop(&aged);
  assert_int_equal(fx_state(&low), BERTH_ADMISSION_GRANTED);
  fx_drop(&low);
  fx_close(&f);
}

// A big waiter and a stream of small ones that fit past it: overtaken at most max_bypass times once bypass_after is over.
static void adm_6_bypass_is_bounded(void **state) {
  (void)state;
  fx f;
  fx_job half, big, small;
  berth_backend_options options = fx_options();
  options.max_bypass = 5;
  options.bypass_after = 1;
  fx_open(&f, NULL, &options);
  fx_start(&f, &half, 50, 1);
  fx_submit_units(&f, &big, 60);
  int passed = 0;
  for (int i = 0; i < 10; i++) {
    fx_submit_units(&f, &small, 10);
    bool granted = fx_state(&small) == BERTH_ADMISSION_GRANTED;
    passed += granted;
    berth_why why = BERTH_WHY_INIT;
    fx_ok(berth_admission_why(big.admission, &why, NULL), NULL);
    assert_true(why.overtakes <= 5);
    if (i >= 5) {
      assert_false(granted);
      assert_true(why.barrier);
      fx_ok(berth_admission_why(small.admission, &why, NULL), NULL);
      assert_true(why.mask & BERTH_WHY_ORDER);
    }
    fx_drop(&small);
  }
  assert_int_equal(passed, 5);
  fx_drop(&half);
  assert_int_equal(fx_state(&big), BERTH_ADMISSION_GRANTED);
  fx_wait_take(&big);
  fx_finish(&big, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&big).overtakes, 5);
  fx_drop(&big);
  fx_close(&f);
}

// One release that makes room for many small ones behind a big one: the bound holds inside one scan, too.
static void adm_6_bound_holds_inside_one_scan(void **state) {
  (void)state;
  fx f;
  fx_job first, second, big, small[6];
  berth_backend_options options = fx_options();
  options.max_bypass = 2;
  options.bypass_after = 1;
  fx_open(&f, NULL, &options);
  fx_start(&f, &first, 60, 1);
  fx_start(&f, &second, 40, 1);
  fx_submit_units(&f, &big, 90);
  for (int i = 0; i < 6; i++) fx_submit_units(&f, &small[i], 10);
  fx_drop(&first);
  int granted = 0;
  for (int i = 0; i < 6; i++) granted += fx_state(&small[i]) == BERTH_ADMISSION_GRANTED;
  assert_int_equal(granted, 2);
  assert_int_equal(fx_metrics(&f).overtakes_max, 2);
  fx_drop(&second);
  for (int i = 0; i < 6; i++) fx_drop(&small[i]);
  assert_int_equal(fx_state(&big), BERTH_ADMISSION_GRANTED);
  fx_drop(&big);
  fx_close(&f);
}

static void adm_6_before_bypass_after_there_is_no_barrier(void **state) {
  (void)state;
  fx f;
  fx_job half, big, small;
  berth_backend_options options = fx_options();
  options.max_bypass = 1;
  options.bypass_after = 3600 * FX_SECOND;
  fx_open(&f, NULL, &options);
  fx_start(&f, &half, 50, 1);
  fx_submit_units(&f, &big, 60);
  for (int i = 0; i < 30; i++) {
    fx_submit_units(&f, &small, 10);
    assert_int_equal(fx_state(&small), BERTH_ADMISSION_GRANTED);
    fx_drop(&small);
  }
  fx_drop(&half);
  fx_drop(&big);
  fx_close(&f);
}

static void adm_6_lanes_are_first_in_first_out(void **state) {
  (void)state;
  fx f;
  fx_job holder, wide, narrow;
  fx_spec spec = {.lanes = 4};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &holder, 1, 1);
  berth_request request = fx_request(1, 4);
  fx_submit(&f, &wide, &request, NULL);
  for (int i = 0; i < 20; i++) {
    fx_submit_units(&f, &narrow, 1);  // three lanes are free, and none of them is for it
    assert_int_equal(fx_state(&narrow), BERTH_ADMISSION_QUEUED);
    fx_drop(&narrow);
  }
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(wide.admission, &why, NULL), NULL);
  assert_int_equal(why.overtakes, 0);
  fx_drop(&holder);
  assert_int_equal(fx_state(&wide), BERTH_ADMISSION_GRANTED);
  fx_drop(&wide);
  fx_close(&f);
}

static void adm_6_barrier_blocks_one_device_and_takes_any(void **state) {
  (void)state;
  fx f;
  fx_job on0, on1, big, small;
  fx_spec spec = {.devices = 2};
  berth_backend_options options = fx_options();
  options.max_bypass = 1;
  options.bypass_after = 1;
  fx_open(&f, &spec, &options);
  fx_start(&f, &on0, 50, 1);
  fx_start(&f, &on1, 60, 1);
  fx_submit_units(&f, &big, 70);
  fx_submit_units(&f, &small, 5);  // overtakes
  assert_int_equal(fx_state(&small), BERTH_ADMISSION_GRANTED);
  fx_drop(&small);
  fx_submit_units(&f, &small, 5);  // the barrier is bound to device 0, which has more free bytes; device 1 is open
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  fx_wait_take(&small);
  fx_ok(berth_exec_get_info(small.exec, &info, NULL), NULL);
  assert_int_equal(info.device, 1);
  fx_drop(&small);
  fx_drop(&on1);  // it takes the other device when that fits
  fx_wait_take(&big);
  fx_ok(berth_exec_get_info(big.exec, &info, NULL), NULL);
  assert_int_equal(info.device, 1);
  fx_drop(&big);
  fx_drop(&on0);
  fx_close(&f);
}

// The stated bound: with executions that end, a satisfiable request waits behind those before it and at most max_bypass later ones.
static void adm_6_everybody_is_served(void **state) {
  (void)state;
  fx f;
  fx_job running[4], big, small;
  berth_backend_options options = fx_options();
  options.max_bypass = 8;
  options.bypass_after = 1;
  fx_open(&f, NULL, &options);
  for (int i = 0; i < 4; i++) fx_start(&f, &running[i], 25, 1);
  fx_submit_units(&f, &big, 100);
  uint64_t later = 0;
  for (int i = 0; fx_state(&big) != BERTH_ADMISSION_GRANTED; i++) {
    assert_true(i < 100);
    fx_drop(&running[i % 4]);
    fx_submit_units(&f, &small, 25);
    if (fx_state(&small) == BERTH_ADMISSION_GRANTED) {
      later++;
      fx_wait_take(&small);
      running[i % 4] = small;
    } else {
      fx_drop(&small);
    }
  }
  assert_true(later <= 8);
  fx_drop(&big);
  for (int i = 0; i < 4; i++) fx_drop(&running[i]);
  fx_close(&f);
}

static void adm_6_parked_grants_do_not_hide_room(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_spec spec = {.grant = 60, .slots = 1};
  fx_open(&f, &spec, NULL);
  for (int i = 0; i < 3; i++) fx_run_plain(&f);  // leaves a grant of 60 parked
  fx_submit_units(&f, &job, 100);
  assert_int_equal(fx_state(&job), BERTH_ADMISSION_GRANTED);
  fx_drop(&job);
  fx_close(&f);
}

// LED-3 ------------------------------------------------------------------------------------------------------------------------------------------

typedef struct grower {
  berth_exec *exec;
  uint32_t units;
  int64_t deadline;
  berth_status status;
  berth_error error;
  fx_flag done;
} grower;

static void grow(void *arg) {
  grower *g = arg;
  g->status = berth_exec_grow(g->exec, g->units * FX_UNIT, g->deadline, &g->error);
  g->done = 1;
}

static uint64_t grant_of(berth_exec *exec) {
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  fx_ok(berth_exec_get_info(exec, &info, NULL), NULL);
  return info.grant_bytes / FX_UNIT;
}

static void led_3_shrink_gives_back_at_once_to_what_is_used(void **state) {
  (void)state;
  fx f;
  fx_job job;
  void *memory = NULL;
  uint64_t left = 0;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 50, 1);
  fx_ok(berth_exec_alloc(job.exec, 10 * FX_UNIT, &memory, NULL), NULL);
  fx_ok(berth_exec_shrink(job.exec, 30 * FX_UNIT, &left, NULL), NULL);
  assert_int_equal(left, 30 * FX_UNIT);
  assert_int_equal(fx_metrics(&f).promised_bytes, 30 * FX_UNIT);
  fx_ok(berth_exec_shrink(job.exec, 0, &left, NULL), NULL);
  assert_true(left >= 10 * FX_UNIT && left < 11 * FX_UNIT);
  fx_ok(berth_exec_shrink(job.exec, 80 * FX_UNIT, &left, NULL), NULL);  // never grows
  assert_true(left < 11 * FX_UNIT);
  fx_ok(berth_exec_grow(job.exec, 5 * FX_UNIT, berth_now(), NULL), NULL);
  assert_int_equal(grant_of(job.exec), left / FX_UNIT + 5);
  fx_drop(&job);
  fx_close(&f);
}

static void led_3_grow_comes_before_admissions(void **state) {
  (void)state;
  fx f;
  fx_job a, b, queued;
  fx_thread thread;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &a, 60, 1);
  fx_start(&f, &b, 40, 1);
  fx_submit_units(&f, &queued, 20);
  grower g = {.exec = a.exec, .units = 40, .deadline = BERTH_NO_DEADLINE};
  fx_thread_start(&thread, grow, &g);
  fx_until(berthi_wait_place_count("execution.grow") > 0);
  fx_ok(berth_exec_shrink(b.exec, 20 * FX_UNIT, NULL, NULL), NULL);  // enough for the queued one, which must not have it
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_QUEUED);
  fx_drop(&b);
  fx_thread_join(&thread);
  fx_ok(g.status, &g.error);
  assert_int_equal(grant_of(a.exec), 100);
  fx_drop(&a);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_GRANTED);
  fx_drop(&queued);
  fx_close(&f);
}

static void led_3_deadlocked_grows_refuse_the_youngest(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  fx_thread thread;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &a, 50, 1);
  fx_start(&f, &b, 50, 1);
  grower older = {.exec = a.exec, .units = 30, .deadline = BERTH_NO_DEADLINE};
  fx_thread_start(&thread, grow, &older);
  fx_until(berthi_wait_place_count("execution.grow") > 0);
  berth_error err = BERTH_ERROR_INIT;
  fx_expect(berth_exec_grow(b.exec, 30 * FX_UNIT, BERTH_NO_DEADLINE, &err), &err, BERTH_ABORTED, "would_deadlock");
  assert_int_equal(grant_of(b.exec), 50);  // it keeps what it has
  assert_false(older.done);
  fx_drop(&b);
  fx_thread_join(&thread);
  fx_ok(older.status, &older.error);
  fx_drop(&a);
  fx_close(&f);
}

static void led_3_grow_limits(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &a, 50, 1);
  fx_start(&f, &b, 50, 1);
  fx_expect(berth_exec_grow(a.exec, 51 * FX_UNIT, BERTH_NO_DEADLINE, &err), &err, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  fx_expect(berth_exec_grow(a.exec, UINT64_MAX, BERTH_NO_DEADLINE, &err), &err, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  fx_expect(berth_exec_grow(a.exec, 10 * FX_UNIT, berth_now() + FX_MILLISECOND, &err), &err, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  assert_int_equal(grant_of(a.exec), 50);
  grower g = {.exec = a.exec, .units = 10, .deadline = BERTH_NO_DEADLINE};
  fx_thread thread;
  fx_thread_start(&thread, grow, &g);
  fx_until(berthi_wait_place_count("execution.grow") > 0);
  assert_int_equal(berth_admission_cancel(a.admission), BERTH_CANCEL_FIRED);  // a cancel ends the wait
  fx_thread_join(&thread);
  fx_expect(g.status, &g.error, BERTH_CANCELLED, "cancelled");
  fx_drop(&a);
  fx_drop(&b);
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adm_5_never_early_while_all_is_busy),
      cmocka_unit_test(adm_5_timed_out_wait_does_not_expire),
      cmocka_unit_test(adm_6_first_come_first_served),
      cmocka_unit_test(adm_6_priority_is_worth_waiting_time),
      cmocka_unit_test(adm_6_bypass_is_bounded),
      cmocka_unit_test(adm_6_bound_holds_inside_one_scan),
      cmocka_unit_test(adm_6_before_bypass_after_there_is_no_barrier),
      cmocka_unit_test(adm_6_lanes_are_first_in_first_out),
      cmocka_unit_test(adm_6_barrier_blocks_one_device_and_takes_any),
      cmocka_unit_test(adm_6_everybody_is_served),
      cmocka_unit_test(adm_6_parked_grants_do_not_hide_room),
      cmocka_unit_test(led_3_shrink_gives_back_at_once_to_what_is_used),
      cmocka_unit_test(led_3_grow_comes_before_admissions),
      cmocka_unit_test(led_3_deadlocked_grows_refuse_the_youngest),
      cmocka_unit_test(led_3_grow_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
