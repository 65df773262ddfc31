// SPDX-License-Identifier: Apache-2.0
/// What `berth einsum` knows about its job, and how it tells the result.
#ifndef CLI_EINSUM_WORK_H
#define CLI_EINSUM_WORK_H

#include "job.h"
#include "network.h"
#include "verify.h"

enum { CLI_SHOWN_VALUES = 4 };

typedef struct einsum_options {
  const char *output;
  const char *device;
  const char *group;
  const char *instance;
  const char *path;
  const char *save_operands;
  const char *objective;
  uint64_t lanes, memory, seed;
  int64_t deadline;
  bool report, json, verify, plan;
} einsum_options;

typedef struct einsum_work {
  einsum_options options;
  const char *spec;
  char **files; // of the operands, without an instance
  uint32_t operand_count;
  berth_dtype dtype;
  cli_network network; // with an instance
  const cli_path *path;
  berth_npy_header *headers; // without an instance
  berth_einsum_operand *described;
  berth_tensor **tensors;
  berth_einsum_plan *plan;
  berth_einsum_plan_info info;
  berth_tensor *result;
  double *kept;                        // copy of the result, for --verify
  double shown[2 * CLI_SHOWN_VALUES];  // real and imaginary parts of a small result
  uint32_t shown_count;
  uint64_t asked_bytes;
  uint32_t lanes;
  char device[BERTH_DEVICE_NAME];
  berth_report_info report;
  cli_verdict verdict;
} einsum_work;

/// "f64[1000,1000]".
void einsum_type_text(const einsum_work *work, char *out, size_t room);
/// Takes the elements of a small result while it lives.
void einsum_take_values(einsum_work *work);
/// The plan, for --plan.
void einsum_print_plan(const einsum_work *work);
/// The line of a finished job, or one JSON object; `report_json` may be NULL.
void einsum_print_result(const einsum_work *work, const char *report_json);

#endif
