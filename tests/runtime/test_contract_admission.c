// SPDX-License-Identifier: Apache-2.0
// ADM-1 to ADM-4, ADM-7 to ADM-12: requests from submission to their one decision.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "runtime/fixture.h"

static void adm_1_word_is_decided_once(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &a, 100, 1);
  fx_submit_units(&f, &b, 1);
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_QUEUED);
  assert_int_equal(berth_admission_cancel(b.admission), BERTH_CANCEL_FIRED);
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_CANCELLED);
  fx_finish(&a, BERTH_SUCCEEDED);  // room comes too late
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_CANCELLED);
  assert_int_not_equal(berth_admission_cancel(b.admission), BERTH_CANCEL_FIRED);
  fx_drop(&a);
  fx_drop(&b);
  fx_close(&f);
}

static void adm_1_untaken_grant_goes_back(void **state) {
  (void)state;
  fx f;
  fx_job a, b, c, d;
  fx_open(&f, NULL, NULL);
  fx_submit_units(&f, &a, 60);
  fx_submit_units(&f, &b, 60);
  assert_int_equal(fx_state(&a), BERTH_ADMISSION_GRANTED);
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_QUEUED);
  berth_admission_release(a.admission);  // released untaken
  a.admission = NULL;
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_GRANTED);
  berth_report_info info = fx_report(&a);
  assert_int_equal(info.outcome, BERTH_DROPPED);
  assert_int_equal(info.capacity, BERTH_CAPACITY_RETURNED);
  fx_submit_units(&f, &c, 60);
  assert_int_equal(berth_admission_cancel(b.admission), BERTH_CANCEL_FIRED);  // cancelled untaken
  assert_int_equal(fx_state(&b), BERTH_ADMISSION_RETURNED);
  assert_int_equal(fx_report(&b).outcome, BERTH_OUTCOME_CANCELLED);
  fx_expect(berth_admission_take(b.admission, &b.exec, &b.error), &b.error, BERTH_CANCELLED, "cancelled");
  assert_int_equal(fx_state(&c), BERTH_ADMISSION_GRANTED);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.deadline = berth_now() + 5 * FX_MILLISECOND;
  berth_request request = fx_request(40, 1);
  fx_submit(&f, &d, &request, &options);  // expired untaken
  berth_report_info late = fx_report(&d);
  assert_int_equal(late.outcome, BERTH_OUTCOME_CANCELLED);
  assert_string_equal(late.cause.reason, "deadline_exceeded");
  assert_true(late.sealed_at >= options.deadline);
  fx_drop(&a);
  fx_drop(&b);
  fx_drop(&c);
  fx_drop(&d);
  fx_close(&f);
}

static void adm_1_large_refusal_disturbs_nobody(void **state) {
  (void)state;
  fx f;
  fx_job big, small;
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 50; i++) {
    berth_request request = fx_request(101, 1);
    fx_submit(&f, &big, &request, NULL);
    fx_expect(big.status, &big.error, BERTH_OUT_OF_RANGE, "request_exceeds_device");
    fx_submit_units(&f, &small, 100);
    assert_int_equal(fx_state(&small), BERTH_ADMISSION_GRANTED);
    assert_int_equal(fx_report(&big).outcome, BERTH_FAILED);
    fx_drop(&big);
    fx_drop(&small);
  }
  fx_close(&f);
}

// ADM-2 ------------------------------------------------------------------------------------------------------------------------------------------

typedef struct order {
  fx *f;
  fx_job *job;
  fx_flag released, closed_inside, device_permits, sealed, observations, state;
} order;

static void order_release(void *arg) {
  order *o = arg;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_report *sealed = NULL;
  fx_check(berth_backend_close_state(o->f->backend, &report, NULL) == BERTH_OK);
  o->device_permits = (int)report.active_device_permits;
  o->observations = (int)report.active_observation_permits;
  o->sealed = berth_completion_poll(o->job->completion, &sealed, NULL) == BERTH_OK;
  berth_report_release(sealed);
  fx_check(report.activity_leases_pending == 1);
  berth_backend_close(o->f->backend);  // its destructor may close the backend
  fx_check(berth_session_is_closing(o->f->session));
  o->released++;
}

