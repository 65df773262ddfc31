// SPDX-License-Identifier: Apache-2.0
/// Explores the scenarios of scenarios_fork.c: fork. Arguments: sched_suite.h.
#include "sched/sched_suite.h"

// What a forked child inherits is lost on purpose.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

int main(int argc, char **argv) { return sched_main(argc, argv, "fork"); }
