// SPDX-License-Identifier: Apache-2.0
/// Threads, thread-local state and fork detection.
#ifndef BERTHI_THREAD_H
#define BERTHI_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/annotate.h"
#include "berth/base.h"

typedef struct berthi_thread {
  uint64_t handle;
  bool started;
} berthi_thread;

typedef void (*berthi_thread_fn)(void *arg);

/// Starts a thread with all signals blocked. `name` (at most 15 bytes) shows in the system's tools.
/// Fails: RESOURCE_EXHAUSTED thread_unavailable. A fault point (BERTHI_FAULT_THREAD).
berth_status berthi_thread_start(berthi_thread *thread, const char *name, berthi_thread_fn fn, void *arg, berth_error *err);
/// The same, detached: `fn` must end by itself.
berth_status berthi_thread_start_detached(const char *name, berthi_thread_fn fn, void *arg, berth_error *err);
/// Waits for the end of a started thread; a no-op when not started. Not from the thread itself.
void berthi_thread_join(berthi_thread *thread);
/// Pins the calling thread to one CPU; false when the system refuses.
bool berthi_thread_pin(int cpu);
/// A small number that names the calling thread in this process, from 1; never reused while the process lives.
uint64_t berthi_thread_id(void);
/// Lets others run (a scheduling point; sched_yield otherwise). For bounded retries only.
void berthi_thread_yield(void);

/// State of the calling thread that the runtime keeps. Zeroed at first use. Reached only through this function, so that each coroutine of the
/// deterministic scheduler has its own.
typedef struct berthi_thread_state {
  uint64_t id;            ///< berthi_thread_id
  uint32_t stripe;        ///< spreads threads over striped state
  uint32_t flags;         ///< BERTHI_THREAD_*
  void *entries;          ///< innermost scoped entry of this thread (runtime/entry.c), a stack
  void *spare_entries;    ///< its entries that are free for reuse
  void *callback_backend; ///< backend on whose notifier, or in whose callback, this thread is
  uint32_t held_ranks[8]; ///< lock ranks held, for asserts
  uint32_t held_count;
} berthi_thread_state;
enum {
  BERTHI_THREAD_INTERNAL = 1u /* timer, close, device, telemetry, lanes */,
  BERTHI_THREAD_NOTIFIER = 2u,
  BERTHI_THREAD_IN_PARALLEL = 4u /* runs tasks of a parallel work */
};
#if defined(BERTHI_SCHED)
berthi_thread_state *berthi_thread_self(void);
#else
extern __thread berthi_thread_state berthi_thread_tls __attribute__((tls_model("initial-exec")));
berthi_thread_state *berthi_thread_enroll(void); ///< Gives the calling thread its identity; only for berthi_thread_self.
static inline berthi_thread_state *berthi_thread_self(void) {
  berthi_thread_state *state = &berthi_thread_tls;
  return BERTHI_LIKELY(state->id != 0) ? state : berthi_thread_enroll();
}
#endif

/// Runs `fn(thread state)` when the calling thread ends while `entries` or `spare_entries` is not NULL (pthread_exit inside a callback is handled by the unwinder;
/// this is for what is left). One hook per process.
void berthi_thread_on_exit(void (*fn)(berthi_thread_state *state));

/// The fork epoch of this process: never 0, rises in each forked child. No system call, no lock (CLS-6).
#if defined(BERTHI_SCHED)
uint32_t berthi_fork_epoch(void);
#else
extern _Atomic uint32_t *berthi_fork_word; ///< In a page that the kernel zeroes in a forked child.
uint32_t berthi_fork_noticed(void);        ///< The first look after a fork; only for berthi_fork_epoch.
static inline uint32_t berthi_fork_epoch(void) {
  // Relaxed: a child begins as one thread, and the word is written before any other thread of it exists, or by several with one value.
  uint32_t epoch = atomic_load_explicit(berthi_fork_word, memory_order_relaxed);
  return BERTHI_LIKELY(epoch != 0) ? epoch : berthi_fork_noticed();
}
#endif
/// The process id, cached per fork epoch.
int32_t berthi_process_id(void);

#endif
