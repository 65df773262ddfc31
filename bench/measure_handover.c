// SPDX-License-Identifier: Apache-2.0
// A grant passes to the next waiter, which sleeps in another thread. The peers: two bare semaphores; a queue on one condition variable.
//
// One hand-over is timed from the holder's last instruction inside to the next one's first. Before that the holder makes sure that the other waits:
// threads whose entries are short meet by chance only.
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "measure.h"

#define WAITERS 64
#define HANDOVERS_MOST 20000

typedef struct line {
  measure_world world;
  bool one_cpu;
  uint64_t count; ///< hand-overs of a sample
  sem_t turns[2];
  atomic_bool waits[2]; ///< of the semaphores; relaxed: a hint
  // Inside the one execution, the semaphore's turn or the mutex only.
  uint64_t passed;
  uint32_t last;
  int64_t left_at;
  double spans[HANDOVERS_MOST];
  // The queue on a condition variable.
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t next_ticket, served;
  double switches; ///< of the last sample
  bool failed;
} line;

typedef struct visit {
  line *line;
  uint32_t index;
} visit;

static void note_arrival(line *l, uint32_t index) {
  int64_t now = berth_now();
  if (l->last != index && l->left_at != 0 && l->passed < l->count) l->spans[l->passed++] = (double)(now - l->left_at);
  l->last = index;
}

static bool somebody_waits(berth_session *session) {
  berth_metrics metrics = BERTH_METRICS_INIT;
  return berth_session_metrics(session, &metrics, NULL) != BERTH_OK || metrics.queued > 0;
}

static intptr_t pass_on(berth_exec *exec, void *arg) {
  visit *v = arg;
  (void)exec;
  note_arrival(v->line, v->index);
  if (v->line->passed >= v->line->count) return 1;
  while (!somebody_waits(v->line->world.session)) sched_yield();
  v->line->left_at = berth_now();
  return 0;
}

static void enter_pair(void *arg, uint32_t index) {
  line *l = arg;
  visit v = {l, index};
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  while (result.value == 0 && !l->failed) {
    if (berth_run(l->world.session, NULL, pass_on, &v, &result, NULL) != BERTH_OK) l->failed = true;
  }
}

static void semaphore_pair(void *arg, uint32_t index) {
  line *l = arg;
  for (bool ended = false; !ended;) {
    atomic_store_explicit(&l->waits[index], true, memory_order_relaxed);
    while (sem_wait(&l->turns[index]) != 0) continue;
    note_arrival(l, index);
    atomic_store_explicit(&l->waits[index], false, memory_order_relaxed);
    ended = l->passed >= l->count;
    while (!ended && !atomic_load_explicit(&l->waits[1 - index], memory_order_relaxed)) sched_yield();
    if (!ended && !l->one_cpu) somebody_waits(l->world.session); // the same pause as on the other side: the waiter falls asleep
    l->left_at = berth_now();
    sem_post(&l->turns[1 - index]);
  }
}

static double sample_pair(line *l, void (*fn)(void *, uint32_t)) {
  measure_crowd crowd = {.count = 2, .pinned = !l->one_cpu, .one_cpu = l->one_cpu, .fn = fn, .arg = l};
  l->passed = 0;
  l->last = 2;
  l->left_at = 0;
  int64_t span = measure_together(&crowd);
  return span < 0 || l->failed || l->passed == 0 ? -1 : measure_median(l->spans, (uint32_t)l->passed);
}

static double sample_berth(void *arg) { return sample_pair(arg, enter_pair); }

static double sample_semaphores(void *arg) {
  line *l = arg;
  sem_init(&l->turns[0], 0, 1);
  sem_init(&l->turns[1], 0, 0);
  double figure = sample_pair(l, semaphore_pair);
  sem_destroy(&l->turns[0]);
  sem_destroy(&l->turns[1]);
  return figure;
}

static bool open_line(measure *m, line *l, const char *item) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  memset(l, 0, sizeof *l);
  device.name = "sim:0";
  device.parameters = "lanes=1,slots=1";
  return measure_open(m, &l->world, item, &device, 1, 0);
}

