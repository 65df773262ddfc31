// SPDX-License-Identifier: Apache-2.0
/// Executions: what their user may do with them. The end of one is in release.c, growth in grow.c, children in child.c.
#include "runtime/core.h"
#include "runtime/exec_ops.h"
#include "runtime/lanes.h"

void berthi_exec_prepare(berth_exec *exec, berthi_core *core, berth_attempt *attempt, berthi_request *request, int64_t deadline) {
  exec->core = core;
  exec->root = exec;
  exec->family = NULL;
  exec->attempt = attempt;
  exec->request = request;
  exec->cache = NULL;
  exec->id = 0;
  exec->deadline = deadline;
  exec->epoch = core->epoch;
  berthi_stat_store(&exec->user, 0);
  berthi_stat_store(&exec->user_entry, 0);
  berthi_stat_store(&exec->ended, 0);
  berthi_stat_store(&exec->charged, 0);
  exec->operations = exec->bytes_moved = exec->fragments = 0;
  exec->operation = NULL;
  exec->affinity.narrowed = false;
  exec->follower = (berthi_follower){0};
  exec->since = 0;
  exec->link = exec->grow_link = (berthi_link){NULL, NULL};
  exec->timer = (berthi_timer){0};
  berthi_stat_store(&exec->grow_state, 0);
  exec->on_heap = false;
}

void berthi_exec_granted(berth_exec *exec) {
  berthi_domain_init(&exec->domain, exec->core->devices[exec->grant.device].device, exec->grant.bytes);
  exec->fragments = 1;
}

static berth_status cancelled_error(const berth_exec *exec, uint32_t cause, berth_error *err) {
  unsigned long long id = (unsigned long long)exec->root->id;
  if (cause == BERTH_CANCEL_BY_DEADLINE) return berthi_fail(err, BERTHI_R_DEADLINE_EXCEEDED, "the deadline of execution %llu has passed", id);
  if (cause == BERTH_CANCEL_BY_CALLER) return berthi_fail(err, BERTHI_R_ATTEMPT_CANCELLED, "execution %llu", id);
  return berthi_fail(err, BERTHI_R_BACKEND_CLOSING, "the close of the backend cancels execution %llu", id);
}

static uint32_t cancel_cause(const berth_exec *exec) {
  berth_exec *root = exec->root;
  uint32_t cause = berthi_stat_load(&root->cancel);  // relaxed: an operation may notice it a moment later
  if (BERTHI_UNLIKELY(!cause && berthi_stat_load(&root->core->cancel_all))) cause = BERTH_CANCEL_BY_CLOSE;
  return cause;
}

uint32_t berthi_exec_end_cause(berth_exec *exec, berth_error *why) {
  uint32_t cause = cancel_cause(exec);
  if (BERTHI_LIKELY(!cause)) return BERTH_CANCEL_NONE;
  if (cause == BERTH_CANCEL_BY_CLOSE && exec->attempt) (void)berthi_cancel_raise(&exec->attempt->cancel, BERTH_CANCEL_BY_CLOSE);  // `cancel_all` is no token
  (void)cancelled_error(exec, cause, why);
  return cause;
}

berth_status berthi_exec_usable(const berth_exec *exec, berth_error *err) {
  if (!exec) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "exec must not be NULL");
  if (BERTHI_UNLIKELY(exec->epoch != berthi_fork_epoch())) return berthi_core_check_fork(exec->core, err);
  if (BERTHI_UNLIKELY(berthi_stat_load(&((berth_exec *)(uintptr_t)exec)->ended))) {
    return berthi_fail(err, BERTHI_R_EXECUTION_RELEASED, "execution %llu has ended", (unsigned long long)exec->id);
  }
  return BERTH_OK;
}

void berthi_exec_cancel(berth_exec *exec, berth_cancel_cause cause) {
  uint32_t seen = berthi_load(&exec->cancel, seq_cst);
  while (seen == BERTH_CANCEL_NONE || cause < seen) {
    if (berthi_cas(&exec->cancel, &seen, cause, seq_cst)) break;  // before the look at the request's state: pairs with berthi_submit_locked
  }
  if (berthi_load(&exec->grow_state, acquire) == 1) {
    berthi_after after;
    berthi_lock(exec->core, &after);
    if (berthi_load(&exec->grow_state, acquire) == 1) {
      berthi_grow_end_locked(exec->core, exec, 3 + (cause == BERTH_CANCEL_BY_DEADLINE ? BERTHI_R_DEADLINE_EXCEEDED : BERTHI_R_ATTEMPT_CANCELLED));
      berthi_scan_locked(exec->core);
    }
    berthi_unlock(exec->core, &after);
  }
}

