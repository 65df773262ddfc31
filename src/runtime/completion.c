// SPDX-License-Identifier: Apache-2.0
/// Completions: counted receivers of an attempt's report (ATT-6).
#include "runtime/core.h"

static berth_attempt *attempt_of(berth_completion *completion) { return BERTHI_CONTAINER(completion, berth_attempt, completion); }

berth_completion *berth_attempt_completion(berth_attempt *attempt) {
  if (!attempt) return NULL;
  return berth_completion_retain(&attempt->completion);
}

berth_completion *berth_completion_retain(berth_completion *completion) {
  if (!completion) return NULL;
  berth_attempt *attempt = attempt_of(completion);
  if (berthi_core_forked(attempt->core)) return completion;
  berthi_attempt_retain(attempt);
  (void)berthi_add(&completion->receivers, 1, seq_cst);  // against the seal, which reads and marks the count in one operation
  return completion;
}

void berth_completion_release(berth_completion *completion) {
  if (!completion) return;
  berth_attempt *attempt = attempt_of(completion);
  if (berthi_core_forked(attempt->core)) return;
  (void)berthi_sub(&completion->receivers, 1, seq_cst);  // as in retain
  berthi_attempt_unref(attempt);
}

static bool take_sealed(berth_attempt *attempt, berth_report **out_report) {
  if (!berthi_event_is_set(&attempt->completion.sealed)) return false;
  berthi_attempt_retain(attempt);
  *out_report = &attempt->report;
  return true;
}

berth_status berth_completion_poll(berth_completion *completion, berth_report **out_report, berth_error *err) {
  if (!completion || !out_report) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "completion and out_report must not be NULL");
  berth_attempt *attempt = attempt_of(completion);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  if (take_sealed(attempt, out_report)) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_NOT_READY, "attempt %llu is not sealed", (unsigned long long)attempt->id);
}

// Whether the calling thread is inside the scoped entry whose report is asked for: it can never be sealed while it waits.
static bool waits_for_itself(const berth_attempt *attempt) {
  for (berthi_entry *entry = berthi_thread_self()->entries; entry; entry = entry->outer) {
    if (entry->exec == &attempt->exec) return true;
  }
  return false;
}

berth_status berth_completion_wait(berth_completion *completion, int64_t deadline, berth_report **out_report, berth_error *err) {
  if (!completion || !out_report) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "completion and out_report must not be NULL");
  berth_attempt *attempt = attempt_of(completion);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  if (take_sealed(attempt, out_report)) return BERTH_OK;
  if (berthi_thread_self()->flags & BERTHI_THREAD_NOTIFIER) return berthi_fail(err, BERTHI_R_CONTENDED, "a callback on the notifier thread may not wait");
  if (waits_for_itself(attempt)) return berthi_fail(err, BERTHI_R_WOULD_DEADLOCK, "this thread runs attempt %llu", (unsigned long long)attempt->id);
  (void)berthi_event_wait(&completion->sealed, deadline, "completion.wait");
  if (take_sealed(attempt, out_report)) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_WAIT_TIMEOUT, "attempt %llu is not sealed", (unsigned long long)attempt->id);
}

static void unref(void *attempt) { berthi_attempt_unref(attempt); }

static void late_note(berthi_note *note) {
  berth_attempt *attempt = BERTHI_CONTAINER(note, berth_attempt, completion.note);
  berthi_user_completed(attempt->core, attempt->completion.fn, attempt->completion.arg, &attempt->report, unref, attempt);
  berthi_attempt_unref(attempt);
}

berth_status berth_completion_notify(berth_completion *completion, int fd, berth_completion_fn fn, void *arg, berth_error *err) {
  if (!completion) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "completion must not be NULL");
  berth_attempt *attempt = attempt_of(completion);
  BERTHI_TRY(berthi_core_check_fork(attempt->core, err));
  berthi_mutex_lock(&attempt->lock);
  bool again = completion->asked;
  bool late = false;
  if (!again) {
    completion->asked = true;
    completion->fd = fd;
    completion->fn = fn;
    completion->arg = arg;
    late = berthi_event_is_set(&completion->sealed) && !completion->told;
    completion->told = late;
  }
  berthi_mutex_unlock(&attempt->lock);
  if (again) return berthi_fail(err, BERTHI_R_ALREADY_TAKEN, "attempt %llu has its notification", (unsigned long long)attempt->id);
  if (!late) return BERTH_OK;  // the seal tells it
  if (fd >= 0) berthi_write_fd(fd);
  if (fn) {
    berthi_attempt_retain(attempt);
    completion->note = (berthi_note){.run = late_note};
    berthi_notify(attempt->core, &completion->note);
  }
  return BERTH_OK;
}
