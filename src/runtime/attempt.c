// SPDX-License-Identifier: Apache-2.0
/// Attempts: begin, the owner's calls, and the one word that says who may end it (ATT-1 to ATT-5).
///
/// References on the block: one for its life (begin to observation permit given back), one for each handle (owner, admission, execution, receivers,
/// reports, tokens), one for the queue.
#include <string.h>

#include "runtime/core.h"

#define QUERY_ID_MAX 256
#define TRACE_CONTEXT_MAX 1024
#define EVENTS_MAX 65536
#define DECISION_WRITING 0x100u ///< of attempt.decision: outcome and cause are being written to the report

berth_attempt *berthi_attempt_retain(berth_attempt *attempt) {
  berthi_ref_up(&attempt->refs);
  return attempt;
}

static void free_beside(berth_attempt *attempt) {
  if (attempt->query_id) berthi_free(attempt->query_id);
  if (attempt->trace_context) berthi_free(attempt->trace_context);
  if (attempt->events) berthi_free(attempt->events);
  if (attempt->report.cause_message) berthi_free(attempt->report.cause_message);
  attempt->query_id = attempt->trace_context = attempt->report.cause_message = NULL;
  attempt->events = NULL;
}

void berthi_attempt_unref(berth_attempt *attempt) {
  if (!berthi_ref_down(&attempt->refs)) return;
  berthi_core *core = attempt->core;
  free_beside(attempt);
  if (!berthi_gate_is_closed(&core->gate)) {  // a block keeps its reference on the core while it lies spare
    void *none = NULL;
    berthi_stripe *stripe = &core->stripes[berthi_stripe_index(core)];
    if (atomic_compare_exchange_strong_explicit(&stripe->spare, &none, attempt, memory_order_acq_rel, memory_order_relaxed)) {
      if (BERTHI_UNLIKELY(berthi_gate_is_closed(&core->gate))) berthi_stripes_free_spares(core);  // the keeper may have swept before
      return;
    }
  }
  berthi_free(attempt);
  berthi_core_release(core);
}

static berth_attempt *take_block(berthi_core *core) {
  berthi_stripe *stripe = &core->stripes[berthi_stripe_index(core)];
  if (atomic_load_explicit(&stripe->spare, memory_order_relaxed)) {
    berth_attempt *spare = atomic_exchange_explicit(&stripe->spare, NULL, memory_order_acq_rel);
    if (spare) return spare;
  }
  berth_attempt *fresh = berthi_alloc(sizeof *fresh);
  if (fresh) berthi_core_retain(core);
  return fresh;
}

static bool is_blank(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n' && text[i] != '\r') return false;
  }
  return true;
}

static bool is_utf8(const unsigned char *s, size_t length) {
  for (size_t i = 0; i < length;) {
    unsigned char c = s[i];
    size_t more = c < 0x80 ? 0 : (c >= 0xc2 && c <= 0xdf) ? 1 : (c & 0xf0) == 0xe0 ? 2 : (c >= 0xf0 && c <= 0xf4) ? 3 : 9;
    if (more == 9 || i + more >= length + (more == 0)) return false;
    for (size_t k = 1; k <= more; k++) {
      if ((s[i + k] & 0xc0) != 0x80) return false;
    }
    if ((c == 0xe0 && s[i + 1] < 0xa0) || (c == 0xed && s[i + 1] > 0x9f) || (c == 0xf0 && s[i + 1] < 0x90) || (c == 0xf4 && s[i + 1] > 0x8f)) return false;
    i += more + 1;
  }
  return true;
}

// Checks one text of the options and copies it beside the attempt.
static berth_status copy_text(const char *what, const char *text, size_t bound, char **out, berth_error *err) {
  if (!text) return BERTH_OK;
  size_t length = strnlen(text, bound + 1);
  if (length == 0 || length > bound || is_blank(text, length) || !is_utf8((const unsigned char *)text, length)) {
    berth_status status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s: %s%zu bytes given, 1 to %zu bytes of UTF-8, not blank, are accepted", what,
                                      length > bound ? "more than " : "", length > bound ? bound : length, bound);
    berthi_fact(err, "length", (int64_t)length);
    berthi_fact(err, "bound", (int64_t)bound);
    return status;
  }
  *out = berthi_string_copy(text, length);
  return *out ? BERTH_OK : berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "%s of %zu bytes", what, length);
}

