// SPDX-License-Identifier: Apache-2.0
/// Cancel tokens (ATT-7). Lock order: a token's lock, then the admission lock. Hooks run on the notifier with neither.
#include "runtime/core.h"

static void run_hook(berthi_note *note);

void berthi_cancel_init(berth_cancel *cancel, berthi_core *core, berth_attempt *attempt) {
  cancel->core = core;
  cancel->attempt = attempt;
  berthi_stat_store(&cancel->refs, 1);
  berthi_stat_store(&cancel->cause, BERTH_CANCEL_NONE);
  berthi_mutex_init(&cancel->lock, BERTHI_RANK_CANCEL);
  berthi_list_init(&cancel->followers);
  cancel->hook = NULL;
  cancel->hook_arg = NULL;
  cancel->hook_scheduled = cancel->hook_running = false;
  berthi_event_init(&cancel->hook_idle);
  cancel->note = (berthi_note){.run = run_hook};
}

berth_cancel *berth_cancel_retain(berth_cancel *cancel) {
  if (!cancel || berthi_core_forked(cancel->core)) return cancel;
  if (cancel->attempt) berthi_attempt_retain(cancel->attempt);
  else berthi_ref_up(&cancel->refs);
  return cancel;
}

void berth_cancel_release(berth_cancel *cancel) {
  if (!cancel || berthi_core_forked(cancel->core)) return;
  if (cancel->attempt) {
    berthi_attempt_unref(cancel->attempt);
  } else if (berthi_ref_down(&cancel->refs)) {
    berthi_core_release(cancel->core);
    berthi_free(cancel);
  }
}

berth_status berth_cancel_create(berth_session *session, berth_cancel **out_cancel, berth_error *err) {
  if (!session || !out_cancel) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and out_cancel must not be NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berth_cancel *cancel = berthi_alloc(sizeof *cancel);
  if (!cancel) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a cancel token of %zu bytes", sizeof *cancel);
  berthi_cancel_init(cancel, core, NULL);
  berthi_core_retain(core);
  *out_cancel = cancel;
  return BERTH_OK;
}

// Under the token's lock: whether the hook must be sent to the notifier now. The sender does it after the unlock.
static bool claim_hook(berth_cancel *cancel) {
  if (!cancel->hook || cancel->hook_scheduled || cancel->hook_running) return false;
  cancel->hook_scheduled = true;
  return true;
}

static void send_hook(berth_cancel *cancel) {
  berth_cancel_retain(cancel);  // the note's reference
  berthi_notify(cancel->core, &cancel->note);
}

// Also when the hook ended its thread.
static void hook_over(void *arg) {
  berth_cancel *cancel = arg;
  berthi_mutex_lock(&cancel->lock);
  cancel->hook_running = false;
  bool send = claim_hook(cancel);  // hooked meanwhile
  berthi_mutex_unlock(&cancel->lock);
  berthi_event_set(&cancel->hook_idle);
  if (send) send_hook(cancel);
  berth_cancel_release(cancel);
}

static void run_hook(berthi_note *note) {
  berth_cancel *cancel = BERTHI_CONTAINER(note, berth_cancel, note);
  berthi_mutex_lock(&cancel->lock);
  berth_cancel_fn hook = cancel->hook;
  void *arg = cancel->hook_arg;
  cancel->hook = NULL;
  cancel->hook_scheduled = false;
  cancel->hook_running = hook != NULL;
  cancel->hook_thread = berthi_thread_id();
  berthi_event_clear(&cancel->hook_idle);
  berthi_mutex_unlock(&cancel->lock);
  if (hook) berthi_user_cancelled(cancel->core, hook, arg, (berth_cancel_cause)berthi_load(&cancel->cause, acquire), hook_over, cancel);
  hook_over(cancel);
}

bool berthi_cancel_raise(berth_cancel *cancel, berth_cancel_cause cause) {
  uint32_t seen = berthi_load(&cancel->cause, acquire);
  bool first = false;
  while (seen == BERTH_CANCEL_NONE || cause < seen) {  // the caller outranks the deadline, the deadline the close
    if (!berthi_cas(&cancel->cause, &seen, cause, acq_rel)) continue;
    first = seen == BERTH_CANCEL_NONE;
    break;
  }
  if (first) {
    berthi_mutex_lock(&cancel->lock);
    bool send = claim_hook(cancel);
    berthi_mutex_unlock(&cancel->lock);
    if (send) send_hook(cancel);
  }
  return first;
}