static void adm_2_refusal_order(void **state) {
  (void)state;
  fx f;
  fx_job job = {0};
  order o = {.f = &f, .job = &job};
  fx_open(&f, NULL, NULL);
  fx_ok(berth_session_begin_attempt(f.session, NULL, &job.attempt, NULL), NULL);
  job.completion = berth_attempt_completion(job.attempt);
  berth_request request = fx_request(1000, 1);
  request.activity = &o;
  request.activity_release = order_release;
  job.status = berth_session_admit(f.session, job.attempt, &request, &job.admission, &job.error);
  fx_expect(job.status, &job.error, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  fx_until(o.released);
  assert_int_equal(o.device_permits, 0);
  assert_int_equal(o.observations, 0);
  assert_true(o.sealed);
  assert_null(job.admission);
  fx_drop(&job);
  fx_close(&f);
  assert_int_equal(o.released, 1);
}

static void count_release(void *arg) { (*(fx_flag *)arg)++; }

// Whatever fails, the lease comes back exactly once.
static void adm_2_activity_lease_always_comes_back(void **state) {
  (void)state;
  fx f;
  fx_flag released = 0;
  berth_error err = BERTH_ERROR_INIT;
  fx_open(&f, NULL, NULL);
  berth_request request = fx_request(1, 1);
  request.activity = &released;
  request.activity_release = count_release;
  berth_admission *admission = NULL;
  berth_attempt *attempt = fx_begin(&f);
  berth_request bad = request;
  bad.priority = 5000;
  fx_expect(berth_session_admit(f.session, attempt, &bad, &admission, &err), &err, BERTH_INVALID_ARGUMENT, "invalid_argument");
  fx_until(released == 1);
  fx_ok(berth_session_admit(f.session, attempt, &request, &admission, &err), &err);
  berth_admission *second = NULL;
  fx_expect(berth_session_admit(f.session, attempt, &request, &second, &err), &err, BERTH_FAILED_PRECONDITION, "already_admitted");
  fx_until(released == 2);
  berth_admission_release(admission);  // untaken
  fx_until(released == 3);
  fx_expect(berth_session_admit(f.session, attempt, &request, &second, &err), &err, BERTH_FAILED_PRECONDITION, "already_admitted");
  fx_until(released == 4);
  berth_attempt_release(attempt);
  fx_close(&f);
  assert_int_equal(released, 4);
}

// ADM-3 ------------------------------------------------------------------------------------------------------------------------------------------

static void adm_3_what_can_never_be_is_refused_at_once(void **state) {
  (void)state;
  fx f;
  fx_job holder;
  fx_spec spec = {.devices = 2, .lanes = 4};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &holder, 100, 1);
  berth_request lanes = fx_request(1, 5), bytes = fx_request(101, 1), capability = fx_request(1, 1), devices = fx_request(1, 1);
  capability.capabilities = BERTH_CAP_ASYNC;
  devices.devices = 8;
  struct { berth_request *request; berth_status code; const char *reason; } rows[] = {
      {&lanes, BERTH_OUT_OF_RANGE, "request_exceeds_device"},
      {&bytes, BERTH_OUT_OF_RANGE, "request_exceeds_device"},
      {&capability, BERTH_UNIMPLEMENTED, "capability_unsupported"},
      {&devices, BERTH_INVALID_ARGUMENT, "invalid_argument"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fx_job job;
    fx_submit(&f, &job, rows[i].request, NULL);
    fx_expect(job.status, &job.error, rows[i].code, rows[i].reason);
    assert_null(job.admission);
    fx_drop(&job);
  }
  berth_metrics m = fx_metrics(&f);
  assert_int_equal(m.refused, 3);
  assert_int_equal(m.refusals[BERTH_REFUSED_EXCEEDS_DEVICE], 2);
  assert_int_equal(m.refusals[BERTH_REFUSED_CAPABILITY], 1);
  assert_int_equal(m.queue_high_watermark, 0);
  fx_drop(&holder);
  fx_close(&f);
}

static void adm_3_bytes_are_never_clamped(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_spec spec = {.grant = 7};
  fx_open(&f, &spec, NULL);
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = 12345;
  fx_submit(&f, &job, &request, NULL);
  fx_wait_take(&job);
  fx_ok(berth_exec_get_info(job.exec, &info, NULL), NULL);
  assert_int_equal(info.grant_bytes, 12345);
  assert_int_equal(info.lanes, 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).bytes_granted, 12345);
  fx_drop(&job);
  fx_submit(&f, &job, NULL, NULL);
  fx_wait_take(&job);
  fx_ok(berth_exec_get_info(job.exec, &info, NULL), NULL);
  assert_int_equal(info.grant_bytes, 7 * FX_UNIT);
  fx_drop(&job);
  fx_close(&f);
}

