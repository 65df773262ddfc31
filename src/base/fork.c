// SPDX-License-Identifier: Apache-2.0
/// The fork epoch (CLS-6). The kernel zeroes a page of ours in each forked child; whoever looks first there writes the next number.
/// Where the kernel does not offer that, a pthread_atfork handler does the same for forks through the C library.
#include "base/thread.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(BERTHI_SCHED)

static _Atomic uint32_t plain_word;
static _Atomic uint32_t last_epoch; // in ordinary memory: survives a fork
static _Atomic uint32_t epoch_at_fork;
static _Atomic uint64_t cached_pid; // epoch in the upper half, process id in the lower
_Atomic uint32_t *berthi_fork_word = &plain_word;

uint32_t berthi_fork_noticed(void) {
  uint32_t next = atomic_fetch_add_explicit(&last_epoch, 1, memory_order_relaxed) + 1;
  uint32_t none = 0;
  // Several threads of a child may get here; one number stands, and the counter only ever rises, so no epoch returns.
  if (atomic_compare_exchange_strong_explicit(berthi_fork_word, &none, next, memory_order_relaxed, memory_order_relaxed)) return next;
  return none;
}

static void before_fork(void) { atomic_store_explicit(&epoch_at_fork, berthi_fork_epoch(), memory_order_relaxed); }

static void in_child(void) {
  if (berthi_fork_epoch() != atomic_load_explicit(&epoch_at_fork, memory_order_relaxed)) return; // the page was wiped
  atomic_store_explicit(berthi_fork_word, 0, memory_order_relaxed);
  berthi_fork_noticed();
}

__attribute__((constructor)) static void watch_forks(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    if (madvise(memory, page, MADV_WIPEONFORK) == 0) {
      berthi_fork_word = memory;
    } else {
      munmap(memory, page);
    }
  }
  // Also where the page works: the two agree, and a system that only claims to wipe is covered.
  pthread_atfork(before_fork, NULL, in_child);
  berthi_fork_epoch();
}

int32_t berthi_process_id(void) {
  uint32_t epoch = berthi_fork_epoch();
  uint64_t cached = atomic_load_explicit(&cached_pid, memory_order_relaxed);
  if (BERTHI_LIKELY(cached >> 32 == epoch)) return (int32_t)(uint32_t)cached;
  int32_t pid = (int32_t)getpid();
  atomic_store_explicit(&cached_pid, (uint64_t)epoch << 32 | (uint32_t)pid, memory_order_relaxed);
  return pid;
}

#endif
