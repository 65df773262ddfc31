// SPDX-License-Identifier: Apache-2.0
// Admission under load: 64 threads ask for four times the memory that there is. And how late queued requests expire.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define THREADS 64
#define GRANTS 16
#define JOB_NANOSECONDS 600000

typedef struct load {
  measure_world world;
  uint64_t share; ///< bytes of each job: GRANTS of them fill the device
  uint64_t spins; ///< of a job
  int64_t until;
  atomic_uint_fast64_t done, failed; // relaxed: totals, read after the threads have ended
} load;

// Work of a CPU that no compiler removes and no clock shortens.
static uint64_t work(uint64_t spins) {
  uint64_t x = spins;
  for (uint64_t i = 0; i < spins; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    __asm__ volatile("" : "+r"(x));
  }
  return x;
}

static intptr_t job(berth_exec *exec, void *arg) {
  load *l = arg;
  (void)exec;
  work(l->spins);
  atomic_fetch_add_explicit(&l->done, 1, memory_order_relaxed);
  return 0;
}

static void admitted(void *arg, uint32_t index) {
  load *l = arg;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  (void)index;
  options.bytes = l->share;
  while (berth_now() < l->until) {
    if (berth_run(l->world.session, &options, job, l, NULL, NULL) != BERTH_OK) atomic_fetch_add_explicit(&l->failed, 1, memory_order_relaxed);
  }
}

static void alone(void *arg, uint32_t index) {
  load *l = arg;
  (void)index;
  while (berth_now() < l->until) job(NULL, l);
}

static double rate(load *l, double seconds, uint32_t count, void (*fn)(void *, uint32_t)) {
  measure_crowd crowd = {.count = count, .fn = fn, .arg = l};
  atomic_store(&l->done, 0);
  l->until = berth_now() + (int64_t)(seconds * 1e9);
  int64_t span = measure_together(&crowd);
  return span < 0 ? -1 : (double)atomic_load(&l->done) / ((double)span / 1e9);
}

static uint64_t spins_of_job(void) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    int64_t began = berth_now();
    work(1000000);
    uint64_t took = (uint64_t)(berth_now() - began);
    if (took < best) best = took;
  }
  return (uint64_t)JOB_NANOSECONDS * 1000000 / (best > 0 ? best : 1);
}

// Its rounds are long, so that threads that come and go at both ends of one do not count.
static void loaded(measure *m, load *l) {
  enum { ROUNDS = 5 };
  double ratios[ROUNDS], rates[ROUNDS], bare[ROUNDS];
  double seconds = m->seconds / 4 < 0.1 ? 0.1 : m->seconds / 4;
  for (int i = 0; i < ROUNDS; i++) {
    bare[i] = rate(l, seconds, GRANTS, alone);
    rates[i] = rate(l, seconds, THREADS, admitted);
    ratios[i] = rates[i] / bare[i];
  }
  measure_result result = {.name = "load_throughput",
                           .value = measure_median(ratios, ROUNDS) * 100,
                           .unit = "%",
                           .bound = MEASURE_AT_LEAST,
                           .budget = 95,
                           .peer = "the device at full use, jobs/s",
                           .peer_value = measure_median(bare, ROUNDS),
                           .samples = ROUNDS};
  snprintf(result.note, sizeof result.note, "%.0f jobs/s of 0.6 ms; 64 threads, memory for %d", measure_median(rates, ROUNDS), GRANTS);
  measure_tell(m, result);
  measure_tell(m, (measure_result){.name = "load_failures",
                                   .value = (double)atomic_load(&l->failed),
                                   .unit = "",
                                   .bound = MEASURE_AT_MOST,
                                   .budget = 0,
                                   .samples = ROUNDS,
                                   .note = "entries that did not run"});
}

void measure_load(measure *m) {
  load l;
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  memset(&l, 0, sizeof l);
  device.name = "sim:0";
  device.parameters = "lanes=64,slots=64";
  if (!measure_open(m, &l.world, "load", &device, 1, 0)) return;
  berth_session_startup_record(l.world.session, 0, &record, NULL);
  l.share = (record.capacity_bytes - record.cache_bytes) / GRANTS;
  l.spins = spins_of_job();
  loaded(m, &l);
  measure_close(&l.world);
}

// ---- expiry ----------------------------------------------------------------------------------------------------------------------------------

#define EXPIRIES 4000

typedef struct deadlines {
  measure_world world;
  berth_exec *full;
  berth_attempt *attempts[EXPIRIES];
  berth_completion *completions[EXPIRIES];
  berth_admission *admissions[EXPIRIES];
  int64_t at[EXPIRIES];
  double late[EXPIRIES];
} deadlines;

// Deadlines spread over the item's seconds, in no order.
static bool submit_all(measure *m, deadlines *d) {
  uint64_t spread = (uint64_t)(m->seconds * 1e9);
  int64_t first = berth_now() + 100000000;
  for (uint64_t i = 0; i < EXPIRIES; i++) {
    berth_request request = BERTH_REQUEST_INIT;
    d->at[i] = first + (int64_t)(((i * 2654435761u) % EXPIRIES) * (spread / EXPIRIES));
    request.queue_deadline = d->at[i];
    if (berth_session_begin_attempt(d->world.session, NULL, &d->attempts[i], NULL) != BERTH_OK) return false;
    d->completions[i] = berth_attempt_completion(d->attempts[i]);
    if (berth_session_admit(d->world.session, d->attempts[i], &request, &d->admissions[i], NULL) != BERTH_OK) return false;
  }
  return true;
}

static bool read_all(deadlines *d) {
  for (int i = 0; i < EXPIRIES; i++) {
    berth_report *report = NULL;
    berth_report_info info = BERTH_REPORT_INFO_INIT;
    if (berth_completion_wait(d->completions[i], BERTH_NO_DEADLINE, &report, NULL) != BERTH_OK) return false;
    berth_report_get(report, &info, NULL);
    berth_report_release(report);
    if (info.cause.reason == NULL || strcmp(info.cause.reason, "queue_wait_elapsed") != 0) return false;
    d->late[i] = (double)(info.sealed_at - d->at[i]) / 1e6;
  }
  return true;
}

static void tell_expiry(measure *m, deadlines *d) {
  double half = measure_median(d->late, EXPIRIES); // sorts
  measure_result result = {
      .name = "expiry_p999", .value = d->late[EXPIRIES - EXPIRIES / 1000], .unit = "ms", .bound = MEASURE_AT_MOST, .budget = 5, .samples = EXPIRIES};
  snprintf(result.note, sizeof result.note, "sealed after its deadline; median %.3f, earliest %.3f, latest %.3f ms", half, d->late[0],
           d->late[EXPIRIES - 1]);
  measure_tell(m, result);
}

void measure_expiry(measure *m) {
  deadlines *d = calloc(1, sizeof *d);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "sim:0";
  device.parameters = "lanes=1,slots=1";
  if (d == NULL) {
    measure_fail(m, "expiry", "no memory");
    return;
  }
  if (measure_open(m, &d->world, "expiry", &device, 1, 2 * EXPIRIES)) {
    if (berth_exec_hold(d->world.session, NULL, &d->full, NULL) == BERTH_OK && submit_all(m, d) && read_all(d)) {
      tell_expiry(m, d);
    } else {
      measure_fail(m, "expiry", "a request did not wait until its deadline");
    }
    for (int i = 0; i < EXPIRIES; i++) {
      berth_admission_release(d->admissions[i]);
      berth_completion_release(d->completions[i]);
      berth_attempt_release(d->attempts[i]);
    }
    berth_exec_release(d->full);
    measure_close(&d->world);
  }
  free(d);
}