static void adm_3_token_of_the_caller_cancels(void **state) {
  (void)state;
  fx f;
  fx_job holder, queued, fired;
  berth_cancel *token = NULL;
  fx_open(&f, NULL, NULL);
  fx_ok(berth_cancel_create(f.session, &token, NULL), NULL);
  berth_request request = fx_request(60, 1);
  request.cancel = token;
  fx_submit(&f, &holder, &request, NULL);
  fx_wait_take(&holder);
  fx_submit(&f, &queued, &request, NULL);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_QUEUED);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  assert_int_equal(fx_state(&queued), BERTH_ADMISSION_CANCELLED);
  fx_expect(berth_exec_check(holder.exec, &holder.error), &holder.error, BERTH_CANCELLED, "cancelled");
  fx_submit(&f, &fired, &request, NULL);  // fired before it is submitted
  fx_expect(fired.status, &fired.error, BERTH_CANCELLED, "cancelled");
  berth_cancel_release(token);
  fx_drop(&holder);
  fx_drop(&queued);
  fx_drop(&fired);
  assert_int_equal(fx_metrics(&f).cancelled, 2);
  fx_close(&f);
}

// ADM-4 ------------------------------------------------------------------------------------------------------------------------------------------

static void adm_4_queue_is_bounded_in_total(void **state) {
  (void)state;
  fx f;
  fx_job holder, waiters[3], over;
  berth_backend_options options = fx_options();
  options.max_queued = 3;
  fx_open(&f, NULL, &options);
  fx_start(&f, &holder, 100, 1);
  for (int i = 0; i < 3; i++) fx_submit_units(&f, &waiters[i], 1);
  berth_request request = fx_request(1, 1);
  fx_submit(&f, &over, &request, NULL);
  fx_expect(over.status, &over.error, BERTH_UNAVAILABLE, "admission_queue_full");
  bool hint = false;
  for (uint32_t i = 0; i < over.error.fact_count; i++) hint |= strcmp(over.error.facts[i].key, "retry_after_ns") == 0 && over.error.facts[i].value > 0;
  assert_true(hint);
  berth_report_info info = fx_report(&over);
  assert_int_equal(info.outcome, BERTH_FAILED);
  assert_int_equal(info.retry, BERTH_RETRY_BACKOFF);
  assert_string_equal(info.cause.reason, "admission_queue_full");
  assert_int_equal(fx_metrics(&f).queue_high_watermark, 3);
  assert_int_equal(berth_admission_cancel(waiters[1].admission), BERTH_CANCEL_FIRED);  // its place is free again
  fx_job again;
  fx_submit(&f, &again, &request, NULL);
  fx_ok(again.status, &again.error);
  fx_drop(&holder);
  fx_drop(&over);
  for (int i = 0; i < 3; i++) fx_drop(&waiters[i]);
  fx_drop(&again);
  fx_close(&f);
}

