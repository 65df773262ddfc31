// SPDX-License-Identifier: Apache-2.0
/// The keeper's timers: an intrusive pairing heap under the admission lock. Arming never allocates, and a timer that is disarmed under the lock does not
/// fire: firing happens under the same lock.
#include "runtime/core.h"

static berthi_timer *meld(berthi_timer *a, berthi_timer *b) {
  if (!a) return b;
  if (!b) return a;
  if (b->at < a->at) {
    berthi_timer *swap = a;
    a = b;
    b = swap;
  }
  b->prev = a;
  b->next = a->child;
  if (a->child) a->child->prev = b;
  a->child = b;
  return a;
}

static berthi_timer *meld_children(berthi_timer *first) {
  berthi_timer *pairs = NULL;
  while (first) {  // pass one: meld in pairs, stacked through `next`
    berthi_timer *a = first, *b = a->next;
    first = b ? b->next : NULL;
    a->next = a->prev = NULL;
    if (b) b->next = b->prev = NULL;
    berthi_timer *pair = meld(a, b);
    pair->next = pairs;
    pairs = pair;
  }
  berthi_timer *root = NULL;
  while (pairs) {  // pass two: meld from the right
    berthi_timer *rest = pairs->next;
    pairs->next = NULL;
    root = meld(root, pairs);
    pairs = rest;
  }
  return root;
}

static void unlink_timer(berthi_core *core, berthi_timer *timer) {
  berthi_timer *merged = meld_children(timer->child);
  timer->child = NULL;
  if (timer == core->timers) {
    core->timers = merged;
  } else {
    if (timer->prev->child == timer) timer->prev->child = timer->next;
    else timer->prev->next = timer->next;
    if (timer->next) timer->next->prev = timer->prev;
    core->timers = meld(core->timers, merged);
  }
  if (core->timers) core->timers->prev = core->timers->next = NULL;
  timer->prev = timer->next = NULL;
  timer->armed = false;
}

void berthi_timer_arm_locked(berthi_core *core, berthi_timer *timer, int64_t at) {
  if (timer->armed) unlink_timer(core, timer);
  if (at == BERTH_NO_DEADLINE) return;
  timer->at = at;
  timer->child = timer->next = timer->prev = NULL;
  timer->armed = true;
  core->timers = meld(core->timers, timer);
  core->timers->prev = core->timers->next = NULL;
  if (at < core->keeper_next) {
    core->keeper_next = at;
    berthi_event_set(&core->keeper_wake);
  }
}

void berthi_timer_disarm_locked(berthi_core *core, berthi_timer *timer) {
  if (timer->armed) unlink_timer(core, timer);
}

int64_t berthi_timers_run_locked(berthi_core *core, int64_t now) {
  while (core->timers && core->timers->at <= now) {
    berthi_timer *due = core->timers;
    unlink_timer(core, due);
    due->fire(core, due, now);
  }
  core->keeper_next = core->timers ? core->timers->at : BERTH_NO_DEADLINE;
  return core->keeper_next;
}
