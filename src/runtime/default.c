// SPDX-License-Identifier: Apache-2.0
/// The process's shared default backend.
#include "runtime/core.h"

static struct {
  berthi_mutex lock;
  berthi_atomic32 epoch; ///< fork epoch for which `lock` and `backend` are valid; 0: not yet, UINT32_MAX: being made so
  berth_backend *backend;
} shared;

// In a forked child the lock may be held for ever and the backend is void: both begin anew.
static void enter_epoch(void) {
  uint32_t now = berthi_fork_epoch();
  for (;;) {
    uint32_t seen = berthi_load(&shared.epoch, acquire);
    if (seen == now) return;
    if (seen == UINT32_MAX) {
      berthi_thread_yield();
      continue;
    }
    if (!berthi_cas(&shared.epoch, &seen, UINT32_MAX, acq_rel)) continue;
    berthi_mutex_init(&shared.lock, BERTHI_RANK_DEFAULT);
    shared.backend = NULL;
    berthi_store(&shared.epoch, now, release);
  }
}

berth_status berth_backend_default(berth_backend **out_backend, berth_error *err) {
  if (!out_backend) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_backend must not be NULL");
  berth_status status = BERTH_OK;
  berth_backend *closed = NULL;
  enter_epoch();
  berthi_mutex_lock(&shared.lock);
  if (shared.backend && berthi_gate_is_closed(&berthi_core_of_backend(shared.backend)->gate)) {
    closed = shared.backend;
    shared.backend = NULL;
  }
  if (!shared.backend) status = berth_backend_open(NULL, &shared.backend, err);
  if (!status) *out_backend = berth_backend_retain(shared.backend);
  berthi_mutex_unlock(&shared.lock);
  berth_backend_release(closed);
  return status;
}
