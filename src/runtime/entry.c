// SPDX-License-Identifier: Apache-2.0
/// The scoped entries of a thread: a stack of records outside the C stack, so that they survive a longjmp over them (USR-1, RUN-2).
///
/// A record is lost when its frame does not lie above the present one: stacks grow down, so a live outer frame has a higher address. Records are reused; each thread
/// keeps the ones it made until it ends.
#include "runtime/core.h"

// At the same address, too: a call inside the entry's function stands strictly below it.
static bool is_lost(const berthi_entry *entry, uintptr_t frame) { return entry->frame <= frame; }

berthi_entry *berthi_entry_push(berthi_core *core, uintptr_t frame) {
  berthi_thread_state *self = berthi_thread_self();
  berthi_entry *entry = self->spare_entries;
  if (BERTHI_LIKELY(entry != NULL)) {
    self->spare_entries = entry->outer;
  } else {
    entry = berthi_alloc(sizeof *entry);
    if (!entry) return NULL;
    berthi_thread_on_exit(berthi_entries_exit);
  }
  entry->outer = self->entries;
  entry->core = core;
  entry->exec = NULL;
  entry->frame = frame;
  entry->own = entry->reported = false;
  self->entries = entry;
  return entry;
}

void berthi_entry_pop(berthi_entry *entry) {
  berthi_thread_state *self = berthi_thread_self();
  berthi_assert(self->entries == entry, "RUN-2");
  self->entries = entry->outer;
  entry->outer = self->spare_entries;
  self->spare_entries = entry;
}

void berthi_entry_crash(berthi_entry *entry, bool inline_ok) {
  berth_exec *exec = entry->exec;
  berth_attempt *attempt = entry->reported ? exec->attempt : NULL;
  if (entry->own) {
    if (attempt) berth_completion_release(&attempt->completion);  // whom it was for is gone: without another receiver it is abandoned
    (void)berthi_exec_end(exec, BERTH_CRASHED, NULL, inline_ok, NULL);
    if (attempt) berth_attempt_release(attempt);
    else berthi_request_drop_lanes(exec->request);
  } else if (exec) {
    berthi_store(&exec->user_entry, 0, release);
  }
  berthi_entry_pop(entry);
}

void berthi_entries_exit(berthi_thread_state *self) {
  // What a thread leaves active at its end (a longjmp and an exit) is ended as crashed.
  for (berthi_entry *entry = self->entries; entry; entry = self->entries) {
    berthi_entry_crash(entry, false);
  }
  for (berthi_entry *entry = self->spare_entries, *next; entry; entry = next) {
    next = entry->outer;
    berthi_free(entry);
  }
  self->spare_entries = NULL;
}

berth_status berthi_entry_check(berthi_core *core, uintptr_t frame, berth_error *err) {
  berthi_thread_state *self = berthi_thread_self();
  for (berthi_entry *entry = self->entries; entry; entry = entry->outer) {
    unsigned long long id = entry->exec ? (unsigned long long)entry->exec->id : 0;
    if (BERTHI_UNLIKELY(is_lost(entry, frame))) {
      return berthi_fail(err, BERTHI_R_RESOURCE_POISONED, "a longjmp lost execution %llu of this thread; call berth_backend_heal", id);
    }
    if (entry->core == core) return berthi_fail(err, BERTHI_R_REENTERED, "this thread holds execution %llu; pass it down", id);
  }
  if (BERTHI_UNLIKELY(self->callback_backend == core && !(self->flags & BERTHI_THREAD_NOTIFIER) && (self->flags & BERTHI_THREAD_INTERNAL))) {
    return berthi_fail(err, BERTHI_R_REENTERED, "this thread is a lane of an execution; pass that down");
  }
  return BERTH_OK;
}

bool berthi_entry_inside(berthi_core *core) {
  berthi_thread_state *self = berthi_thread_self();
  if (self->callback_backend == core) return true;
  for (berthi_entry *entry = self->entries; entry; entry = entry->outer) {
    if (entry->core == core) return true;
  }
  return false;
}

berth_status berth_backend_heal(berth_backend *backend, uint32_t *out_healed, berth_error *err) {
  if (!backend) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend must not be NULL");
  berthi_core *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berthi_thread_state *self = berthi_thread_self();
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  uint32_t healed = 0;
  for (berthi_entry *entry = self->entries; entry && is_lost(entry, frame) && entry->core == core; entry = self->entries) {
    berthi_entry_crash(entry, true);
    healed++;
  }
  if (healed) {
    berthi_after after;
    berthi_lock(core, &after);
    berthi_up(&core->counters.healed, healed);
    berthi_unlock(core, &after);
    berthi_log(core, BERTH_LOG_WARNING, "healed %u lost entries of thread %llu", healed, (unsigned long long)self->id);
  }
  if (out_healed) *out_healed = healed;
  return BERTH_OK;
}
