// SPDX-License-Identifier: Apache-2.0
/// An evaluation of a network that is independent of the one under test.
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

#include "job.h"
#include "network.h"

typedef struct cli_verdict {
  bool equal;
  double off;         ///< Largest difference, relative to the largest element of the result.
  char how[160];      ///< What was done, for people.
} cli_verdict;

/// Compares `result` with an evaluation along `other`. Networks of up to 10^9.5 multiply-adds along it are evaluated by plain loops in double
/// precision, which share no code with the library. Larger ones are evaluated by the library, one pair at a time along the other path, and
/// random elements of every pair's result are recomputed by plain loops. Fails with a message printed and a code of the command.
int cli_verify(const cli_network *network, const cli_path *other, uint64_t seed, const double *result, const cli_job_options *options,
               cli_verdict *out);

#endif
