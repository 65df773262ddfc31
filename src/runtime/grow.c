// SPDX-License-Identifier: Apache-2.0
/// Shrink and grow (LED-3). A waiting grow comes before every admission on its device. Holders that are not growing are assumed to finish; when the
/// growing ones then cannot all be completed in some order, the youngest of those that cannot gets `would_deadlock`.
#include "runtime/core.h"

enum { GROW_NONE, GROW_WAITING, GROW_GRANTED, GROW_REFUSED /* + reason */ };

static berth_exec *exec_of(berthi_link *link) { return BERTHI_CONTAINER(link, berth_exec, grow_link); }

static bool group_allows(const berthi_group *group, uint64_t used, uint64_t bytes) {
  return !group || group->max_bytes == UINT64_MAX || (bytes <= group->max_bytes && used <= group->max_bytes - bytes);
}

void berthi_grow_end_locked(berthi_core *core, berth_exec *exec, uint32_t state) {
  berthi_list_remove(&exec->grow_link);
  berthi_up(state == GROW_GRANTED ? &core->counters.grows : &core->counters.grows_refused, 1);
  berthi_store(&exec->grow_state, state, release);
  berthi_event_set(&exec->grow_event);
}

static bool grant_grow(berthi_core *core, berth_exec *exec, uint64_t bytes) {
  berthi_device_slot *slot = &core->devices[exec->grant.device];
  berthi_group *group = exec->grant.group;
  if (!berthi_slot_serves(slot) || bytes > berthi_ledger_free(&slot->ledger)) return false;
  if (group && !group_allows(group, berthi_get(&group->bytes), bytes)) return false;
  berthi_up(&slot->ledger.grants, bytes);
  if (group) berthi_up(&group->bytes, bytes);
  exec->grant.bytes += bytes;
  berthi_add(&exec->domain.limit, bytes, relaxed);  // its user waits for the event, or is the caller
  return true;
}

bool berthi_grow_blocks_locked(const berthi_core *core, uint32_t device) {
  for (berthi_link *at = core->grows.next; at != &core->grows; at = at->next) {
    if (exec_of(at)->grant.device == device) return true;
  }
  return false;
}

// Bytes that would be free on the device, or in the group, if every execution that is not growing had finished.
static uint64_t free_without_others(berthi_core *core, uint32_t device, const berthi_group *group) {
  uint64_t held = 0;
  for (berthi_link *at = core->grows.next; at != &core->grows; at = at->next) {
    const berth_exec *exec = exec_of(at);
    if (group ? exec->grant.group == group : exec->grant.device == device) held += exec->grant.bytes;
  }
  if (group) return held < group->max_bytes ? group->max_bytes - held : 0;
  const berthi_ledger *ledger = &core->devices[device].ledger;
  uint64_t gone = held + berthi_get(&ledger->resident) + berthi_get(&ledger->leaked) + berthi_get(&ledger->withheld) +
                  berthi_get(&ledger->external_charged) + berthi_get(&ledger->external_measured);
  uint64_t limit = berthi_get(&ledger->query_limit);
  return gone < limit ? limit - gone : 0;
}

// Marks, round by round, which growing executions could complete; each that does frees what it holds. Returns the youngest that cannot, or NULL.
static berth_exec *youngest_unsatisfiable(berthi_core *core) {
  uint64_t freed[BERTH_DEVICES_MAX] = {0};
  for (berthi_link *at = core->grows.next; at != &core->grows; at = at->next) exec_of(at)->grow_safe = false;
  for (bool progress = true; progress;) {
    progress = false;
    for (berthi_link *at = core->grows.next; at != &core->grows; at = at->next) {
      berth_exec *exec = exec_of(at);
      uint32_t d = exec->grant.device;
      if (exec->grow_safe || exec->grow_bytes > free_without_others(core, d, NULL) + freed[d]) continue;
      berthi_group *group = exec->grant.group;
      uint64_t group_freed = 0;
      for (berthi_link *other = core->grows.next; group && other != &core->grows; other = other->next) {
        if (exec_of(other)->grow_safe && exec_of(other)->grant.group == group) group_freed += exec_of(other)->grant.bytes;
      }
      if (group && group->max_bytes != UINT64_MAX && exec->grow_bytes > free_without_others(core, d, group) + group_freed) continue;
      exec->grow_safe = true;
      freed[d] += exec->grant.bytes;
      progress = true;
    }
  }
  berth_exec *youngest = NULL;
  for (berthi_link *at = core->grows.next; at != &core->grows; at = at->next) {
    berth_exec *exec = exec_of(at);
    if (!exec->grow_safe && (!youngest || exec->grow_sequence > youngest->grow_sequence)) youngest = exec;
  }
  return youngest;
}

void berthi_grow_scan_locked(berthi_core *core) {
  if (berthi_list_empty(&core->grows)) return;
  for (berthi_link *at = core->grows.next, *next; at != &core->grows; at = next) {
    berth_exec *exec = exec_of(at);
    next = at->next;
    // Out of service is not SUSPECT, which resolves: bytes would not come.
    if (!berthi_slot_may_serve(&core->devices[exec->grant.device])) berthi_grow_end_locked(core, exec, GROW_REFUSED + BERTHI_R_DEVICE_QUARANTINED);
    else if (grant_grow(core, exec, exec->grow_bytes)) berthi_grow_end_locked(core, exec, GROW_GRANTED);
  }
  for (berth_exec *victim = youngest_unsatisfiable(core); victim; victim = youngest_unsatisfiable(core)) {
    berthi_grow_end_locked(core, victim, GROW_REFUSED + BERTHI_R_WOULD_DEADLOCK);
  }
}

