// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const measure_item measure_items[] = {
    {"clock", "one read of the clock", measure_clock},
    {"entry", "scoped entry and exit, nothing run, no report; one thread and two", measure_entries},
    {"attempt", "begin, admit, run nothing, sealed report; one thread and two", measure_attempts},
    {"refusal", "begin, refused admission, sealed report", measure_refusals},
    {"handover", "a grant passes to the next waiter in another thread", measure_handover},
    {"waiters", "the same with 64 waiters: context switches for each hand-over", measure_waiters},
    {"snapshot", "a metrics snapshot of four devices; what reads cost writers; laws", measure_snapshots},
    {"memory", "memory of an open attempt and of a queued request", measure_memory},
    {"load", "64 threads on memory over-subscribed 4 times", measure_load},
    {"expiry", "how late queued requests expire", measure_expiry},
};
const uint32_t measure_item_count = sizeof measure_items / sizeof *measure_items;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

double measure_median(double *values, uint32_t count) {
  qsort(values, count, sizeof *values, compare);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

measure_pair measure_interleaved(uint32_t rounds, measure_sample value, measure_sample peer, void *arg) {
  double values[MEASURE_ROUNDS], peers[MEASURE_ROUNDS], ratios[MEASURE_ROUNDS];
  measure_pair pair = {.samples = rounds};
  if (value(arg) < 0 || (peer != NULL && peer(arg) < 0)) return pair;
  for (uint32_t i = 0; i < rounds; i++) {
    bool peer_first = i % 2 == 1;
    if (peer_first && peer != NULL) peers[i] = peer(arg);
    values[i] = value(arg);
    if (!peer_first && peer != NULL) peers[i] = peer(arg);
    if (peer == NULL) peers[i] = 1;
    if (values[i] < 0 || peers[i] < 0) return pair;
    ratios[i] = values[i] / peers[i];
  }
  pair.value = measure_median(values, rounds);
  pair.peer = measure_median(peers, rounds);
  pair.ratio = measure_median(ratios, rounds);
  pair.ok = true;
  return pair;
}

uint64_t measure_fill(const measure *m, uint32_t rounds, uint64_t count, int64_t nanoseconds) {
  double each = (double)(nanoseconds > 0 ? nanoseconds : 1) / (double)count;
  double fits = m->seconds * 1e9 / (2.0 * rounds) / each;
  return fits < 64 ? 64 : (uint64_t)fits;
}

void measure_tell(measure *m, measure_result result) { m->tell(m->arg, &result); }

void measure_fail(measure *m, const char *item, const char *why) {
  m->failed = true;
  fprintf(stderr, "%s is not measured: %s\n", item, why);
}

// ---- backends --------------------------------------------------------------------------------------------------------------------------------

bool measure_open(measure *m, measure_world *world, const char *item, const berth_device_options *devices, uint32_t count, uint32_t max_queued) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.devices = devices;
  options.device_count = count;
  options.max_queued = max_queued;
  if (berth_backend_open(&options, &world->backend, &err) != BERTH_OK) {
    measure_fail(m, item, err.message);
    return false;
  }
  world->session = berth_backend_session(world->backend);
  return true;
}

void measure_close(measure_world *world) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  int64_t deadline = berth_now() + 20000000000;
  if (berth_backend_close_wait(world->backend, deadline, deadline, &report, &err) != BERTH_OK) fprintf(stderr, "closing: %s\n", err.message);
  berth_session_release(world->session);
  berth_backend_release(world->backend);
}

// ---- threads ---------------------------------------------------------------------------------------------------------------------------------

typedef struct member {
  const measure_crowd *crowd;
  pthread_barrier_t *start;
  uint32_t index;
  int64_t began, ended;
} member;

uint32_t measure_cpus(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static void pin(uint32_t nth) {
  cpu_set_t set, one;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  nth %= (uint32_t)CPU_COUNT(&set);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &set) || nth-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static void *member_main(void *arg) {
  member *self = arg;
  const measure_crowd *crowd = self->crowd;
  if (crowd->pinned || crowd->one_cpu) pin(crowd->one_cpu ? 0 : self->index);
  if (crowd->warm != NULL) crowd->warm(crowd->arg, self->index);
  pthread_barrier_wait(self->start);
  self->began = berth_now();
  crowd->fn(crowd->arg, self->index);
  self->ended = berth_now();
  return NULL;
}

static int64_t span_of(const member *members, uint32_t count) {
  int64_t began = members[0].began;
  int64_t ended = members[0].ended;
  for (uint32_t i = 1; i < count; i++) {
    if (members[i].began < began) began = members[i].began;
    if (members[i].ended > ended) ended = members[i].ended;
  }
  return ended - began;
}

int64_t measure_together(const measure_crowd *crowd) {
  enum { MOST = 128 };
  member members[MOST];
  pthread_t threads[MOST];
  pthread_barrier_t start;
  if (crowd->count > MOST || pthread_barrier_init(&start, NULL, crowd->count) != 0) return -1;
  for (uint32_t i = 0; i < crowd->count; i++) {
    members[i] = (member){.crowd = crowd, .start = &start, .index = i};
    if (pthread_create(&threads[i], NULL, member_main, &members[i]) != 0) {
      fprintf(stderr, "no thread %u of %u\n", i + 1, crowd->count); // the others wait at the barrier for good
      exit(1);
    }
  }
  for (uint32_t i = 0; i < crowd->count; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&start);
  return span_of(members, crowd->count);
}

void measure_sleep_until(int64_t time) {
  struct timespec at = {.tv_sec = time / 1000000000, .tv_nsec = time % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) continue;
}
