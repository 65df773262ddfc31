// SPDX-License-Identifier: Apache-2.0
/// Mutex and event of the operating system's threads. Orders of their protocols are explored in tests/sched.
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"

#define THREADS 4
#define ROUNDS 20000

static berthi_mutex mutex;
static uint64_t counter;

static void count_up(void *arg) BERTHI_NO_TSA {
  (void)arg;
  for (int i = 0; i < ROUNDS; i++) {
    berthi_mutex_lock(&mutex);
    berthi_mutex_assert_held(&mutex);
    counter++;
    berthi_mutex_unlock(&mutex);
  }
}

static void test_mutual_exclusion(void **state) {
  (void)state;
  berthi_thread threads[THREADS];
  counter = 0;
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  for (int i = 0; i < THREADS; i++) assert_int_equal(berthi_thread_start(&threads[i], "count", count_up, NULL, NULL), BERTH_OK);
  for (int i = 0; i < THREADS; i++) berthi_thread_join(&threads[i]);
  assert_int_equal(counter, (uint64_t)THREADS * ROUNDS);
  assert_int_equal(mutex.word, 0);
}

typedef struct locker {
  bool tried;
  bool taken;
  int64_t deadline;
  int64_t returned;
} locker;

static void try_and_wait(void *arg) BERTHI_NO_TSA {
  locker *l = arg;
  l->tried = berthi_mutex_try_lock(&mutex);
  if (l->tried) berthi_mutex_unlock(&mutex);
  l->deadline = berthi_now() + 3000000;
  l->taken = berthi_mutex_lock_until(&mutex, l->deadline);
  if (l->taken) berthi_mutex_unlock(&mutex);
  l->returned = berthi_now();
}

static void test_timed_lock(void **state) BERTHI_NO_TSA {
  (void)state;
  locker l;
  berthi_thread thread;
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_mutex_lock(&mutex);
  assert_int_equal(berthi_thread_start(&thread, "timed", try_and_wait, &l, NULL), BERTH_OK);
  berthi_thread_join(&thread);
  assert_false(l.tried);
  assert_false(l.taken);
  assert_true(l.returned >= l.deadline);
  berthi_mutex_unlock(&mutex);
  // An expired deadline still gets one uncontended try.
  assert_true(berthi_mutex_lock_until(&mutex, -1));
  berthi_mutex_unlock(&mutex);
  assert_true(berthi_mutex_lock_until(&mutex, INT64_MIN));
  berthi_mutex_unlock(&mutex);
}

