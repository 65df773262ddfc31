// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/thread.h"

typedef struct seen {
  uint64_t id;
  char name[32];
  bool blocked;
  bool fresh;
  bool pinned;
} seen;

static void look(void *arg) {
  seen *s = arg;
  sigset_t mask;
  berthi_thread_state *self = berthi_thread_self();
  s->fresh = self->entries == NULL && self->held_count == 0 && self->flags == 0;
  s->id = berthi_thread_id();
  pthread_getname_np(pthread_self(), s->name, sizeof s->name);
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  s->blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  int cpu = 0;
  while (!CPU_ISSET((size_t)cpu, &allowed)) cpu++;
  s->pinned = berthi_thread_pin(cpu) && sched_getcpu() == cpu;
}

static void test_start_and_join(void **state) {
  (void)state;
  seen first = {0};
  seen second = {0};
  berthi_thread thread;
  uint64_t live = berthi_alloc_live();
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_BLOCK, NULL, &before);
  assert_int_equal(berthi_thread_start(&thread, "a name too long for it", look, &first, NULL), BERTH_OK);
  assert_true(thread.started);
  berthi_thread_join(&thread);
  assert_false(thread.started);
  berthi_thread_join(&thread); // again: nothing to do
  assert_int_equal(berthi_thread_start(&thread, "short", look, &second, NULL), BERTH_OK);
  berthi_thread_join(&thread);
  assert_string_equal(first.name, "a name too long");
  assert_true(first.blocked && first.fresh && first.pinned);
  assert_true(first.id != second.id && first.id != berthi_thread_id() && first.id > 0);
  assert_int_equal(berthi_thread_id(), berthi_thread_id());
  assert_int_equal(berthi_alloc_live(), live);
  pthread_sigmask(SIG_BLOCK, NULL, &after);
  assert_int_equal(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
  assert_false(berthi_thread_pin(-1));
  assert_false(berthi_thread_pin(1 << 20));
}

static void say_done(void *arg) { berthi_event_set(arg); }

static void test_detached(void **state) {
  (void)state;
  static berthi_event done;
  berthi_event_init(&done);
  assert_int_equal(berthi_thread_start_detached("detached", say_done, &done, NULL), BERTH_OK);
  assert_true(berthi_event_wait(&done, BERTH_NO_DEADLINE, "detached"));
}

static void test_start_fails(void **state) {
  (void)state;
  berthi_thread thread;
  berth_error error;
  for (int kind = BERTHI_FAULT_ALLOC; kind <= BERTHI_FAULT_THREAD; kind++) {
    berthi_fault_plan((berthi_fault)kind, 1, false);
    assert_int_equal(berthi_thread_start(&thread, "none", say_done, NULL, &error), BERTH_RESOURCE_EXHAUSTED);
    assert_int_equal(berthi_fault_plan_end(), 1);
    assert_string_equal(error.reason, "thread_unavailable");
    assert_false(thread.started);
    berthi_thread_join(&thread);
  }
}

static berthi_atomic32 exits;
static void on_exit_hook(berthi_thread_state *state) {
  assert_non_null(state->entries);
  atomic_fetch_add(&exits, 1);
}
static void leave_entry(void *arg) { berthi_thread_self()->entries = arg; }
static void *leave_entry_and_exit(void *arg) {
  berthi_thread_self()->entries = arg;
  pthread_exit(NULL);
}

/// The hook runs for threads of the host, too, and only where an entry is left.
static void test_exit_hook(void **state) {
  (void)state;
  int something = 0;
  berthi_thread thread;
  pthread_t host;
  berthi_thread_on_exit(on_exit_hook);
  assert_int_equal(berthi_thread_start(&thread, "exit", leave_entry, NULL, NULL), BERTH_OK);
  berthi_thread_join(&thread);
  assert_int_equal(atomic_load(&exits), 0);
  assert_int_equal(berthi_thread_start(&thread, "exit", leave_entry, &something, NULL), BERTH_OK);
  berthi_thread_join(&thread);
  assert_int_equal(pthread_create(&host, NULL, leave_entry_and_exit, &something), 0);
  pthread_join(host, NULL);
  assert_int_equal(atomic_load(&exits), 2);
  berthi_thread_on_exit(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_start_and_join),
      cmocka_unit_test(test_detached),
      cmocka_unit_test(test_start_fails),
      cmocka_unit_test(test_exit_hook),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
