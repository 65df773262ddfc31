// SPDX-License-Identifier: Apache-2.0
// Metrics snapshots: what one costs, what reading costs the writers, and whether a law is ever broken (MET-1).
#include <stdatomic.h>
#include <string.h>

#include "measure.h"

#define DEVICES 4
#define READ_EVERY 100000 // 10 kHz

typedef struct scene {
  measure_world world;
  uint64_t count;
  berth_metrics metrics;
  berth_device_metrics devices[DEVICES];
  // Of the reader beside a writer.
  atomic_bool stop;  // relaxed: seen at the next turn
  atomic_bool reads; // relaxed, likewise: whether it reads or only wakes up
  uint64_t snapshots, broken;
  const char *first_broken;
  bool failed;
} scene;

static intptr_t nothing(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  return 0;
}

static bool open_scene(measure *m, scene *s) {
  static const char *const names[DEVICES] = {"sim:0", "sim:1", "sim:2", "sim:3"};
  berth_device_options options[DEVICES];
  memset(s, 0, sizeof *s);
  for (uint32_t i = 0; i < DEVICES; i++) {
    options[i] = (berth_device_options)BERTH_DEVICE_OPTIONS_INIT;
    options[i].name = names[i];
  }
  s->metrics = (berth_metrics)BERTH_METRICS_INIT;
  s->metrics.devices = s->devices;
  s->metrics.device_capacity = DEVICES;
  return measure_open(m, &s->world, "snapshot", options, DEVICES, 0);
}

static double sample_snapshot(void *arg) {
  scene *s = arg;
  int64_t began = berth_now();
  for (uint64_t i = 0; i < s->count; i++) {
    if (berth_session_metrics(s->world.session, &s->metrics, NULL) != BERTH_OK) return -1;
  }
  return (double)(berth_now() - began) / (double)s->count;
}

// Entries beside a thread that wakes up 10,000 times a second, on another CPU where there is one, and reads or does not.
static void read_or_write(void *arg, uint32_t index) {
  scene *s = arg;
  if (index == 0) {
    for (uint64_t i = 0; i < s->count; i++) {
      if (berth_run(s->world.session, NULL, nothing, NULL, NULL, NULL) != BERTH_OK) s->failed = true;
    }
    atomic_store_explicit(&s->stop, true, memory_order_relaxed);
    return;
  }
  berth_metrics before = s->metrics;
  for (int64_t next = berth_now(); !atomic_load_explicit(&s->stop, memory_order_relaxed);) {
    next += READ_EVERY;
    measure_sleep_until(next);
    if (!atomic_load_explicit(&s->reads, memory_order_relaxed)) continue;
    if (berth_session_metrics(s->world.session, &s->metrics, NULL) != BERTH_OK) s->failed = true;
    const char *law = measure_broken_law(&s->metrics, &before);
    s->snapshots++;
    s->broken += law != NULL;
    if (law != NULL && s->first_broken == NULL) s->first_broken = law;
    before = s->metrics;
  }
}

static double sample_writer(scene *s, bool reads) {
  atomic_store_explicit(&s->stop, false, memory_order_relaxed);
  atomic_store_explicit(&s->reads, reads, memory_order_relaxed);
  berth_session_metrics(s->world.session, &s->metrics, NULL);
  measure_crowd crowd = {.count = 2, .pinned = true, .fn = read_or_write, .arg = s};
  int64_t span = measure_together(&crowd);
  return span < 0 || s->failed ? -1 : (double)span / (double)s->count;
}

static double sample_read_beside(void *arg) { return sample_writer(arg, true); }
static double sample_alone(void *arg) { return sample_writer(arg, false); }

static void tell_laws(measure *m, const scene *s) {
  measure_result result = {.name = "snapshot_broken_laws",
                           .value = (double)s->broken,
                           .unit = "",
                           .bound = MEASURE_AT_MOST,
                           .budget = 0,
                           .samples = (uint32_t)s->snapshots};
  snprintf(result.note, sizeof result.note, "%s", s->first_broken != NULL ? s->first_broken : "snapshots beside a writer");
  measure_tell(m, result);
}

void measure_snapshots(measure *m) {
  scene s;
  if (!open_scene(m, &s)) return;
  s.count = 1000;
  double each = sample_snapshot(&s);
  s.count = measure_fill(m, MEASURE_ROUNDS, 1000, (int64_t)(each * 1000));
  measure_pair one = measure_interleaved(MEASURE_ROUNDS, sample_snapshot, NULL, &s);
  measure_tell(m, (measure_result){.name = "snapshot",
                                   .value = one.value,
                                   .unit = "ns",
                                   .bound = MEASURE_AT_MOST,
                                   .budget = 500,
                                   .samples = one.samples,
                                   .note = "four devices"});
  s.count = measure_fill(m, MEASURE_ROUNDS, 1, 100) * 4;
  measure_pair pair = measure_interleaved(MEASURE_ROUNDS, sample_read_beside, sample_alone, &s);
  if (pair.ok) {
    measure_result result = {.name = "snapshot_slows_writers",
                             .value = (pair.ratio - 1) * 100,
                             .unit = "%",
                             .bound = MEASURE_AT_MOST,
                             .budget = 5,
                             .peer = "entry without reads, ns",
                             .peer_value = pair.peer,
                             .samples = pair.samples};
    snprintf(result.note, sizeof result.note, "reads at 10 kHz%s", measure_cpus() < 2 ? "; there is one CPU only" : "");
    measure_tell(m, result);
    tell_laws(m, &s);
  } else {
    measure_fail(m, "snapshot_slows_writers", "an entry or a read failed");
  }
  measure_close(&s.world);
}
