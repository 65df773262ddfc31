// SPDX-License-Identifier: Apache-2.0
/// The scoped door (RUN-1 to RUN-6).
#include <string.h>

#include "runtime/core.h"
#include "runtime/lanes.h"

static bool is_plain(const berth_run_options *o) {
  return !o->bytes && o->lanes <= 1 && !o->capabilities && !o->devices && !o->priority && !o->deadline && !o->cancel && !o->lane_set && !o->group;
}

// ---- entries without a report --------------------------------------------------------------------------------------------------------------------

static void request_of_options(const berth_run_options *o, berth_request *out) {
  *out = (berth_request){
      .bytes = o->bytes,
      .lanes = o->lanes,
      .capabilities = o->capabilities,
      .devices = o->devices,
      .priority = o->priority,
      .queue_deadline = o->deadline ? o->deadline : BERTH_NO_DEADLINE,
      .cancel = o->cancel,
      .lane_set = o->lane_set,
  };
}

static void deadline_passed_locked(berthi_core *core, berthi_timer *timer, int64_t now) BERTHI_REQUIRES(core->lock) {
  berth_exec *exec = BERTHI_CONTAINER(timer, berth_exec, timer);
  (void)core;
  (void)now;
  uint32_t none = BERTH_CANCEL_NONE;
  (void)berthi_cas(&exec->cancel, &none, BERTH_CANCEL_BY_DEADLINE, seq_cst);
  if (berthi_load(&exec->grow_state, acquire) == 1) {
    berthi_grow_end_locked(core, exec, 3 + BERTHI_R_DEADLINE_EXCEEDED);
    berthi_scan_locked(core);
  }
}

static bool may_not_wait(void) { return berthi_thread_self()->flags & BERTHI_THREAD_INTERNAL; }

static void arm_deadline(berthi_core *core, berth_exec *exec) {
  if (exec->deadline == BERTH_NO_DEADLINE) return;
  berthi_after after;
  berthi_lock(core, &after);
  exec->timer.fire = deadline_passed_locked;
  berthi_timer_arm_locked(core, &exec->timer, exec->deadline);
  berthi_unlock(core, &after);
}

static void give_permit(berthi_core *core) {
  if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
}

// Submits the request of an entry and waits for the decision. On success the execution is granted and holds a device permit.
static berth_status admit_slow(berthi_core *core, berthi_request *request, berth_exec *exec, const berth_run_options *o, berth_error *err) {
  berth_request asked;
  request_of_options(o, &asked);
  BERTHI_TRY(berthi_request_check(core, &asked, err));
  berthi_group *group;
  BERTHI_TRY(berthi_group_named(core, o->group, &group, err));
  bool entered = false;
  BERTHI_TRY(berthi_lanes_enter(o->lane_set, &entered, err));
  if (!berthi_gate_take(&core->gate, BERTHI_GATE_DEVICE)) {
    if (entered) berthi_lanes_leave(o->lane_set);
    return berthi_core_fail_closing(core, err);
  }
  berthi_request_fill(core, request, &asked);
  request->core = core;
  request->attempt = NULL;
  request->exec = exec;
  request->group = group;
  request->expires_at = asked.queue_deadline;
  request->no_wait = may_not_wait();
  request->lanes_entered = entered;
  berthi_event_init(&request->decided);
  if (o->cancel) {
    exec->follower.request = request;
    berthi_cancel_follow(o->cancel, &exec->follower);
    uint32_t cause = berth_cancel_check(o->cancel);
    if (cause) berthi_exec_cancel(exec, (berth_cancel_cause)cause);
  }
  berthi_after after;
  berthi_lock(core, &after);
  berthi_submit_locked(core, request, berthi_now());
  berthi_unlock(core, &after);
  // The event, not the word: whoever decides touches the request until the event is set.
  if (request->queued) (void)berthi_event_wait(&request->decided, BERTH_NO_DEADLINE, "run.wait");
  if (berthi_load(&request->state, acquire) == BERTHI_ADMISSION_GRANTED) {
    (void)berthi_request_take(request);
    berthi_exec_granted(exec);
    arm_deadline(core, exec);
    return BERTH_OK;
  }
  berthi_cancel_unfollow(&exec->follower);
  berthi_request_drop_lanes(request);
  give_permit(core);
  return berthi_refusal_error(request, err);
}

static berth_status enter_lanes(berth_exec *exec, berth_error *err) {
  const berthi_device_slot *slot = &exec->core->devices[exec->grant.device];
  if (!exec->request->lane_set || berthi_lanes_caller_managed(exec->request->lane_set) || !slot->kind->enter) return BERTH_OK;
  return slot->kind->enter(slot->device, &exec->grant.mask, &exec->affinity, err);
}

