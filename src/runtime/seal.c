// SPDX-License-Identifier: Apache-2.0
/// Sealing: the report becomes immutable and visible, is counted, and goes to its receivers or to the abandoned queue (ATT-5, ATT-6). Then what is
/// left, in the order of ADM-2 and EXE-2: callbacks, observation permit, activity lease.
#include <string.h>

#include "runtime/core.h"

#define RECEIVERS_SEALED 0x80000000u ///< of completion.receivers: receivers that come now find the report

void berthi_report_set_cause(berth_report *report, berthi_reason reason, const berth_error *cause) {
  if (!cause || cause->code == BERTH_OK) {
    report->reason = reason;
    report->cause_code = berthi_reason_code(reason);
    report->cause_reason = berthi_reason_name(reason);
    return;
  }
  report->cause_code = cause->code;
  report->cause_reason = cause->reason ? cause->reason : "";
  report->cause_facts = cause->fact_count < BERTH_ERROR_FACTS ? cause->fact_count : BERTH_ERROR_FACTS;
  memcpy(report->facts, cause->facts, sizeof report->facts);
  report->reason = reason;
  if (cause->message[0] == 0) return;
  report->cause_message = berthi_string_copy(cause->message, strnlen(cause->message, BERTH_ERROR_MESSAGE - 1));  // NULL: without it
}

static void fill_last(berth_attempt *attempt) {
  berth_report *report = &attempt->report;
  report->cancel_cause = (berth_cancel_cause)berthi_load(&attempt->cancel.cause, acquire);
  if (report->cancel_cause) {
    uint64_t cancelled = berthi_get(&attempt->cancelled_at);
    report->cancelled_at = cancelled ? (int64_t)cancelled : berthi_now();  // whoever fires writes the time after the cause
  }
  report->sealed_at = report->released_at != BERTH_NO_TIME ? report->released_at : berthi_now_loose();  // one boundary, one reading
}

static bool is_plain(const berth_attempt *attempt, bool received) {
  return attempt->stripe != BERTHI_NO_STRIPE && received && attempt->report.outcome == BERTH_SUCCEEDED && attempt->report.disposition == BERTH_NATIVE &&
         !attempt->report.cancel_cause && !berthi_load(&((berth_attempt *)(uintptr_t)attempt)->hooked, seq_cst);
}

// The common end, on its stripe: the holder of the observation word is the only writer.
static void count_on_stripe(berthi_core *core, berth_attempt *attempt) {
  berthi_stripe *stripe = &core->stripes[attempt->stripe];
  uint64_t lasted = (uint64_t)(attempt->report.sealed_at - attempt->report.begun_at);
  uint32_t bucket = 0;
  while (bucket + 1 < BERTHI_HISTOGRAM_BUCKETS && (int64_t)lasted > berthi_histogram_bound(bucket)) bucket++;
  uint32_t sequence = berthi_stat_load(&stripe->sequence);
  berthi_stat_store(&stripe->sequence, sequence + 1);  // ordered by the releases of berthi_put
  berthi_up(&stripe->duration[bucket], 1);
  berthi_up(&stripe->duration_sum, lasted);
  if (lasted > berthi_get(&stripe->duration_max)) berthi_put(&stripe->duration_max, lasted);
  // Sealed in every snapshot before the report is visible (MET-1). Nobody else writes a BUSY word.
  uint64_t word = berthi_load(&stripe->observation, relaxed);
  berthi_store(&stripe->observation, word + (BERTHI_STRIPE_COUNTED - BERTHI_STRIPE_BUSY), release);
  berthi_store(&stripe->sequence, sequence + 2, release);
}

