// SPDX-License-Identifier: Apache-2.0
/// The caller's handle on an admission. The decision is level: poll and wait repeat it, take succeeds once (ADM-10).
#include "runtime/core.h"

static berth_attempt *attempt_of(berth_admission *admission) { return BERTHI_CONTAINER(admission, berth_attempt, admission); }

static bool is_refusal(uint32_t state) {
  return state != BERTHI_ADMISSION_NEW && state != BERTHI_ADMISSION_QUEUED && state != BERTHI_ADMISSION_GRANTED && state != BERTHI_ADMISSION_TAKEN;
}

// The refusal as an error; a grant that its holder gave back has no reason of its own.
static berth_status refusal(berthi_request *request, berth_error *err) {
  if (berthi_stat_load(&request->refusal) == BERTHI_R_NONE) return berthi_fail(err, BERTHI_R_ALREADY_TAKEN, "the grant has been returned");
  return berthi_refusal_error(request, err);
}

berth_admission_state berth_admission_poll(berth_admission *admission, berth_error *err) {
  if (!admission) return BERTH_ADMISSION_NEW;
  berth_attempt *attempt = attempt_of(admission);
  if (berthi_core_check_fork(attempt->core, err)) return BERTH_ADMISSION_CLOSED;
  uint32_t state = berthi_load(&admission->request.state, acquire);
  if (is_refusal(state)) (void)refusal(&admission->request, err);
  return (berth_admission_state)state;
}

static bool is_decided(berthi_request *request) {
  uint32_t state = berthi_load(&request->state, acquire);
  return state != BERTHI_ADMISSION_NEW && state != BERTHI_ADMISSION_QUEUED;
}

berth_status berth_admission_wait(berth_admission *admission, int64_t deadline, berth_error *err) {
  if (!admission) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "admission must not be NULL");
  berth_attempt *attempt = attempt_of(admission);
  berthi_request *request = &admission->request;
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  if (!is_decided(request)) {
    if (berthi_thread_self()->flags & BERTHI_THREAD_NOTIFIER) {
      return berthi_fail(err, BERTHI_R_CONTENDED, "a callback on the notifier thread may not wait for an admission");
    }
    (void)berthi_event_wait(&request->decided, deadline, "admission.wait");
    if (!is_decided(request)) return berthi_fail(err, BERTHI_R_WAIT_TIMEOUT, "the request still waits; it goes on waiting");
  }
  return is_refusal(berthi_load(&request->state, acquire)) ? refusal(request, err) : BERTH_OK;
}

static void unref(void *attempt) { berthi_attempt_unref(attempt); }

static void told_note(berthi_note *note) {
  berth_admission *admission = BERTHI_CONTAINER(note, berth_admission, note);
  berth_attempt *attempt = attempt_of(admission);
  berth_admission_state state = (berth_admission_state)berthi_load(&admission->request.state, acquire);
  berthi_user_admitted(attempt->core, admission->fn, admission->arg, state, unref, attempt);
  berthi_attempt_unref(attempt);
}

// Under no lock, once: the caller has set `told`.
static void tell_caller(berth_attempt *attempt) {
  berth_admission *admission = &attempt->admission;
  if (admission->fd >= 0) berthi_write_fd(admission->fd);
  if (!admission->fn) return;
  berthi_attempt_retain(attempt);
  admission->note = (berthi_note){.run = told_note};
  berthi_notify(attempt->core, &admission->note);
}

void berthi_admission_tell(berth_attempt *attempt) {
  berth_admission *admission = &attempt->admission;
  berthi_event_set(&admission->request.decided);
  berthi_mutex_lock(&attempt->lock);
  bool tell = admission->asked && !admission->told;
  if (tell) admission->told = true;
  berthi_mutex_unlock(&attempt->lock);
  if (tell) tell_caller(attempt);
}