void berthi_cancel_follow(berth_cancel *token, berthi_follower *follower) {
  berth_cancel_retain(token);
  follower->token = token;
  berthi_mutex_lock(&token->lock);
  berthi_list_append(&token->followers, &follower->link);
  berthi_mutex_unlock(&token->lock);
}

void berthi_cancel_leave(berthi_follower *follower) {
  berth_cancel *token = follower->token;
  berthi_mutex_lock(&token->lock);
  if (follower->link.next) berthi_list_remove(&follower->link);
  berthi_mutex_unlock(&token->lock);
  follower->token = NULL;
  berth_cancel_release(token);
}

// Takes one follower off the list and cancels it. A scoped entry is cancelled under the token's lock, which keeps it alive; an attempt by a reference,
// without the lock, since ending it unfollows.
static bool cancel_one_follower(berth_cancel *cancel, berth_cancel_cause cause) {
  berthi_mutex_lock(&cancel->lock);
  if (berthi_list_empty(&cancel->followers)) {
    berthi_mutex_unlock(&cancel->lock);
    return false;
  }
  berthi_follower *follower = BERTHI_CONTAINER(cancel->followers.next, berthi_follower, link);
  berthi_list_remove(&follower->link);
  berth_attempt *attempt = follower->attempt;
  if (attempt) {
    berthi_attempt_retain(attempt);
  } else {
    berthi_exec_cancel(follower->request->exec, cause);
    berthi_request_cancel(follower->request, cause);
  }
  berthi_mutex_unlock(&cancel->lock);
  if (attempt) {
    berthi_attempt_cancel(attempt, cause);
    berthi_attempt_unref(attempt);
  }
  return true;
}

berth_cancel_result berth_cancel_fire(berth_cancel *cancel) {
  if (!cancel || berthi_core_forked(cancel->core)) return BERTH_CANCEL_ALREADY_FINISHED;
  if (cancel->attempt) {
    uint32_t state = berthi_load(&cancel->attempt->state, acquire);
    if (state == BERTHI_ATTEMPT_SEALED) return BERTH_CANCEL_ALREADY_FINISHED;
    if (state == BERTHI_ATTEMPT_DECIDED) return BERTH_CANCEL_TOO_LATE;
    berthi_attempt_cancel(cancel->attempt, BERTH_CANCEL_BY_CALLER);
    return BERTH_CANCEL_FIRED;
  }
  berthi_cancel_raise(cancel, BERTH_CANCEL_BY_CALLER);
  while (cancel_one_follower(cancel, BERTH_CANCEL_BY_CALLER)) {
  }
  return BERTH_CANCEL_FIRED;
}

berth_cancel_cause berth_cancel_check(const berth_cancel *cancel) {
  return cancel ? (berth_cancel_cause)berthi_load(&((berth_cancel *)(uintptr_t)cancel)->cause, acquire) : BERTH_CANCEL_NONE;
}

berth_status berth_cancel_hook(berth_cancel *cancel, berth_cancel_fn fn, void *arg, berth_error *err) {
  if (!cancel) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "cancel must not be NULL");
  BERTHI_TRY(berthi_core_check_fork(cancel->core, err));
  if (fn && cancel->attempt) berthi_attempt_hooked(cancel->attempt);
  berthi_mutex_lock(&cancel->lock);
  cancel->hook = fn;
  cancel->hook_arg = arg;
  bool send = fn && berthi_load(&cancel->cause, acquire) != BERTH_CANCEL_NONE && claim_hook(cancel);
  bool wait = !fn && cancel->hook_running && cancel->hook_thread != berthi_thread_id();
  berthi_mutex_unlock(&cancel->lock);
  if (send) send_hook(cancel);
  if (wait) (void)berthi_event_wait(&cancel->hook_idle, BERTH_NO_DEADLINE, "cancel.unhook");
  return BERTH_OK;
}
