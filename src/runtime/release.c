// SPDX-License-Identifier: Apache-2.0
/// The end of an execution, in the one order of EXE-2: the work settles, the memory domain is sampled, the disposition decided, health committed, the
/// report sealed and visible; only then is capacity exposed; then the device permit, the callbacks, the observation permit, the activity lease.
#include <string.h>

#include "runtime/core.h"
#include "runtime/lanes.h"

/// What the clean-up found, in memory of the one who ends it.
typedef struct ending {
  uint64_t peak, held;
  berth_cleanup cleanup;
  berth_capacity capacity;
  berth_status status;
  berth_error error; ///< only when status is not OK
} ending;

// The first error wins. Out of line: the common end has none, and an error is not zeroed for nothing.
static BERTHI_COLD void note_failure(ending *end, berth_status status, const berth_error *error) {
  if (!status || end->status) return;
  end->status = status;
  end->error = *error;
}

static BERTHI_COLD void settle_queue(berth_exec *exec, const berthi_device_slot *slot, ending *end) {
  berth_error error = BERTH_ERROR_INIT;
  note_failure(end, slot->kind->settle(&exec->domain, &error), &error);
}

static BERTHI_COLD void leave_lanes(berth_exec *exec, const berthi_device_slot *slot, ending *end) {
  berth_error error = BERTH_ERROR_INIT;
  note_failure(end, slot->kind->leave(slot->device, &exec->affinity, &error), &error);
  exec->affinity.narrowed = false;
}

// The work settles and the domain is sampled; then its memory goes back to the device.
static void settle(berth_exec *exec, const berthi_device_slot *slot, ending *end) {
  if (slot->kind->settle != NULL) settle_queue(exec, slot, end);
  end->peak = berthi_stat_load(&exec->domain.peak);
  end->held = berthi_stat_load(&exec->domain.used);
  end->cleanup = end->status ? BERTH_CLEANUP_FAILED : BERTH_CLEANUP_PROVEN;
  if (exec->domain.list != NULL) slot->kind->reset(&exec->domain);
  if (BERTHI_UNLIKELY(exec->affinity.narrowed)) leave_lanes(exec, slot, end);
}

// Health is committed before the report tells of it.
static void commit_health(berthi_core *core, berthi_device_slot *slot, ending *end) {
  berthi_fault_class fault = slot->kind->fault ? slot->kind->fault(slot->device) : BERTHI_DEVICE_FINE;
  if (BERTHI_UNLIKELY(fault != BERTHI_DEVICE_FINE)) {
    berthi_after after;
    berthi_lock(core, &after);
    berthi_health_fault_locked(core, slot, fault, end->status ? &end->error : NULL);
    berthi_unlock(core, &after);
  }
  end->capacity = berthi_slot_serves(slot) ? BERTH_CAPACITY_RETURNED : BERTH_CAPACITY_WITHHELD;
}

static void fill_report(berth_exec *exec, const berthi_device_slot *slot, const ending *end) {
  berth_report *report = &exec->attempt->report;
  const berthi_request *request = exec->request;
  report->execution_id = exec->id;
  report->submitted_at = request->submitted_at;
  report->granted_at = request->granted_at;
  report->released_at = berthi_now_loose();
  report->why = request->why;
  report->queued_for = request->queued ? request->granted_at - request->submitted_at : 0;
  report->overtakes = request->overtakes;
  report->device = exec->grant.device;
  memcpy(report->device_name, slot->startup.name, sizeof report->device_name);
  report->lanes = exec->grant.lanes;
  report->bytes_granted = exec->grant.bytes;
  report->bytes_peak = end->peak;
  report->bytes_held = end->held;
  report->operations = exec->operations;
  report->bytes_moved = exec->bytes_moved;
  report->fragments = exec->fragments;
  report->cleanup = end->cleanup;
  report->capacity = end->capacity;
  report->health_after = (berth_health)berthi_get(&slot->health);
  uint64_t cancelled = berthi_get(&exec->attempt->cancelled_at);
  if (cancelled) report->cancel_latency = report->released_at - (int64_t)cancelled;
  if (report->plan_finished_at == BERTH_NO_TIME && report->disposition == BERTH_UNPLANNED) report->disposition = BERTH_NATIVE;  // it ran here, planned by its caller
}

