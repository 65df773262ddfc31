// SPDX-License-Identifier: Apache-2.0
/// Virtual time, simulated fork, thread state and places under the scheduler; and its speed (printed, not judged).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/sched.h"
#include "base/thread.h"

static void all_modes(berthi_sched_scenario scenario) {
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    berthi_sched_options options = {.mode = (berthi_sched_mode)mode, .seed = 7, .schedules = 3000, .name = "time"};
    berthi_sched_result result;
    berthi_sched_explore(&options, scenario, NULL, &result);
    if (result.failed) fail_msg("%s", result.message);
  }
}

typedef struct sleeper {
  berthi_event never;
  int64_t deadline;
  int64_t woke;
} sleeper;

static void sleep_until(void *arg) {
  sleeper *s = arg;
  berthi_sched_check(!berthi_event_wait(&s->never, s->deadline, "sleep"));
  s->woke = berthi_now();
}

/// Time stands while anybody can run and goes to each deadline exactly: never late (ADM-5 rests on this).
static void sleeping(void *arg) {
  (void)arg;
  sleeper sleepers[3] = {0};
  berthi_thread threads[3];
  int64_t start = berthi_now();
  for (int i = 0; i < 3; i++) {
    sleepers[i].deadline = start + 1000 * (3 - i);
    berthi_thread_start(&threads[i], "sleeper", sleep_until, &sleepers[i], NULL);
    berthi_sched_check(berthi_now() == start || i > 0);
  }
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
  for (int i = 0; i < 3; i++) berthi_sched_check(sleepers[i].woke >= sleepers[i].deadline);
  berthi_sched_check(sleepers[0].woke == start + 3000);
  berthi_sched_check(berthi_now() == start + 3000);
}
static void test_time_jumps(void **state) {
  (void)state;
  all_modes(sleeping);
}

static void advancing(void *arg) {
  (void)arg;
  sleeper one = {.deadline = berthi_now() + 500};
  berthi_thread thread;
  berthi_thread_start(&thread, "sleeper", sleep_until, &one, NULL);
  int64_t before = berthi_now();
  berthi_sched_advance(2000);
  // Where the sleeper slept before the advance, and the main thread never waited, time has moved by exactly the advance.
  berthi_sched_check(berthi_now() >= before + 2000);
  berthi_thread_join(&thread);
  berthi_sched_check(one.woke >= one.deadline);
}
static void test_advance(void **state) {
  (void)state;
  all_modes(advancing);
}

static void timed_lock_holder(void *arg) BERTHI_NO_TSA {
  berthi_mutex *mutex = arg;
  int64_t deadline = berthi_time_add(berthi_now(), 100);
  if (berthi_mutex_lock_until(mutex, deadline)) {
    berthi_mutex_unlock(mutex);
  } else {
    berthi_sched_check(berthi_now() >= deadline);
  }
}
static void timed_locking(void *arg) BERTHI_NO_TSA {
  (void)arg;
  berthi_mutex mutex;
  berthi_event never;
  berthi_thread thread;
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_event_init(&never);
  berthi_mutex_lock(&mutex);
  berthi_thread_start(&thread, "timed", timed_lock_holder, &mutex, NULL);
  berthi_event_wait(&never, berthi_now() + 1000, "hold");
  berthi_mutex_unlock(&mutex);
  berthi_thread_join(&thread);
  // An expired deadline still gets one uncontended try.
  berthi_sched_check(berthi_mutex_lock_until(&mutex, 0));
  berthi_mutex_unlock(&mutex);
  berthi_event_set(&never);
  berthi_sched_check(berthi_event_wait(&never, 0, "hold"));
}
static void test_timed_lock(void **state) {
  (void)state;
  all_modes(timed_locking);
}

static void wait_forever(void *arg) { berthi_event_wait(arg, BERTH_NO_DEADLINE, "forever"); }

