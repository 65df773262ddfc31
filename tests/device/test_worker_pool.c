// SPDX-License-Identifier: Apache-2.0
/// The workers of the cpu's lanes.
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"
#include "device/cpu/cpu_internal.h"

static cpu_pool *create(uint32_t lanes) {
  int cpus[8];
  cpu_pool *pool = NULL;
  cpu_set allowed;
  assert_true(berthi_cpu_set_allowed("", &allowed));
  uint32_t found = berthi_topology_order(&allowed, NULL, cpus, lanes);
  berthi_cpu_set_free(&allowed);
  for (; found < lanes; found++) cpus[found] = -1;
  assert_int_equal(berthi_pool_create(cpus, lanes, &pool, NULL), BERTH_OK);
  return pool;
}

typedef struct counter {
  berthi_atomic64 sum;
  berthi_atomic32 cancel;
  berthi_atomic32 threads_seen;
  berthi_event first, second;
} counter;

static void add_index(void *arg, uint64_t i) { (void)berthi_add(&((counter *)arg)->sum, i, relaxed); }

static void run(cpu_pool *pool, uint64_t lanes, berthi_parallel *work) {
  berthi_lanemask mask = {{lanes}};
  berthi_pool_run(pool, &mask, work);
}

static void no_thread_before_it_is_needed(void **state) {
  (void)state;
  counter c = {0};
  cpu_pool *pool = create(3);
  berthi_parallel one_lane = {.count = 100, .body = add_index, .arg = &c};
  run(pool, 1, &one_lane);
  assert_int_equal(berthi_pool_started(pool), 0);
  berthi_parallel one_task = {.count = 1, .body = add_index, .arg = &c};
  run(pool, 7, &one_task);
  assert_int_equal(berthi_pool_started(pool), 0);
  berthi_parallel two_tasks = {.count = 2, .body = add_index, .arg = &c};
  run(pool, 7, &two_tasks);
  assert_int_equal(berthi_pool_started(pool), 1);
  berthi_parallel many = {.count = 100, .body = add_index, .arg = &c};
  run(pool, 7, &many);
  assert_in_range(berthi_pool_started(pool), 2, 3); // the caller's own lane can differ between the two calls
  berthi_pool_close(pool);
}

// Two tasks that wait for each other: only two threads can finish them.
static void meet(void *arg, uint64_t i) {
  counter *c = arg;
  berthi_event_set(i == 0 ? &c->first : &c->second);
  (void)berthi_event_wait(i == 0 ? &c->second : &c->first, BERTH_NO_DEADLINE, "test meets");
}

static void two_lanes_work_at_once(void **state) {
  (void)state;
  counter c = {0};
  cpu_pool *pool = create(2);
  for (int i = 0; i < 200; i++) {
    berthi_event_clear(&c.first);
    berthi_event_clear(&c.second);
    berthi_parallel work = {.count = 2, .body = meet, .arg = &c};
    run(pool, 3, &work);
  }
  berthi_pool_close(pool);
}

// C-65: no thread can be started; the caller does it all, and later calls try again.
static void without_threads_the_caller_works(void **state) {
  (void)state;
  counter c = {0};
  cpu_pool *pool = create(4);
  berthi_parallel work = {.count = 1000, .body = add_index, .arg = &c};
  berthi_fault_plan(BERTHI_FAULT_THREAD, 1, true);
  run(pool, 15, &work);
  assert_true(berthi_fault_plan_end() >= 3);
  assert_int_equal(berthi_stat_load(&c.sum), 499500);
  assert_int_equal(berthi_pool_started(pool), 0);
  berthi_fault_plan(BERTHI_FAULT_THREAD, 2, false);
  run(pool, 15, &work);
  (void)berthi_fault_plan_end();
  assert_int_equal(berthi_stat_load(&c.sum), 2 * 499500);
  assert_int_equal(berthi_pool_started(pool), 2);
  run(pool, 15, &work);
  assert_int_equal(berthi_pool_started(pool), 3);
  berthi_pool_close(pool);
}

static void cancel_now(void *arg, uint64_t i) {
  (void)i;
  counter *c = arg;
  (void)berthi_add(&c->sum, 1, relaxed);
  berthi_store(&c->cancel, 1, release);
}