static void expose_capacity(berthi_core *core, berth_exec *exec, const ending *end, bool *permit) {
  if (BERTHI_LIKELY(exec->grant.stripe != BERTHI_NO_STRIPE && end->capacity == BERTH_CAPACITY_RETURNED)) {
    berthi_stripe_give_grant(core, exec);
    *permit = false;  // the stripe's, given with its grant
    return;
  }
  berthi_after after;
  berthi_lock(core, &after);
  if (exec->grant.stripe != BERTHI_NO_STRIPE) {  // health withholds it: off the stripe, with its device permit
    berthi_stripe_move_locked(core, exec);
    *permit = true;
  }
  berthi_timer_disarm_locked(core, &exec->timer);
  berthi_list_remove(&exec->link);
  // Decided before this lock was taken: a device that is back by now has nothing withheld.
  bool back = end->capacity == BERTH_CAPACITY_WITHHELD && berthi_slot_serves(&core->devices[exec->grant.device]);
  berthi_ledger_return_locked(core, &exec->grant, back ? BERTH_CAPACITY_RETURNED : end->capacity);
  if (*permit && end->capacity == BERTH_CAPACITY_RETURNED && berthi_stripe_park_locked(core, &exec->grant)) *permit = false;
  berthi_scan_locked(core);  // ADM-7
  berthi_unlock(core, &after);
}

static void give_permit(berthi_core *core) {
  if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
}

berth_status berthi_exec_end(berth_exec *exec, berth_outcome outcome, const berth_error *cause, bool inline_ok, berth_error *err) {
  berthi_core *core = exec->core;
  BERTHI_TRY(berthi_core_check_fork(core, err));  // a child returns from the entry that its parent is in (CLS-6)
  berth_attempt *attempt = exec->attempt;
  berthi_device_slot *slot = &core->devices[exec->grant.device];
  ending end;
  end.status = BERTH_OK;
  bool permit = exec->grant.stripe == BERTHI_NO_STRIPE;  // else its device permit is the stripe's
  berthi_stat_store(&exec->ended, 1);
  berthi_family_end(exec);
  berthi_cancel_unfollow(&exec->follower);
  berthi_trace(core, "settle", true, exec->id);
  settle(exec, slot, &end);
  commit_health(core, slot, &end);
  berthi_trace(core, "settle", false, exec->id);
  berthi_request_leave_lanes(exec->request);
  if (attempt) {
    fill_report(exec, slot, &end);
    if (outcome == BERTH_SUCCEEDED && end.cleanup == BERTH_CLEANUP_FAILED) outcome = BERTH_FAILED;  // what did not settle has not succeeded
    if (!cause && end.status) cause = &end.error;
    (void)berthi_attempt_decide(attempt, outcome, cause, BERTHI_R_NONE);
    berthi_attempt_seal(attempt);
    attempt->admission.permit = false;
  }
  expose_capacity(core, exec, &end, &permit);
  if (permit) give_permit(core);
  if (attempt) {
    berthi_attempt_unref(attempt);  // the execution's reference; its life lasts until it is delivered
    berthi_attempt_deliver(attempt, inline_ok);
  }
  if (end.status && err) *err = end.error;
  return end.status;
}

static void end_held(berth_exec *exec) {
  berthi_core *core = exec->core;
  berthi_request *request = exec->request;
  berthi_request_drop_lanes(request);
  berthi_free(exec);
  berthi_core_release(core);
}

static berth_status finish(berth_exec *exec, berth_outcome outcome, const berth_error *cause, berth_error *err) {
  if (exec->root != exec) {
    berthi_child_release(exec);
    return BERTH_OK;
  }
  bool held = exec->on_heap;
  bool inline_ok = !(berthi_thread_self()->flags & BERTHI_THREAD_INTERNAL);
  berth_status status = berthi_exec_end(exec, outcome, cause, inline_ok, err);
  if (held) end_held(exec);
  return status;
}

berth_status berth_exec_finish(berth_exec *exec, int outcome, const berth_error *cause, berth_error *err) {
  if (!exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "exec must not be NULL");
  BERTHI_TRY(berthi_exec_usable(exec, err));
  if (outcome < BERTH_SUCCEEDED || outcome > BERTH_OUTCOME_CANCELLED) {
    (void)finish(exec, BERTH_FAILED, cause, NULL);
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "outcome: %d is not for callers; the execution has ended as failed", outcome);
  }
  return finish(exec, (berth_outcome)outcome, cause, err);
}

void berth_exec_release(berth_exec *exec) {
  if (!exec || exec->epoch != berthi_fork_epoch() || berthi_stat_load(&exec->ended)) return;
  berth_error why = BERTH_ERROR_INIT;
  uint32_t cause = exec->root == exec ? berthi_exec_end_cause(exec, &why) : BERTH_CANCEL_NONE;  // a child may have outlived its root
  (void)finish(exec, cause ? BERTH_OUTCOME_CANCELLED : BERTH_DROPPED, cause ? &why : NULL, NULL);
}
