// SPDX-License-Identifier: Apache-2.0
// Reading a sealed report (REP-1). The report is a part of its attempt. After the seal only the detail can still go, while the report lies abandoned:
// message, events and trace context are read and dropped under the attempt's lock.
#include "runtime/report.h"

#include <stdio.h>
#include <string.h>

berth_attempt *berthi_report_attempt(const berth_report *report) { return BERTHI_CONTAINER((uintptr_t)report, berth_attempt, report); }

static bool forked(const berth_attempt *attempt) { return attempt->epoch != berthi_fork_epoch(); }

berth_report *berth_report_retain(berth_report *report) {
  if (report != NULL && !forked(berthi_report_attempt(report))) (void)berthi_attempt_retain(berthi_report_attempt(report));
  return report;
}

void berth_report_release(berth_report *report) {
  if (report != NULL && !forked(berthi_report_attempt(report))) berthi_attempt_unref(berthi_report_attempt(report));
}

// ---- advice --------------------------------------------------------------------------------------------------------------------------------------------

/// For a cause that the caller made up: by its code alone.
static berth_retry retry_of_code(berth_status code) {
  switch (code) {
  case BERTH_UNAVAILABLE:
  case BERTH_RESOURCE_EXHAUSTED:
  case BERTH_ABORTED:
    return BERTH_RETRY_BACKOFF;
  case BERTH_INVALID_ARGUMENT:
  case BERTH_NOT_FOUND:
  case BERTH_ALREADY_EXISTS:
  case BERTH_PERMISSION_DENIED:
  case BERTH_FAILED_PRECONDITION:
  case BERTH_OUT_OF_RANGE:
  case BERTH_DEADLINE_EXCEEDED:
    return BERTH_RETRY_CHANGE;
  case BERTH_UNIMPLEMENTED:
    return BERTH_RETRY_OTHER_DEVICE;
  case BERTH_INTERNAL:
  case BERTH_DATA_LOSS:
    return BERTH_RETRY_RECOVER;
  default:
    return BERTH_RETRY_NEVER;
  }
}

static berth_retry retry_of(const berth_report *report) {
  if (report->outcome == BERTH_SUCCEEDED) return BERTH_RETRY_NEVER;
  if (report->reason != BERTHI_R_NONE) return berthi_reason_retry(report->reason);
  if (report->cause_code != BERTH_OK) return retry_of_code(report->cause_code);
  return report->outcome == BERTH_DROPPED ? BERTH_RETRY_NOW : BERTH_RETRY_NEVER; // dropped: nothing went wrong, the handle was let go
}

// ---- numbers -------------------------------------------------------------------------------------------------------------------------------------------

static void fill_cause(const berth_report *report, berth_error *out) {
  out->code = report->cause_code;
  if (report->cause_code == BERTH_OK) return;
  out->reason = report->cause_reason != NULL ? report->cause_reason : berthi_reason_name(report->reason);
  out->fact_count = report->cause_facts;
  memcpy(out->facts, report->facts, sizeof(out->facts));
  if (report->cause_message != NULL)
    snprintf(out->message, sizeof(out->message), "%s", report->cause_message);
  else if (report->reason != BERTHI_R_NONE)
    berthi_refusal_say(report->reason, out);
  else
    snprintf(out->message, sizeof(out->message), "%s", out->reason);
}

static void fill_times(const berth_report *report, berth_report_info *out) {
  out->begun_at = report->begun_at;
  out->plan_started_at = report->plan_started_at;
  out->plan_finished_at = report->plan_finished_at;
  out->submitted_at = report->submitted_at;
  out->granted_at = report->granted_at;
  out->taken_at = report->taken_at;
  out->cancelled_at = report->cancelled_at;
  out->released_at = report->released_at;
  out->sealed_at = report->sealed_at;
  out->queued_for = report->queued_for;
  out->cancel_latency = report->cancel_latency;
}

