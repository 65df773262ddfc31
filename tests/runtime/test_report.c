// SPDX-License-Identifier: Apache-2.0
/// Reports: everything that a sealed report says, as numbers and as JSON (REP-1), and detail that goes while it lies abandoned (ATT-6).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/core.h"
#include "runtime/json_reader.h"
#include "runtime/runtime_support.h"

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

static world make_world(uint32_t detail) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.telemetry_interval = -1;
  options.abandoned_detail = detail;
  world w = {.backend = support_open_with(&options, 1, "memory=256MiB,lanes=2")};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static berth_report_info info_of(const berth_report *report) {
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_report_get(report, &info, &err), &err);
  return info;
}

/// The report as JSON; the caller frees.
static char *json_of(const berth_report *report) {
  size_t length = berth_report_json(report, NULL, 0);
  char *text = malloc(length + 1);
  assert_non_null(text);
  assert_int_equal(berth_report_json(report, text, length + 1), length);
  assert_true(json_valid(text));
  assert_true(json_is(text, "schema", "berth.report"));
  assert_int_equal(json_number(text, "version"), 1);
  return text;
}

static berth_attempt *begin_named(world *w) {
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.query_id = "q-17 \"quoted\"";
  options.trace_context = TRACE;
  options.group = "night";
  options.max_events = 2;
  support_ok(berth_session_begin_attempt(w->session, &options, &attempt, &err), &err);
  return attempt;
}

/// A whole attempt with plan, events and an allocation. One event more than is kept.
static berth_report *whole(world *w, int outcome, const berth_error *cause) {
  berth_attempt *attempt = begin_named(w);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_report *report = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  void *memory = NULL;
  request.bytes = 1 << 20;
  support_ok(berth_attempt_plan_started(attempt, &err), &err);
  support_ok(berth_attempt_plan_finished(attempt, BERTH_PARTIAL, "hash-join", &err), &err);
  for (int i = 0; i < 3; i++) berth_attempt_record(attempt, "rows", i);
  berth_admission *admission = support_admit(w->session, attempt, &request);
  berth_exec *exec = support_take(admission);
  support_ok(berth_exec_alloc(exec, 1000, &memory, &err), &err);
  support_ok(berth_exec_finish(exec, outcome, cause, &err), &err);
  support_ok(berth_completion_poll(completion, &report, &err), &err);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  return report;
}

static void assert_rising(const int64_t *times, size_t count) {
  for (size_t i = 0; i < count; i++) assert_true(times[i] != BERTH_NO_TIME);
  for (size_t i = 1; i < count; i++) assert_true(times[i] >= times[i - 1]);
}

static void a_success_is_told_in_full(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = whole(&w, BERTH_SUCCEEDED, NULL);
  berth_report_info i = info_of(report);
  assert_true(i.attempt_id != 0 && i.execution_id != 0);
  assert_int_equal(i.generation, berth_session_identity(w.session).generation);
  assert_string_equal(i.query_id, "q-17 \"quoted\"");
  assert_string_equal(i.group, "night");
  assert_int_equal(i.disposition, BERTH_PARTIAL);
  assert_int_equal(i.outcome, BERTH_SUCCEEDED);
  assert_int_equal(i.cause.code, BERTH_OK);
  assert_int_equal(i.retry, BERTH_RETRY_NEVER);
  const int64_t times[] = {i.begun_at, i.plan_started_at, i.plan_finished_at, i.submitted_at, i.granted_at, i.taken_at, i.released_at, i.sealed_at};
  assert_rising(times, BERTHI_COUNTOF(times));
  assert_true(i.cancelled_at == BERTH_NO_TIME && i.cancel_latency == BERTH_NO_TIME);
  assert_true(i.wall_begun_at > (int64_t)1600000000 * 1000000000);
  assert_int_equal(i.why_queued, 0);
  assert_int_equal(i.device, 0);
  assert_string_equal(i.device_name, "sim:0");
  assert_string_equal(i.plan, "hash-join");
  assert_int_equal(i.bytes_granted, 1 << 20);
  assert_int_equal(i.bytes_peak, 1024);
  assert_int_equal(i.bytes_held, 1024); // never freed: the clean-up did
  assert_int_equal(i.cleanup, BERTH_CLEANUP_PROVEN);
  assert_int_equal(i.capacity, BERTH_CAPACITY_RETURNED);
  assert_int_equal(i.health_after, BERTH_HEALTH_OK);
  assert_int_equal(i.events, 2);
  assert_int_equal(i.events_lost, 1);
  assert_false(i.summary_only);
  berth_report_release(report);
  end_world(&w);
}

static void events_are_kept_in_order(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = whole(&w, BERTH_SUCCEEDED, NULL);
  berth_event event;
  berth_error err = BERTH_ERROR_INIT;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(berth_report_event(report, (uint32_t)i, &event, &err), BERTH_OK);
    assert_string_equal(event.name, "rows");
    assert_int_equal(event.value, i);
  }
  assert_int_equal(berth_report_event(report, 2, &event, &err), BERTH_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "less than 2"));
  berth_report_release(report);
  end_world(&w);
}

