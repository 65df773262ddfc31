// SPDX-License-Identifier: Apache-2.0
// One pinned worker per lane, started when first needed.
//
// Guarantees
//   Progress  the caller alone finishes any work: a worker that was not started, is busy, or has not woken yet is never waited for. Only a
//             worker that runs a task of this work is.
//   Order     tasks are taken in order from one counter; what ran before a worker's end of work happens before the caller's return.
//   Lifetime  a worker touches nothing of a work after it has marked it DONE, and the caller returns after that.
//
// States of a worker's word (one writer for each edge):
//   IDLE -> CLAIMED     a caller, by swap: now the worker is its own until it goes back to IDLE
//   CLAIMED -> POSTED   the caller, after it wrote `job`
//   POSTED -> RUNNING   the worker, by swap
//   POSTED -> IDLE      the caller, by swap: it needs no help any more
//   RUNNING -> DONE     the worker
//   DONE -> IDLE        the caller
//
// Lanes are exclusive to an execution, but threads of one execution can call at once: who does not get a worker does without.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/cpu/cpu_internal.h"

enum { IDLE, CLAIMED, POSTED, RUNNING, DONE };

// About 4 us of looking before a thread parks: a wake costs as much. Longer takes time from others where no CPU is idle.
#define SPIN_ROUNDS 300

typedef struct pool_job {
  berthi_parallel *work;
  berthi_atomic64 next BERTHI_ALIGNED_LINE; ///< next task
  berthi_atomic64 ran BERTHI_ALIGNED_LINE;  ///< tasks that ran
} pool_job;

typedef struct pool_worker {
  berthi_atomic32 state BERTHI_ALIGNED_LINE;
  pool_job *job;     ///< written by who claimed it, read by the worker between POSTED and DONE
  berthi_event wake; ///< consumer: the worker
  berthi_event done; ///< consumer: who claimed it
  berthi_atomic32 started;
  berthi_thread thread; ///< under the pool's lock
  int cpu;              ///< constant
  cpu_pool *pool;       ///< constant
} pool_worker;

struct cpu_pool {
  berthi_mutex lock; ///< rank LANES: starting workers
  berthi_atomic32 stop;
  uint32_t lanes;
  pool_worker *workers;
};

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void run_tasks(pool_job *job) {
  berthi_parallel *work = job->work;
  uint64_t ran = 0;
  for (;;) {
    // Relaxed: a hint to stop; nothing is read because of it.
    if (work->cancel != NULL && berthi_load(work->cancel, relaxed) != 0) break;
    uint64_t i = berthi_add(&job->next, 1, relaxed); // tasks share nothing through the counter
    if (i >= work->count) break;
    work->body(work->arg, i);
    ran++;
  }
  (void)berthi_add(&job->ran, ran, relaxed); // ordered by the worker's DONE
}

// Takes the posted work if there is one.
static bool accept(pool_worker *worker) {
  uint32_t expected = POSTED;
  // Acquire pairs with the release of CLAIMED -> POSTED: the job is complete.
  return berthi_load(&worker->state, relaxed) == POSTED && berthi_cas(&worker->state, &expected, RUNNING, acquire);
}

// False: stop.
static bool wait_for_work(pool_worker *worker) {
  for (;;) {
    for (int i = 0; i < SPIN_ROUNDS; i++) {
      if (berthi_load(&worker->pool->stop, acquire) != 0) return false;
      if (accept(worker)) return true;
      cpu_relax();
    }
    berthi_event_clear(&worker->wake);
    if (berthi_load(&worker->pool->stop, acquire) != 0) return false;
    if (accept(worker)) return true;
    (void)berthi_event_wait(&worker->wake, BERTH_NO_DEADLINE, "lane idle");
  }
}

static void worker_main(void *arg) {
  pool_worker *worker = arg;
  berthi_thread_self()->flags |= BERTHI_THREAD_INTERNAL | BERTHI_THREAD_IN_PARALLEL;
  if (worker->cpu >= 0) (void)berthi_thread_pin(worker->cpu); // refused: it runs where it may
  while (wait_for_work(worker)) {
    run_tasks(worker->job);
    berthi_store(&worker->state, DONE, release); // pairs with the acquire in wait_done
    berthi_event_set(&worker->done);
  }
}

static bool start_worker(cpu_pool *pool, uint32_t lane) {
  pool_worker *worker = &pool->workers[lane];
  if (berthi_load(&worker->started, acquire) != 0) return true;
  char name[16];
  snprintf(name, sizeof(name), "berth-lane%u", lane % 1000);
  berthi_mutex_lock(&pool->lock);
  bool started = berthi_load(&worker->started, relaxed) != 0;
  if (!started && berthi_thread_start(&worker->thread, name, worker_main, worker, NULL) == BERTH_OK) {
    berthi_store(&worker->started, 1, release);
    started = true;
  }
  berthi_mutex_unlock(&pool->lock);
  return started;
}