// A child's root is touched between these two only.
static berth_status enter_const(const berth_exec *exec, berth_error *err) { return berthi_exec_enter((berth_exec *)(uintptr_t)exec, err); }
static void leave_const(const berth_exec *exec) { berthi_exec_leave((berth_exec *)(uintptr_t)exec); }

berth_status berth_exec_get_info(const berth_exec *exec, berth_exec_info *out_info, berth_error *err) {
  BERTHI_TRY(enter_const(exec, err));
  berth_exec *root = exec->root;
  berth_exec_info info = {
      .struct_size = sizeof info,
      .execution_id = root->id,
      .attempt_id = root->attempt ? root->attempt->id : 0,
      .device = root->grant.device,
      .lanes = root->grant.lanes,
      .grant_bytes = berthi_stat_load(&root->domain.limit),
      .used_bytes = berthi_stat_load(&root->domain.used),
      .peak_bytes = berthi_stat_load(&root->domain.peak),
      .operations = root->operations,
      .bytes_moved = root->bytes_moved,
      .deadline = root->deadline,
  };
  leave_const(exec);
  return berthi_output_copy(out_info, &info, sizeof info, "berth_exec_info", err);
}

berth_status berth_exec_alloc(berth_exec *exec, uint64_t bytes, void **out_memory, berth_error *err) {
  if (!out_memory) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_memory must not be NULL");
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berth_exec *root = exec->root;
  berth_status status = root->core->devices[root->grant.device].kind->alloc(&root->domain, bytes, out_memory, err);
  berthi_exec_leave(exec);
  return status;
}

void berth_exec_free(berth_exec *exec, void *memory) {
  if (!memory || berthi_exec_enter(exec, NULL)) return;
  berth_exec *root = exec->root;
  root->core->devices[root->grant.device].kind->free(&root->domain, memory);
  berthi_exec_leave(exec);
}

berth_status berth_exec_charge(berth_exec *exec, int64_t bytes, berth_error *err) {
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berth_status status = BERTH_OK;
  berthi_domain *domain = &exec->root->domain;
  if (bytes >= 0) {
    status = berthi_domain_charge(domain, (uint64_t)bytes, err);
    if (!status) (void)berthi_add(&exec->root->charged, (uint64_t)bytes, acq_rel);
  } else {
    uint64_t charged = berthi_load(&exec->root->charged, acquire), give, asked = bytes == INT64_MIN ? (uint64_t)INT64_MAX : (uint64_t)-bytes;
    do {
      give = asked < charged ? asked : charged;  // what is charged, never what is allocated
    } while (!berthi_cas(&exec->root->charged, &charged, charged - give, acq_rel));
    berthi_domain_credit(domain, give);
  }
  berthi_exec_leave(exec);
  return status;
}

static berth_status check_entered(const berth_exec *exec, berth_error *err) {
  uint32_t cause = cancel_cause(exec);
  return BERTHI_LIKELY(!cause) ? BERTH_OK : cancelled_error(exec, cause, err);
}

berth_status berth_exec_join_fragment(berth_exec *exec, uint32_t capabilities, berth_error *err) {
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berth_exec *root = exec->root;
  const berthi_device_slot *slot = &root->core->devices[root->grant.device];
  uint32_t lacking = capabilities & ~slot->capabilities;
  berth_status status = lacking ? berthi_fail(err, BERTHI_R_CAPABILITY_UNSUPPORTED, "%s lacks the capabilities %#x of the fragment", slot->startup.name, lacking)
                                : check_entered(exec, err);
  if (!status) root->fragments++;
  berthi_exec_leave(exec);
  return status;
}

berth_status berth_exec_check(const berth_exec *exec, berth_error *err) {
  BERTHI_TRY(enter_const(exec, err));
  berth_status status = check_entered(exec, err);
  leave_const(exec);
  return status;
}

berth_status berth_exec_synchronize(berth_exec *exec, berth_error *err) {
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berth_exec *root = exec->root;
  const berthi_device_kind *kind = root->core->devices[root->grant.device].kind;
  berth_status status = kind->settle ? kind->settle(&root->domain, err) : BERTH_OK;
  berthi_exec_leave(exec);
  return status;
}

