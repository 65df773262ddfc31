// SPDX-License-Identifier: Apache-2.0
/// Decisions on requests: one word each, swapped under the admission lock (ADM-1). What a decision owes to others (wake, seal, notify) is done after
/// the unlock, in the order of the decisions, by whoever unlocked.
///
/// Lifetime: a queued request of an attempt is kept by a reference of the queue, which passes to the `after` chain with the decision. A queued request
/// of a scoped entry lives until its waiter has seen `decided`, so setting that event is the last touch.
#include <stdio.h>

#include "runtime/core.h"
#include "runtime/lanes.h"

static void swap(berthi_request *request, uint32_t from, uint32_t to) {
  uint32_t expected = from;
  berthi_edge(BERTHI_ADMISSION, from, to);
  bool swapped = berthi_cas(&request->state, &expected, to, acq_rel);  // publishes grant or refusal to poll, wait and take
  berthi_assert(swapped, "ADM-1");
  (void)swapped;
}

static berth_refusal refusal_kind(berthi_reason reason) {
  switch (reason) {
    case BERTHI_R_ADMISSION_QUEUE_FULL: return BERTH_REFUSED_QUEUE_FULL;
    case BERTHI_R_REQUEST_EXCEEDS_DEVICE: return BERTH_REFUSED_EXCEEDS_DEVICE;
    case BERTHI_R_CAPABILITY_UNSUPPORTED: return BERTH_REFUSED_CAPABILITY;
    case BERTHI_R_DEVICE_QUARANTINED: return BERTH_REFUSED_QUARANTINED;
    case BERTHI_R_BACKEND_UNHEALTHY: return BERTH_REFUSED_UNHEALTHY;
    default: return BERTH_REFUSED_OTHER;
  }
}

static void count(berthi_core *core, berthi_request *request, uint32_t to, berthi_reason reason) {
  berthi_counters *c = &core->counters;
  switch (to) {
    case BERTHI_ADMISSION_GRANTED:
      berthi_up(&c->granted, 1);
      berthi_stat_record(&c->wait, request->granted_at - request->submitted_at);
      break;
    case BERTHI_ADMISSION_EXPIRED: berthi_up(&c->expired, 1); break;
    case BERTHI_ADMISSION_CANCELLED: berthi_up(&c->cancelled, 1); break;
    case BERTHI_ADMISSION_CLOSED: berthi_up(&c->closed, 1); break;
    default:
      berthi_up(&c->refused, 1);
      berthi_up(&c->refusals[refusal_kind(reason)], 1);
  }
}

static void leave_queue(berthi_core *core, berthi_request *request) BERTHI_REQUIRES(core->lock) {
  berthi_queue_remove_locked(core, request);
  berthi_timer_disarm_locked(core, &request->timer);
  berthi_down(&core->counters.queued, 1);
  if (request->group) berthi_down(&request->group->queued, 1);
  request->after = NULL;
  *core->after->last = request;
  core->after->last = &request->after;
}

bool berthi_request_decide_locked(berthi_core *core, berthi_request *request, uint32_t to, berthi_reason reason) {
  uint32_t from = berthi_load(&request->state, acquire);
  if (from != BERTHI_ADMISSION_NEW && from != BERTHI_ADMISSION_QUEUED) return false;
  berthi_stat_store(&request->refusal, reason);  // before the word, which publishes it
  if (to == BERTHI_ADMISSION_GRANTED) request->granted_at = from == BERTHI_ADMISSION_NEW ? request->submitted_at : berthi_now();
  if (from == BERTHI_ADMISSION_QUEUED) leave_queue(core, request);
  count(core, request, to, reason);
  swap(request, from, to);
  return true;
}

// A scoped entry has no queue deadline of its own: what expires is the caller's.
static berthi_reason expiry_reason(const berthi_request *request) {
  if (!request->attempt || request->expires_at == request->attempt->deadline) return BERTHI_R_DEADLINE_EXCEEDED;
  return BERTHI_R_QUEUE_WAIT_ELAPSED;
}

static void request_expired_locked(berthi_core *core, berthi_timer *timer, int64_t now) BERTHI_REQUIRES(core->lock) {
  berthi_request *request = BERTHI_CONTAINER(timer, berthi_request, timer);
  (void)now;
  bool decided = berthi_request_decide_locked(core, request, BERTHI_ADMISSION_EXPIRED, expiry_reason(request));
  berthi_assert(decided, "ADM-5");  // whoever decides disarms it
  (void)decided;
  berthi_scan_locked(core);  // ADM-7: a barrier or a claim of lanes may have gone
}

static void enqueue(berthi_core *core, berthi_request *request) BERTHI_REQUIRES(core->lock) {
  berthi_counters *c = &core->counters;
  if (request->attempt) berthi_attempt_retain(request->attempt);  // the queue's reference
  request->queued = true;
  swap(request, BERTHI_ADMISSION_NEW, BERTHI_ADMISSION_QUEUED);
  berthi_queue_insert_locked(core, request);
  berthi_up(&c->queued, 1);
  if (request->group) berthi_up(&request->group->queued, 1);
  if (berthi_get(&c->queued) > berthi_get(&c->queue_high)) berthi_put(&c->queue_high, berthi_get(&c->queued));
  request->timer.fire = request_expired_locked;
  berthi_timer_arm_locked(core, &request->timer, request->expires_at);
}