static berth_status grow_refused(const berth_exec *exec, uint32_t state, uint64_t bytes, berth_error *err) {
  char asked[BERTHI_BYTES_TEXT], has[BERTHI_BYTES_TEXT];
  berthi_reason reason = (berthi_reason)(state - GROW_REFUSED);
  berthi_bytes_text(bytes, asked);
  berthi_bytes_text(exec->grant.bytes, has);
  if (reason == BERTHI_R_WOULD_DEADLOCK) {
    return berthi_fail(err, reason, "%s more can never come: all growing executions wait for each other; execution %llu keeps its %s: release some, spill, or run alone",
                       asked, (unsigned long long)exec->id, has);
  }
  return berthi_fail(err, reason, "%s more for execution %llu, which keeps its %s", asked, (unsigned long long)exec->id, has);
}

static berth_status begin_grow(berthi_core *core, berth_exec *exec, uint64_t bytes, bool may_wait, berth_error *err) {
  berthi_after after;
  berth_status status = BERTH_OK;
  uint64_t most = berthi_ledger_most(&core->devices[exec->grant.device].ledger);
  char asked[BERTHI_BYTES_TEXT], can[BERTHI_BYTES_TEXT];
  berthi_lock(core, &after);
  berthi_stripe_move_locked(core, exec);
  if (bytes > most || exec->grant.bytes > most - bytes) {
    status = berthi_fail(err, BERTHI_R_REQUEST_EXCEEDS_DEVICE, "%s more asked, the device can ever grant %s to one", berthi_bytes_text(bytes, asked), berthi_bytes_text(most, can));
  } else if (berthi_list_empty(&core->grows) && (grant_grow(core, exec, bytes) || (berthi_stripes_reclaim_locked(core) && grant_grow(core, exec, bytes)))) {
    berthi_up(&core->counters.grows, 1);
    berthi_stat_store(&exec->grow_state, GROW_GRANTED);
  } else if (!may_wait) {
    status = berthi_fail(err, BERTHI_R_CONTENDED, "%s more would have to be waited for", berthi_bytes_text(bytes, asked));
  } else if (berthi_load(&core->cancel_all, acquire)) {  // set under this lock, which then ended the waits there were: a later one would have no end
    status = berthi_fail(err, BERTHI_R_BACKEND_CLOSING, "the close of the backend cancels execution %llu", (unsigned long long)exec->id);
  } else {
    berthi_event_init(&exec->grow_event);
    exec->grow_bytes = bytes;
    exec->grow_sequence = ++core->request_sequence;
    berthi_stat_store(&exec->grow_state, GROW_WAITING);
    berthi_list_append(&core->grows, &exec->grow_link);
    berthi_scan_locked(core);
  }
  berthi_unlock(core, &after);
  return status;
}

berth_status berth_exec_grow(berth_exec *exec, uint64_t bytes, int64_t deadline, berth_error *err) {
  BERTHI_TRY(berthi_exec_usable(exec, err));
  if (exec->root != exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "a child has no grant of its own; grow its execution");
  BERTHI_TRY(berth_exec_check(exec, err));
  berthi_core *core = exec->core;
  BERTHI_TRY(begin_grow(core, exec, bytes, !(berthi_thread_self()->flags & BERTHI_THREAD_NOTIFIER), err));
  if (berthi_load(&exec->grow_state, acquire) == GROW_WAITING && berthi_load(&exec->cancel, seq_cst)) {
    berthi_exec_cancel(exec, (berth_cancel_cause)berthi_load(&exec->cancel, acquire));  // it fired before the grow waited
  }
  if (berthi_load(&exec->grow_state, acquire) == GROW_WAITING && !berthi_event_wait(&exec->grow_event, deadline, "execution.grow")) {
    berthi_after after;
    berthi_lock(core, &after);
    if (berthi_load(&exec->grow_state, acquire) == GROW_WAITING) {
      berthi_grow_end_locked(core, exec, GROW_REFUSED + BERTHI_R_WAIT_TIMEOUT);
      berthi_scan_locked(core);
    }
    berthi_unlock(core, &after);
  }
  uint32_t state = berthi_load(&exec->grow_state, acquire);
  berthi_stat_store(&exec->grow_state, GROW_NONE);
  return state == GROW_GRANTED ? BERTH_OK : grow_refused(exec, state, bytes, err);
}

berth_status berth_exec_shrink(berth_exec *exec, uint64_t bytes, uint64_t *out_grant, berth_error *err) {
  BERTHI_TRY(berthi_exec_usable(exec, err));
  if (exec->root != exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "a child has no grant of its own; shrink its execution");
  berthi_core *core = exec->core;
  uint64_t given = berthi_domain_shrink(&exec->domain, bytes);
  if (given) {
    berthi_after after;
    berthi_lock(core, &after);
    berthi_stripe_move_locked(core, exec);
    berthi_down(&core->devices[exec->grant.device].ledger.grants, given);
    if (exec->grant.group) berthi_down(&exec->grant.group->bytes, given);
    exec->grant.bytes -= given;
    berthi_up(&core->counters.shrinks, 1);
    berthi_scan_locked(core);
    berthi_unlock(core, &after);
  }
  if (out_grant) *out_grant = exec->grant.bytes;
  return BERTH_OK;
}