static void adm_4_queue_is_bounded_per_group(void **state) {
  (void)state;
  fx f;
  fx_job holder, waiters[2], over, other;
  fx_open(&f, NULL, NULL);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_queued = 2;
  fx_ok(berth_group_set(f.backend, "small", &limits, NULL), NULL);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.group = "small";
  berth_request request = fx_request(1, 1);
  fx_start(&f, &holder, 100, 1);
  for (int i = 0; i < 2; i++) {
    fx_submit(&f, &waiters[i], &request, &options);
    fx_ok(waiters[i].status, &waiters[i].error);
  }
  fx_submit(&f, &over, &request, &options);
  fx_expect(over.status, &over.error, BERTH_UNAVAILABLE, "admission_queue_full");
  fx_submit(&f, &other, &request, NULL);
  fx_ok(other.status, &other.error);
  assert_int_equal(fx_state(&other), BERTH_ADMISSION_QUEUED);
  fx_drop(&holder);
  for (int i = 0; i < 2; i++) fx_drop(&waiters[i]);
  fx_drop(&over);
  fx_drop(&other);
  fx_close(&f);
}

static void adm_4_expired_queue_deadline_says_overloaded(void **state) {
  (void)state;
  fx f;
  fx_job holder, late, passed;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  berth_request request = fx_request(1, 1);
  request.queue_deadline = berth_now() + 30 * FX_MILLISECOND;
  fx_submit(&f, &late, &request, NULL);
  fx_ok(late.status, &late.error);
  fx_expect(berth_admission_wait(late.admission, BERTH_NO_DEADLINE, &late.error), &late.error, BERTH_UNAVAILABLE, "queue_wait_elapsed");
  assert_true(berth_now() >= request.queue_deadline);
  berth_report_info info = fx_report(&late);
  assert_int_equal(info.outcome, BERTH_FAILED);
  assert_int_equal(info.retry, BERTH_RETRY_BACKOFF);
  request.queue_deadline = berth_now() - 1;  // expired when it comes: one try, then the same reason
  fx_submit(&f, &passed, &request, NULL);
  fx_expect(passed.status, &passed.error, BERTH_UNAVAILABLE, "queue_wait_elapsed");
  fx_drop(&passed);
  fx_finish(&holder, BERTH_SUCCEEDED);
  fx_submit(&f, &passed, &request, NULL);  // uncontended: granted
  fx_ok(passed.status, &passed.error);
  assert_int_equal(fx_state(&passed), BERTH_ADMISSION_GRANTED);
  fx_drop(&holder);
  fx_drop(&late);
  fx_drop(&passed);
  fx_close(&f);
}

static void adm_4_attempt_deadline_is_deadline_exceeded(void **state) {
  (void)state;
  fx f;
  fx_job holder, late;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  berth_request request = fx_request(1, 1);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.deadline = berth_now() + 2 * FX_MILLISECOND;
  fx_submit(&f, &late, &request, &options);
  berth_report_info info = fx_report(&late);
  assert_int_equal(info.outcome, BERTH_OUTCOME_CANCELLED);
  assert_int_equal(info.cause.code, BERTH_DEADLINE_EXCEEDED);
  assert_int_equal(info.cancel_cause, BERTH_CANCEL_BY_DEADLINE);
  assert_true(info.cancelled_at >= options.deadline);
  fx_drop(&holder);
  fx_drop(&late);
  fx_close(&f);
}

// ADM-7 ------------------------------------------------------------------------------------------------------------------------------------------

