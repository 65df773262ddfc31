// SPDX-License-Identifier: Apache-2.0
// A token may not be fired from a signal handler, so one thread waits for the signals and fires it.
#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static berth_cancel *watched; // under lock
static bool started;          // under lock
static atomic_bool seen;      // relaxed: a flag for messages and exit codes

static void signals(sigset_t *set) {
  sigemptyset(set);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGTERM);
}

static void *watch(void *arg) {
  (void)arg;
  sigset_t set;
  signals(&set);
  for (;;) {
    int signal_number;
    if (sigwait(&set, &signal_number) != 0) continue;
    bool again = atomic_exchange_explicit(&seen, true, memory_order_relaxed);
    if (again) {
      // The user does not want to wait for the orderly end.
      pthread_sigmask(SIG_UNBLOCK, &set, NULL);
      signal(signal_number, SIG_DFL);
      raise(signal_number);
    }
    pthread_mutex_lock(&lock);
    if (watched != NULL) berth_cancel_fire(watched);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

void cli_block_interrupts(void) {
  sigset_t set;
  signals(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void cli_watch_interrupts(berth_cancel *cancel) {
  pthread_mutex_lock(&lock);
  watched = cancel;
  if (!started) {
    pthread_t thread;
    started = pthread_create(&thread, NULL, watch, NULL) == 0;
    if (started) pthread_detach(thread);
  }
  if (atomic_load_explicit(&seen, memory_order_relaxed)) berth_cancel_fire(cancel);
  pthread_mutex_unlock(&lock);
}

void cli_forget_interrupts(void) {
  pthread_mutex_lock(&lock);
  watched = NULL;
  pthread_mutex_unlock(&lock);
}

bool cli_interrupted(void) {
  return atomic_load_explicit(&seen, memory_order_relaxed);
}
