// SPDX-License-Identifier: Apache-2.0
/// Explores the scenarios of scenarios_health.c: the health of devices. Arguments: sched_suite.h.
#include "sched/sched_suite.h"

int main(int argc, char **argv) { return sched_main(argc, argv, "health"); }
