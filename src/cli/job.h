// SPDX-License-Identifier: Apache-2.0
/// One attempt of the command: open a backend, begin, plan, admit, run, finish, report, close.
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include "berth/berth.h"

typedef struct cli_job_options {
  const char *device;   ///< NULL: cpu:0
  const char *group;    ///< NULL: default
  const char *query_id; ///< NULL: none
  uint64_t lanes;       ///< 0: all of the device
  int64_t deadline;     ///< span from now; 0: none
} cli_job_options;

typedef struct cli_job {
  berth_backend *backend;
  berth_session *session;
  berth_attempt *attempt;
  berth_completion *completion;
  berth_cancel *cancel;
  berth_exec *exec;
  char device[BERTH_DEVICE_NAME];
  uint32_t lanes;
  int64_t started;
} cli_job;

/// Opens the backend and begins the attempt, whose planning then starts. Ctrl-C cancels it.
berth_status cli_job_begin(cli_job *job, const cli_job_options *options, berth_error *err);
/// Asks for `bytes` and waits until the execution is granted.
berth_status cli_job_admit(cli_job *job, uint64_t bytes, const char *plan, berth_error *err);
/// Ends the attempt with `status` (and its cause), and gives the sealed report's numbers; `out_report` may be NULL, or gets one reference.
/// Everything of the job is released and the backend closed, whatever happened before.
void cli_job_end(cli_job *job, berth_status status, const berth_error *cause, berth_report_info *out_info, berth_report **out_report);

#endif