static void cancelled_work_ends_early(void **state) {
  (void)state;
  cpu_pool *pool = create(3);
  for (int round = 0; round < 200; round++) {
    counter c = {0};
    berthi_parallel work = {.count = 100000, .body = cancel_now, .arg = &c, .cancel = &c.cancel};
    run(pool, 7, &work);
    assert_int_equal(berthi_stat_load(&c.sum) + work.skipped, 100000);
    assert_in_range(berthi_stat_load(&c.sum), 1, 3);
  }
  counter c = {.cancel = 1};
  berthi_parallel before = {.count = 10, .body = add_index, .arg = &c, .cancel = &c.cancel};
  run(pool, 7, &before);
  assert_int_equal(before.skipped, 10);
  berthi_pool_close(pool);
}

// Work that is long over when a parked worker wakes must not be waited for, and must not be touched.
static void many_short_works(void **state) {
  (void)state;
  cpu_pool *pool = create(4);
  for (uint64_t i = 0; i < 20000; i++) {
    counter c = {0};
    berthi_parallel work = {.count = 4, .body = add_index, .arg = &c};
    run(pool, 15, &work);
    assert_int_equal(berthi_stat_load(&c.sum), 6);
    if (i % 1000 == 0) { // let them park
      while (berthi_wait_place_count("lane idle") < berthi_pool_started(pool)) berthi_thread_yield();
    }
  }
  berthi_pool_close(pool);
}

typedef struct user {
  cpu_pool *pool;
  uint64_t lanes;
  uint64_t wrong;
} user;

static void use_lanes(void *arg) {
  user *u = arg;
  for (int i = 0; i < 3000; i++) {
    counter c = {0};
    berthi_parallel work = {.count = 20, .body = add_index, .arg = &c};
    run(u->pool, u->lanes, &work);
    u->wrong += berthi_stat_load(&c.sum) != 190 || work.skipped != 0;
  }
}

static void executions_with_their_own_lanes_and_with_shared_ones(void **state) {
  (void)state;
  cpu_pool *pool = create(6);
  user users[4] = {{pool, 0x03, 0}, {pool, 0x1c, 0}, {pool, 0x1c, 0}, {pool, 0x3f, 0}};
  berthi_thread threads[4] = {{0}};
  for (int i = 0; i < 4; i++) assert_int_equal(berthi_thread_start(&threads[i], "user", use_lanes, &users[i], NULL), BERTH_OK);
  for (int i = 0; i < 4; i++) berthi_thread_join(&threads[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(users[i].wrong, 0);
  berthi_pool_close(pool);
}

typedef struct place {
  counter c;
  int cpus[2];
  uint64_t caller;
} place;

static void note_cpu(void *arg, uint64_t i) {
  place *p = arg;
  meet(&p->c, i);
  if (berthi_thread_id() != p->caller) p->cpus[0] = sched_getcpu();
}

// A worker is on its lane's CPU, and not the one that the caller occupies.
static void workers_are_pinned(void **state) {
  (void)state;
  cpu_set allowed;
  int cpus[8];
  assert_true(berthi_cpu_set_allowed("", &allowed));
  uint32_t found = berthi_topology_order(&allowed, NULL, cpus, 2);
  berthi_cpu_set_free(&allowed);
  if (found < 2) skip();
  cpu_pool *pool = create(2);
  place p = {.caller = berthi_thread_id()};
  berthi_parallel work = {.count = 2, .body = note_cpu, .arg = &p};
  run(pool, 3, &work);
  assert_true(p.cpus[0] == cpus[0] || p.cpus[0] == cpus[1]);
  berthi_pool_close(pool);
}

static void no_memory_for_a_pool(void **state) {
  (void)state;
  cpu_pool *pool = NULL;
  uint64_t live = berthi_alloc_live();
  for (uint64_t nth = 1; nth <= 2; nth++) {
    berthi_fault_plan(BERTHI_FAULT_ALLOC, nth, false);
    berth_status status = berthi_pool_create((const int[]){0, 1}, 2, &pool, NULL);
    (void)berthi_fault_plan_end();
    assert_int_equal(status, BERTH_RESOURCE_EXHAUSTED);
  }
  assert_int_equal(berthi_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_thread_before_it_is_needed),
      cmocka_unit_test(two_lanes_work_at_once),
      cmocka_unit_test(without_threads_the_caller_works),
      cmocka_unit_test(cancelled_work_ends_early),
      cmocka_unit_test(many_short_works),
      cmocka_unit_test(executions_with_their_own_lanes_and_with_shared_ones),
      cmocka_unit_test(workers_are_pinned),
      cmocka_unit_test(no_memory_for_a_pool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
