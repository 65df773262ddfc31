// SPDX-License-Identifier: Apache-2.0
/// An execution without a runtime, for tests of kernels and tensors: a byte limit, exact accounting, failures and cancels on demand, and tasks
/// in the order that the test asks for.
#ifndef FAKE_EXEC_H
#define FAKE_EXEC_H

#include "runtime/exec_ops.h"

typedef enum fake_order { FAKE_FORWARD, FAKE_BACKWARD, FAKE_THREADS } fake_order;

struct berth_exec {
  uint64_t limit;
  uint64_t used;
  uint64_t peak;
  uint64_t blocks; // live
  uint64_t allocations;
  uint64_t fail_at; // this allocation fails, from 1; 0 none
  uint64_t operations;
  uint64_t open_operations;
  uint64_t bytes_moved;
  uint64_t tasks;
  uint64_t cancel_after; // tasks until the execution is cancelled; 0 never
  bool cancelled;
  uint32_t lanes;
  fake_order order;
};

void fake_exec_init(berth_exec *exec, uint64_t limit);
/// Nothing is left: no blocks, no bytes, no open operation.
bool fake_exec_is_clean(const berth_exec *exec);

#endif