static void reset_report(berth_attempt *attempt, int64_t now) {
  berth_report *report = &attempt->report;
  memset(report, 0, sizeof *report);
  report->generation = attempt->core->generation;
  report->begun_at = now;
  report->plan_started_at = report->plan_finished_at = report->submitted_at = report->granted_at = report->taken_at = BERTH_NO_TIME;
  report->cancelled_at = report->released_at = report->sealed_at = report->cancel_latency = BERTH_NO_TIME;
  report->device = BERTH_NO_DEVICE;
}

static void reset_block(berthi_core *core, berth_attempt *attempt) {
  attempt->core = core;
  attempt->epoch = core->epoch;
  attempt->deadline = BERTH_NO_DEADLINE;
  attempt->group = NULL;
  attempt->query_id = attempt->trace_context = NULL;
  attempt->events = NULL;
  attempt->max_events = attempt->event_count = attempt->events_lost = 0;
  berthi_stat_store(&attempt->refs, 2);  // life and owner
  berthi_stat_store(&attempt->state, BERTHI_ATTEMPT_OPEN);
  berthi_stat_store(&attempt->decision, 0);
  berthi_put(&attempt->cancelled_at, 0);
  berthi_mutex_init(&attempt->lock, BERTHI_RANK_ATTEMPT);
  attempt->link = (berthi_link){NULL, NULL};
  attempt->timer = (berthi_timer){0};
  berthi_cancel_init(&attempt->cancel, core, attempt);
  berthi_request *request = &attempt->admission.request;
  berthi_stat_store(&request->state, BERTHI_ADMISSION_NEW);
  request->core = core;
  request->attempt = attempt;
  request->exec = &attempt->exec;
  request->lane_set = NULL;
  berthi_event_init(&request->decided);
  attempt->admission.activity = NULL;
  attempt->admission.activity_release = NULL;
  attempt->admission.permit = false;
  attempt->admission.follower = (berthi_follower){0};
  attempt->admission.fd = attempt->completion.fd = -1;
  attempt->admission.asked = attempt->admission.told = attempt->completion.asked = attempt->completion.told = false;
  attempt->admission.note = (berthi_note){0};
  berthi_stat_store(&attempt->completion.receivers, 0);
  berthi_event_init(&attempt->completion.sealed);
  berthi_stat_store(&attempt->exec.cancel, BERTH_CANCEL_NONE);
  attempt->exec.core = NULL;
  attempt->note = (berthi_note){0};
  attempt->plan_refused = false;
  berthi_stat_store(&attempt->hooked, 0);
}

static void deadline_passed_locked(berthi_core *core, berthi_timer *timer, int64_t now) {
  berth_attempt *attempt = BERTHI_CONTAINER(timer, berth_attempt, timer);
  (void)now;
  // Cancelling takes locks that rank before this one, so the keeper does it after its unlock.
  berthi_attempt_retain(attempt);
  berthi_list_append(&core->keeper_notes, &attempt->deadline_note.link);
}

static void deadline_note(berthi_note *note) {
  berth_attempt *attempt = BERTHI_CONTAINER(note, berth_attempt, deadline_note);
  berthi_attempt_cancel(attempt, BERTH_CANCEL_BY_DEADLINE);
  berthi_attempt_unref(attempt);
}

// Takes the observation permit, which linearizes the begin against close (ATT-1), and counts a winner.
static bool take_observation(berthi_core *core, berth_attempt *attempt, bool plain) {
  if (berthi_gate_is_closed(&core->gate)) return false;
  if (plain && berthi_stripe_take_observation(core, &attempt->stripe)) {
    berthi_stripe *stripe = &core->stripes[attempt->stripe];
    berthi_up(&stripe->next_id, 1);  // by the word's holder; its count falls again for attempts that are counted in the core
    attempt->id = (core->generation << 44) + berthi_get(&stripe->next_id) * (BERTHI_STRIPES + 1) + attempt->stripe + 1;
    berthi_put(&stripe->holder_attempt, attempt->id);
    berthi_put(&stripe->holder_since, (uint64_t)attempt->report.begun_at);
    return true;
  }
  attempt->stripe = BERTHI_NO_STRIPE;
  if (!berthi_gate_take(&core->gate, BERTHI_GATE_OBSERVATION)) return false;
  berthi_after after;
  berthi_lock(core, &after);
  berthi_up(&core->counters.begun, 1);
  berthi_up(&core->counters.open, 1);
  attempt->id = (core->generation << 44) + ++core->attempt_sequence * (BERTHI_STRIPES + 1);
  berthi_list_append(&core->attempts, &attempt->link);
  attempt->timer.fire = deadline_passed_locked;
  berthi_timer_arm_locked(core, &attempt->timer, attempt->deadline);
  berthi_unlock(core, &after);
  return true;
}

