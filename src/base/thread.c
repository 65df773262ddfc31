// SPDX-License-Identifier: Apache-2.0
/// Threads of the operating system. The deterministic scheduler's are in sched_thread.c.
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#if !defined(BERTHI_SCHED)

__thread berthi_thread_state berthi_thread_tls __attribute__((tls_model("initial-exec")));

static _Atomic uint64_t last_id;
static _Atomic(void (*)(berthi_thread_state *state)) exit_hook;
static pthread_key_t exit_key;
static bool exit_key_made;

static void thread_ends(void *value) {
  berthi_thread_state *state = value;
  void (*hook)(berthi_thread_state *) = atomic_load_explicit(&exit_hook, memory_order_acquire);
  if ((state->entries != NULL || state->spare_entries != NULL) && hook != NULL) hook(state);
}

__attribute__((constructor)) static void make_exit_key(void) { exit_key_made = pthread_key_create(&exit_key, thread_ends) == 0; }

// A thread that outlives a dlclose of this code must not call into it.
__attribute__((destructor)) static void drop_exit_key(void) {
  if (exit_key_made) pthread_key_delete(exit_key);
}

berthi_thread_state *berthi_thread_enroll(void) {
  berthi_thread_state *state = &berthi_thread_tls;
  state->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
  state->stripe = (uint32_t)(state->id - 1);
  if (exit_key_made) pthread_setspecific(exit_key, state);
  return state;
}

void berthi_thread_on_exit(void (*fn)(berthi_thread_state *state)) { atomic_store_explicit(&exit_hook, fn, memory_order_release); }

uint64_t berthi_thread_id(void) { return berthi_thread_self()->id; }

void berthi_thread_yield(void) { sched_yield(); }

bool berthi_thread_pin(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

typedef struct start_record {
  berthi_thread_fn fn;
  void *arg;
  char name[16];
} start_record;

static void *thread_main(void *value) {
  start_record record = *(start_record *)value;
  berthi_free(value);
  pthread_setname_np(pthread_self(), record.name);
  record.fn(record.arg);
  return NULL;
}

/// Creates the thread with every signal blocked, so that handlers of the host run on the host's threads.
static int create_masked(pthread_t *thread, const pthread_attr_t *attributes, start_record *record) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = pthread_create(thread, attributes, thread_main, record);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failure;
}

static berth_status start(pthread_t *thread, int detach_state, const char *name, berthi_thread_fn fn, void *arg, berth_error *err) {
  pthread_attr_t attributes;
  if (berthi_fault_fires(BERTHI_FAULT_THREAD, name)) return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: injected", name);
  start_record *record = berthi_alloc(sizeof *record);
  if (record == NULL) return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: out of memory", name);
  record->fn = fn;
  record->arg = arg;
  snprintf(record->name, sizeof record->name, "%s", name);
  int failure = pthread_attr_init(&attributes);
  if (failure == 0) {
    pthread_attr_setdetachstate(&attributes, detach_state);
    failure = create_masked(thread, &attributes, record);
    pthread_attr_destroy(&attributes);
  }
  if (failure != 0) {
    berthi_free(record);
    return berthi_fail(err, BERTHI_R_THREAD_UNAVAILABLE, "%s: %s; see the limits on processes and memory", name, strerror(failure));
  }
  return BERTH_OK;
}

berth_status berthi_thread_start(berthi_thread *thread, const char *name, berthi_thread_fn fn, void *arg, berth_error *err) {
  pthread_t handle;
  thread->started = false;
  BERTHI_TRY(start(&handle, PTHREAD_CREATE_JOINABLE, name, fn, arg, err));
  _Static_assert(sizeof handle <= sizeof thread->handle, "the handle fits");
  memcpy(&thread->handle, &handle, sizeof handle);
  thread->started = true;
  return BERTH_OK;
}

berth_status berthi_thread_start_detached(const char *name, berthi_thread_fn fn, void *arg, berth_error *err) {
  pthread_t handle;
  return start(&handle, PTHREAD_CREATE_DETACHED, name, fn, arg, err);
}

/// pthread_join is a cancellation point; no wait of the library is one (USR-1).
void berthi_thread_join(berthi_thread *thread) {
  if (!thread->started) return;
  pthread_t handle;
  int cancel_state = 0;
  memcpy(&handle, &thread->handle, sizeof handle);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  pthread_join(handle, NULL);
  pthread_setcancelstate(cancel_state, NULL);
  thread->started = false;
}

#endif
