// SPDX-License-Identifier: Apache-2.0
/// Abandoned reports: sealed with no receiver. A report is its own queue node, so nothing is allocated; the queue is counted exactly (ATT-6):
/// sealed = delivered + taken + held + overflowed.
#include "runtime/core.h"

static berth_attempt *attempt_of(berthi_link *link) {
  return BERTHI_CONTAINER(BERTHI_CONTAINER(link, berth_report, abandoned), berth_attempt, report);
}

static uint32_t bound(uint32_t configured) { return configured == BERTH_NONE_U32 ? 0 : configured; }

// Beyond `abandoned_detail` the oldest whole one keeps only its summary.
static void drop_detail_locked(berthi_core *core) {
  for (berthi_link *at = core->abandoned.next; at != &core->abandoned; at = at->next) {
    berth_attempt *attempt = attempt_of(at);
    if (attempt->report.summary_only) continue;
    berthi_report_drop_detail(attempt);
    core->abandoned_whole--;
    return;
  }
}

static berth_attempt *pop_locked(berthi_core *core) {
  berth_attempt *oldest = attempt_of(core->abandoned.next);
  berthi_list_remove(&oldest->report.abandoned);
  core->abandoned_count--;
  if (!oldest->report.summary_only) core->abandoned_whole--;
  berthi_down(&core->counters.held, 1);
  return oldest;
}

void berthi_abandon_locked(berthi_core *core, berth_attempt *attempt) {
  uint32_t max = bound(core->options.abandoned_max), detail = bound(core->options.abandoned_detail);
  berthi_up(&core->counters.abandoned, 1);
  if (max == 0 || berthi_stat_load(&core->users) == 0) {  // nobody is left to take it
    berthi_up(&core->counters.overflowed, 1);
    return;
  }
  if (core->abandoned_count == max) {
    berth_attempt *oldest = pop_locked(core);
    berthi_up(&core->counters.overflowed, 1);
    berthi_list_append(&core->keeper_notes, &oldest->overflow_note.link);  // its last reference may free it: not under the lock
    oldest->overflow_note.run = berthi_abandoned_overflow;
    berthi_event_set(&core->keeper_wake);
  }
  berthi_attempt_retain(attempt);  // the queue's reference
  berthi_list_append(&core->abandoned, &attempt->report.abandoned);
  core->abandoned_count++;
  core->abandoned_whole++;
  berthi_up(&core->counters.held, 1);
  if (core->abandoned_whole > detail) drop_detail_locked(core);
}

void berthi_abandoned_overflow(berthi_note *note) { berthi_attempt_unref(BERTHI_CONTAINER(note, berth_attempt, overflow_note)); }

uint32_t berth_session_take_abandoned(berth_session *session, berth_report **out_reports, uint32_t max) {
  if (!session || !out_reports) return 0;
  berthi_core *core = berthi_core_of_session(session);
  if (berthi_core_forked(core)) return 0;
  uint32_t taken = 0;
  berthi_after after;
  berthi_lock(core, &after);
  while (taken < max && !berthi_list_empty(&core->abandoned)) {
    out_reports[taken++] = &pop_locked(core)->report;  // with the queue's reference
    berthi_up(&core->counters.taken, 1);
  }
  berthi_unlock(core, &after);
  return taken;
}

void berthi_abandoned_drop_locked(berthi_core *core, berthi_link *gone) {
  while (!berthi_list_empty(&core->abandoned)) {
    berthi_list_append(gone, &pop_locked(core)->report.abandoned);
    berthi_up(&core->counters.overflowed, 1);
  }
}

void berthi_abandoned_free(berthi_link *gone) {
  while (!berthi_list_empty(gone)) {
    berth_attempt *attempt = attempt_of(gone->next);
    berthi_list_remove(gone->next);
    berthi_attempt_unref(attempt);
  }
}