berth_status berth_session_begin_attempt(berth_session *session, const berth_attempt_options *options, berth_attempt **out_attempt, berth_error *err) {
  berth_attempt_options known = {0};
  if (!session || !out_attempt) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and out_attempt must not be NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  if (options) BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_attempt_options", err));
  if (known.max_events > EVENTS_MAX) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "max_events: %u given, at most %d", known.max_events, EVENTS_MAX);
  }
  if (berthi_gate_is_closed(&core->gate)) return berthi_core_fail_closing(core, err);
  berth_attempt *attempt = take_block(core);
  if (!attempt) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "an attempt of %zu bytes", sizeof *attempt);
  reset_block(core, attempt);
  attempt->deadline_note = (berthi_note){.run = deadline_note};
  attempt->close_note = attempt->overflow_note = (berthi_note){0};
  attempt->deadline = known.deadline ? known.deadline : BERTH_NO_DEADLINE;
  berth_status status = copy_text("query_id", known.query_id, QUERY_ID_MAX, &attempt->query_id, err);
  if (!status) status = copy_text("trace_context", known.trace_context, TRACE_CONTEXT_MAX, &attempt->trace_context, err);
  if (!status) status = berthi_group_named(core, known.group, &attempt->group, err);
  if (!status && known.max_events) {
    attempt->max_events = known.max_events;
    attempt->events = berthi_alloc(known.max_events * sizeof *attempt->events);
    if (!attempt->events) status = berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "%u recorded events", known.max_events);
  }
  if (!status) {
    reset_report(attempt, attempt->deadline == BERTH_NO_DEADLINE ? berthi_now_loose() : berthi_now());
    if (attempt->group) memcpy(attempt->report.group, attempt->group->name, sizeof attempt->report.group);
    if (!take_observation(core, attempt, attempt->deadline == BERTH_NO_DEADLINE)) status = berthi_core_fail_closing(core, err);
  }
  if (status) {
    berthi_stat_store(&attempt->refs, 1);
    berthi_attempt_unref(attempt);
    return status;
  }
  *out_attempt = attempt;
  return BERTH_OK;
}

uint64_t berth_attempt_id(const berth_attempt *attempt) { return attempt ? attempt->id : 0; }

berth_cancel *berth_attempt_cancel_token(berth_attempt *attempt) {
  if (!attempt) return NULL;
  return berth_cancel_retain(&attempt->cancel);
}

static berth_status check_open(berth_attempt *attempt, berth_error *err) {
  if (!attempt) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "attempt must not be NULL");
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  uint32_t state = berthi_load(&attempt->state, acquire);
  if (state == BERTHI_ATTEMPT_DECIDED || state == BERTHI_ATTEMPT_SEALED) {
    return berthi_fail(err, BERTHI_R_ALREADY_TERMINAL, "attempt %llu is %s", (unsigned long long)attempt->id, berthi_state_name(BERTHI_ATTEMPT, state));
  }
  return BERTH_OK;
}

berth_status berth_attempt_plan_started(berth_attempt *attempt, berth_error *err) {
  BERTHI_TRY(check_open(attempt, err));
  if (berthi_gate_is_closed(&attempt->core->gate)) {  // SES-4
    attempt->plan_refused = true;
    return berthi_core_fail_closing(attempt->core, err);
  }
  uint32_t cause = berthi_load(&attempt->cancel.cause, acquire);
  if (cause == BERTH_CANCEL_BY_DEADLINE) return berthi_fail(err, BERTHI_R_DEADLINE_EXCEEDED, "attempt %llu", (unsigned long long)attempt->id);
  if (cause) return berthi_fail(err, BERTHI_R_ATTEMPT_CANCELLED, "attempt %llu", (unsigned long long)attempt->id);
  attempt->report.plan_started_at = berthi_now();
  berthi_trace(attempt->core, "plan", true, attempt->id);
  return BERTH_OK;
}

