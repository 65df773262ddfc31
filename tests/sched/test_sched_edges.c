// SPDX-License-Identifier: Apache-2.0
/// Every edge of states.def is taken by the scenarios: a state machine has no transition that nothing tries. With arguments it explores instead, any
/// scenario (sched_suite.h): it is the program behind scripts/explore.
#include <stdio.h>

#include "runtime/states.h"
#include "sched/sched_suite.h"

#define SCHEDULES 150

// What a forked child inherits is lost on purpose.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

static int explore(const sched_scenario *scenario, berthi_sched_mode mode) {
  static berthi_sched_result result;
  berthi_sched_options options = {.mode = mode, .seed = 5000, .schedules = SCHEDULES, .name = scenario->name};
  berthi_sched_explore(&options, scenario->run, NULL, &result);
  if (result.failed) printf("FAILED %s\n%s\n", scenario->name, result.message);
  return result.failed ? 1 : 0;
}

static int explore_all(void) {
  size_t count = 0;
  const sched_group *groups = sched_groups(&count);
  for (size_t g = 0; g < count; g++) {
    for (const sched_scenario *scenario = groups[g].scenarios; scenario->name != NULL; scenario++) {
      if (explore(scenario, BERTHI_SCHED_RANDOM) != 0 || explore(scenario, BERTHI_SCHED_PRIORITY) != 0) return 1;
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return sched_main(argc, argv, NULL);
  if (sched_slow_tool()) return 77; // so few schedules would miss edges
  static const char *const machines[] = {"admission", "attempt", "backend", "health", "stripe"};
  uint32_t count = 0, missing = 0;
  const berthi_edge_row *edges = berthi_edge_rows(&count);
  if (explore_all() != 0) return 1;
  for (uint32_t i = 0; i < count; i++) {
    unsigned long long taken = (unsigned long long)berthi_edge_taken(i);
    printf("%-10s %-18s -> %-18s %10llu%s\n", machines[edges[i].machine], edges[i].from, edges[i].to, taken, taken == 0 ? "  NEVER" : "");
    if (taken == 0) missing++;
  }
  printf("%u of %u edges taken\n", count - missing, count);
  return missing == 0 ? 0 : 1;
}