static void adm_7_everything_that_frees_reruns_the_scan(void **state) {
  (void)state;
  fx f;
  fx_job holder, waiter, blocker;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &waiter, 10);
  fx_ok(berth_exec_shrink(holder.exec, 90 * FX_UNIT, NULL, NULL), NULL);  // shrink
  assert_int_equal(fx_state(&waiter), BERTH_ADMISSION_GRANTED);
  fx_drop(&waiter);
  fx_ok(berth_device_charge(f.backend, 0, (int64_t)(10 * FX_UNIT), NULL), NULL);
  fx_submit_units(&f, &waiter, 10);
  assert_int_equal(fx_state(&waiter), BERTH_ADMISSION_QUEUED);
  fx_ok(berth_device_charge(f.backend, 0, -(int64_t)(10 * FX_UNIT), NULL), NULL);  // credited
  assert_int_equal(fx_state(&waiter), BERTH_ADMISSION_GRANTED);
  fx_drop(&waiter);
  berth_request lanes = fx_request(1, 8);
  fx_submit(&f, &blocker, &lanes, NULL);  // claims every lane
  fx_submit_units(&f, &waiter, 1);
  assert_int_equal(fx_state(&waiter), BERTH_ADMISSION_QUEUED);
  (void)berth_admission_cancel(blocker.admission);  // cancel
  assert_int_equal(fx_state(&waiter), BERTH_ADMISSION_GRANTED);
  fx_drop(&waiter);
  fx_drop(&blocker);
  lanes.queue_deadline = berth_now() + 60 * FX_MILLISECOND;
  fx_submit(&f, &blocker, &lanes, NULL);
  fx_submit_units(&f, &waiter, 1);
  fx_until(fx_state(&blocker) == BERTH_ADMISSION_EXPIRED);  // expiry
  fx_until(fx_state(&waiter) == BERTH_ADMISSION_GRANTED);
  fx_drop(&waiter);
  fx_drop(&blocker);
  fx_drop(&holder);
  fx_close(&f);
}

typedef struct woken {
  fx_job *job;
  fx_flag returned;
} woken;

static void wait_for_grant(void *arg) {
  woken *w = arg;
  fx_check(berth_admission_wait(w->job->admission, BERTH_NO_DEADLINE, NULL) == BERTH_OK);
  w->returned = 1;
}

static void adm_7_only_the_granted_are_woken(void **state) {
  (void)state;
  fx f;
  fx_job holder, jobs[4];
  woken w[4];
  fx_thread threads[4];
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  for (int i = 0; i < 4; i++) {
    fx_submit_units(&f, &jobs[i], 100);
    w[i] = (woken){.job = &jobs[i]};
    fx_thread_start(&threads[i], wait_for_grant, &w[i]);
  }
  fx_until(berthi_wait_place_count("admission.wait") == 4);
  fx_finish(&holder, BERTH_SUCCEEDED);
  for (int i = 0; i < 4; i++) {
    fx_until(w[i].returned);
    for (int k = i + 1; k < 4; k++) assert_false(w[k].returned);
    assert_int_equal(berthi_wait_place_count("admission.wait"), 3 - i);
    fx_thread_join(&threads[i]);
    fx_drop(&jobs[i]);
  }
  fx_drop(&holder);
  fx_close(&f);
}

static void adm_8_placement_reads_ledgers_only(void **state) {
  (void)state;
  fx f;
  fx_job a, b;
  fx_spec spec = {.devices = 2};
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  fx_open(&f, &spec, NULL);
  fx_start(&f, &a, 10, 1);
  fx_ok(berth_exec_get_info(a.exec, &info, NULL), NULL);
  assert_int_equal(info.device, 0);  // ties: the lowest index
  fx_start(&f, &b, 10, 1);           // nothing is allocated on 0, only promised
  fx_ok(berth_exec_get_info(b.exec, &info, NULL), NULL);
  assert_int_equal(info.device, 1);
  fx_drop(&a);
  fx_drop(&b);
  fx_ok(berth_device_charge(f.backend, 0, (int64_t)FX_UNIT, NULL), NULL);
  fx_start(&f, &a, 10, 1);
  fx_ok(berth_exec_get_info(a.exec, &info, NULL), NULL);
  assert_int_equal(info.device, 1);
  fx_drop(&a);
  fx_close(&f);
}

