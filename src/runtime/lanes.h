// SPDX-License-Identifier: Apache-2.0
/// Lane sets inside the runtime (RUN-3).
#ifndef BERTHI_LANES_H
#define BERTHI_LANES_H

#include "berth/runtime/lanes.h"
#include "runtime/core.h"

struct berth_lanes {
  // Constant after creation.
  berthi_core *core; ///< one memory reference
  uint32_t device;
  berthi_lanemask mask; ///< empty for a caller-managed set
  berth_executor_fn executor;
  void *executor_arg;
  uint32_t executor_lanes;
  // Atomic.
  berthi_atomic32 busy; ///< a caller-managed set takes one entry at a time
  berthi_atomic32 refs;
};

berth_lanes *berthi_lanes_retain(berth_lanes *lanes);

/// Enters a caller-managed set; false when it is in use (`contended`). A managed set is always free to enter: its lanes are in the ledger.
bool berthi_lanes_try_enter(berth_lanes *lanes);
/// Leaves it again; a no-op for a managed set.
/// Enters the set of a request when it is one of the caller's; `out_entered` then owes a leave. Fails: `contended`.
berth_status berthi_lanes_enter(berth_lanes *lanes, bool *out_entered, berth_error *err);
void berthi_lanes_leave(berth_lanes *lanes);
/// The caller's executor, or NULL for a managed set.
berth_executor_fn berthi_lanes_executor(const berth_lanes *lanes, void **out_arg, uint32_t *out_lanes);

#endif