static void fill_use(const berth_report *report, berth_report_info *out) {
  out->why_queued = report->why;
  out->overtakes = report->overtakes;
  out->device = report->device;
  memcpy(out->device_name, report->device_name, sizeof(out->device_name));
  out->lanes = report->lanes;
  out->bytes_granted = report->bytes_granted;
  out->bytes_peak = report->bytes_peak;
  out->bytes_held = report->bytes_held;
  out->operations = report->operations;
  out->bytes_moved = report->bytes_moved;
  out->fragments = report->fragments;
  memcpy(out->plan, report->plan, sizeof(out->plan));
  out->cleanup = report->cleanup;
  out->capacity = report->capacity;
  out->health_after = report->health_after;
}

void berthi_report_fill_locked(const berth_attempt *attempt, berth_report_info *out) {
  const berth_report *report = &attempt->report;
  memset(out, 0, sizeof(*out));
  out->struct_size = sizeof(*out);
  out->attempt_id = attempt->id;
  out->execution_id = report->execution_id;
  out->generation = report->generation;
  if (attempt->query_id != NULL) snprintf(out->query_id, sizeof(out->query_id), "%s", attempt->query_id);
  memcpy(out->group, report->group, sizeof(out->group));
  out->disposition = report->disposition;
  out->outcome = report->outcome;
  out->cancel_cause = report->cancel_cause;
  out->retry = retry_of(report);
  fill_cause(report, &out->cause);
  fill_times(report, out);
  out->wall_begun_at = report->begun_at + attempt->core->wall_offset;
  fill_use(report, out);
  out->summary_only = report->summary_only;
  out->events = report->summary_only ? 0 : attempt->event_count;
  out->events_lost = attempt->events_lost + (report->summary_only ? attempt->event_count : 0);
}

berth_status berth_report_get(const berth_report *report, berth_report_info *out_info, berth_error *err) {
  if (report == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "report is NULL");
  berth_attempt *attempt = berthi_report_attempt(report);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  berth_report_info info;
  berthi_mutex_lock(&attempt->lock);
  berthi_report_fill_locked(attempt, &info);
  berthi_mutex_unlock(&attempt->lock);
  return berthi_output_copy(out_info, &info, sizeof(info), "berth_report_info", err);
}

berth_status berth_report_event(const berth_report *report, uint32_t index, berth_event *out_event, berth_error *err) {
  if (report == NULL || out_event == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "report and out_event are required");
  berth_attempt *attempt = berthi_report_attempt(report);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  berthi_mutex_lock(&attempt->lock);
  uint32_t count = report->summary_only ? 0 : attempt->event_count;
  if (index < count) {
    const berthi_recorded *recorded = &attempt->events[index];
    *out_event = (berth_event){.time = recorded->time, .name = recorded->name, .value = recorded->value};
  }
  berthi_mutex_unlock(&attempt->lock);
  if (index < count) return BERTH_OK;
  berth_status status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "index: %u, less than %u", index, count);
  berthi_fact(err, "value", index);
  berthi_fact(err, "events", count);
  return status;
}

// ---- detail --------------------------------------------------------------------------------------------------------------------------------------------

/// Somebody who still holds the attempt may have been given the name of an event, which lives as long as the report; the memory then goes with the
/// attempt. Nobody can come to hold it while the queue's is the only reference.
void berthi_report_drop_detail(berth_attempt *attempt) {
  bool alone = berthi_load(&attempt->refs, acquire) == 1; // pairs with the release of the last other reference
  berthi_mutex_lock(&attempt->lock);
  attempt->report.summary_only = true;
  void *events = alone ? attempt->events : NULL;
  void *message = attempt->report.cause_message, *trace = attempt->trace_context;
  if (alone) {
    attempt->events = NULL;
    attempt->events_lost += attempt->event_count;
    attempt->event_count = 0;
  }
  attempt->report.cause_message = NULL;
  attempt->trace_context = NULL;
  berthi_mutex_unlock(&attempt->lock);
  berthi_free(events);
  berthi_free(message);
  berthi_free(trace);
}