// Any other end is counted in the core's books. One that began on a stripe moves there first: its begin is taken off the stripe's count.
static void count_in_core(berthi_core *core, berth_attempt *attempt, bool received) {
  berthi_after after;
  berthi_counters *c = &core->counters;
  const berth_report *report = &attempt->report;
  berthi_lock(core, &after);
  if (attempt->stripe == BERTHI_NO_STRIPE) {
    berthi_timer_disarm_locked(core, &attempt->timer);
    berthi_list_remove(&attempt->link);
    berthi_down(&c->open, 1);
  } else {
    if (attempt->link.next) berthi_list_remove(&attempt->link);
    // In one step: off the count, and no longer open, so that a snapshot sees it sealed once and never in between (MET-1).
    (void)berthi_sub(&core->stripes[attempt->stripe].observation, 4 - (BERTHI_STRIPE_COUNTED - BERTHI_STRIPE_BUSY), seq_cst);
    berthi_up(&c->begun, 1);
    attempt->moved = true;
  }
  berthi_up(&c->sealed, 1);
  berthi_up(&c->outcomes[report->outcome], 1);
  berthi_up(&c->dispositions[report->disposition], 1);
  berthi_stat_record(&c->duration, report->sealed_at - report->begun_at);
  if (report->cancel_latency != BERTH_NO_TIME) berthi_stat_record(&c->cancel_latency, report->cancel_latency);
  if (received) berthi_up(&c->delivered, 1);
  else berthi_abandon_locked(core, attempt);
  berthi_unlock(core, &after);
}

void berthi_attempt_seal(berth_attempt *attempt) {
  berthi_core *core = attempt->core;
  berthi_cancel_unfollow(&attempt->admission.follower);
  fill_last(attempt);
  // Who is a receiver is decided by this one operation.
  bool received = berthi_or(&attempt->completion.receivers, RECEIVERS_SEALED, seq_cst) != 0;
  berthi_edge(BERTHI_ATTEMPT, BERTHI_ATTEMPT_DECIDED, BERTHI_ATTEMPT_SEALED);
  if (is_plain(attempt, received)) {
    berthi_store(&attempt->state, BERTHI_ATTEMPT_SEALED, seq_cst);
    count_on_stripe(core, attempt);
  } else {
    berthi_mutex_lock(&attempt->lock);  // against events being recorded
    berthi_store(&attempt->state, BERTHI_ATTEMPT_SEALED, seq_cst);
    berthi_mutex_unlock(&attempt->lock);
    count_in_core(core, attempt, received);
  }
  berthi_event_set(&attempt->completion.sealed);  // visible to poll and wait
}

static void delivered(void *arg) {
  berth_attempt *attempt = arg;
  berthi_attempt_unref(attempt);  // its life
}

static void activity_over(void *arg) {
  berth_attempt *attempt = arg;
  berthi_sub(&attempt->core->activities_pending, 1, relaxed);
  delivered(attempt);
}

// After the completion's callback, also when that ended its thread.
static void told(void *arg) {
  berth_attempt *attempt = arg;
  berthi_core *core = attempt->core;
  void (*release)(void *) = attempt->admission.activity_release;
  void *activity = attempt->admission.activity;
  berthi_request_drop_lanes(&attempt->admission.request);
  if (!release) {
    berthi_observation_give(core, attempt->stripe);
    delivered(attempt);
    return;
  }
  attempt->admission.activity_release = NULL;
  berthi_add(&core->activities_pending, 1, relaxed);  // a figure of the close report
  berthi_observation_give(core, attempt->stripe);
  berthi_user_release(core, release, activity, activity_over, attempt);  // last of all: it may close the backend
  activity_over(attempt);
}

static void finish_delivery(berth_attempt *attempt) {
  berth_completion *completion = &attempt->completion;
  berthi_mutex_lock(&attempt->lock);
  bool tell = completion->asked && !completion->told;
  completion->told = completion->told || tell;
  berthi_mutex_unlock(&attempt->lock);
  if (tell && completion->fd >= 0) berthi_write_fd(completion->fd);
  if (tell && completion->fn) berthi_user_completed(attempt->core, completion->fn, completion->arg, &attempt->report, told, attempt);
  told(attempt);
}

static void delivery_note(berthi_note *note) { finish_delivery(BERTHI_CONTAINER(note, berth_attempt, note)); }

