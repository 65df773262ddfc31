// SPDX-License-Identifier: Apache-2.0
/// Explores the scenarios of scenarios_decision.c: the decision of one request, and grants that nobody has taken. Arguments: sched_suite.h.
#include "sched/sched_suite.h"

int main(int argc, char **argv) { return sched_main(argc, argv, "decision"); }
