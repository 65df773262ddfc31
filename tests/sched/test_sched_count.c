// SPDX-License-Identifier: Apache-2.0
/// Exhaustive mode visits each schedule once: the number is the one that combinatorics gives.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/sched.h"
#include "base/thread.h"

#define MOST 8

typedef struct program {
  uint32_t main_points;
  uint32_t other_points;
  uint32_t length;
  char order[64];  // who ran at each point of this schedule
  uint64_t orders; // distinct orders, each as a number
  uint64_t seen[4096];
} program;

static void note(program *p, char who) { p->order[p->length++] = who; }

static void other(void *arg) {
  program *p = arg;
  note(p, 'a');
  for (uint32_t i = 0; i < p->other_points; i++) {
    berthi_sched_point();
    note(p, 'a');
  }
}

static uint64_t order_number(const program *p) {
  uint64_t number = 1;
  for (uint32_t i = 0; i < p->length; i++) number = number * 2 + (p->order[i] == 'a');
  return number;
}

static void main_thread(void *arg) {
  program *p = arg;
  berthi_thread thread;
  p->length = 0;
  berthi_thread_start(&thread, "other", other, p, NULL);
  for (uint32_t i = 0; i < p->main_points; i++) {
    berthi_sched_point();
    note(p, 'm');
  }
  berthi_thread_join(&thread);
  uint64_t number = order_number(p);
  for (uint64_t i = 0; i < p->orders; i++) {
    if (p->seen[i] == number) return;
  }
  p->seen[p->orders++] = number;
}

static uint64_t binomial(uint32_t n, uint32_t k) {
  uint64_t result = 1;
  for (uint32_t i = 1; i <= k; i++) result = result * (n - k + i) / i;
  return result;
}

/// main has m points and the join (m + 1 steps after the start), the other n points (n + 1 steps): every merge of the two.
static void test_count_of_merges(void **state) {
  (void)state;
  for (uint32_t m = 0; m <= 4; m++) {
    for (uint32_t n = 0; n <= 4; n++) {
      program p = {.main_points = m, .other_points = n};
      berthi_sched_options options = {.mode = BERTHI_SCHED_EXHAUSTIVE, .preemptions = UINT32_MAX};
      berthi_sched_result result;
      berthi_sched_explore(&options, main_thread, &p, &result);
      if (result.failed) fail_msg("%s", result.message);
      assert_true(result.exhausted);
      assert_int_equal(result.schedules, binomial(m + n + 2, n + 1));
      assert_int_equal(p.orders, binomial(m + n + 1, n + 1));
    }
  }
}

/// Counts the merges of `left[who]` steps of two threads with at most `bound` switches away from one that could go on.
static uint64_t bounded_merges(uint32_t main_left, uint32_t other_left, int running, uint32_t bound) {
  if (main_left == 0 || other_left == 0) return 1;
  uint64_t count = bounded_merges(main_left - (running == 0), other_left - (running == 1), running, bound);
  if (bound > 0) count += bounded_merges(main_left - (running == 1), other_left - (running == 0), 1 - running, bound - 1);
  return count;
}

/// The join blocks main when it comes first: main's last step ends its turn without a preemption, so it is counted apart.
static void test_count_with_bound(void **state) {
  (void)state;
  for (uint32_t bound = 1; bound <= 4; bound++) {
    program p = {.main_points = 3, .other_points = 3};
    berthi_sched_options options = {.mode = BERTHI_SCHED_EXHAUSTIVE, .preemptions = bound};
    berthi_sched_result result;
    berthi_sched_explore(&options, main_thread, &p, &result);
    assert_true(result.exhausted);
    assert_int_equal(result.schedules, bounded_merges(4, 4, 0, bound));
  }
}

static void random_values(void *arg) {
  uint64_t *sum = arg;
  *sum += berthi_sched_random(3) * 2 + berthi_sched_random(2);
}

static void test_values_are_choices(void **state) {
  (void)state;
  uint64_t sum = 0;
  berthi_sched_options options = {.mode = BERTHI_SCHED_EXHAUSTIVE};
  berthi_sched_result result;
  berthi_sched_explore(&options, random_values, &sum, &result);
  assert_true(result.exhausted);
  assert_int_equal(result.schedules, 6);
  assert_int_equal(sum, 0 + 1 + 2 + 3 + 4 + 5);
}

typedef struct locked {
  berthi_mutex lock;
  uint32_t inside;
  uint32_t most;
} locked;

static void enter(void *arg) BERTHI_NO_TSA {
  locked *l = arg;
  berthi_mutex_lock(&l->lock);
  berthi_sched_check(l->inside++ == 0);
  berthi_sched_point();
  l->inside--;
  berthi_mutex_unlock(&l->lock);
}

static void three_enter(void *arg) {
  (void)arg;
  locked l = {0};
  berthi_mutex_init(&l.lock, BERTHI_RANK_LEAF);
  berthi_thread threads[3];
  for (int i = 0; i < 3; i++) berthi_thread_start(&threads[i], "enter", enter, &l, NULL);
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
}

static void test_mutual_exclusion(void **state) {
  (void)state;
  berthi_sched_options options = {.mode = BERTHI_SCHED_EXHAUSTIVE, .preemptions = 3};
  berthi_sched_result result;
  berthi_sched_explore(&options, three_enter, NULL, &result);
  if (result.failed) fail_msg("%s", result.message);
  assert_true(result.exhausted);
  printf("mutual exclusion: %llu schedules\n", (unsigned long long)result.schedules);
}

static void calm_in_between(void *arg) {
  program *p = arg;
  berthi_thread thread;
  p->length = 0;
  berthi_sched_calm(true);
  berthi_thread_start(&thread, "other", other, p, NULL);
  for (uint32_t i = 0; i < p->main_points; i++) berthi_sched_point();
  berthi_sched_calm(berthi_sched_random(2) != 0);
  berthi_sched_calm(true);
  berthi_thread_join(&thread);
}

/// While it is calm nothing branches but the values that the scenario itself draws.
static void test_calm(void **state) {
  (void)state;
  program p = {.main_points = 3, .other_points = 3};
  berthi_sched_options options = {.mode = BERTHI_SCHED_EXHAUSTIVE, .preemptions = UINT32_MAX};
  berthi_sched_result result;
  berthi_sched_explore(&options, calm_in_between, &p, &result);
  assert_true(result.exhausted);
  assert_int_equal(result.schedules, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_count_of_merges),
      cmocka_unit_test(test_count_with_bound),
      cmocka_unit_test(test_values_are_choices),
      cmocka_unit_test(test_mutual_exclusion),
      cmocka_unit_test(test_calm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
