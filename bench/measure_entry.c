// SPDX-License-Identifier: Apache-2.0
// The doors to an execution, uncontended: the scoped entry, the attempt, the refusal; and the clock.
#include <string.h>
#include <time.h>

#include "measure.h"

typedef struct door {
  measure_world world;
  pthread_mutex_t mutex;
  bool (*once)(struct door *door); ///< one operation
  uint64_t count;                  ///< operations of one sample, in each thread
  uint64_t lanes;
  bool failed;
} door;

static intptr_t nothing(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  return 0;
}

// ---- operations ------------------------------------------------------------------------------------------------------------------------------

static bool enter_once(door *d) { return berth_run(d->world.session, NULL, nothing, NULL, NULL, NULL) == BERTH_OK; }

// Takes the sealed report of an attempt that has ended, and drops everything.
static bool report_once(berth_attempt *attempt, berth_completion *completion) {
  berth_report *report = NULL;
  bool sealed = berth_completion_poll(completion, &report, NULL) == BERTH_OK;
  berth_report_release(report);
  berth_completion_release(completion);
  berth_attempt_release(attempt);
  return sealed;
}

static bool attempt_once(door *d) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  if (berth_session_begin_attempt(d->world.session, NULL, &attempt, NULL) != BERTH_OK) return false;
  berth_completion *completion = berth_attempt_completion(attempt);
  bool granted = berth_session_admit(d->world.session, attempt, NULL, &admission, NULL) == BERTH_OK &&
                 berth_admission_wait(admission, BERTH_NO_DEADLINE, NULL) == BERTH_OK && berth_admission_take(admission, &exec, NULL) == BERTH_OK;
  berth_admission_release(admission);
  if (granted) granted = berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL) == BERTH_OK;
  return report_once(attempt, completion) && granted;
}

static bool report_run_once(door *d) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.report = true;
  bool ran = berth_run(d->world.session, &options, nothing, NULL, &result, NULL) == BERTH_OK;
  berth_report_release(result.report);
  return ran && result.report != NULL;
}

static bool refuse_once(door *d) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = (uint64_t)1 << 60;
  if (berth_session_begin_attempt(d->world.session, NULL, &attempt, NULL) != BERTH_OK) return false;
  berth_completion *completion = berth_attempt_completion(attempt);
  bool refused = berth_session_admit(d->world.session, attempt, &request, &admission, NULL) == BERTH_OUT_OF_RANGE;
  return report_once(attempt, completion) && refused;
}

static bool lock_once(door *d) {
  pthread_mutex_lock(&d->mutex);
  __asm__ volatile("" ::: "memory");
  pthread_mutex_unlock(&d->mutex);
  return true;
}

// ---- samples: nanoseconds for one operation ----------------------------------------------------------------------------------------------------

static double sample_once(door *d, bool (*once)(door *)) {
  int64_t began = berth_now();
  for (uint64_t i = 0; i < d->count; i++) {
    if (!once(d)) return -1;
  }
  return (double)(berth_now() - began) / (double)d->count;
}

static double sample_door(void *arg) { return sample_once(arg, ((door *)arg)->once); }
static double sample_mutex(void *arg) { return sample_once(arg, lock_once); }

static void thread_warm(void *arg, uint32_t index) {
  door *d = arg;
  (void)index;
  for (int i = 0; i < 100; i++) {
    if (!d->once(d)) d->failed = true;
  }
}

static void thread_door(void *arg, uint32_t index) {
  door *d = arg;
  (void)index;
  for (uint64_t i = 0; i < d->count; i++) {
    if (!d->once(d)) d->failed = true;
  }
}

static void thread_mutex(void *arg, uint32_t index) {
  door *d = arg;
  (void)index;
  for (uint64_t i = 0; i < d->count; i++) lock_once(d);
}

static double sample_threads(door *d, uint32_t count, void (*fn)(void *, uint32_t)) {
  measure_crowd crowd = {.count = count, .pinned = true, .warm = fn == thread_door ? thread_warm : NULL, .fn = fn, .arg = d};
  int64_t span = measure_together(&crowd);
  return span < 0 || d->failed ? -1 : (double)span / (double)d->count;
}

static double sample_two(void *arg) { return sample_threads(arg, 2, thread_door); }
static double sample_one(void *arg) { return sample_threads(arg, 1, thread_door); }
static double sample_two_mutex(void *arg) { return sample_threads(arg, 2, thread_mutex); }

// ---- items -----------------------------------------------------------------------------------------------------------------------------------