static void crashed(void *arg) { berthi_entry_crash(arg, true); }

static berth_status admit_exec(berthi_core *core, berthi_request *request, berth_exec *exec, const berth_run_options *o, berth_error *err) {
  berthi_stat_store(&exec->cancel, BERTH_CANCEL_NONE);
  berthi_exec_prepare(exec, core, NULL, request, o->deadline ? o->deadline : BERTH_NO_DEADLINE);
  exec->cache = o->cache;
  if (is_plain(o)) {
    if (berthi_gate_is_closed(&core->gate)) return berthi_core_fail_closing(core, err);
    if (BERTHI_LIKELY(berthi_stripe_take_grant(core, exec))) {
      request->lane_set = NULL;
      exec->since = 0;
      berthi_exec_granted(exec);
      return BERTH_OK;
    }
  }
  return admit_slow(core, request, exec, o, err);
}

/// What an entry leaves; a berth_run_result only once somebody asks for one.
typedef struct outcome {
  bool ran;
  intptr_t value;
  berth_status cleanup;
  berth_error *cleanup_error; ///< where a failed clean-up is told, or NULL
  berth_report *report;
} outcome;

static berth_status run_plain(berthi_core *core, const berth_run_options *o, berth_run_fn fn, void *arg, uintptr_t frame, outcome *result,
                              berth_error *err) {
  berthi_entry *entry = berthi_entry_push(core, frame);
  if (!entry) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "an entry of %zu bytes", sizeof *entry);
  berth_exec *exec = &entry->storage;
  entry->exec = exec;
  berth_status status = admit_exec(core, &entry->request, exec, o, err);
  if (!status && (status = enter_lanes(exec, err)) != BERTH_OK) {
    (void)berthi_exec_end(exec, BERTH_FAILED, NULL, true, NULL);
    berthi_request_drop_lanes(&entry->request);
  }
  if (status) {
    berthi_entry_pop(entry);
    return status;
  }
  entry->own = true;
  result->value = berthi_user_run(fn, exec, arg, crashed, entry);
  result->ran = true;
  entry->own = false;
  result->cleanup = berthi_exec_end(exec, BERTH_SUCCEEDED, NULL, true, result->cleanup_error);
  if (BERTHI_UNLIKELY(entry->request.lane_set != NULL)) berthi_request_drop_lanes(&entry->request);
  berthi_entry_pop(entry);
  return BERTH_OK;
}

// ---- entries with a report: an attempt ---------------------------------------------------------------------------------------------------------

// The receiver is taken before the admission, so that a refused entry's report is its caller's and not abandoned (ATT-6).
static berth_status begin_and_admit(berthi_core *core, const berth_run_options *o, berth_attempt **out_attempt, berth_completion **out_completion,
                                    berth_exec **out_exec, berth_error *err) {
  berth_attempt_options begin = {.struct_size = sizeof begin, .query_id = o->query_id, .trace_context = o->trace_context, .group = o->group,
                                 .deadline = o->deadline, .max_events = o->max_events};
  BERTHI_TRY(berth_session_begin_attempt(&core->session, &begin, out_attempt, err));
  if (out_completion) *out_completion = berth_attempt_completion(*out_attempt);
  berth_request asked;
  request_of_options(o, &asked);
  asked.struct_size = sizeof asked;
  berth_admission *admission = NULL;
  BERTHI_TRY(berthi_admit(core, *out_attempt, &asked, may_not_wait(), &admission, err));
  berth_status status = berth_admission_wait(admission, BERTH_NO_DEADLINE, err);
  if (!status) status = berth_admission_take(admission, out_exec, err);
  berth_admission_release(admission);
  return status;
}

static berth_status run_reported(berthi_core *core, const berth_run_options *o, berth_run_fn fn, void *arg, uintptr_t frame, outcome *result,
                                 berth_error *err) {
  berth_attempt *attempt = NULL;
  berth_exec *exec = NULL;
  berth_completion *completion = NULL;
  berthi_entry *entry = berthi_entry_push(core, frame);
  if (!entry) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "an entry of %zu bytes", sizeof *entry);
  berth_status status = begin_and_admit(core, o, &attempt, &completion, &exec, err);
  if (!status && (status = enter_lanes(exec, err)) != BERTH_OK) (void)berth_exec_finish(exec, BERTH_FAILED, err, NULL);
  if (!status) {
    exec->cache = o->cache;
    entry->exec = exec;
    entry->own = entry->reported = true;
    result->value = berthi_user_run(fn, exec, arg, crashed, entry);
    result->ran = true;
    entry->own = false;
    berth_error why = BERTH_ERROR_INIT;
    uint32_t cause = berthi_exec_end_cause(exec, &why);
    result->cleanup = berthi_exec_end(exec, cause ? BERTH_OUTCOME_CANCELLED : BERTH_SUCCEEDED, cause ? &why : NULL, true, result->cleanup_error);
  }
  berthi_entry_pop(entry);
  if (completion) (void)berth_completion_wait(completion, BERTH_NO_DEADLINE, &result->report, NULL);
  berth_completion_release(completion);
  berth_attempt_release(attempt);
  return status;
}