void berthi_submit_locked(berthi_core *core, berthi_request *request, int64_t now) {
  berthi_counters *c = &core->counters;
  request->submitted_at = now;
  request->sequence = ++core->request_sequence;
  request->key = now - (int64_t)request->priority * core->options.aging_interval;
  request->barrier = BERTHI_NO_BARRIER;
  berthi_up(&c->submitted, 1);
  if (berthi_gate_is_closed(&core->gate)) {  // ADM-1: rechecked under the lock
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_CLOSED, BERTHI_R_BACKEND_CLOSING);
    return;
  }
  if (berthi_load(&request->exec->cancel, acquire)) {
    bool late = berthi_load(&request->exec->cancel, acquire) == BERTH_CANCEL_BY_DEADLINE;
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_CANCELLED, late ? BERTHI_R_DEADLINE_EXCEEDED : BERTHI_R_ATTEMPT_CANCELLED);
    return;
  }
  uint64_t most;
  berthi_reason reason = berthi_request_servable_locked(core, request, &most);
  if (reason == BERTHI_R_NONE && berthi_get(&c->queued) >= core->options.max_queued) reason = BERTHI_R_ADMISSION_QUEUE_FULL;
  if (reason == BERTHI_R_NONE && request->group && berthi_get(&request->group->queued) >= request->group->max_queued &&
      !berthi_list_empty(&core->queue)) {
    reason = BERTHI_R_ADMISSION_QUEUE_FULL;
  }
  if (reason != BERTHI_R_NONE) {
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_REFUSED, reason);
    return;
  }
  if (berthi_grant_at_once_locked(core, request)) return;
  if (request->expires_at <= now) {  // an expired deadline still got one uncontended try
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_EXPIRED, expiry_reason(request));
    return;
  }
  if (request->no_wait) {
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_REFUSED, BERTHI_R_CONTENDED);
    return;
  }
  enqueue(core, request);
  berthi_scan_locked(core);  // with a higher priority it may pass those who cannot use what is free
  if (!request->why && berthi_load(&request->state, acquire) == BERTHI_ADMISSION_QUEUED) request->why = berthi_request_obstacles_locked(core, request);
}

void berthi_end_queue_locked(berthi_core *core) {
  while (!berthi_list_empty(&core->queue)) {
    berthi_request *request = BERTHI_CONTAINER(core->queue.next, berthi_request, link);
    (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_CLOSED, BERTHI_R_BACKEND_CLOSING);
    berthi_up(&core->queued_ended, 1);
  }
}

static berthi_reason reason_of_cause(berth_cancel_cause cause) {
  if (cause == BERTH_CANCEL_BY_DEADLINE) return BERTHI_R_DEADLINE_EXCEEDED;
  return cause == BERTH_CANCEL_BY_CLOSE ? BERTHI_R_BACKEND_CLOSING : BERTHI_R_ATTEMPT_CANCELLED;
}

void berthi_request_cancel(berthi_request *request, berth_cancel_cause cause) {
  berthi_core *core = request->core;
  if (berthi_load(&request->state, acquire) <= BERTHI_ADMISSION_QUEUED) {
    berthi_after after;
    berthi_lock(core, &after);
    // NEW: the submission comes to this lock later and finds the execution's cancel word set.
    if (berthi_load(&request->state, acquire) == BERTHI_ADMISSION_QUEUED) {
      (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_CANCELLED, reason_of_cause(cause));
      berthi_scan_locked(core);  // ADM-7
    }
    berthi_unlock(core, &after);
  }
  // Granted and untaken: the grant goes back. Only attempts have that state; a scoped entry takes in its own thread.
  if (request->attempt && berthi_load(&request->state, acquire) == BERTHI_ADMISSION_GRANTED) {
    berthi_stat_store(&request->refusal, reason_of_cause(cause));
    if (berthi_request_return(request)) berthi_attempt_end_refused(request->attempt, false);
  }
}

bool berthi_request_take(berthi_request *request) {
  uint32_t expected = BERTHI_ADMISSION_GRANTED;
  if (!berthi_cas(&request->state, &expected, BERTHI_ADMISSION_TAKEN, acq_rel)) return false;  // races with berthi_request_return
  berthi_edge(BERTHI_ADMISSION, BERTHI_ADMISSION_GRANTED, BERTHI_ADMISSION_TAKEN);
  return true;
}

bool berthi_request_return(berthi_request *request) {
  uint32_t expected = BERTHI_ADMISSION_GRANTED;
  if (!berthi_cas(&request->state, &expected, BERTHI_ADMISSION_RETURNED, acq_rel)) return false;  // races with berthi_request_take
  berthi_edge(BERTHI_ADMISSION, BERTHI_ADMISSION_GRANTED, BERTHI_ADMISSION_RETURNED);
  return true;
}

