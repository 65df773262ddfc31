// SPDX-License-Identifier: Apache-2.0
/// Known bugs that the scheduler must find, and their right versions that it must exhaust.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/sched.h"
#include "base/thread.h"

static berthi_sched_result explore(berthi_sched_mode mode, berthi_sched_scenario scenario, void *arg) {
  berthi_sched_options options = {.mode = mode, .seed = 1, .preemptions = 3, .schedules = mode == BERTHI_SCHED_EXHAUSTIVE ? 0 : 5000, .name = "test"};
  berthi_sched_result result;
  berthi_sched_explore(&options, scenario, arg, &result);
  return result;
}

static void must_find(berthi_sched_scenario scenario, void *arg, const char *kind) {
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    berthi_sched_result result = explore((berthi_sched_mode)mode, scenario, arg);
    if (!result.failed) fail_msg("mode %d finds nothing in %llu schedules", mode, (unsigned long long)result.schedules);
    if (strstr(result.message, kind) == NULL) fail_msg("%s", result.message);
    if (mode == BERTHI_SCHED_EXHAUSTIVE) continue;
    // The seed alone replays it.
    berthi_sched_options again = {.mode = (berthi_sched_mode)mode, .seed = result.failing_seed, .schedules = 1, .name = "test"};
    berthi_sched_result replay;
    berthi_sched_explore(&again, scenario, arg, &replay);
    assert_true(replay.failed);
    assert_string_equal(replay.message, result.message);
  }
}

static void must_pass(berthi_sched_scenario scenario, void *arg) {
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    berthi_sched_result result = explore((berthi_sched_mode)mode, scenario, arg);
    if (result.failed) fail_msg("%s", result.message);
    assert_int_equal(result.exhausted, mode == BERTHI_SCHED_EXHAUSTIVE);
    assert_true(result.schedules > 1);
  }
}

static void run_two(berthi_thread_fn first, berthi_thread_fn second, void *arg) {
  berthi_thread a;
  berthi_thread b;
  berthi_sched_check(berthi_thread_start(&a, "first", first, arg, NULL) == BERTH_OK);
  berthi_sched_check(berthi_thread_start(&b, "second", second, arg, NULL) == BERTH_OK);
  berthi_thread_join(&a);
  berthi_thread_join(&b);
}

// Lost update: read and write of a counter in two steps.

typedef struct counter {
  berthi_atomic32 value;
  bool atomically;
} counter;

static void increment(void *arg) {
  counter *c = arg;
  if (c->atomically) {
    berthi_add(&c->value, 1, relaxed);
  } else {
    uint32_t seen = berthi_load(&c->value, relaxed);
    berthi_store(&c->value, seen + 1, relaxed);
  }
}

static void counting(void *arg) {
  counter c = {.atomically = *(bool *)arg};
  run_two(increment, increment, &c);
  berthi_sched_check(berthi_load(&c.value, relaxed) == 2);
}

static void test_lost_update(void **state) {
  (void)state;
  bool atomically = false;
  must_find(counting, &atomically, "value, relaxed) == 2");
  atomically = true;
  must_pass(counting, &atomically);
}

// Lost wake-up: the consumer clears the event after it has looked at the predicate instead of before.

typedef struct mailbox {
  berthi_event event;
  berthi_atomic32 full;
  bool clear_first;
} mailbox;

static void produce(void *arg) {
  mailbox *m = arg;
  berthi_store(&m->full, 1, release);
  berthi_event_set(&m->event);
}

static void consume(void *arg) {
  mailbox *m = arg;
  for (;;) {
    if (m->clear_first) berthi_event_clear(&m->event);
    if (berthi_load(&m->full, acquire) != 0) return;
    if (!m->clear_first) berthi_event_clear(&m->event);
    berthi_event_wait(&m->event, BERTH_NO_DEADLINE, "mailbox");
  }
}

static void mailing(void *arg) {
  mailbox m = {.clear_first = *(bool *)arg};
  berthi_event_init(&m.event);
  run_two(produce, consume, &m);
}

static void test_lost_wake(void **state) {
  (void)state;
  bool clear_first = false;
  must_find(mailing, &clear_first, "deadlock");
  berthi_sched_result result = explore(BERTHI_SCHED_EXHAUSTIVE, mailing, &clear_first);
  assert_non_null(strstr(result.message, "second: waits at 'mailbox'"));
  assert_non_null(strstr(result.message, "last steps"));
  assert_non_null(strstr(result.message, "seed"));
  clear_first = true;
  must_pass(mailing, &clear_first);
}

// ABBA: two locks in two orders. The rank check meets the wrong order first, in every schedule that contends.

typedef struct two_locks {
  berthi_mutex a;
  berthi_mutex b;
  bool same_order;
} two_locks;

static void lock_both(berthi_mutex *first, berthi_mutex *second) BERTHI_NO_TSA {
  berthi_mutex_lock(first);
  // A try does not check ranks, so the loop shows the plain deadlock.
  berthi_mutex_try_lock(second) ? (void)0 : berthi_mutex_lock(second);
  berthi_mutex_unlock(second);
  berthi_mutex_unlock(first);
}

static void lock_ab(void *arg) { lock_both(&((two_locks *)arg)->a, &((two_locks *)arg)->b); }
static void lock_ba(void *arg) {
  two_locks *locks = arg;
  if (locks->same_order) {
    lock_both(&locks->a, &locks->b);
  } else {
    lock_both(&locks->b, &locks->a);
  }
}

static void locking(void *arg) {
  two_locks locks = {.same_order = *(bool *)arg};
  berthi_mutex_init(&locks.a, BERTHI_RANK_ADMISSION);
  berthi_mutex_init(&locks.b, BERTHI_RANK_LEAF);
  run_two(lock_ab, lock_ba, &locks);
}

