// SPDX-License-Identifier: Apache-2.0
/// The asynchronous door: submission of an attempt's one admission, and the caller's handle on it (ADM-1 to ADM-11).
#include "runtime/core.h"
#include "runtime/lanes.h"

#define PRIORITY_BOUND 1000

berth_status berthi_request_check(const berthi_core *core, const berth_request *request, berth_error *err) {
  uint64_t all = core->device_count == 64 ? UINT64_MAX : ((uint64_t)1 << core->device_count) - 1;
  if (request->devices & ~all) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "devices: bits %#llx given, the backend has %u devices", (unsigned long long)request->devices, core->device_count);
  }
  if (request->lanes > BERTHI_LANES_MAX) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "lanes: %u given, at most %d", request->lanes, BERTHI_LANES_MAX);
  if (request->priority > PRIORITY_BOUND || request->priority < -PRIORITY_BOUND) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "priority: %d given, at most %d in size", request->priority, PRIORITY_BOUND);
  }
  if (request->cancel && request->cancel->core != core) return berthi_fail(err, BERTHI_R_INCOMPATIBLE_CONTEXT, "cancel: the token belongs to another backend");
  if (request->lane_set && request->lane_set->core != core) {
    return berthi_fail(err, BERTHI_R_INCOMPATIBLE_CONTEXT, "lane_set: the lanes belong to another backend");
  }
  return BERTH_OK;
}

void berthi_request_fill(berthi_core *core, berthi_request *request, const berth_request *asked) {
  uint64_t all = core->device_count == 64 ? UINT64_MAX : ((uint64_t)1 << core->device_count) - 1;
  request->bytes = asked->bytes;
  request->devices = asked->devices ? asked->devices : all;
  if (asked->lane_set) request->devices &= (uint64_t)1 << asked->lane_set->device;
  request->lanes = asked->lanes ? asked->lanes : 1;
  request->capabilities = asked->capabilities;
  request->priority = asked->priority;
  request->lane_set = asked->lane_set ? berthi_lanes_retain(asked->lane_set) : NULL;
  request->no_wait = request->queued = request->lanes_entered = false;
  request->link = (berthi_link){NULL, NULL};
  request->timer = (berthi_timer){0};
  request->why = request->overtakes = 0;
  request->held_by_group = 0;
  request->barrier = BERTHI_NO_BARRIER;
  request->granted_at = 0;
  berthi_stat_store(&request->refusal, BERTHI_R_NONE);
  berthi_stat_store(&request->state, BERTHI_ADMISSION_NEW);
}

static bool is_plain(const berth_attempt *attempt, const berth_request *asked, uint64_t devices_all) {
  return !asked->bytes && asked->lanes <= 1 && !asked->capabilities && (!asked->devices || asked->devices == devices_all) && !asked->lane_set &&
         !attempt->group && !berthi_stat_load(&attempt->exec.cancel);
}

static berth_status submit_error(berth_attempt *attempt, berth_error *err) {
  uint32_t state = berthi_load(&attempt->state, acquire);
  berthi_reason reason = state == BERTHI_ATTEMPT_SUBMITTED || attempt->exec.core ? BERTHI_R_ALREADY_ADMITTED : BERTHI_R_ALREADY_TERMINAL;
  return berthi_fail(err, reason, "attempt %llu is %s", (unsigned long long)attempt->id, berthi_state_name(BERTHI_ATTEMPT, state));
}

// A grant that was parked on this thread's stripe: no lock, no shared word.
static bool grant_from_stripe(berthi_core *core, berth_attempt *attempt) {
  berthi_request *request = &attempt->admission.request;
  if (!berthi_stripe_take_grant(core, &attempt->exec)) return false;
  request->submitted_at = request->granted_at = berthi_now_loose();
  attempt->exec.since = request->submitted_at;
  berthi_edge(BERTHI_ADMISSION, BERTHI_ADMISSION_NEW, BERTHI_ADMISSION_GRANTED);
  berthi_store(&request->state, BERTHI_ADMISSION_GRANTED, seq_cst);  // before the look at `cancel` in berthi_admit
  return true;
}

static void submit(berthi_core *core, berth_attempt *attempt) {
  berthi_after after;
  berthi_trace(core, "queue", true, attempt->id);
  berthi_lock(core, &after);
  berthi_submit_locked(core, &attempt->admission.request, berthi_now());
  berthi_unlock(core, &after);
  if (!attempt->admission.request.queued) berthi_trace(core, "queue", false, attempt->id);  // else where it is told
}

