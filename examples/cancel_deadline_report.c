// SPDX-License-Identifier: Apache-2.0
// Attempts that end in every way there is, and the report of each. Every attempt seals exactly one report: refused, expired, cancelled and forgotten ones
// too. A report that nobody waits for is abandoned; an operator takes it from the session.
#include "example.h"

static const uint64_t device_bytes = 64 * MIB;

static berth_session *session;

static berth_attempt *begin(const char *query_id, int64_t deadline) {
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.query_id = query_id;
  options.trace_context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  options.deadline = deadline;
  options.max_events = 8;
  EXPECT_OK(berth_session_begin_attempt(session, &options, &attempt, &err), &err);
  return attempt;
}

static berth_admission *admit(berth_attempt *attempt, uint64_t bytes, int64_t queue_deadline) {
  berth_request request = BERTH_REQUEST_INIT;
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  request.bytes = bytes;
  request.queue_deadline = queue_deadline;
  EXPECT_OK(berth_session_admit(session, attempt, &request, &admission, &err), &err);
  return admission;
}

static berth_exec *admit_and_take(berth_attempt *attempt, uint64_t bytes) {
  berth_admission *admission = admit(attempt, bytes, 0);
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  EXPECT_OK(berth_admission_take(admission, &exec, &err), &err);
  berth_admission_release(admission);
  return exec;
}

/// Prints a report in a line, and expects what the caller says of it. Takes the report.
static void tell(berth_report *report, berth_outcome outcome, const char *reason) {
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  const char *cause = info.cause.code == BERTH_OK ? "" : info.cause.reason;
  printf("%-16s %-9s %-22s %s\n", info.query_id, example_outcome(info.outcome), cause, info.cause.message);
  EXPECT(info.outcome == outcome);
  EXPECT(strcmp(cause, reason) == 0);
  EXPECT(info.sealed_at >= info.begun_at);
  berth_report_release(report);
}

/// Waits for the report; releases the completion and the attempt.
static berth_report *end(berth_attempt *attempt, berth_completion *completion) {
  berth_report *report = NULL;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_completion_wait(completion, berth_now() + 10 * SECOND, &report, &err), &err);
  berth_completion_release(completion);
  berth_attempt_release(attempt);
  return report;
}

static void succeeds(void) {
  berth_attempt *attempt = begin("succeeds", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_error err = BERTH_ERROR_INIT;
  void *memory = NULL;
  EXPECT_OK(berth_attempt_plan_started(attempt, &err), &err);
  EXPECT_OK(berth_attempt_plan_finished(attempt, BERTH_NATIVE, "scan+sum", &err), &err);
  berth_exec *exec = admit_and_take(attempt, 8 * MIB);
  EXPECT_OK(berth_exec_alloc(exec, MIB, &memory, &err), &err);
  berth_attempt_record(attempt, "rows", 1000);
  EXPECT_OK(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, &err), &err);
  berth_report *report = end(attempt, completion);
  char json[4096];
  size_t length = berth_report_json(report, json, sizeof json);
  EXPECT(length > 0 && length < sizeof json);
  EXPECT(strstr(json, "berth.report") != NULL && strstr(json, "scan+sum") != NULL && strstr(json, "rows") != NULL);
  printf("%s\n\n", json);
  tell(report, BERTH_SUCCEEDED, "");
}

static void asks_too_much(void) {
  berth_attempt *attempt = begin("asks too much", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_request request = BERTH_REQUEST_INIT;
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  request.bytes = 2 * device_bytes;
  EXPECT_STATUS(BERTH_OUT_OF_RANGE, berth_session_admit(session, attempt, &request, &admission, &err), &err);
  EXPECT(admission == NULL);
  tell(end(attempt, completion), BERTH_FAILED, "request_exceeds_device");
}

static intptr_t never_called(berth_exec *exec, void *called) {
  (void)exec;
  *(bool *)called = true;
  return 0;
}

// A scoped entry that asks for its report gets it also when it is refused; it is the caller's, so it is not abandoned.
static void scoped_entry_asks_too_much(void) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  bool called = false;
  options.bytes = 2 * device_bytes;
  options.report = true;
  options.query_id = "scoped entry";
  EXPECT_STATUS(BERTH_OUT_OF_RANGE, berth_run(session, &options, never_called, &called, &result, &err), &err);
  EXPECT(!called && !result.ran && result.report != NULL);
  tell(result.report, BERTH_FAILED, "request_exceeds_device");
}