berth_status berthi_exec_op_begin(berth_exec *exec, const char *name, berth_error *err) {
  BERTHI_TRY(berth_exec_check(exec, err));
  uint64_t me = berthi_thread_self()->id, user = berthi_stat_load(&exec->user);
  if (BERTHI_UNLIKELY(user != 0)) {  // EXE-1: seen where it can be seen, hence no atomic swap
    return berthi_fail(err, BERTHI_R_CONCURRENT_USE, "thread %llu is inside %s of execution %llu; give each thread a child", (unsigned long long)user,
                       exec->operation ? exec->operation : "an operation", (unsigned long long)exec->id);
  }
  BERTHI_TRY(berthi_exec_enter(exec, err));
  berthi_stat_store(&exec->user, me);
  exec->operation = name;
  return BERTH_OK;
}

void berthi_exec_op_end(berth_exec *exec, uint64_t bytes_read, uint64_t bytes_written) {
  exec->operations++;
  exec->bytes_moved += bytes_read + bytes_written;
  berthi_stat_store(&exec->user, 0);
  berthi_exec_leave(exec);
}

bool berthi_exec_cancelled(const berth_exec *exec) { return cancel_cause(exec) != 0; }

uint32_t berthi_exec_lanes(const berth_exec *exec) { return exec->root->grant.lanes ? exec->root->grant.lanes : 1; }

// What the lanes of one parallel call share.
typedef struct laned {
  berth_exec *exec;
  berthi_exec_body body;
  void *arg;
  berthi_atomic64 skipped;
} laned;

// A task on a lane: inside it, an entry of this backend on the lane's thread would be a re-entry.
static void lane_task(void *arg, uint64_t i) {
  laned *work = arg;
  if (BERTHI_UNLIKELY(cancel_cause(work->exec))) {  // EXE-3; on the caller's own threads nobody else looks
    berthi_stat_add(&work->skipped, 1);
    return;
  }
  berthi_thread_state *self = berthi_thread_self();
  void *outer = self->callback_backend;
  self->callback_backend = work->exec->core;
  work->body(work->arg, i);
  self->callback_backend = outer;
}

static berth_status run_alone(berth_exec *exec, uint64_t count, berthi_exec_body body, void *arg, berth_error *err) {
  for (uint64_t i = 0; i < count; i++) {
    uint32_t cause = cancel_cause(exec);
    if (BERTHI_UNLIKELY(cause)) return cancelled_error(exec, cause, err);
    body(arg, i);
  }
  return BERTH_OK;
}

static berth_status run_on_executor(berth_exec *exec, const berth_lanes *set, uint64_t count, laned *work, berth_error *err) {
  void *executor_arg = NULL;
  uint32_t executor_lanes = 0;
  berth_executor_fn executor = berthi_lanes_executor(set, &executor_arg, &executor_lanes);
  if (executor_lanes <= 1) return run_alone(exec, count, work->body, work->arg, err);
  if (!berthi_user_execute(exec->core, executor, executor_arg, count, lane_task, work)) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_EXECUTOR, "the caller's executor refused %llu tasks", (unsigned long long)count);
}

berth_status berthi_exec_parallel(berth_exec *exec, uint64_t count, berthi_exec_body body, void *arg, berth_error *err) {
  berth_exec *root = exec->root;
  const berth_lanes *set = root->request->lane_set;
  laned work = {.exec = exec, .body = body, .arg = arg};
  if (berthi_lanes_caller_managed(set) && count > 1) {
    BERTHI_TRY(run_on_executor(exec, set, count, &work, err));
  } else if (root->grant.lanes > 1 && count > 1) {
    berthi_parallel parallel = {.count = count, .body = lane_task, .arg = &work, .cancel = &root->cancel};
    const berthi_device_slot *slot = &root->core->devices[root->grant.device];
    slot->kind->parallel(slot->device, &root->grant.mask, &parallel);
    if (BERTHI_UNLIKELY(parallel.skipped)) return cancelled_error(exec, cancel_cause(exec), err);
  } else {
    return run_alone(exec, count, body, arg, err);
  }
  return BERTHI_LIKELY(!berthi_stat_load(&work.skipped)) ? BERTH_OK : cancelled_error(exec, cancel_cause(exec), err);
}