static bool post(cpu_pool *pool, uint32_t lane, pool_job *job) {
  pool_worker *worker = &pool->workers[lane];
  uint32_t expected = IDLE;
  if (!berthi_cas(&worker->state, &expected, CLAIMED, acquire)) return false;
  if (!start_worker(pool, lane)) {
    berthi_store(&worker->state, IDLE, release);
    return false;
  }
  worker->job = job;
  berthi_store(&worker->state, POSTED, release);
  berthi_event_set(&worker->wake);
  return true;
}

static void wait_done(pool_worker *worker) {
  for (int i = 0; i < SPIN_ROUNDS; i++) {
    if (berthi_load(&worker->state, acquire) == DONE) return;
    cpu_relax();
  }
  for (;;) {
    berthi_event_clear(&worker->done); // an earlier work's may have come late
    if (berthi_load(&worker->state, acquire) == DONE) return;
    (void)berthi_event_wait(&worker->done, BERTH_NO_DEADLINE, "lane done");
  }
}

static void collect(pool_worker *worker) {
  uint32_t expected = POSTED;
  if (berthi_cas(&worker->state, &expected, IDLE, acq_rel)) return;
  wait_done(worker);
  berthi_store(&worker->state, IDLE, release);
}

// The caller's own lane: the one whose CPU it is on, so that no worker is posted there, else the first.
static uint32_t own_lane(const cpu_pool *pool, const berthi_lanemask *lanes) {
  uint32_t first = BERTHI_LANES_MAX;
  int here = sched_getcpu();
  for (uint32_t lane = 0; lane < pool->lanes; lane++) {
    if (!berthi_lanes_test(lanes, lane)) continue;
    if (pool->workers[lane].cpu == here && here >= 0) return lane;
    if (first == BERTHI_LANES_MAX) first = lane;
  }
  return first;
}

static void run_inline(berthi_parallel *work) {
  pool_job job = {.work = work};
  run_tasks(&job);
  work->skipped = work->count - berthi_load(&job.ran, relaxed);
}

static void run_shared(cpu_pool *pool, const berthi_lanemask *lanes, berthi_parallel *work) {
  pool_job job = {.work = work};
  berthi_lanemask posted = {{0}};
  uint32_t own = own_lane(pool, lanes);
  uint64_t wanted = work->count - 1;
  for (uint32_t lane = 0; lane < pool->lanes && wanted > 0; lane++) {
    if (lane == own || !berthi_lanes_test(lanes, lane) || !post(pool, lane, &job)) continue;
    berthi_lanes_set(&posted, lane);
    wanted--;
  }
  run_tasks(&job);
  for (uint32_t lane = 0; lane < pool->lanes; lane++) {
    if (berthi_lanes_test(&posted, lane)) collect(&pool->workers[lane]);
  }
  work->skipped = work->count - berthi_load(&job.ran, relaxed);
}

void berthi_pool_run(cpu_pool *pool, const berthi_lanemask *lanes, berthi_parallel *work) {
  berthi_thread_state *self = berthi_thread_self();
  bool nested = (self->flags & BERTHI_THREAD_IN_PARALLEL) != 0;
  if (nested || work->count < 2 || berthi_lanes_count(lanes) < 2) {
    run_inline(work);
    return;
  }
  self->flags |= BERTHI_THREAD_IN_PARALLEL;
  run_shared(pool, lanes, work);
  self->flags &= ~(uint32_t)BERTHI_THREAD_IN_PARALLEL;
}

berth_status berthi_pool_create(const int *cpus, uint32_t lanes, cpu_pool **out, berth_error *err) {
  cpu_pool *pool = berthi_alloc(sizeof(*pool));
  pool_worker *workers = berthi_alloc_aligned(lanes * sizeof(*workers), BERTHI_CACHE_LINE);
  if (pool == NULL || workers == NULL) {
    berthi_free(workers);
    berthi_free(pool);
    return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for a pool of %u lanes", lanes);
  }
  berthi_mutex_init(&pool->lock, BERTHI_RANK_LANES);
  pool->lanes = lanes;
  pool->workers = workers;
  for (uint32_t lane = 0; lane < lanes; lane++) {
    berthi_event_init(&workers[lane].wake);
    berthi_event_init(&workers[lane].done);
    workers[lane].cpu = cpus[lane];
    workers[lane].pool = pool;
  }
  *out = pool;
  return BERTH_OK;
}

void berthi_pool_close(cpu_pool *pool) {
  if (pool == NULL) return;
  berthi_store(&pool->stop, 1, release);
  for (uint32_t lane = 0; lane < pool->lanes; lane++) {
    if (berthi_load(&pool->workers[lane].started, acquire) == 0) continue;
    berthi_event_set(&pool->workers[lane].wake);
    berthi_thread_join(&pool->workers[lane].thread);
  }
  berthi_free(pool->workers);
  berthi_free(pool);
}

uint32_t berthi_pool_started(cpu_pool *pool) {
  uint32_t count = 0;
  for (uint32_t lane = 0; lane < pool->lanes; lane++) count += berthi_load(&pool->workers[lane].started, acquire) != 0;
  return count;
}
