// SPDX-License-Identifier: Apache-2.0
#include "runtime/core.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/states.h"

void berthi_lock(berthi_core *core, berthi_after *after) {
  berthi_mutex_lock(&core->lock);
  after->first = NULL;
  after->last = &after->first;
  core->after = after;
  uint64_t sequence = atomic_load_explicit(&core->sequence, memory_order_relaxed);  // the lock's holder is its only writer
  atomic_store_explicit(&core->sequence, sequence + 1, memory_order_relaxed);       // ordered by the releases of berthi_put
}

void berthi_unlock(berthi_core *core, berthi_after *after) {
  berthi_core_update_slow_locked(core);
  berthi_ledger_check_locked(core);
  core->after = NULL;
  uint64_t sequence = atomic_load_explicit(&core->sequence, memory_order_relaxed);
  atomic_store_explicit(&core->sequence, sequence + 1, memory_order_release);  // pairs with the reader's second load
  berthi_mutex_unlock(&core->lock);
  if (after->first) berthi_after_run(core, after);
}

static bool must_be_slow(const berthi_core *core) {
  if (!berthi_list_empty(&core->queue) || !berthi_list_empty(&core->grows)) return true;
  for (uint32_t i = 0; i < core->device_count; i++) {
    if (!berthi_slot_serves(&core->devices[i]) || berthi_ledger_over(&core->devices[i].ledger)) return true;
  }
  return false;
}

void berthi_core_update_slow_locked(berthi_core *core) {
  uint32_t slow = berthi_load(&core->slow, seq_cst);
  bool must = must_be_slow(core);
  if (must && !(slow & BERTHI_SLOW_WAITERS)) berthi_or(&core->slow, BERTHI_SLOW_WAITERS, seq_cst);  // before the reclaim: pairs with berthi_stripe_give_grant
  if ((must || (slow & BERTHI_SLOW_CLOSING)) && berthi_stripes_reclaim_locked(core)) berthi_scan_locked(core);
  if (!must_be_slow(core)) berthi_and(&core->slow, ~BERTHI_SLOW_WAITERS, seq_cst);
}

void berthi_core_retain(berthi_core *core) { berthi_ref_up(&core->refs); }

void berthi_core_release(berthi_core *core) {
  if (!berthi_ref_down(&core->refs)) return;
  berthi_free(core->devices);
  berthi_free(core->groups);
  berthi_free(core);
}

void berthi_core_leave(berthi_core *core) {
  if (!berthi_ref_down(&core->users)) return;
  berthi_after after;
  berthi_link gone;
  berthi_list_init(&gone);
  berthi_lock(core, &after);
  berthi_abandoned_drop_locked(core, &gone);
  berthi_unlock(core, &after);
  berthi_abandoned_free(&gone);
}

berth_status berthi_core_fail_forked(const berthi_core *core, berth_error *err) {
  return berthi_fail(err, BERTHI_R_FORKED, "the handle belongs to process %d; open a backend in this one", (int)core->process);
}

berthi_reason berthi_core_closing_reason(berthi_core *core) {
  return berthi_load(&core->state, acquire) == BERTHI_BACKEND_CLOSED ? BERTHI_R_BACKEND_CLOSED : BERTHI_R_BACKEND_CLOSING;
}

berth_status berthi_core_fail_closing(berthi_core *core, berth_error *err) {
  berthi_reason reason = berthi_core_closing_reason(core);
  return berthi_fail(err, reason, "backend %llu, generation %llu", (unsigned long long)core->id, (unsigned long long)core->generation);
}

void berthi_stat_record(berthi_stat_histogram *histogram, int64_t nanoseconds) {
  uint64_t value = nanoseconds < 0 ? 0 : (uint64_t)nanoseconds;
  uint32_t bucket = 0;
  while (bucket + 1 < BERTHI_HISTOGRAM_BUCKETS && (int64_t)value > berthi_histogram_bound(bucket)) bucket++;
  berthi_up(&histogram->buckets[bucket], 1);
  berthi_up(&histogram->count, 1);
  berthi_up(&histogram->sum, value);
  if (value > berthi_get(&histogram->max)) berthi_put(&histogram->max, value);
}

void berthi_trace_call(const berthi_core *core, const char *phase, bool begin, uint64_t id) {
  core->options.trace(core->options.observer_arg, phase, begin, id, berthi_now());
}

void berthi_log(const berthi_core *core, berth_log_level level, const char *format, ...) {
  if (!core->options.log) return;
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  core->options.log(core->options.observer_arg, level, message);
}