// The device is full: a request waits no longer than its queue deadline, and its caller is told that this is overload.
static void expires_in_the_queue(void) {
  berth_attempt *attempt = begin("expires queued", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  int64_t before = berth_now();
  berth_admission *admission = admit(attempt, device_bytes, before + 20 * MILLISECOND);
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_STATUS(BERTH_UNAVAILABLE, berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  EXPECT(berth_now() >= before + 20 * MILLISECOND);
  berth_admission_release(admission);
  berth_report *report = end(attempt, completion);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  EXPECT(info.retry == BERTH_RETRY_BACKOFF && (info.why_queued & BERTH_WHY_BYTES) != 0);
  tell(report, BERTH_FAILED, "queue_wait_elapsed");
}

static void is_cancelled_in_the_queue(void) {
  berth_attempt *attempt = begin("cancelled queued", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = admit(attempt, device_bytes, 0);
  EXPECT(berth_admission_poll(admission, NULL) == BERTH_ADMISSION_QUEUED);
  EXPECT(berth_admission_cancel(admission) == BERTH_CANCEL_FIRED);
  EXPECT(berth_admission_poll(admission, NULL) == BERTH_ADMISSION_CANCELLED);
  EXPECT(berth_admission_cancel(admission) == BERTH_CANCEL_ALREADY_FINISHED);
  berth_admission_release(admission);
  tell(end(attempt, completion), BERTH_OUTCOME_CANCELLED, "cancelled");
}

// The caller's own loop asks the execution whether to go on; the deadline needs no clock there.
static void runs_into_its_deadline(void) {
  berth_attempt *attempt = begin("past deadline", berth_now() + 20 * MILLISECOND);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_exec *exec = admit_and_take(attempt, MIB);
  berth_error cause = BERTH_ERROR_INIT, err = BERTH_ERROR_INIT;
  while (berth_exec_check(exec, &cause) == BERTH_OK) {
  }
  EXPECT_OK(berth_exec_finish(exec, BERTH_OUTCOME_CANCELLED, &cause, &err), &err);
  tell(end(attempt, completion), BERTH_OUTCOME_CANCELLED, "deadline_exceeded");
}

static void is_cancelled_running(void) {
  berth_attempt *attempt = begin("cancelled", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_cancel *token = berth_attempt_cancel_token(attempt);
  berth_exec *exec = admit_and_take(attempt, MIB);
  berth_error cause = BERTH_ERROR_INIT, err = BERTH_ERROR_INIT;
  EXPECT(berth_cancel_fire(token) == BERTH_CANCEL_FIRED); // as any thread may
  EXPECT_STATUS(BERTH_CANCELLED, berth_exec_check(exec, &cause), &cause);
  EXPECT_OK(berth_exec_finish(exec, BERTH_OUTCOME_CANCELLED, &cause, &err), &err);
  EXPECT(berth_cancel_fire(token) == BERTH_CANCEL_ALREADY_FINISHED);
  berth_cancel_release(token);
  berth_report *report = end(attempt, completion);
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  EXPECT(info.cancel_cause == BERTH_CANCEL_BY_CALLER && info.cancel_latency >= 0);
  tell(report, BERTH_OUTCOME_CANCELLED, "cancelled");
}

static void ends_before_it_plans(void) {
  berth_attempt *attempt = begin("not planned", 0);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_attempt_finish(attempt, BERTH_SUCCEEDED, NULL, &err), &err);
  EXPECT_STATUS(BERTH_FAILED_PRECONDITION, berth_attempt_finish(attempt, BERTH_FAILED, NULL, &err), &err); // the first decision stands
  tell(end(attempt, completion), BERTH_SUCCEEDED, "");
}

// Nobody asks for these reports, and nobody finishes the work: the handles just go.
static void two_are_dropped(void) {
  berth_attempt *attempt = begin("drops its grant", 0);
  berth_exec_release(admit_and_take(attempt, MIB));
  berth_attempt_release(attempt);
  berth_attempt_release(begin("never submitted", 0));
}

static void take_abandoned(void) {
  berth_report *reports[8];
  uint32_t count = berth_session_take_abandoned(session, reports, 8);
  EXPECT(count == 2);
  for (uint32_t i = 0; i < count; i++) tell(reports[i], BERTH_DROPPED, "");
  EXPECT(berth_session_take_abandoned(session, reports, 8) == 0);
}

int main(void) {
  berth_backend *backend = example_open("sim:0", "memory=1GiB,lanes=4", device_bytes);
  berth_error err = BERTH_ERROR_INIT;
  session = berth_backend_session(backend);
  succeeds();
  asks_too_much();
  scoped_entry_asks_too_much();
  berth_attempt *holder = begin("fills the device", 0);
  berth_completion *holder_completion = berth_attempt_completion(holder);
  berth_exec *all = admit_and_take(holder, device_bytes);
  expires_in_the_queue();
  is_cancelled_in_the_queue();
  EXPECT_OK(berth_exec_finish(all, BERTH_SUCCEEDED, NULL, &err), &err);
  tell(end(holder, holder_completion), BERTH_SUCCEEDED, "");
  runs_into_its_deadline();
  is_cancelled_running();
  ends_before_it_plans();
  two_are_dropped();
  take_abandoned();
  berth_metrics m = example_idle_metrics(session);
  printf("\nbegun %llu, sealed %llu, delivered %llu, taken %llu\n", (unsigned long long)m.begun, (unsigned long long)m.sealed,
         (unsigned long long)m.delivered, (unsigned long long)m.taken);
  EXPECT(m.begun == 11 && m.sealed == 11 && m.delivered == 9 && m.taken == 2);
  example_close(backend, session);
  return 0;
}
