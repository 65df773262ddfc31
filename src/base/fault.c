// SPDX-License-Identifier: Apache-2.0
/// Fault points. Hooks are set while nothing else runs (tests); fault points are passed by any thread.
#include "base/annotate.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/memory.h"

// The argument is stored before the hook (release) and read after it (acquire).
static _Atomic(berthi_fault_hook) active_hook;
static _Atomic(void *) active_arg;

// One plan at a time; its counters are statistics, the decision is each call's own number.
static struct {
  _Atomic uint32_t kind;
  _Atomic uint64_t nth;
  _Atomic uint64_t calls;
  atomic_bool sticky;
} plan;

void berthi_fault_set_hook(berthi_fault_hook hook, void *arg) {
  atomic_store_explicit(&active_arg, arg, memory_order_relaxed);
  atomic_store_explicit(&active_hook, hook, memory_order_release);
}

static BERTHI_COLD bool ask_hook(berthi_fault kind, const char *where) {
  berthi_fault_hook hook = atomic_load_explicit(&active_hook, memory_order_acquire);
  return hook != NULL && hook(atomic_load_explicit(&active_arg, memory_order_relaxed), kind, where);
}

bool berthi_fault_fires(berthi_fault kind, const char *where) {
  if (BERTHI_LIKELY(atomic_load_explicit(&active_hook, memory_order_relaxed) == NULL)) return false;
  return ask_hook(kind, where);
}

static bool plan_hook(void *arg, berthi_fault kind, const char *where) {
  (void)arg;
  (void)where;
  if ((uint32_t)kind != atomic_load_explicit(&plan.kind, memory_order_relaxed)) return false;
  uint64_t call = atomic_fetch_add_explicit(&plan.calls, 1, memory_order_relaxed) + 1;
  uint64_t nth = atomic_load_explicit(&plan.nth, memory_order_relaxed);
  return call == nth || (call > nth && nth != 0 && atomic_load_explicit(&plan.sticky, memory_order_relaxed));
}

void berthi_fault_plan(berthi_fault kind, uint64_t nth, bool sticky) {
  atomic_store_explicit(&plan.kind, (uint32_t)kind, memory_order_relaxed);
  atomic_store_explicit(&plan.nth, nth, memory_order_relaxed);
  atomic_store_explicit(&plan.sticky, sticky, memory_order_relaxed);
  atomic_store_explicit(&plan.calls, 0, memory_order_relaxed);
  berthi_fault_set_hook(plan_hook, NULL);
}

uint64_t berthi_fault_plan_end(void) {
  berthi_fault_set_hook(NULL, NULL);
  return atomic_load_explicit(&plan.calls, memory_order_relaxed);
}
