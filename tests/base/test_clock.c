// SPDX-License-Identifier: Apache-2.0
/// The clock against the system's: never back, across threads too, and within a microsecond.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "berth/base.h"

#define SPAN 400000000 // long enough for several renewals of the line

static int64_t system_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void test_near_the_system(void **state) {
  (void)state;
  int64_t end = system_now() + SPAN;
  int64_t last = 0;
  int64_t ahead = 0;
  int64_t behind = 0;
  uint64_t measured = 0;
  while (last < end) {
    int64_t before = system_now();
    int64_t now = berthi_now();
    int64_t after = system_now();
    assert_true(now >= last);
    last = now;
    if (after - before > 2000) continue; // interrupted in between
    measured++;
    if (now - after > ahead) ahead = now - after;
    if (before - now > behind) behind = before - now;
  }
  printf("source %s, ahead at most %lld ns, behind at most %lld ns\n", berthi_clock_source(), (long long)ahead, (long long)behind);
  if (measured == 0) skip(); // under an emulator every read takes long
  assert_true(ahead <= 1000);
  assert_true(behind <= 1000);
}

typedef struct pair {
  berthi_mutex lock;
  int64_t last;
  int64_t end;
  uint64_t back;
} pair;

static void keep_order(void *arg) BERTHI_NO_TSA {
  pair *p = arg;
  int64_t now = 0;
  while (now < p->end) {
    berthi_mutex_lock(&p->lock);
    now = berthi_now();
    if (now < p->last) p->back++;
    p->last = now;
    berthi_mutex_unlock(&p->lock);
  }
}

/// A time read after another thread's, by the order of a lock, is not below it.
static void test_order_across_threads(void **state) {
  (void)state;
  pair p = {.end = berthi_now() + SPAN};
  berthi_thread threads[2];
  berthi_mutex_init(&p.lock, BERTHI_RANK_LEAF);
  for (int i = 0; i < 2; i++) assert_int_equal(berthi_thread_start(&threads[i], "order", keep_order, &p, NULL), BERTH_OK);
  for (int i = 0; i < 2; i++) berthi_thread_join(&threads[i]);
  assert_int_equal(p.back, 0);
}

static void test_public_is_the_same(void **state) {
  (void)state;
  int64_t before = berthi_now();
  int64_t now = berth_now();
  assert_true(before <= now && now <= berthi_now());
  assert_true(berthi_now_loose() >= before - 1000);
  assert_true(berthi_wall_now() > INT64_C(1500000000000000000));
  assert_true(strcmp(berthi_clock_source(), "tsc") == 0 || strcmp(berthi_clock_source(), "clock_gettime") == 0);
}

static void test_add(void **state) {
  (void)state;
  assert_int_equal(berthi_time_add(5, 7), 12);
  assert_int_equal(berthi_time_add(5, -7), 5);
  assert_int_equal(berthi_time_add(5, INT64_MIN), 5);
  assert_int_equal(berthi_time_add(INT64_MAX - 1, 2), BERTH_NO_DEADLINE);
  assert_int_equal(berthi_time_add(BERTH_NO_DEADLINE, 1), BERTH_NO_DEADLINE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_near_the_system),
      cmocka_unit_test(test_order_across_threads),
      cmocka_unit_test(test_public_is_the_same),
      cmocka_unit_test(test_add),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
