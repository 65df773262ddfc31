// SPDX-License-Identifier: Apache-2.0
// The measurements of `berth bench`, against the static library, with what needs a look inside: whether the success path allocates, and which clock
// is in use.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "measure.h"

#define ATTEMPTS 1000
#define ITEMS_MOST 32

static atomic_uint_fast64_t allocations; // relaxed: a count that one thread reads after it has done what is counted
static atomic_bool counting;             // relaxed: set by the same thread

static bool count_allocation(void *arg, berthi_fault kind, const char *where) {
  (void)arg;
  (void)where;
  if (kind == BERTHI_FAULT_ALLOC && atomic_load_explicit(&counting, memory_order_relaxed)) {
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  }
  return false;
}

// From the begun attempt to its read report.
static bool counted_attempt(berth_session *session) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  berth_report *report = NULL;
  if (berth_session_begin_attempt(session, NULL, &attempt, NULL) != BERTH_OK) return false;
  atomic_store_explicit(&counting, true, memory_order_relaxed);
  berth_completion *completion = berth_attempt_completion(attempt);
  bool ok = berth_session_admit(session, attempt, NULL, &admission, NULL) == BERTH_OK && berth_admission_take(admission, &exec, NULL) == BERTH_OK;
  berth_admission_release(admission);
  if (ok) ok = berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL) == BERTH_OK && berth_completion_poll(completion, &report, NULL) == BERTH_OK;
  berth_report_release(report);
  berth_completion_release(completion);
  atomic_store_explicit(&counting, false, memory_order_relaxed);
  berth_attempt_release(attempt);
  return ok;
}

static void measure_allocations(measure *m) {
  measure_world world;
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  bool ok = true;
  device.name = "sim:0";
  if (!measure_open(m, &world, "allocations", &device, 1, 0)) return;
  berthi_fault_set_hook(count_allocation, NULL);
  for (int i = 0; i < ATTEMPTS && ok; i++) ok = counted_attempt(world.session);
  berthi_fault_set_hook(NULL, NULL);
  if (ok) {
    measure_tell(m, (measure_result){.name = "allocations_after_begin",
                                     .value = (double)atomic_load(&allocations),
                                     .unit = "",
                                     .bound = MEASURE_AT_MOST,
                                     .budget = 0,
                                     .samples = ATTEMPTS,
                                     .note = "from begin to the read report"});
  } else {
    measure_fail(m, "allocations", "an attempt failed");
  }
  measure_close(&world);
}

// The library takes a moment to trust the processor's counter.
static const char *settled_clock(void) {
  int64_t until = berth_now() + 200000000;
  while (strcmp(berthi_clock_source(), "tsc") != 0 && berth_now() < until) continue;
  return berthi_clock_source();
}

static int usage(void) {
  fprintf(stderr, "usage: bench_runtime [--list] [--only NAME] [--seconds S] [--json]\n");
  return 2;
}

int main(int argc, char **argv) {
  measure_options options = {.seconds = 1, .clock = settled_clock()};
  measure_item items[ITEMS_MOST];
  uint32_t count = measure_item_count;
  memcpy(items, measure_items, count * sizeof *items);
  items[count++] = (measure_item){"allocations", "allocations of the library between begin and report", measure_allocations};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      options.json = true;
    } else if (strcmp(argv[i], "--list") == 0) {
      options.list = true;
    } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      options.only = argv[++i];
    } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      options.seconds = strtod(argv[++i], NULL);
    } else {
      return usage();
    }
  }
  if (!(options.seconds >= 0.01 && options.seconds <= 3600)) return usage();
  return measure_main(&options, items, count);
}