// ---- public ------------------------------------------------------------------------------------------------------------------------------------

static const berth_run_options no_options;

static berth_status check_output(const berth_run_result *out, berth_error *err) {
  if (!out || out->struct_size) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "berth_run_result: struct_size is 0; use BERTH_RUN_RESULT_INIT");
}

static berth_status run(berthi_core *core, const berth_run_options *o, berth_run_fn fn, void *arg, uintptr_t frame, berth_run_result *out, berth_error *err) {
  outcome result = {.cleanup_error = NULL};
  berth_run_result full;
  if (out) {
    memset(&full, 0, sizeof full);
    result.cleanup_error = &full.cleanup_error;
  }
  berth_status status = o->report && out ? run_reported(core, o, fn, arg, frame, &result, err) : run_plain(core, o, fn, arg, frame, &result, err);
  if (!out) return status;
  full.ran = result.ran;
  full.value = result.value;
  full.cleanup = result.cleanup;
  full.report = result.report;
  (void)berthi_output_copy(out, &full, sizeof full, "berth_run_result", NULL);
  return status;
}

static berth_status run_with_options(berthi_core *core, const berth_run_options *options, berth_run_fn fn, void *arg, uintptr_t frame, berth_run_result *out,
                                     berth_error *err) {
  berth_run_options known;
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_run_options", err));
  return run(core, &known, fn, arg, frame, out, err);
}

berth_status berth_run(berth_session *session, const berth_run_options *options, berth_run_fn fn, void *arg, berth_run_result *out_result, berth_error *err) {
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (!session || !fn) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and fn must not be NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  BERTHI_TRY(berthi_entry_check(core, frame, err));
  BERTHI_TRY(check_output(out_result, err));
  if (options) return run_with_options(core, options, fn, arg, frame, out_result, err);
  return run(core, &no_options, fn, arg, frame, out_result, err);
}

berth_status berth_exec_hold(berth_session *session, const berth_run_options *options, berth_exec **out_exec, berth_error *err) {
  berth_run_options known;
  if (!session || !out_exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and out_exec must not be NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof known, "berth_run_options", err));
  BERTHI_TRY(berthi_entry_check(core, (uintptr_t)__builtin_frame_address(0), err));
  if (known.report) {
    berth_attempt *attempt = NULL;
    berth_status status = begin_and_admit(core, &known, &attempt, NULL, out_exec, err);
    if (!status) (*out_exec)->cache = known.cache;
    berth_attempt_release(attempt);
    return status;
  }
  struct held {
    berth_exec exec;  // first: end_held frees this block by its execution
    berthi_request request;
  } *held = berthi_alloc(sizeof *held);
  if (!held) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "an execution of %zu bytes", sizeof *held);
  berth_status status = admit_exec(core, &held->request, &held->exec, &known, err);
  if (status) {
    berthi_free(held);
    return status;
  }
  held->exec.on_heap = true;
  berthi_core_retain(core);
  *out_exec = &held->exec;
  return BERTH_OK;
}

berth_status berth_exec_run(berth_exec *exec, berth_run_fn fn, void *arg, intptr_t *out_value, berth_error *err) {
  if (!fn) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "fn must not be NULL");
  BERTHI_TRY(berthi_exec_usable(exec, err));
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  BERTHI_TRY(berthi_entry_check(exec->core, frame, err));
  BERTHI_TRY(berth_exec_check(exec, err));
  uint64_t none = 0;
  if (!berthi_cas(&exec->user_entry, &none, berthi_thread_self()->id, acq_rel)) {
    return berthi_fail(err, BERTHI_R_CONCURRENT_USE, "thread %llu is inside execution %llu", (unsigned long long)none, (unsigned long long)exec->id);
  }
  berthi_entry *entry = berthi_entry_push(exec->core, frame);
  if (!entry) {
    berthi_store(&exec->user_entry, 0, release);
    return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "an entry of %zu bytes", sizeof *entry);
  }
  entry->exec = exec;
  intptr_t value = berthi_user_run(fn, exec, arg, crashed, entry);
  berthi_entry_pop(entry);
  berthi_store(&exec->user_entry, 0, release);
  if (out_value) *out_value = value;
  return BERTH_OK;
}