static void the_json_says_the_same(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = whole(&w, BERTH_SUCCEEDED, NULL);
  berth_report_info i = info_of(report);
  char *text = json_of(report);
  assert_int_equal(json_number(text, "attempt_id"), (double)i.attempt_id);
  assert_true(json_is(text, "query_id", "q-17 \\\"quoted\\\""));
  assert_true(json_is(text, "trace_context", TRACE));
  assert_true(json_is(text, "group", "night"));
  assert_true(json_is(text, "disposition", "partial"));
  assert_true(json_is(text, "outcome", "succeeded"));
  assert_true(json_is(text, "cause", "null"));
  assert_true(json_is(text, "retry", "never"));
  assert_int_equal(json_number(text, "times/sealed"), (double)i.sealed_at);
  assert_true(json_is(text, "times/cancelled", "null"));
  assert_int_equal(json_length(text, "queue/why"), 0);
  assert_true(json_is(text, "device", "sim:0"));
  assert_int_equal(json_number(text, "bytes/granted"), 1 << 20);
  assert_true(json_is(text, "plan", "hash-join"));
  assert_true(json_is(text, "cleanup", "proven"));
  assert_true(json_is(text, "capacity", "returned"));
  assert_true(json_is(text, "health_after", "ok"));
  assert_int_equal(json_length(text, "events"), 2);
  assert_int_equal(json_number(text, "events/1/value"), 1);
  assert_true(json_is(text, "summary_only", "false"));
  free(text);
  berth_report_release(report);
  end_world(&w);
}

static void the_first_cause_is_kept(void **state) {
  (void)state;
  world w = make_world(0);
  berth_error cause = {.code = BERTH_DATA_LOSS, .reason = "page_corrupt", .fact_count = 1, .facts = {{"page", 12}}, .message = "page 12 is \"bad\""};
  berth_report *report = whole(&w, BERTH_FAILED, &cause);
  berth_report_info i = info_of(report);
  assert_int_equal(i.outcome, BERTH_FAILED);
  assert_int_equal(i.cause.code, BERTH_DATA_LOSS);
  assert_string_equal(i.cause.reason, "page_corrupt");
  assert_string_equal(i.cause.message, "page 12 is \"bad\"");
  assert_int_equal(i.cause.facts[0].value, 12);
  assert_int_equal(i.retry, BERTH_RETRY_RECOVER); // by its code: the reason is the caller's
  char *text = json_of(report);
  assert_true(json_is(text, "cause/code", "DATA_LOSS"));
  assert_true(json_is(text, "cause/message", "page 12 is \\\"bad\\\""));
  assert_int_equal(json_number(text, "cause/facts/page"), 12);
  assert_true(json_is(text, "retry", "recover"));
  free(text);
  berth_report_release(report);
  end_world(&w);
}

/// Ends an attempt by a refused admission and gives its report.
static berth_report *refused(world *w, uint64_t bytes, uint32_t capabilities) {
  berth_attempt *attempt = support_begin(w->session);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = NULL;
  berth_report *report = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = bytes;
  request.capabilities = capabilities;
  assert_int_not_equal(berth_session_admit(w->session, attempt, &request, &admission, &err), BERTH_OK);
  support_ok(berth_completion_poll(completion, &report, &err), &err);
  berth_completion_release(completion);
  berth_attempt_release(attempt);
  return report;
}

static void advice_follows_the_reason(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = refused(&w, (uint64_t)1 << 50, 0);
  berth_report_info i = info_of(report);
  assert_string_equal(i.cause.reason, "request_exceeds_device");
  assert_int_equal(i.retry, BERTH_RETRY_CHANGE);
  assert_int_equal(i.device, BERTH_NO_DEVICE);
  assert_int_equal(i.capacity, BERTH_CAPACITY_NONE);
  char *text = json_of(report);
  assert_true(json_is(text, "device", "null"));
  assert_true(json_is(text, "device_index", "null"));
  assert_true(json_is(text, "cause/reason", "request_exceeds_device"));
  free(text);
  berth_report_release(report);
  report = refused(&w, 0, 1u << 30);
  i = info_of(report);
  assert_string_equal(i.cause.reason, "capability_unsupported");
  assert_int_equal(i.retry, BERTH_RETRY_OTHER_DEVICE);
  berth_report_release(report);
  end_world(&w);
}

static void a_dropped_attempt_may_come_again(void **state) {
  (void)state;
  world w = make_world(0);
  berth_attempt_release(support_begin(w.session));
  berth_report *report = NULL;
  assert_int_equal(berth_session_take_abandoned(w.session, &report, 1), 1);
  berth_report_info i = info_of(report);
  assert_int_equal(i.outcome, BERTH_DROPPED);
  assert_int_equal(i.disposition, BERTH_UNPLANNED);
  assert_true(i.submitted_at == BERTH_NO_TIME && i.released_at == BERTH_NO_TIME);
  berth_report_release(report);
  end_world(&w);
}