#if !defined(NDEBUG)
/// Runs a wrong use in a child, which must abort.
static void must_abort(void (*wrong)(void)) {
  pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    wrong();
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void wrong_order(void) BERTHI_NO_TSA {
  berthi_mutex low;
  berthi_mutex high;
  berthi_mutex_init(&low, BERTHI_RANK_ADMISSION);
  berthi_mutex_init(&high, BERTHI_RANK_LEAF);
  berthi_mutex_lock(&high);
  berthi_mutex_lock(&low);
}
static void locked_twice(void) BERTHI_NO_TSA {
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_mutex_lock(&mutex);
  berthi_mutex_lock(&mutex);
}
static void unlocked_unheld(void) BERTHI_NO_TSA {
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_mutex_unlock(&mutex);
}
static void assert_unheld(void) {
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_mutex_assert_held(&mutex);
}

static void test_wrong_use_aborts(void **state) {
  (void)state;
  must_abort(wrong_order);
  must_abort(locked_twice);
  must_abort(unlocked_unheld);
  must_abort(assert_unheld);
}
#else
static void test_wrong_use_aborts(void **state) {
  (void)state;
  skip(); // no asserts in this build
}
#endif

/// Locks may be given back in any order; the ranks held stay right.
static void test_unlock_order(void **state) BERTHI_NO_TSA {
  (void)state;
  berthi_mutex low;
  berthi_mutex high;
  berthi_mutex_init(&low, BERTHI_RANK_ADMISSION);
  berthi_mutex_init(&high, BERTHI_RANK_CACHE);
  for (int i = 0; i < 3; i++) {
    berthi_mutex_lock(&low);
    berthi_mutex_lock(&high);
    berthi_mutex_unlock(&low);
    berthi_mutex_unlock(&high);
  }
  assert_int_equal(berthi_thread_self()->held_count, 0);
}

static void test_event_alone(void **state) {
  (void)state;
  berthi_event event;
  berthi_event_init(&event);
  assert_false(berthi_event_is_set(&event));
  assert_false(berthi_event_wait(&event, 0, "alone"));
  assert_false(berthi_event_wait(&event, INT64_MIN, "alone"));
  int64_t deadline = berthi_now() + 2000000;
  assert_false(berthi_event_wait(&event, deadline, "alone"));
  assert_true(berthi_now() >= deadline);
  berthi_event_set(&event);
  berthi_event_set(&event);
  assert_true(berthi_event_is_set(&event));
  assert_true(berthi_event_wait(&event, 0, "alone"));
  assert_true(berthi_event_wait(&event, BERTH_NO_DEADLINE, "alone"));
  berthi_event_clear(&event);
  assert_false(berthi_event_is_set(&event));
  assert_int_equal(berthi_wait_place_count("alone"), 0);
}

static void wait_at(void *arg) { berthi_event_wait(arg, BERTH_NO_DEADLINE, "crowd"); }

static void test_wakes_all_and_counts(void **state) {
  (void)state;
  berthi_event event;
  berthi_thread threads[THREADS];
  berthi_event_init(&event);
  for (int i = 0; i < THREADS; i++) assert_int_equal(berthi_thread_start(&threads[i], "crowd", wait_at, &event, NULL), BERTH_OK);
  while (berthi_wait_place_count("crowd") < THREADS) berthi_thread_yield();
  berthi_event_clear(&event); // clearing what is not set leaves the sleepers known
  berthi_event_set(&event);
  for (int i = 0; i < THREADS; i++) berthi_thread_join(&threads[i]);
  assert_int_equal(berthi_wait_place_count("crowd"), 0);
}

typedef struct ping {
  berthi_event there;
  berthi_event back;
} ping;

static void answer(void *arg) {
  ping *p = arg;
  for (int i = 0; i < ROUNDS / 10; i++) {
    berthi_event_wait(&p->there, BERTH_NO_DEADLINE, "there");
    berthi_event_clear(&p->there);
    berthi_event_set(&p->back);
  }
}

static void test_hand_over(void **state) {
  (void)state;
  ping p;
  berthi_thread thread;
  berthi_event_init(&p.there);
  berthi_event_init(&p.back);
  assert_int_equal(berthi_thread_start(&thread, "answer", answer, &p, NULL), BERTH_OK);
  for (int i = 0; i < ROUNDS / 10; i++) {
    berthi_event_set(&p.there);
    berthi_event_wait(&p.back, BERTH_NO_DEADLINE, "back");
    berthi_event_clear(&p.back);
  }
  berthi_thread_join(&thread);
}

static berthi_event cancel_event;
static berthi_atomic32 got_through;

static void *wait_under_cancel(void *arg) {
  (void)arg;
  berthi_event_wait(&cancel_event, BERTH_NO_DEADLINE, "cancelled");
  berthi_mutex_lock(&mutex);
  berthi_mutex_unlock(&mutex);
  atomic_store(&got_through, 1);
  pthread_testcancel();
  return NULL;
}

/// No wait is a cancellation point: a thread with a cancel pending passes all of them (USR-1).
static void test_not_a_cancellation_point(void **state) {
  (void)state;
  pthread_t thread;
  void *result = NULL;
  berthi_mutex_init(&mutex, BERTHI_RANK_LEAF);
  berthi_event_init(&cancel_event);
  assert_int_equal(pthread_create(&thread, NULL, wait_under_cancel, NULL), 0);
  while (berthi_wait_place_count("cancelled") < 1) berthi_thread_yield();
  assert_int_equal(pthread_cancel(thread), 0);
  berthi_event_set(&cancel_event);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  assert_int_equal(atomic_load(&got_through), 1);
}

static berthi_event signal_event;
static void set_in_handler(int number) {
  (void)number;
  berthi_event_set(&signal_event);
}

/// Setting is async-signal-safe and leaves errno alone.
static void test_set_in_signal_handler(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = set_in_handler};
  struct sigaction before;
  berthi_event_init(&signal_event);
  sigaction(SIGUSR1, &action, &before);
  errno = ENOENT;
  raise(SIGUSR1);
  assert_int_equal(errno, ENOENT);
  assert_true(berthi_event_wait(&signal_event, 0, "signal"));
  sigaction(SIGUSR1, &before, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mutual_exclusion),
      cmocka_unit_test(test_timed_lock),
      cmocka_unit_test(test_wrong_use_aborts),
      cmocka_unit_test(test_unlock_order),
      cmocka_unit_test(test_event_alone),
      cmocka_unit_test(test_wakes_all_and_counts),
      cmocka_unit_test(test_hand_over),
      cmocka_unit_test(test_not_a_cancellation_point),
      cmocka_unit_test(test_set_in_signal_handler),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