static void pair_on(measure *m, line *l, const char *name, bool one_cpu) {
  l->one_cpu = one_cpu;
  l->count = measure_fill(m, MEASURE_ROUNDS, 1, 40000) + 50;
  if (l->count > HANDOVERS_MOST) l->count = HANDOVERS_MOST;
  measure_pair pair = measure_interleaved(MEASURE_ROUNDS, sample_berth, sample_semaphores, l);
  if (!pair.ok) {
    measure_fail(m, name, "an entry failed");
    return;
  }
  measure_result result = {.name = name,
                           .value = pair.ratio,
                           .unit = "x",
                           .bound = MEASURE_AT_MOST,
                           .budget = 1.1,
                           .peer = "semaphore, ns",
                           .peer_value = pair.peer,
                           .samples = pair.samples};
  snprintf(result.note, sizeof result.note, "%.0f ns a hand-over; both threads on %s", pair.value, one_cpu ? "one CPU" : "a CPU each");
  measure_tell(m, result);
}

void measure_handover(measure *m) {
  static line l;
  if (!open_line(m, &l, "handover")) return;
  pair_on(m, &l, "handover_one_cpu", true);
  if (measure_cpus() >= 2) pair_on(m, &l, "handover_two_cpus", false);
  measure_close(&l.world);
}

static intptr_t visited(berth_exec *exec, void *arg) {
  visit *v = arg;
  (void)exec;
  if (v->line->last != v->index) v->line->passed++;
  v->line->last = v->index;
  return (intptr_t)v->line->passed;
}

// ---- many waiters ----------------------------------------------------------------------------------------------------------------------------

static double switches(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)(use.ru_nvcsw + use.ru_nivcsw);
}

static void enter_many(void *arg, uint32_t index) {
  line *l = arg;
  visit v = {l, index};
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  while (!l->failed && (uint64_t)result.value < l->count) {
    if (berth_run(l->world.session, NULL, visited, &v, &result, NULL) != BERTH_OK) l->failed = true;
  }
}

static void condition_many(void *arg, uint32_t index) {
  line *l = arg;
  uint64_t ticket = index; // all are in the line from the start
  pthread_mutex_lock(&l->mutex);
  for (; l->served < l->count; ticket = l->next_ticket++) {
    while (ticket != l->served && l->served < l->count) pthread_cond_wait(&l->changed, &l->mutex);
    pthread_mutex_unlock(&l->mutex); // the turn
    pthread_mutex_lock(&l->mutex);
    l->served++;
    pthread_cond_broadcast(&l->changed);
  }
  pthread_mutex_unlock(&l->mutex);
}

static double sample_many(line *l, void (*fn)(void *, uint32_t)) {
  measure_crowd crowd = {.count = WAITERS, .fn = fn, .arg = l};
  double before = switches();
  int64_t span = measure_together(&crowd);
  double passed = (double)(fn == enter_many ? l->passed : l->served);
  l->switches = (switches() - before) / passed;
  return span < 0 || l->failed ? -1 : l->switches;
}

static double sample_waiters(void *arg) {
  line *l = arg;
  l->passed = 0;
  l->last = WAITERS;
  return sample_many(l, enter_many);
}

static double sample_condition(void *arg) {
  line *l = arg;
  l->next_ticket = WAITERS;
  l->served = 0;
  return sample_many(l, condition_many);
}

void measure_waiters(measure *m) {
  enum { ROUNDS = 5 };
  static line l;
  if (!open_line(m, &l, "waiters")) return;
  pthread_mutex_init(&l.mutex, NULL);
  pthread_cond_init(&l.changed, NULL);
  l.count = (uint64_t)(m->seconds * 8000) + 4000;
  measure_pair pair = measure_interleaved(ROUNDS, sample_waiters, sample_condition, &l);
  if (pair.ok) {
    measure_tell(m, (measure_result){.name = "handover_switches",
                                     .value = pair.value,
                                     .unit = "switches",
                                     .bound = MEASURE_AT_MOST,
                                     .budget = 1.3,
                                     .peer = "queue on one condition variable",
                                     .peer_value = pair.peer,
                                     .samples = pair.samples,
                                     .note = "context switches of the process for each hand-over, 64 waiters"});
  } else {
    measure_fail(m, "handover_switches", "an entry failed");
  }
  pthread_cond_destroy(&l.changed);
  pthread_mutex_destroy(&l.mutex);
  measure_close(&l.world);
}