// ADM-9 ------------------------------------------------------------------------------------------------------------------------------------------

static void expect_why(const fx_job *job, uint32_t mask, uint32_t holders) {
  berth_holder list[4];
  berth_why why = BERTH_WHY_INIT;
  why.holders = list;
  why.holder_capacity = 4;
  fx_ok(berth_admission_why(job->admission, &why, NULL), NULL);
  if (why.mask != mask) fail_msg("why %#x instead of %#x", why.mask, mask);
  assert_int_equal(why.holders_total, holders);
}

static void adm_9_why_names_what_stands_in_the_way(void **state) {
  (void)state;
  fx f;
  fx_job holder, job, behind;
  fx_spec spec = {.lanes = 2, .slots = 2};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 1);
  expect_why(&job, BERTH_WHY_BYTES, 1);
  berth_holder who[1];
  berth_why why = BERTH_WHY_INIT;
  why.holders = who;
  why.holder_capacity = 1;
  fx_ok(berth_admission_why(job.admission, &why, NULL), NULL);
  assert_int_equal(who[0].attempt_id, berth_attempt_id(holder.attempt));
  assert_int_equal(who[0].bytes, 100 * FX_UNIT);
  assert_int_equal(who[0].phase, BERTH_PHASE_RUNNING);
  fx_drop(&job);
  fx_drop(&holder);
  fx_start(&f, &holder, 1, 2);
  fx_submit_units(&f, &job, 1);
  expect_why(&job, BERTH_WHY_LANES, 1);
  fx_submit_units(&f, &behind, 1);
  expect_why(&behind, BERTH_WHY_LANES | BERTH_WHY_ORDER, 1);
  fx_ok(berth_admission_why(behind.admission, &why, NULL), NULL);
  assert_int_equal(why.ahead, 1);
  fx_drop(&behind);
  fx_drop(&job);
  fx_drop(&holder);
  fx_close(&f);
}

static void adm_9_slots_health_group(void **state) {
  (void)state;
  fx f;
  fx_job holders[2], job;
  fx_spec spec = {.slots = 2};
  fx_open(&f, &spec, NULL);
  for (int i = 0; i < 2; i++) fx_start(&f, &holders[i], 1, 1);
  fx_submit_units(&f, &job, 1);
  expect_why(&job, BERTH_WHY_SLOTS, 2);
  fx_drop(&job);
  for (int i = 0; i < 2; i++) fx_drop(&holders[i]);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_active = 1;
  fx_ok(berth_group_set(f.backend, "g", &limits, NULL), NULL);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.group = "g";
  berth_request request = fx_request(1, 1);
  fx_submit(&f, &holders[0], &request, &options);
  fx_submit(&f, &job, &request, &options);
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(job.admission, &why, NULL), NULL);
  assert_int_equal(why.mask, BERTH_WHY_GROUP);
  fx_ok(berth_admission_why(holders[0].admission, &why, NULL), NULL);
  assert_int_equal(why.mask, 0);  // it does not wait
  fx_drop(&job);
  fx_drop(&holders[0]);
  fx_close(&f);
}

static void adm_9_report_says_why_it_queued(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  fx_spec spec = {.slots = 1};
  fx_open(&f, &spec, NULL);
  fx_start(&f, &holder, 1, 1);
  fx_submit_units(&f, &job, 1);
  fx_drop(&holder);
  fx_wait_take(&job);
  fx_finish(&job, BERTH_SUCCEEDED);
  berth_report_info info = fx_report(&job);
  assert_true(info.why_queued & BERTH_WHY_SLOTS);
  assert_true(info.queued_for > 0);
  fx_drop(&job);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  info = fx_report(&job);
  assert_int_equal(info.why_queued, 0);
  assert_int_equal(info.queued_for, 0);
  fx_drop(&job);
  fx_close(&f);
}