/// Beyond `abandoned_detail` the older ones keep their summary; what was recorded counts as lost then.
static void abandoned_reports_keep_their_summary(void **state) {
  (void)state;
  world w = make_world(2);
  berth_error cause = {.code = BERTH_UNAVAILABLE, .reason = "shop_closed", .message = "come back tomorrow"};
  for (int n = 0; n < 5; n++) {
    berth_attempt *attempt = begin_named(&w);
    berth_attempt_record(attempt, "step", n);
    assert_int_equal(berth_attempt_finish(attempt, BERTH_FAILED, &cause, NULL), BERTH_OK);
    berth_attempt_release(attempt);
  }
  berth_report *reports[8];
  assert_int_equal(berth_session_take_abandoned(w.session, reports, 8), 5);
  for (int n = 0; n < 5; n++) {
    berth_report_info i = info_of(reports[n]);
    bool whole_one = n >= 3;
    assert_int_equal(i.summary_only, !whole_one);
    assert_int_equal(i.events, whole_one ? 1 : 0);
    assert_int_equal(i.events_lost, whole_one ? 0 : 1);
    assert_string_equal(i.query_id, "q-17 \"quoted\"");
    assert_int_equal(i.cause.code, BERTH_UNAVAILABLE);
    assert_string_equal(i.cause.message, whole_one ? "come back tomorrow" : "shop_closed");
    assert_int_equal(i.retry, BERTH_RETRY_BACKOFF);
    char *text = json_of(reports[n]);
    assert_true(json_is(text, "trace_context", whole_one ? TRACE : "null"));
    free(text);
    berth_report_release(reports[n]);
  }
  end_world(&w);
}

/// A name that somebody was given stays, although the detail is dropped.
static void a_name_lives_as_long_as_its_report(void **state) {
  (void)state;
  world w = make_world(1);
  berth_attempt *attempt = begin_named(&w);
  berth_attempt_record(attempt, "step", 7);
  assert_int_equal(berth_attempt_finish(attempt, BERTH_SUCCEEDED, NULL, NULL), BERTH_OK);
  berth_completion *completion = berth_attempt_completion(attempt); // too late to be a receiver: the report lies abandoned
  berth_report *report = NULL;
  berth_event event;
  assert_int_equal(berth_completion_poll(completion, &report, NULL), BERTH_OK);
  assert_int_equal(berth_report_event(report, 0, &event, NULL), BERTH_OK);
  berth_attempt_release(begin_named(&w));
  berth_attempt_release(begin_named(&w));
  assert_true(info_of(report).summary_only);
  assert_int_equal(info_of(report).events, 0);
  assert_string_equal(event.name, "step");
  berth_completion_release(completion);
  berth_attempt_release(attempt);
  berth_report_release(report);
  end_world(&w);
}

static void arguments_are_checked(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = support_whole(w.session, BERTH_SUCCEEDED);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  assert_int_equal(berth_report_get(NULL, &info, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_report_get(report, NULL, NULL), BERTH_INVALID_ARGUMENT);
  info.struct_size = 0;
  assert_int_equal(berth_report_get(report, &info, NULL), BERTH_INVALID_ARGUMENT);
  struct old {
    size_t struct_size;
    uint64_t attempt_id, canary;
  } old = {offsetof(struct old, canary), 0, 77};
  assert_int_equal(berth_report_get(report, (berth_report_info *)(void *)&old, NULL), BERTH_OK);
  assert_int_equal(old.attempt_id, info_of(report).attempt_id);
  assert_int_equal(old.canary, 77);
  assert_int_equal(berth_report_json(NULL, NULL, 0), 0);
  berth_report_release(NULL);
  assert_ptr_equal(berth_report_retain(report), report);
  berth_report_release(report);
  berth_report_release(report);
  end_world(&w);
}

static void a_report_outlives_its_backend(void **state) {
  (void)state;
  world w = make_world(0);
  berth_report *report = whole(&w, BERTH_SUCCEEDED, NULL);
  end_world(&w);
  assert_string_equal(info_of(report).plan, "hash-join");
  free(json_of(report));
  berth_report_release(report);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_success_is_told_in_full),
      cmocka_unit_test(events_are_kept_in_order),
      cmocka_unit_test(the_json_says_the_same),
      cmocka_unit_test(the_first_cause_is_kept),
      cmocka_unit_test(advice_follows_the_reason),
      cmocka_unit_test(a_dropped_attempt_may_come_again),
      cmocka_unit_test(abandoned_reports_keep_their_summary),
      cmocka_unit_test(a_name_lives_as_long_as_its_report),
      cmocka_unit_test(arguments_are_checked),
      cmocka_unit_test(a_report_outlives_its_backend),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