// Tells one request's people of its decision. The event comes last: see Lifetime.
static void tell(berthi_request *request) {
  berth_attempt *attempt = request->attempt;
  if (!attempt) {
    berthi_event_set(&request->decided);
    return;
  }
  berthi_trace(attempt->core, "queue", false, attempt->id);
  if (berthi_load(&request->state, acquire) != BERTHI_ADMISSION_GRANTED && berthi_load(&request->state, acquire) != BERTHI_ADMISSION_TAKEN &&
      berthi_load(&request->state, acquire) != BERTHI_ADMISSION_RETURNED) {
    berthi_attempt_end_refused(attempt, false);
  }
  berthi_admission_tell(attempt);
  berthi_attempt_unref(attempt);
}

void berthi_after_run(berthi_core *core, berthi_after *after) {
  (void)core;
  for (berthi_request *request = after->first, *next; request; request = next) {
    next = request->after;
    tell(request);
  }
}

static uint64_t most_for(const berthi_request *request) {
  const berthi_core *core = request->core;
  uint64_t most = 0;
  for (uint32_t d = 0; d < core->device_count; d++) {
    uint64_t here = berthi_ledger_most(&core->devices[d].ledger);
    if (((request->devices >> d) & 1u) && here > most) most = here;
  }
  return most;
}

void berthi_refusal_facts(const berthi_request *request, berth_error *err) {
  const berthi_counters *c = &request->core->counters;
  berthi_reason reason = (berthi_reason)berthi_stat_load(&request->refusal);
  err->code = berthi_reason_code(reason);
  err->reason = berthi_reason_name(reason);
  err->fact_count = 0;
  err->message[0] = 0;
  switch (reason) {
    case BERTHI_R_REQUEST_EXCEEDS_DEVICE:
      berthi_fact(err, "bytes", (int64_t)request->bytes);
      berthi_fact(err, "most", (int64_t)most_for(request));
      berthi_fact(err, "lanes", request->lanes);
      break;
    case BERTHI_R_ADMISSION_QUEUE_FULL:
      berthi_fact(err, "queued", (int64_t)berthi_get(&c->queued));
      berthi_fact(err, "bound", request->core->options.max_queued);
      berthi_fact(err, "retry_after_ns", (int64_t)(berthi_get(&c->wait.sum) / (berthi_get(&c->wait.count) + 1)) + 1000000);
      break;
    case BERTHI_R_QUEUE_WAIT_ELAPSED:
    case BERTHI_R_DEADLINE_EXCEEDED:
      berthi_fact(err, "waited_ns", request->expires_at > request->submitted_at ? request->expires_at - request->submitted_at : 0);
      berthi_fact(err, "why", request->why);
      break;
    default: break;
  }
}

void berthi_refusal_say(berthi_reason reason, berth_error *err) {
  char asked[BERTHI_BYTES_TEXT], most[BERTHI_BYTES_TEXT], text[BERTH_ERROR_MESSAGE];
  const berth_fact *f = err->facts;
  snprintf(text, sizeof text, "%s", berthi_reason_summary(reason));
  if (reason == BERTHI_R_REQUEST_EXCEEDS_DEVICE && err->fact_count == 3) {
    snprintf(text, sizeof text, "%s and %lld lanes asked, the devices allowed can ever grant %s; retrying will not help",
             berthi_bytes_text((uint64_t)f[0].value, asked), (long long)f[2].value, berthi_bytes_text((uint64_t)f[1].value, most));
  } else if (reason == BERTHI_R_ADMISSION_QUEUE_FULL && err->fact_count == 3) {
    snprintf(text, sizeof text, "%lld requests wait, at most %lld may; try again in about %lld ms", (long long)f[0].value, (long long)f[1].value,
             (long long)(f[2].value / 1000000));
  } else if ((reason == BERTHI_R_QUEUE_WAIT_ELAPSED || reason == BERTHI_R_DEADLINE_EXCEEDED) && err->fact_count == 2) {
    snprintf(text, sizeof text, "waited %lld ms without a grant", (long long)(f[0].value / 1000000));
  }
  snprintf(err->message, sizeof err->message, "%s: %.*s", err->reason, (int)(sizeof err->message - 64), text);
}

berth_status berthi_refusal_error(const berthi_request *request, berth_error *err) {
  berthi_reason reason = (berthi_reason)berthi_stat_load(&request->refusal);
  if (err) {
    berthi_refusal_facts(request, err);
    berthi_refusal_say(reason, err);
  }
  return berthi_reason_code(reason);
}

void berthi_request_drop_lanes(berthi_request *request) {
  if (!request->lane_set) return;
  berthi_request_leave_lanes(request);
  berth_lanes_release(request->lane_set);
  request->lane_set = NULL;
}

void berthi_request_release_lanes(berthi_request *request) {
  berthi_lanes_leave(request->lane_set);
  request->lanes_entered = false;
}