// The cpu where it has a lane for each of two threads, else a simulated device.
static bool open_door(measure *m, door *d, const char *item) {
  berth_device_description found = BERTH_DEVICE_DESCRIPTION_INIT;
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  uint32_t count = 0;
  memset(d, 0, sizeof *d);
  pthread_mutex_init(&d->mutex, NULL);
  device.name = "sim:0";
  d->lanes = 4;
  if (berth_devices_list(&found, 1, &count, NULL) == BERTH_OK && count > 0 && found.available && found.default_lanes >= 2) {
    device.name = "cpu:0";
    d->lanes = found.default_lanes;
  }
  return measure_open(m, &d->world, item, &device, 1, 0);
}

static void fill_door(const measure *m, door *d, bool (*once)(door *)) {
  d->once = once;
  d->count = 2000;
  double each = sample_door(d);
  d->count = measure_fill(m, MEASURE_ROUNDS, 1000, (int64_t)(each * 1000));
}

static void one_thread(measure *m, door *d, const char *name, bool (*once)(door *), double budget, const char *what) {
  fill_door(m, d, once);
  measure_pair pair = measure_interleaved(MEASURE_ROUNDS, sample_door, sample_mutex, d);
  if (!pair.ok) {
    measure_fail(m, name, "an operation failed");
    return;
  }
  measure_result result = {.name = name,
                           .value = pair.value,
                           .unit = "ns",
                           .bound = MEASURE_AT_MOST,
                           .budget = budget,
                           .peer = "mutex pair",
                           .peer_value = pair.peer,
                           .samples = pair.samples};
  snprintf(result.note, sizeof result.note, "%s", what);
  measure_tell(m, result);
}

static void scaling(measure *m, door *d, const char *name) {
  measure_pair pair = measure_interleaved(MEASURE_ROUNDS, sample_two, sample_one, d);
  if (!pair.ok) {
    measure_fail(m, name, "an operation failed");
    return;
  }
  measure_result result = {.name = name,
                           .value = 2 / pair.ratio,
                           .unit = "x",
                           .bound = MEASURE_AT_LEAST,
                           .budget = 1.3,
                           .peer = "one thread, ns",
                           .peer_value = pair.peer,
                           .samples = pair.samples};
  snprintf(result.note, sizeof result.note, "two threads together against one%s", measure_cpus() < 2 ? "; there is one CPU only" : "");
  measure_tell(m, result);
}

void measure_entries(measure *m) {
  door d;
  if (!open_door(m, &d, "entry")) return;
  one_thread(m, &d, "entry_1_thread", enter_once, 80, "scoped entry and exit");
  measure_pair two = measure_interleaved(MEASURE_ROUNDS, sample_two, sample_two_mutex, &d);
  if (two.ok) {
    measure_tell(m, (measure_result){.name = "entry_2_threads",
                                     .value = two.value,
                                     .unit = "ns",
                                     .bound = MEASURE_AT_MOST,
                                     .budget = 250,
                                     .peer = "shared mutex pair, two threads",
                                     .peer_value = two.peer,
                                     .samples = two.samples,
                                     .note = "each of two threads on one backend"});
  }
  scaling(m, &d, "entry_scaling");
  measure_close(&d.world);
}

void measure_attempts(measure *m) {
  door d;
  if (!open_door(m, &d, "attempt")) return;
  one_thread(m, &d, "attempt_1_thread", attempt_once, 300, "begin, completion, admit, wait, take, finish, report, releases");
  scaling(m, &d, "attempt_scaling");
  one_thread(m, &d, "attempt_run", report_run_once, 300, "the same through one scoped entry with a report");
  measure_close(&d.world);
}

void measure_refusals(measure *m) {
  door d;
  if (!open_door(m, &d, "refusal")) return;
  one_thread(m, &d, "refusal", refuse_once, 250, "request_exceeds_device, sealed and read");
  measure_close(&d.world);
}

static double sample_now(void *arg) {
  door *d = arg;
  int64_t began = berth_now();
  int64_t last = began;
  for (uint64_t i = 0; i < d->count; i++) last = berth_now();
  return (double)(last - began) / (double)d->count;
}

static double sample_gettime(void *arg) {
  door *d = arg;
  struct timespec at;
  int64_t began = berth_now();
  for (uint64_t i = 0; i < d->count; i++) clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)(berth_now() - began) / (double)d->count;
}

void measure_clock(measure *m) {
  door d = {.count = measure_fill(m, MEASURE_ROUNDS, 1, 30)};
  measure_pair pair = measure_interleaved(MEASURE_ROUNDS, sample_now, sample_gettime, &d);
  measure_tell(m, (measure_result){.name = "clock",
                                   .value = pair.value,
                                   .unit = "ns",
                                   .peer = "clock_gettime",
                                   .peer_value = pair.peer,
                                   .samples = pair.samples,
                                   .note = "berth_now"});
}