berth_status berth_attempt_plan_finished(berth_attempt *attempt, berth_disposition disposition, const char *plan, berth_error *err) {
  if ((uint32_t)disposition > BERTH_NATIVE) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "disposition: %d, at most %d", (int)disposition, BERTH_NATIVE);
  BERTHI_TRY(check_open(attempt, err));
  attempt->report.disposition = disposition;
  attempt->report.plan_finished_at = berthi_now();
  if (plan) {
    size_t length = strnlen(plan, sizeof attempt->report.plan - 1);
    memcpy(attempt->report.plan, plan, length);
    attempt->report.plan[length] = 0;
  }
  berthi_trace(attempt->core, "plan", false, attempt->id);
  return BERTH_OK;
}

void berth_attempt_record(berth_attempt *attempt, const char *name, int64_t value) {
  if (!attempt || !name || berthi_core_forked(attempt->core)) return;
  int64_t now = berthi_now();
  berthi_mutex_lock(&attempt->lock);
  if (berthi_load(&attempt->state, acquire) == BERTHI_ATTEMPT_SEALED) {
    // A sealed report never changes.
  } else if (attempt->event_count < attempt->max_events) {
    berthi_recorded *event = &attempt->events[attempt->event_count++];
    *event = (berthi_recorded){.time = now, .value = value};
    memcpy(event->name, name, strnlen(name, sizeof event->name - 1));
  } else {
    attempt->events_lost++;
  }
  berthi_mutex_unlock(&attempt->lock);
}

bool berthi_attempt_submit(berth_attempt *attempt) {
  uint32_t expected = BERTHI_ATTEMPT_OPEN;
  if (!berthi_cas(&attempt->state, &expected, BERTHI_ATTEMPT_SUBMITTED, seq_cst)) return false;  // against the owner's finish, and with berthi_attempt_cancel
  berthi_edge(BERTHI_ATTEMPT, BERTHI_ATTEMPT_OPEN, BERTHI_ATTEMPT_SUBMITTED);
  return true;
}

// Fixes the outcome; the first decision wins (ATT-4).
static bool decide_outcome(berth_attempt *attempt, berth_outcome outcome, const berth_error *cause, berthi_reason reason) {
  uint32_t none = 0;
  if (!berthi_cas(&attempt->decision, &none, DECISION_WRITING | (1 + (uint32_t)outcome), acq_rel)) return false;
  attempt->report.outcome = outcome;
  berthi_report_set_cause(&attempt->report, reason, outcome == BERTH_SUCCEEDED ? NULL : cause);
  berthi_store(&attempt->decision, 1 + (uint32_t)outcome, release);  // to whoever lost and goes on to seal
  return true;
}

bool berthi_attempt_decide(berth_attempt *attempt, berth_outcome outcome, const berth_error *cause, berthi_reason reason) {
  bool mine = decide_outcome(attempt, outcome, cause, reason);
  while (!mine && (berthi_load(&attempt->decision, acquire) & DECISION_WRITING)) berthi_thread_yield();
  uint32_t from = berthi_load(&attempt->state, acquire);
  berthi_assert(from == BERTHI_ATTEMPT_OPEN || from == BERTHI_ATTEMPT_SUBMITTED, "ATT-4");
  berthi_edge(BERTHI_ATTEMPT, from, BERTHI_ATTEMPT_DECIDED);
  berthi_store(&attempt->state, BERTHI_ATTEMPT_DECIDED, seq_cst);
  return mine;
}

