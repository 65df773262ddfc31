// SPDX-License-Identifier: Apache-2.0
/// The scenarios by name, and the program that explores them: the tests, the edges' test, the mutations and scripts/explore are this one program.
#ifndef BERTH_TESTS_SCHED_SUITE_H
#define BERTH_TESTS_SCHED_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sched.h"

/// One scenario. A test explores `schedules` seeds at random, half as many by priority, and, with `exhaustive`, at most that many schedules
/// depth-first, each with one preemption at most: the smaller ones are covered whole.
typedef struct sched_scenario {
  const char *name;
  berthi_sched_scenario run;
  uint32_t schedules;
  uint32_t exhaustive;
} sched_scenario;

/// The scenarios of one subject. The lists end with a row without a name.
typedef struct sched_group {
  const char *name;
  const sched_scenario *scenarios;
} sched_group;

extern const sched_scenario scenarios_gate[], scenarios_decision[], scenarios_stripe[], scenarios_release[], scenarios_report[], scenarios_grow[],
    scenarios_queue[], scenarios_health[], scenarios_fork[], scenarios_callback[], scenarios_open[], scenarios_time[];

const sched_group *sched_groups(size_t *out_count);

/// Whether the process runs under valgrind, which takes a schedule's time some fifty times.
bool sched_slow_tool(void);

/// The program. Explores the scenarios of `group` (NULL: all), or what the arguments say:
///   --scenario X   only this one          --seed S       first seed           --schedules N   of each mode
///   --mode M       random, priority or exhaustive         --seconds N    go on with new seeds for so long
///   --list         the names
/// Stops at the first failure, with the command that replays it, and returns 1; 2 for wrong arguments.
int sched_main(int argc, char **argv, const char *group);

#endif
