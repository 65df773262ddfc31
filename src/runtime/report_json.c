// SPDX-License-Identifier: Apache-2.0
// The report as JSON, schema "berth.report" version 1: additive only (REP-1). Times are nanoseconds; a boundary that was not crossed is null.
#include <string.h>

#include "base/json.h"
#include "runtime/names.h"
#include "runtime/report.h"

static void write_time(berthi_json *json, const char *key, int64_t time) {
  if (time == BERTH_NO_TIME)
    berthi_json_string(json, key, NULL);
  else
    berthi_json_i64(json, key, time);
}

static void write_identity(berthi_json *json, const berth_report_info *i, const char *trace_context) {
  berthi_json_u64(json, "attempt_id", i->attempt_id);
  berthi_json_u64(json, "execution_id", i->execution_id);
  berthi_json_u64(json, "generation", i->generation);
  berthi_json_string(json, "query_id", i->query_id[0] != '\0' ? i->query_id : NULL);
  berthi_json_string(json, "trace_context", trace_context);
  berthi_json_string(json, "group", i->group[0] != '\0' ? i->group : NULL);
}

static void write_cause(berthi_json *json, const berth_error *cause) {
  if (cause->code == BERTH_OK) {
    berthi_json_string(json, "cause", NULL);
    return;
  }
  berthi_json_object_begin(json, "cause");
  berthi_json_string(json, "code", berth_status_name(cause->code));
  berthi_json_string(json, "reason", cause->reason);
  berthi_json_string(json, "message", cause->message);
  berthi_json_object_begin(json, "facts");
  for (uint32_t i = 0; i < cause->fact_count && i < BERTH_ERROR_FACTS; i++) berthi_json_i64(json, cause->facts[i].key, cause->facts[i].value);
  berthi_json_object_end(json);
  berthi_json_object_end(json);
}

static void write_outcome(berthi_json *json, const berth_report_info *i) {
  berthi_json_string(json, "disposition", berthi_disposition_name(i->disposition));
  berthi_json_string(json, "outcome", berthi_outcome_name(i->outcome));
  write_cause(json, &i->cause);
  berthi_json_string(json, "retry", berthi_retry_name(i->retry));
  berthi_json_string(json, "cancel_cause", berthi_cancel_cause_name(i->cancel_cause));
}

static void write_times(berthi_json *json, const berth_report_info *i) {
  berthi_json_object_begin(json, "times");
  write_time(json, "begun", i->begun_at);
  write_time(json, "plan_started", i->plan_started_at);
  write_time(json, "plan_finished", i->plan_finished_at);
  write_time(json, "submitted", i->submitted_at);
  write_time(json, "granted", i->granted_at);
  write_time(json, "taken", i->taken_at);
  write_time(json, "cancelled", i->cancelled_at);
  write_time(json, "released", i->released_at);
  write_time(json, "sealed", i->sealed_at);
  write_time(json, "wall_begun", i->wall_begun_at);
  berthi_json_object_end(json);
  write_time(json, "cancel_latency", i->cancel_latency);
}

static void write_queue(berthi_json *json, const berth_report_info *i) {
  berthi_json_object_begin(json, "queue");
  berthi_why_write(json, "why", i->why_queued);
  berthi_json_i64(json, "queued_for", i->queued_for);
  berthi_json_u64(json, "overtakes", i->overtakes);
  berthi_json_object_end(json);
}

static void write_use(berthi_json *json, const berth_report_info *i) {
  berthi_json_string(json, "device", i->device != BERTH_NO_DEVICE ? i->device_name : NULL);
  if (i->device != BERTH_NO_DEVICE)
    berthi_json_u64(json, "device_index", i->device);
  else
    berthi_json_string(json, "device_index", NULL);
  berthi_json_u64(json, "lanes", i->lanes);
  berthi_json_object_begin(json, "bytes");
  berthi_json_u64(json, "granted", i->bytes_granted);
  berthi_json_u64(json, "peak", i->bytes_peak);
  berthi_json_u64(json, "held", i->bytes_held);
  berthi_json_u64(json, "moved", i->bytes_moved);
  berthi_json_object_end(json);
  berthi_json_u64(json, "operations", i->operations);
  berthi_json_u64(json, "fragments", i->fragments);
  berthi_json_string(json, "plan", i->plan[0] != '\0' ? i->plan : NULL);
  berthi_json_string(json, "cleanup", berthi_cleanup_name(i->cleanup));
  berthi_json_string(json, "capacity", berthi_capacity_name(i->capacity));
  berthi_json_string(json, "health_after", berthi_health_name(i->health_after));
}

static void write_events(berthi_json *json, const berth_attempt *attempt, const berth_report_info *info) {
  berthi_json_array_begin(json, "events");
  for (uint32_t i = 0; i < info->events; i++) {
    berthi_json_object_begin(json, NULL);
    berthi_json_i64(json, "time", attempt->events[i].time);
    berthi_json_string(json, "name", attempt->events[i].name);
    berthi_json_i64(json, "value", attempt->events[i].value);
    berthi_json_object_end(json);
  }
  berthi_json_array_end(json);
  berthi_json_u64(json, "events_lost", info->events_lost);
  berthi_json_bool(json, "summary_only", info->summary_only);
}

size_t berth_report_json(const berth_report *report, char *buffer, size_t capacity) {
  berthi_json json;
  berth_report_info info;
  berthi_json_init(&json, buffer, capacity);
  if (report == NULL || berthi_core_forked(berthi_report_attempt(report)->core)) return 0;
  berth_attempt *attempt = berthi_report_attempt(report);
  berthi_mutex_lock(&attempt->lock); // events and trace context may be dropped while the report lies abandoned
  berthi_report_fill_locked(attempt, &info);
  berthi_json_object_begin(&json, NULL);
  berthi_json_string(&json, "schema", "berth.report");
  berthi_json_u64(&json, "version", 1);
  write_identity(&json, &info, attempt->trace_context);
  write_outcome(&json, &info);
  write_times(&json, &info);
  write_queue(&json, &info);
  write_use(&json, &info);
  write_events(&json, attempt, &info);
  berthi_json_object_end(&json);
  berthi_mutex_unlock(&attempt->lock);
  return berthi_json_finish(&json);
}