void berthi_attempt_deliver(berth_attempt *attempt, bool inline_ok) {
  bool user_code = attempt->admission.activity_release;
  if (!inline_ok && !user_code) {
    berthi_mutex_lock(&attempt->lock);
    user_code = attempt->completion.fn != NULL && !attempt->completion.told;
    berthi_mutex_unlock(&attempt->lock);
  }
  if (inline_ok || !user_code) {
    finish_delivery(attempt);
    return;
  }
  attempt->note.run = delivery_note;
  berthi_notify(attempt->core, &attempt->note);
}

// How a refused admission ends the attempt.
static berth_outcome outcome_of_refusal(uint32_t state, berthi_reason reason) {
  if (state == BERTHI_ADMISSION_REFUSED) return BERTH_FAILED;
  if (state == BERTHI_ADMISSION_EXPIRED) return reason == BERTHI_R_DEADLINE_EXCEEDED ? BERTH_OUTCOME_CANCELLED : BERTH_FAILED;
  if (state == BERTHI_ADMISSION_RETURNED && reason == BERTHI_R_NONE) return BERTH_DROPPED;
  return BERTH_OUTCOME_CANCELLED;
}

static void give_permit(berth_attempt *attempt) {
  berthi_core *core = attempt->core;
  if (!attempt->admission.permit) return;
  attempt->admission.permit = false;
  if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
}

// An untaken grant goes back; after the seal, as after an execution (EXE-2).
static void return_untaken(berth_attempt *attempt) {
  berthi_core *core = attempt->core;
  berth_exec *exec = &attempt->exec;
  if (exec->grant.stripe != BERTHI_NO_STRIPE) {
    berthi_stripe_give_grant(core, exec);
    attempt->admission.permit = false;  // the stripe's
    return;
  }
  berthi_after after;
  berthi_lock(core, &after);
  berthi_list_remove(&exec->link);
  berthi_ledger_return_locked(core, &exec->grant, berthi_slot_serves(&core->devices[exec->grant.device]) ? BERTH_CAPACITY_RETURNED : BERTH_CAPACITY_WITHHELD);
  berthi_scan_locked(core);
  berthi_unlock(core, &after);
}

void berthi_attempt_end_refused(berth_attempt *attempt, bool inline_ok) {
  berthi_request *request = &attempt->admission.request;
  uint32_t state = berthi_load(&request->state, acquire);
  berthi_reason reason = (berthi_reason)berthi_stat_load(&request->refusal);
  berth_report *report = &attempt->report;
  bool granted = state == BERTHI_ADMISSION_RETURNED;
  if (!granted) give_permit(attempt);  // ADM-2: first the device permit, then the report
  report->submitted_at = request->submitted_at;
  report->why = request->why;
  report->overtakes = request->overtakes;
  if (granted) {
    report->granted_at = request->granted_at;
    report->device = attempt->exec.grant.device;
    report->bytes_granted = attempt->exec.grant.bytes;
    report->lanes = attempt->exec.grant.lanes;
    report->capacity = BERTH_CAPACITY_RETURNED;
    memcpy(report->device_name, attempt->core->devices[report->device].startup.name, sizeof report->device_name);
  }
  report->queued_for = request->queued ? (granted ? request->granted_at : berthi_now()) - request->submitted_at : 0;
  // The deadline or the close has decided before it came to the token: the token says so, too, and its hook runs.
  if (reason == BERTHI_R_DEADLINE_EXCEEDED) (void)berthi_cancel_raise(&attempt->cancel, BERTH_CANCEL_BY_DEADLINE);
  if (state == BERTHI_ADMISSION_CLOSED) (void)berthi_cancel_raise(&attempt->cancel, BERTH_CANCEL_BY_CLOSE);
  berth_error cause = BERTH_ERROR_INIT;
  if (reason != BERTHI_R_NONE) berthi_refusal_facts(request, &cause);  // its message is made when the report is read
  (void)berthi_attempt_decide(attempt, outcome_of_refusal(state, reason), &cause, reason);
  berthi_attempt_seal(attempt);
  if (granted) {
    return_untaken(attempt);
    give_permit(attempt);
  }
  berthi_attempt_deliver(attempt, inline_ok);
}
