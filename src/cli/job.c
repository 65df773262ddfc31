// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <stdio.h>
#include <string.h>

#include "interrupt.h"

static const int64_t CLOSE_DEADLINE = 20000000000; // of the command

static berth_status open_backend(cli_job *job, const cli_job_options *options, berth_error *err) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options backend = BERTH_BACKEND_OPTIONS_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  device.name = options->device == NULL ? "cpu:0" : options->device;
  backend.devices = &device;
  backend.device_count = 1;
  backend.telemetry_interval = -1;
  berth_status status = berth_backend_open(&backend, &job->backend, err);
  if (status != BERTH_OK) return status;
  job->session = berth_backend_session(job->backend);
  status = berth_session_startup_record(job->session, 0, &record, err);
  if (status != BERTH_OK) return status;
  snprintf(job->device, sizeof job->device, "%s", record.name);
  job->lanes = options->lanes == 0 ? record.lanes : (uint32_t)options->lanes;
  return BERTH_OK;
}

berth_status cli_job_begin(cli_job *job, const cli_job_options *options, berth_error *err) {
  berth_attempt_options attempt = BERTH_ATTEMPT_OPTIONS_INIT;
  memset(job, 0, sizeof *job);
  job->started = berth_now();
  berth_status status = open_backend(job, options, err);
  if (status != BERTH_OK) return status;
  attempt.query_id = options->query_id;
  attempt.group = options->group;
  attempt.deadline = options->deadline == 0 ? 0 : job->started + options->deadline;
  status = berth_session_begin_attempt(job->session, &attempt, &job->attempt, err);
  if (status != BERTH_OK) return status;
  job->completion = berth_attempt_completion(job->attempt);
  job->cancel = berth_attempt_cancel_token(job->attempt);
  cli_watch_interrupts(job->cancel);
  return berth_attempt_plan_started(job->attempt, err);
}

berth_status cli_job_admit(cli_job *job, uint64_t bytes, const char *plan, berth_error *err) {
  berth_request request = BERTH_REQUEST_INIT;
  berth_admission *admission = NULL;
  berth_status status = berth_attempt_plan_finished(job->attempt, BERTH_NATIVE, plan, err);
  if (status != BERTH_OK) return status;
  request.bytes = bytes;
  request.lanes = job->lanes;
  status = berth_session_admit(job->session, job->attempt, &request, &admission, err);
  if (status == BERTH_OK) status = berth_admission_wait(admission, BERTH_NO_DEADLINE, err);
  if (status == BERTH_OK) status = berth_admission_take(admission, &job->exec, err);
  berth_admission_release(admission);
  return status;
}

static void finish(cli_job *job, berth_status status, const berth_error *cause) {
  berth_outcome outcome = status == BERTH_OK ? BERTH_SUCCEEDED : status == BERTH_CANCELLED ? BERTH_OUTCOME_CANCELLED : BERTH_FAILED;
  const berth_error *why = status == BERTH_OK ? NULL : cause;
  if (job->exec != NULL) {
    berth_exec_finish(job->exec, (int)outcome, why, NULL);
  } else if (job->attempt != NULL) {
    berth_attempt_finish(job->attempt, outcome, why, NULL);
  }
}

void cli_job_end(cli_job *job, berth_status status, const berth_error *cause, berth_report_info *out_info, berth_report **out_report) {
  berth_report *report = NULL;
  berth_close_report closed = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  int64_t deadline = berth_now() + CLOSE_DEADLINE;
  finish(job, status, cause);
  cli_forget_interrupts();
  if (job->completion != NULL && berth_completion_wait(job->completion, deadline, &report, NULL) == BERTH_OK && out_info != NULL) {
    berth_report_get(report, out_info, NULL);
  }
  if (out_report != NULL) {
    *out_report = report;
  } else {
    berth_report_release(report);
  }
  berth_completion_release(job->completion);
  berth_cancel_release(job->cancel);
  berth_attempt_release(job->attempt);
  if (job->backend != NULL && berth_backend_close_wait(job->backend, deadline, deadline, &closed, &err) != BERTH_OK) {
    fprintf(stderr, "berth: closing: %s\n", err.message);
  }
  berth_session_release(job->session);
  berth_backend_release(job->backend);
  memset(job, 0, sizeof *job);
}
