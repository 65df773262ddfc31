// SPDX-License-Identifier: Apache-2.0
#include "sched/sched_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/annotate.h"

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif

#define DEPTH 200000

static const char *const mode_names[] = {"random", "priority", "exhaustive"};

static const sched_group groups[] = {
    {"gate", scenarios_gate},     {"decision", scenarios_decision}, {"stripe", scenarios_stripe}, {"release", scenarios_release},
    {"report", scenarios_report}, {"grow", scenarios_grow},         {"queue", scenarios_queue},   {"health", scenarios_health},
    {"fork", scenarios_fork},     {"callback", scenarios_callback}, {"open", scenarios_open},     {"time", scenarios_time},
};

const sched_group *sched_groups(size_t *out_count) {
  *out_count = BERTHI_COUNTOF(groups);
  return groups;
}

typedef struct arguments {
  const char *program, *group, *scenario;
  uint64_t seed, schedules; // schedules 0: as the scenario says
  uint64_t seconds;
  int mode; // -1: all
  bool list;
} arguments;

typedef struct totals {
  uint64_t schedules, points, scenarios;
  bool failed;
} totals;

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool sched_slow_tool(void) {
#if defined(RUNNING_ON_VALGRIND)
  return RUNNING_ON_VALGRIND != 0;
#else
  return false;
#endif
}

// Sanitizers and valgrind see fewer schedules: there it is the single step that is checked.
static uint64_t scaled(uint64_t schedules) {
  uint64_t divisor = 1;
#if defined(BERTHI_ASAN)
  divisor = 20;
#endif
  if (sched_slow_tool()) divisor = 500;
  return schedules > divisor ? schedules / divisor : 1;
}

static void say_failure(const arguments *a, const sched_scenario *scenario, int mode, const berthi_sched_result *result) {
  const char *name = strrchr(a->program, '/');
  printf("FAILED %s\n%s\n", scenario->name, result->message);
  if (mode == BERTHI_SCHED_EXHAUSTIVE) {
    printf("replay: scripts/explore --scenario %s --mode exhaustive --schedules %llu\n", scenario->name,
           (unsigned long long)result->failing_seed + 1);
  } else {
    printf("replay: scripts/explore --scenario %s --mode %s --seed %llu --schedules 1\n", scenario->name, mode_names[mode],
           (unsigned long long)result->failing_seed);
  }
  printf("(found by %s)\n", name != NULL ? name + 1 : a->program);
  fflush(stdout);
}

static bool explore(const arguments *a, const sched_scenario *scenario, int mode, uint64_t seed, uint64_t schedules, totals *all) {
  berthi_sched_options options = {
      .mode = (berthi_sched_mode)mode, .seed = seed, .schedules = schedules, .preemptions = 1, .depth = DEPTH, .name = scenario->name};
  static berthi_sched_result result;
  double begun = seconds_now();
  berthi_sched_explore(&options, scenario->run, NULL, &result);
  all->schedules += result.schedules;
  all->points += result.points;
  printf("%-28s %-10s %7llu schedules %10llu points %7.2f s%s\n", scenario->name, mode_names[mode], (unsigned long long)result.schedules,
         (unsigned long long)result.points, seconds_now() - begun, result.exhausted ? "  all within the bound" : "");
  fflush(stdout);
  if (!result.failed) return true;
  all->failed = true;
  say_failure(a, scenario, mode, &result);
  return false;
}

// What happens once in a process (tables, thread hooks) must not differ between schedules of the exhaustive mode.
static bool warm_up(const sched_scenario *scenario) {
  berthi_sched_options options = {.seed = 1, .schedules = 2, .depth = DEPTH, .name = scenario->name};
  static berthi_sched_result result;
  berthi_sched_explore(&options, scenario->run, NULL, &result);
  return !result.failed;
}

static uint64_t share_of(const sched_scenario *scenario, int mode) {
  if (mode == BERTHI_SCHED_EXHAUSTIVE) return scenario->exhaustive;
  return mode == BERTHI_SCHED_PRIORITY ? scenario->schedules / 2 : scenario->schedules;
}