berth_status berth_attempt_finish(berth_attempt *attempt, berth_outcome outcome, const berth_error *cause, berth_error *err) {
  if ((uint32_t)outcome > BERTH_OUTCOME_CANCELLED) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "outcome: %d is not for callers, which end as succeeded, failed or cancelled", (int)outcome);
  }
  BERTHI_TRY(check_open(attempt, err));
  uint32_t expected = BERTHI_ATTEMPT_OPEN;
  if (berthi_cas(&attempt->state, &expected, BERTHI_ATTEMPT_DECIDED, seq_cst)) {  // against a submission
    berthi_edge(BERTHI_ATTEMPT, BERTHI_ATTEMPT_OPEN, BERTHI_ATTEMPT_DECIDED);
    bool closing = attempt->plan_refused && outcome != BERTH_SUCCEEDED;
    bool mine = decide_outcome(attempt, outcome, cause, closing ? BERTHI_R_BACKEND_CLOSING : BERTHI_R_NONE);
    berthi_assert(mine, "ATT-4");
    (void)mine;
    berthi_attempt_seal(attempt);
    berthi_attempt_deliver(attempt, true);
    return BERTH_OK;
  }
  if (expected == BERTHI_ATTEMPT_SUBMITTED && decide_outcome(attempt, outcome, cause, BERTHI_R_NONE)) {
    berthi_attempt_cancel(attempt, BERTH_CANCEL_BY_CALLER);  // sealing follows the release
    return BERTH_OK;
  }
  return berthi_fail(err, BERTHI_R_ALREADY_TERMINAL, "attempt %llu", (unsigned long long)attempt->id);
}

void berth_attempt_release(berth_attempt *attempt) {
  if (!attempt || berthi_core_forked(attempt->core)) return;
  uint32_t expected = BERTHI_ATTEMPT_OPEN;
  if (berthi_load(&attempt->state, acquire) == BERTHI_ATTEMPT_OPEN && berthi_cas(&attempt->state, &expected, BERTHI_ATTEMPT_DECIDED, acq_rel)) {
    berthi_edge(BERTHI_ATTEMPT, BERTHI_ATTEMPT_OPEN, BERTHI_ATTEMPT_DECIDED);
    uint32_t cause = berthi_load(&attempt->cancel.cause, acquire);
    berthi_reason reason = cause == BERTH_CANCEL_BY_DEADLINE  ? BERTHI_R_DEADLINE_EXCEEDED
                           : cause == BERTH_CANCEL_BY_CALLER ? BERTHI_R_ATTEMPT_CANCELLED
                           : cause || attempt->plan_refused  ? BERTHI_R_BACKEND_CLOSING
                                                             : BERTHI_R_NONE;
    (void)decide_outcome(attempt, cause ? BERTH_OUTCOME_CANCELLED : BERTH_DROPPED, NULL, reason);
    berthi_attempt_seal(attempt);
    berthi_attempt_deliver(attempt, true);
  }
  berthi_attempt_unref(attempt);
}

// The mark comes before the look at the state, and the seal looks at the mark after it wrote the state: so either this sees that it is too late, or the
// seal goes through the lock and takes the attempt off the list.
void berthi_attempt_hooked(berth_attempt *attempt) {
  if (attempt->stripe == BERTHI_NO_STRIPE) return;
  berthi_core *core = attempt->core;
  berthi_after after;
  berthi_store(&attempt->hooked, 1, seq_cst);
  berthi_lock(core, &after);
  if (!attempt->link.next && berthi_load(&attempt->state, seq_cst) < BERTHI_ATTEMPT_DECIDED) berthi_list_append(&core->hooked, &attempt->link);
  berthi_unlock(core, &after);
  if (berthi_load(&core->cancel_all, seq_cst)) berthi_attempt_cancel(attempt, BERTH_CANCEL_BY_CLOSE);  // the close has been there
}

void berthi_attempt_cancel(berth_attempt *attempt, berth_cancel_cause cause) {
  if (berthi_load(&attempt->state, acquire) >= BERTHI_ATTEMPT_DECIDED) return;
  if (berthi_cancel_raise(&attempt->cancel, cause)) {
    berthi_put(&attempt->cancelled_at, (uint64_t)berthi_now());
    berthi_after after;
    berthi_lock(attempt->core, &after);
    berthi_up(&attempt->core->counters.cancels, 1);
    berthi_unlock(attempt->core, &after);
  }
  berthi_exec_cancel(&attempt->exec, cause);
  if (berthi_load(&attempt->state, seq_cst) == BERTHI_ATTEMPT_SUBMITTED) berthi_request_cancel(&attempt->admission.request, cause);
}
