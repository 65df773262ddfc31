// SPDX-License-Identifier: Apache-2.0
// An empty task of StarPU (submitted in a row, run by its workers, all waited for) beside an empty attempt and an empty scoped entry of Berth, interleaved in one process.
#include <starpu.h>
#include <string.h>

#include "measure.h"

#define TASKS 300
#define ROUNDS 9

typedef struct peers {
  measure_world world;
  struct starpu_codelet codelet;
} peers;

static void nothing(void *buffers[], void *arg) {
  (void)buffers;
  (void)arg;
}

static intptr_t nothing_run(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  return 0;
}

// The way that is kind to StarPU: waiting for each task alone costs a hand-over to a worker and back.
static double sample_task(void *arg) {
  peers *p = arg;
  int64_t began = berth_now();
  for (int i = 0; i < TASKS; i++) {
    struct starpu_task *task = starpu_task_create();
    task->cl = &p->codelet;
    if (starpu_task_submit(task) != 0) return -1;
  }
  starpu_task_wait_for_all();
  return (double)(berth_now() - began) / TASKS;
}

static double sample_run(peers *p, bool report) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.report = report;
  int64_t began = berth_now();
  for (int i = 0; i < TASKS; i++) {
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    if (berth_run(p->world.session, &options, nothing_run, NULL, &result, NULL) != BERTH_OK) return -1;
    berth_report_release(result.report);
  }
  return (double)(berth_now() - began) / TASKS;
}

static double sample_attempt(void *arg) { return sample_run(arg, true); }
static double sample_entry(void *arg) { return sample_run(arg, false); }

static void tell(measure *m, const char *name, const measure_pair *pair, const char *note) {
  if (!pair->ok) {
    measure_fail(m, name, "an operation failed");
    return;
  }
  measure_result result = {
      .name = name, .value = pair->value, .unit = "ns", .peer = "empty StarPU task, ns", .peer_value = pair->peer, .samples = pair->samples};
  snprintf(result.note, sizeof result.note, "%s", note);
  measure_tell(m, result);
}

static void measure_starpu(measure *m) {
  peers p = {.codelet = {.cpu_funcs = {nothing}, .nbuffers = 0}};
  if (!measure_open(m, &p.world, "starpu", NULL, 0, 0)) return;
  measure_pair attempt = measure_interleaved(ROUNDS, sample_attempt, sample_task, &p);
  tell(m, "starpu_attempt", &attempt, "scoped entry with a sealed report");
  measure_pair entry = measure_interleaved(ROUNDS, sample_entry, sample_task, &p);
  tell(m, "starpu_entry", &entry, "scoped entry");
  measure_close(&p.world);
}

int main(int argc, char **argv) {
  const measure_item item = {"starpu", "an empty StarPU task beside an empty attempt", measure_starpu};
  measure_options options = {.seconds = 1, .json = argc == 2 && strcmp(argv[1], "--json") == 0};
  if (starpu_init(NULL) != 0) {
    fprintf(stderr, "StarPU does not start here\n");
    return 77;
  }
  int code = measure_main(&options, &item, 1);
  starpu_shutdown();
  return code;
}