berth_status berth_admission_notify(berth_admission *admission, int fd, berth_admission_fn fn, void *arg, berth_error *err) {
  if (!admission) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "admission must not be NULL");
  berth_attempt *attempt = attempt_of(admission);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  berthi_mutex_lock(&attempt->lock);
  bool again = admission->asked;
  bool late = false;
  if (!again) {
    admission->asked = true;
    admission->fd = fd;
    admission->fn = fn;
    admission->arg = arg;
    late = is_decided(&admission->request) && !admission->told;  // else whoever decides looks at `asked` under this lock
    if (late) admission->told = true;
  }
  berthi_mutex_unlock(&attempt->lock);
  if (again) return berthi_fail(err, BERTHI_R_ALREADY_TAKEN, "the admission has its notification");
  if (late) tell_caller(attempt);
  return BERTH_OK;
}

berth_cancel_result berth_admission_cancel(berth_admission *admission) {
  return admission ? berth_cancel_fire(&attempt_of(admission)->cancel) : BERTH_CANCEL_ALREADY_FINISHED;
}

berth_status berth_admission_why(berth_admission *admission, berth_why *out_why, berth_error *err) {
  if (!admission || !out_why || out_why->struct_size == 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "admission and a sized out_why are required");
  berth_attempt *attempt = attempt_of(admission);
  berthi_core *core = attempt->core;
  berthi_request *request = &admission->request;
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berth_why why = {.struct_size = sizeof why};
  if (out_why->struct_size >= sizeof why) {
    why.holders = out_why->holders;
    why.holder_capacity = out_why->holder_capacity;
  }
  uint64_t devices = 0;
  berthi_after after;
  berthi_lock(core, &after);
  why.overtakes = request->overtakes;
  why.bypass_limit = core->options.max_bypass;
  why.expires_at = request->expires_at;
  if (berthi_load(&request->state, acquire) == BERTHI_ADMISSION_QUEUED) {
    why.mask = berthi_request_why_locked(core, request, &devices, &why.ahead);
    why.barrier = request->barrier != BERTHI_NO_BARRIER;
    why.waited = berthi_now() - request->submitted_at;
    berthi_holders_locked(core, devices, false, why.holders, why.holder_capacity, &why.holder_count, &why.holders_total, NULL);
  }
  berthi_unlock(core, &after);
  return berthi_output_copy(out_why, &why, sizeof why, "berth_why", err);
}

berth_status berth_admission_take(berth_admission *admission, berth_exec **out_exec, berth_error *err) {
  if (!admission || !out_exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "admission and out_exec must not be NULL");
  berth_attempt *attempt = attempt_of(admission);
  berthi_request *request = &admission->request;
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  berthi_attempt_retain(attempt);  // the execution's reference
  if (berthi_request_take(request)) {
    berthi_exec_granted(&attempt->exec);
    attempt->report.taken_at = berthi_now_loose();
    *out_exec = &attempt->exec;
    return BERTH_OK;
  }
  berthi_attempt_unref(attempt);
  uint32_t state = berthi_load(&request->state, acquire);
  if (state == BERTHI_ADMISSION_TAKEN) return berthi_fail(err, BERTHI_R_ALREADY_TAKEN, "the execution has been taken");
  if (is_refusal(state)) return refusal(request, err);
  return berthi_fail(err, BERTHI_R_NOT_GRANTED, "the request is %s", berthi_state_name(BERTHI_ADMISSION, state));
}

void berth_admission_release(berth_admission *admission) {
  if (!admission) return;
  berth_attempt *attempt = attempt_of(admission);
  berthi_request *request = &admission->request;
  if (berthi_core_forked(attempt->core)) return;
  if (berthi_load(&request->state, acquire) == BERTHI_ADMISSION_QUEUED) berthi_attempt_cancel(attempt, BERTH_CANCEL_BY_CALLER);
  if (berthi_request_return(request)) berthi_attempt_end_refused(attempt, true);
  berthi_attempt_unref(attempt);
}