/// The child has one thread; what the others hold is lost and is no leak (CLS-6).
static void forking(void *arg) {
  (void)arg;
  static berthi_event never;
  berthi_event_init(&never);
  uint32_t parent = berthi_fork_epoch();
  int32_t parent_pid = berthi_process_id();
  berthi_thread threads[2];
  for (int i = 0; i < 2; i++) berthi_thread_start(&threads[i], "waiter", wait_forever, &never, NULL);
  berthi_sched_fork();
  berthi_sched_check(berthi_fork_epoch() == parent + 1);
  berthi_sched_check(berthi_process_id() != parent_pid);
  berthi_thread child;
  berthi_sched_check(berthi_thread_start(&child, "child", wait_forever, &never, NULL) == BERTH_OK);
  berthi_event_set(&never);
  berthi_thread_join(&child);
}
static void test_fork(void **state) {
  (void)state;
  all_modes(forking);
}

static int exits;
static void count_exit(berthi_thread_state *state) {
  exits++;
  state->entries = NULL;
}
static void own_state(void *arg) {
  berthi_thread_state *self = berthi_thread_self();
  berthi_sched_check(self->entries == NULL && self->held_count == 0);
  self->entries = arg;
  berthi_sched_point();
  berthi_sched_check(berthi_thread_self() == self && self->entries == arg);
}
static void states(void *arg) {
  (void)arg;
  exits = 0;
  berthi_thread_on_exit(count_exit);
  berthi_thread threads[3];
  for (int i = 0; i < 3; i++) berthi_thread_start(&threads[i], "state", own_state, &threads[i], NULL);
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
  berthi_sched_check(exits == 3);
  berthi_sched_check(berthi_thread_id() == 1);
  berthi_thread_on_exit(NULL);
}
static void test_thread_state(void **state) {
  (void)state;
  all_modes(states);
}

static void places(void *arg) {
  (void)arg;
  berthi_event event;
  berthi_event_init(&event);
  berthi_thread threads[2];
  for (int i = 0; i < 2; i++) berthi_thread_start(&threads[i], "waiter", wait_forever, &event, NULL);
  while (berthi_wait_place_count("forever") < 2) berthi_thread_yield();
  berthi_event_set(&event);
  for (int i = 0; i < 2; i++) berthi_thread_join(&threads[i]);
  berthi_sched_check(berthi_wait_place_count("forever") == 0);
}
static void test_places(void **state) {
  (void)state;
  all_modes(places);
}

static void starting_fails(void *arg) {
  (void)arg;
  berthi_thread thread;
  berth_error error = BERTH_ERROR_INIT;
  berthi_fault_plan(BERTHI_FAULT_THREAD, 1, false);
  berthi_sched_check(berthi_thread_start(&thread, "none", wait_forever, NULL, &error) == BERTH_RESOURCE_EXHAUSTED);
  berthi_sched_check(berthi_fault_plan_end() == 1);
  berthi_thread_join(&thread); // not started: nothing to do
}
static void test_start_fails(void **state) {
  (void)state;
  all_modes(starting_fails);
}

static void twenty_points(void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) berthi_sched_point();
}
static void three_by_twenty(void *arg) {
  (void)arg;
  berthi_thread threads[3];
  for (int i = 0; i < 3; i++) berthi_thread_start(&threads[i], "points", twenty_points, NULL, NULL);
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
}
static void test_speed(void **state) {
  (void)state;
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    berthi_sched_options options = {.mode = (berthi_sched_mode)mode, .schedules = 5000, .preemptions = 3};
    berthi_sched_result result;
    clock_t before = clock();
    berthi_sched_explore(&options, three_by_twenty, NULL, &result);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    assert_false(result.failed);
    assert_int_equal(result.schedules, 5000);
    printf("mode %d: %.0f schedules/s, %.1f ns a point\n", mode, (double)result.schedules / seconds, seconds * 1e9 / (double)result.points);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_time_jumps),   cmocka_unit_test(test_advance), cmocka_unit_test(test_timed_lock),  cmocka_unit_test(test_fork),
      cmocka_unit_test(test_thread_state), cmocka_unit_test(test_places),  cmocka_unit_test(test_start_fails), cmocka_unit_test(test_speed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