// The gate was lost: the attempt ends with backend_closing as its evidence, nothing is counted as submitted.
static berth_status lost_to_close(berth_attempt *attempt, berth_error *err) {
  berth_error cause = BERTH_ERROR_INIT;
  berth_status status = berthi_core_fail_closing(attempt->core, &cause);
  (void)berthi_cancel_raise(&attempt->cancel, BERTH_CANCEL_BY_CLOSE);
  (void)berthi_attempt_decide(attempt, BERTH_OUTCOME_CANCELLED, &cause, BERTHI_R_BACKEND_CLOSING);
  berthi_attempt_seal(attempt);
  berthi_attempt_deliver(attempt, true);
  if (err) *err = cause;
  return status;
}

static bool is_refused(berthi_request *request) {
  uint32_t state = berthi_load(&request->state, acquire);
  return state != BERTHI_ADMISSION_GRANTED && state != BERTHI_ADMISSION_RETURNED;
}

static int64_t queue_deadline(const berthi_core *core, const berth_attempt *attempt, const berth_request *asked) {
  int64_t at = asked->queue_deadline;
  if (at == 0) at = berthi_time_add(berthi_now(), core->options.queue_deadline);
  return at < attempt->deadline ? at : attempt->deadline;
}

berth_status berth_session_admit(berth_session *session, berth_attempt *attempt, const berth_request *asked, berth_admission **out_admission,
                                 berth_error *err) {
  if (!session || !attempt || !out_admission) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session, attempt and out_admission must not be NULL");
  return berthi_admit(berthi_core_of_session(session), attempt, asked, false, out_admission, err);
}

// What fails before the attempt is submitted; the attempt stays as it was.
static berth_status begin_submit(berthi_core *core, berth_attempt *attempt, const berth_request *known, bool *out_entered, berth_error *err) {
  if (attempt->core != core) return berthi_fail(err, BERTHI_R_INCOMPATIBLE_CONTEXT, "the attempt belongs to another backend");
  BERTHI_TRY(berthi_request_check(core, known, err));
  BERTHI_TRY(berthi_lanes_enter(known->lane_set, out_entered, err));
  if (berthi_attempt_submit(attempt)) return BERTH_OK;
  if (*out_entered) berthi_lanes_leave(known->lane_set);
  return submit_error(attempt, err);
}

berth_status berthi_admit(berthi_core *core, berth_attempt *attempt, const berth_request *asked, bool no_wait, berth_admission **out_admission,
                          berth_error *err) {
  berth_request known = {0};
  bool entered = false;
  BERTHI_TRY(berthi_core_check_fork(core, err));
  if (asked) BERTHI_TRY(berthi_options_copy(asked, &known, sizeof known, "berth_request", err));
  berth_status begun = begin_submit(core, attempt, &known, &entered, err);
  if (begun) {
    if (known.activity_release) berthi_user_release(core, known.activity_release, known.activity, NULL, NULL);  // ADM-2: on every failure
    return begun;
  }

  berth_admission *admission = &attempt->admission;
  berthi_request *request = &admission->request;
  berthi_request_fill(core, request, &known);
  request->group = attempt->group;
  request->no_wait = no_wait;
  request->lanes_entered = entered;
  admission->activity = known.activity;
  admission->activity_release = known.activity_release;
  berthi_exec_prepare(&attempt->exec, core, attempt, request, attempt->deadline);
  uint64_t all = core->device_count == 64 ? UINT64_MAX : ((uint64_t)1 << core->device_count) - 1;
  bool plain = !known.cancel && is_plain(attempt, &known, all);
  if (berthi_gate_is_closed(&core->gate)) return lost_to_close(attempt, err);
  if (!plain || !grant_from_stripe(core, attempt)) {
    if (!berthi_gate_take(&core->gate, BERTHI_GATE_DEVICE)) return lost_to_close(attempt, err);  // ADM-2: before the queue
    admission->permit = true;
    request->expires_at = queue_deadline(core, attempt, &known);
    if (known.cancel) {
      admission->follower.attempt = attempt;
      berthi_cancel_follow(known.cancel, &admission->follower);
      if (berth_cancel_check(known.cancel)) berthi_attempt_cancel(attempt, berth_cancel_check(known.cancel));  // fired before it followed
    }
    berthi_attempt_retain(attempt);  // the handle's reference, before anybody can decide
    submit(core, attempt);
    // A refusal at once ends here, on the caller's stack. What was queued ends where it is decided, a grant that a cancel has returned already there.
    if (!request->queued && is_refused(request)) {
      berthi_attempt_end_refused(attempt, true);
      berth_status status = berthi_refusal_error(request, err);
      berthi_attempt_unref(attempt);
      return status;
    }
  } else {
    berthi_attempt_retain(attempt);
    // No lock orders this grant with a cancel that saw the request as NEW: it set the word before that look, so it is seen here.
    uint32_t cause = berthi_load(&attempt->exec.cancel, seq_cst);
    if (BERTHI_UNLIKELY(cause)) berthi_request_cancel(request, (berth_cancel_cause)cause);
  }
  *out_admission = admission;
  return BERTH_OK;
}