// ADM-10 -----------------------------------------------------------------------------------------------------------------------------------------

typedef struct told {
  fx_flag count, state;
} told;

static void be_told(void *arg, berth_admission_state state) {
  told *t = arg;
  t->state = (int)state;
  t->count++;
}

static uint64_t read_fd(int fd) {
  uint64_t value = 0;
  return read(fd, &value, sizeof value) == (ssize_t)sizeof value ? value : 0;
}

static void adm_10_decision_is_level(void **state) {
  (void)state;
  fx f;
  fx_job holder, job;
  told early = {0}, late = {0};
  int fd = eventfd(0, EFD_NONBLOCK);
  fx_open(&f, NULL, NULL);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 1);
  fx_expect(berth_admission_take(job.admission, &job.exec, &job.error), &job.error, BERTH_FAILED_PRECONDITION, "not_granted");
  fx_expect(berth_admission_wait(job.admission, berth_now() + FX_MILLISECOND, &job.error), &job.error, BERTH_DEADLINE_EXCEEDED, "wait_timeout");
  assert_int_equal(fx_state(&job), BERTH_ADMISSION_QUEUED);
  fx_ok(berth_admission_notify(job.admission, fd, be_told, &early, NULL), NULL);
  fx_expect(berth_admission_notify(job.admission, fd, be_told, &late, &job.error), &job.error, BERTH_FAILED_PRECONDITION, "already_taken");
  assert_int_equal(read_fd(fd), 0);
  fx_finish(&holder, BERTH_SUCCEEDED);
  fx_until(early.count == 1);
  assert_int_equal(early.state, BERTH_ADMISSION_GRANTED);
  assert_int_equal(read_fd(fd), 1);
  assert_int_equal(read_fd(fd), 0);
  for (int i = 0; i < 3; i++) fx_ok(berth_admission_wait(job.admission, 0, NULL), NULL);
  fx_ok(berth_admission_take(job.admission, &job.exec, NULL), NULL);
  berth_exec *again = NULL;
  fx_expect(berth_admission_take(job.admission, &again, &job.error), &job.error, BERTH_FAILED_PRECONDITION, "already_taken");
  fx_ok(berth_admission_wait(job.admission, 0, NULL), NULL);
  fx_drop(&holder);
  fx_drop(&job);
  fx_submit_units(&f, &job, 1);
  fx_ok(berth_admission_notify(job.admission, fd, be_told, &late, NULL), NULL);  // asked late
  fx_until(late.count == 1);
  fx_until(read_fd(fd) == 1);
  fx_drop(&job);
  fx_close(&f);
  assert_int_equal(early.count, 1);
  assert_int_equal(late.count, 1);
  close(fd);
}

static void take_all(void *arg) {
  fx_job *job = arg;
  berth_exec *exec = NULL;
  if (berth_admission_take(job->admission, &exec, NULL)) return;
  fx_check(!job->exec);
  job->exec = exec;
}

static void adm_10_take_succeeds_once_among_threads(void **state) {
  (void)state;
  fx f;
  fx_open(&f, NULL, NULL);
  for (int round = 0; round < 30; round++) {
    fx_job job;
    fx_thread threads[3];
    fx_submit_units(&f, &job, 1);
    for (int i = 0; i < 3; i++) fx_thread_start(&threads[i], take_all, &job);
    for (int i = 0; i < 3; i++) fx_thread_join(&threads[i]);
    assert_non_null(job.exec);
    fx_drop(&job);
  }
  fx_close(&f);
}

