// SPDX-License-Identifier: Apache-2.0
/// Children of an execution, for threads that the user's code started (RUN-5).
///
/// A family is shared by the root and its children. Its word counts the children's threads inside a call; the end of the root sets the ENDED bit and waits for
/// those to leave, so a child that outlives its root answers `execution_released` and touches nothing.
#include "runtime/core.h"

static void family_unref(berthi_family *family) {
  if (berthi_ref_down(&family->refs)) berthi_free(family);
}

berth_status berth_exec_child(berth_exec *exec, berth_exec **out_child, berth_error *err) {
  if (!out_child) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_child must not be NULL");
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berth_status status = BERTH_OK;
  berth_exec *root = exec->root;
  berthi_family *family = exec->family;
  berth_exec *child = berthi_alloc(sizeof *child);
  if (child && !family) {  // only the root's one user makes the first
    family = berthi_alloc(sizeof *family);
    if (family) {
      berthi_stat_store(&family->refs, 1);
      berthi_event_init(&family->idle);
      family->root = root;
      root->family = family;
    }
  }
  if (!child || !family) {
    berthi_free(child);
    status = berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a child execution of %zu bytes", sizeof *child);
  } else {
    berthi_ref_up(&family->refs);
    child->core = exec->core;
    child->epoch = exec->epoch;
    child->id = root->id;
    child->root = root;
    child->family = family;
    child->on_heap = true;
    berthi_core_retain(child->core);
    *out_child = child;
  }
  berthi_exec_leave(exec);
  return status;
}

static bool family_enter(berthi_family *family) {
  uint32_t seen = berthi_load(&family->word, acquire);
  while (!(seen & BERTHI_FAMILY_ENDED)) {
    if (berthi_cas(&family->word, &seen, seen + 1, acq_rel)) return true;  // against berthi_family_end
  }
  return false;
}

static void family_leave(berthi_family *family) {
  if (berthi_sub(&family->word, 1, acq_rel) == (BERTHI_FAMILY_ENDED | 1)) berthi_event_set(&family->idle);
}

berth_status berthi_exec_enter(berth_exec *exec, berth_error *err) {
  BERTHI_TRY(berthi_exec_usable(exec, err));
  if (BERTHI_LIKELY(exec->root == exec)) return BERTH_OK;
  if (family_enter(exec->family)) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_EXECUTION_RELEASED, "execution %llu has ended before its child", (unsigned long long)exec->id);
}

void berthi_exec_leave(berth_exec *exec) {
  if (exec->root != exec) family_leave(exec->family);
}

void berthi_family_close(berth_exec *root) {
  berthi_family *family = root->family;
  if (berthi_or(&family->word, BERTHI_FAMILY_ENDED, acq_rel) != 0) (void)berthi_event_wait(&family->idle, BERTH_NO_DEADLINE, "execution.children");
  root->family = NULL;
  family_unref(family);
}

void berthi_child_release(berth_exec *child) {
  berthi_core *core = child->core;
  if (family_enter(child->family)) {  // what it counted goes to its root
    (void)__atomic_fetch_add(&child->root->operations, child->operations, __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(&child->root->bytes_moved, child->bytes_moved, __ATOMIC_RELAXED);
    family_leave(child->family);
  }
  family_unref(child->family);
  berthi_free(child);
  berthi_core_release(core);
}