static bool explore_scenario(const arguments *a, const sched_scenario *scenario, uint64_t seed, totals *all) {
  all->scenarios++;
  for (int mode = BERTHI_SCHED_RANDOM; mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    if (a->mode >= 0 && a->mode != mode) continue;
    uint64_t schedules = a->schedules != 0 ? a->schedules : scaled(share_of(scenario, mode));
    if (a->mode < 0 && share_of(scenario, mode) == 0) continue;
    if (mode == BERTHI_SCHED_EXHAUSTIVE && !warm_up(scenario)) continue; // a failure that the seeds above have shown
    if (!explore(a, scenario, mode, seed, schedules, all)) return false;
  }
  return true;
}

static bool selected(const arguments *a, const sched_group *group, const sched_scenario *scenario) {
  if (a->scenario != NULL) return strcmp(a->scenario, scenario->name) == 0;
  return a->group == NULL || strcmp(a->group, group->name) == 0;
}

static bool explore_all(const arguments *a, uint64_t seed, totals *all) {
  for (size_t g = 0; g < BERTHI_COUNTOF(groups); g++) {
    for (const sched_scenario *scenario = groups[g].scenarios; scenario->name != NULL; scenario++) {
      if (!selected(a, &groups[g], scenario)) continue;
      if (a->list) printf("%-10s %s\n", groups[g].name, scenario->name);
      // After a failure the process's state (leases) is not clean any more.
      else if (!explore_scenario(a, scenario, seed, all))
        return false;
    }
  }
  return true;
}

static bool number(const char *text, uint64_t *out) {
  char *end = NULL;
  if (text == NULL) return false;
  *out = strtoull(text, &end, 10);
  return end != text && *end == '\0';
}

static bool mode_of(const char *text, int *out) {
  for (int mode = 0; text != NULL && mode <= BERTHI_SCHED_EXHAUSTIVE; mode++) {
    if (strcmp(text, mode_names[mode]) != 0) continue;
    *out = mode;
    return true;
  }
  return false;
}

static bool parse(int argc, char **argv, arguments *a) {
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    bool known = true;
    if (strcmp(argv[i], "--list") == 0) {
      a->list = true;
      continue;
    }
    if (strcmp(argv[i], "--scenario") == 0)
      known = (a->scenario = value) != NULL;
    else if (strcmp(argv[i], "--seed") == 0)
      known = number(value, &a->seed);
    else if (strcmp(argv[i], "--schedules") == 0)
      known = number(value, &a->schedules);
    else if (strcmp(argv[i], "--seconds") == 0)
      known = number(value, &a->seconds);
    else if (strcmp(argv[i], "--mode") == 0)
      known = mode_of(value, &a->mode);
    else
      known = false;
    if (!known) return false;
    i++;
  }
  return true;
}

int sched_main(int argc, char **argv, const char *group) {
  arguments a = {.program = argv[0], .group = group, .seed = 1, .mode = -1};
  totals all = {0};
  if (!parse(argc, argv, &a)) {
    fprintf(stderr, "usage: %s [--list] [--scenario X] [--mode random|priority|exhaustive] [--seed S] [--schedules N] [--seconds N]\n", argv[0]);
    return 2;
  }
  double begun = seconds_now();
  uint64_t seed = a.seed;
  bool passed = explore_all(&a, seed, &all);
  while (passed && !a.list && all.scenarios != 0 && seconds_now() - begun < (double)a.seconds) {
    seed += 1000000; // far from the seeds of the round before
    passed = explore_all(&a, seed, &all);
  }
  if (a.list) return 0;
  if (all.scenarios == 0) {
    fprintf(stderr, "no scenario of that name; --list names them\n");
    return 2;
  }
  printf("%llu schedules, %llu points, %.1f s: %s\n", (unsigned long long)all.schedules, (unsigned long long)all.points, seconds_now() - begun,
         passed ? "no law broken" : "FAILED");
  return passed ? 0 : 1;
}
