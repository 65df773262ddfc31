// SPDX-License-Identifier: Apache-2.0
/// Explores the scenarios of scenarios_stripe.c: parked permits and grants. Arguments: sched_suite.h.
#include "sched/sched_suite.h"

int main(int argc, char **argv) { return sched_main(argc, argv, "stripe"); }