static void test_lock_order(void **state) {
  (void)state;
  bool same_order = false;
  must_find(locking, &same_order, "lock rank");
  same_order = true;
  must_pass(locking, &same_order);
}

// A deadlock that ranks cannot see: each of two threads waits for an event that the other sets afterwards.

typedef struct crossed {
  berthi_event events[2];
} crossed;

static void wait_then_set(void *arg, int mine) {
  crossed *c = arg;
  berthi_event_wait(&c->events[mine], BERTH_NO_DEADLINE, mine == 0 ? "left" : "right");
  berthi_event_set(&c->events[1 - mine]);
}
static void wait_left(void *arg) { wait_then_set(arg, 0); }
static void wait_right(void *arg) { wait_then_set(arg, 1); }

static void crossing(void *arg) {
  (void)arg;
  crossed c = {0};
  run_two(wait_left, wait_right, &c);
}

static void test_deadlock_names_places(void **state) {
  (void)state;
  must_find(crossing, NULL, "waits at 'left'");
  must_find(crossing, NULL, "waits at 'right'");
}

// Missing re-check: a consumer takes from a queue after a wait without looking again whether another took it.

typedef struct queue {
  berthi_mutex lock;
  berthi_event filled;
  int items;
  bool recheck;
} queue;

static void take_one(void *arg) BERTHI_NO_TSA {
  queue *q = arg;
  berthi_mutex_lock(&q->lock);
  while (q->items == 0) {
    berthi_mutex_unlock(&q->lock);
    berthi_event_wait(&q->filled, BERTH_NO_DEADLINE, "queue");
    berthi_mutex_lock(&q->lock);
    if (!q->recheck) break;
  }
  q->items--;
  if (q->items == 0) berthi_event_clear(&q->filled);
  berthi_sched_check(q->items >= 0);
  berthi_mutex_unlock(&q->lock);
}

static void queueing(void *arg) BERTHI_NO_TSA {
  queue q = {.recheck = *(bool *)arg};
  berthi_mutex_init(&q.lock, BERTHI_RANK_LEAF);
  berthi_event_init(&q.filled);
  berthi_thread takers[2];
  for (int i = 0; i < 2; i++) berthi_sched_check(berthi_thread_start(&takers[i], "taker", take_one, &q, NULL) == BERTH_OK);
  for (int i = 0; i < 2; i++) {
    berthi_mutex_lock(&q.lock);
    q.items++;
    berthi_event_set(&q.filled);
    berthi_mutex_unlock(&q.lock);
  }
  for (int i = 0; i < 2; i++) berthi_thread_join(&takers[i]);
}

static void test_missing_recheck(void **state) {
  (void)state;
  bool recheck = false;
  must_find(queueing, &recheck, "q->items >= 0");
  recheck = true;
  must_pass(queueing, &recheck);
}

// The other kinds of failure.

static void leaking(void *arg) {
  void **kept = arg;
  *kept = berthi_alloc(8);
}

static void test_leak(void **state) {
  (void)state;
  void *kept = NULL;
  berthi_sched_result result = explore(BERTHI_SCHED_RANDOM, leaking, &kept);
  assert_true(result.failed);
  assert_int_equal(result.schedules, 1);
  assert_non_null(strstr(result.message, "leak: 1 blocks"));
  berthi_free(kept);
}

static void asserting(void *arg) { berthi_assert(arg != NULL, "ADM-1"); }

static void test_assert(void **state) {
  (void)state;
  berthi_sched_result result = explore(BERTHI_SCHED_RANDOM, asserting, NULL);
  assert_true(result.failed);
  assert_non_null(strstr(result.message, "ADM-1"));
}

static void spinning(void *arg) {
  berthi_atomic32 *word = arg;
  while (berthi_load(word, relaxed) == 0) berthi_thread_yield();
}

static void test_livelock(void **state) {
  (void)state;
  berthi_atomic32 word = 0;
  berthi_sched_options options = {.depth = 1000, .schedules = 1};
  berthi_sched_result result;
  berthi_sched_explore(&options, spinning, &word, &result);
  assert_true(result.failed);
  assert_non_null(strstr(result.message, "livelock"));
}

static void work_then_set(void *arg) {
  berthi_atomic32 *word = arg;
  for (int i = 0; i < 5; i++) berthi_sched_point();
  berthi_store(word, 1, release);
}

static void spinning_beside_work(void *arg) {
  (void)arg;
  berthi_atomic32 word = 0;
  berthi_thread threads[3];
  berthi_thread_start(&threads[0], "spin1", spinning, &word, NULL);
  berthi_thread_start(&threads[1], "spin2", spinning, &word, NULL);
  berthi_thread_start(&threads[2], "work", work_then_set, &word, NULL);
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
}

/// Loops with a yield end in every mode: who yields lets those that can run go first.
static void test_yield_is_fair(void **state) {
  (void)state;
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    berthi_sched_options options = {.mode = (berthi_sched_mode)mode, .schedules = 2000, .preemptions = 1};
    berthi_sched_result result;
    berthi_sched_explore(&options, spinning_beside_work, NULL, &result);
    if (result.failed) fail_msg("%s", result.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lost_update),     cmocka_unit_test(test_lost_wake),
      cmocka_unit_test(test_lock_order),      cmocka_unit_test(test_deadlock_names_places),
      cmocka_unit_test(test_missing_recheck), cmocka_unit_test(test_leak),
      cmocka_unit_test(test_assert),          cmocka_unit_test(test_livelock),
      cmocka_unit_test(test_yield_is_fair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