static void adm_11_one_admission_and_fragments_join(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 10, 1);
  berth_metrics before = fx_metrics(&f);
  for (int i = 0; i < 3; i++) fx_ok(berth_exec_join_fragment(job.exec, BERTH_CAP_F64, NULL), NULL);
  fx_expect(berth_exec_join_fragment(job.exec, BERTH_CAP_ASYNC, &job.error), &job.error, BERTH_UNIMPLEMENTED, "capability_unsupported");
  berth_metrics after = fx_metrics(&f);
  assert_int_equal(before.submitted, after.submitted);  // queue and ledger do not change
  assert_int_equal(before.granted, after.granted);
  assert_int_equal(before.promised_bytes, after.promised_bytes);
  berth_backend_close(f.backend);
  fx_ok(berth_exec_join_fragment(job.exec, BERTH_CAP_F64, NULL), NULL);  // also while it closes
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).fragments, 5);
  fx_drop(&job);
  fx_close(&f);
}

static void adm_12_group_waits_alone(void **state) {
  (void)state;
  fx f;
  fx_job one, held, other;
  fx_open(&f, NULL, NULL);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_bytes = 10 * FX_UNIT;
  fx_ok(berth_group_set(f.backend, "g", &limits, NULL), NULL);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.group = "g";
  berth_request request = fx_request(10, 1);
  fx_submit(&f, &one, &request, &options);
  fx_submit(&f, &held, &request, &options);
  assert_int_equal(fx_state(&held), BERTH_ADMISSION_QUEUED);
  for (int i = 0; i < 20; i++) {  // it blocks nobody and is not overtaken
    fx_submit_units(&f, &other, 10);
    assert_int_equal(fx_state(&other), BERTH_ADMISSION_GRANTED);
    fx_drop(&other);
  }
  berth_why why = BERTH_WHY_INIT;
  fx_ok(berth_admission_why(held.admission, &why, NULL), NULL);
  assert_int_equal(why.overtakes, 0);
  limits.max_bytes = 20 * FX_UNIT;
  fx_ok(berth_group_set(f.backend, "g", &limits, NULL), NULL);  // a raised limit reruns the scan
  assert_int_equal(fx_state(&held), BERTH_ADMISSION_GRANTED);
  fx_drop(&one);
  fx_drop(&held);
  berth_group_limits use = BERTH_GROUP_LIMITS_INIT;
  fx_ok(berth_group_get(f.backend, "g", &use, NULL), NULL);
  assert_int_equal(use.active + use.lanes + use.queued, 0);
  assert_int_equal(use.bytes, 0);
  fx_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adm_1_word_is_decided_once),
      cmocka_unit_test(adm_1_untaken_grant_goes_back),
      cmocka_unit_test(adm_1_large_refusal_disturbs_nobody),
      cmocka_unit_test(adm_2_refusal_order),
      cmocka_unit_test(adm_2_activity_lease_always_comes_back),
      cmocka_unit_test(adm_3_what_can_never_be_is_refused_at_once),
      cmocka_unit_test(adm_3_bytes_are_never_clamped),
      cmocka_unit_test(adm_3_token_of_the_caller_cancels),
      cmocka_unit_test(adm_4_queue_is_bounded_in_total),
      cmocka_unit_test(adm_4_queue_is_bounded_per_group),
      cmocka_unit_test(adm_4_expired_queue_deadline_says_overloaded),
      cmocka_unit_test(adm_4_attempt_deadline_is_deadline_exceeded),
      cmocka_unit_test(adm_7_everything_that_frees_reruns_the_scan),
      cmocka_unit_test(adm_7_only_the_granted_are_woken),
      cmocka_unit_test(adm_8_placement_reads_ledgers_only),
      cmocka_unit_test(adm_9_why_names_what_stands_in_the_way),
      cmocka_unit_test(adm_9_slots_health_group),
      cmocka_unit_test(adm_9_report_says_why_it_queued),
      cmocka_unit_test(adm_10_decision_is_level),
      cmocka_unit_test(adm_10_take_succeeds_once_among_threads),
      cmocka_unit_test(adm_11_one_admission_and_fragments_join),
      cmocka_unit_test(adm_12_group_waits_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
