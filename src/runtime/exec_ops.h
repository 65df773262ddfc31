// SPDX-License-Identifier: Apache-2.0
/// What an operation may do with an execution: memory, lanes, cancellation, accounting. The rooms to the right (kernels' callers, tensor) use
/// this header and the public one; they see nothing else of the runtime.
#ifndef BERTHI_EXEC_OPS_H
#define BERTHI_EXEC_OPS_H

#include "berth/runtime/exec.h"

/// Begins an operation on the execution: checks that the handle is usable by this thread (EXE-1), cancellation and deadline (EXE-3), and counts
/// it. Every operation calls this first and `berthi_exec_op_end` last, on every path after a success. `name` is a static string.
/// Fails: CANCELLED cancelled, DEADLINE_EXCEEDED, concurrent_use, execution_released, forked.
berth_status berthi_exec_op_begin(berth_exec *exec, const char *name, berth_error *err);
void berthi_exec_op_end(berth_exec *exec, uint64_t bytes_read, uint64_t bytes_written);

/// True when the execution should stop at the next chunk. One relaxed load; call it between chunks of at most a few milliseconds.
bool berthi_exec_cancelled(const berth_exec *exec);

/// Lanes granted (at least 1).
uint32_t berthi_exec_lanes(const berth_exec *exec);

/// Runs body(arg, i) for each i in [0, count) on the granted lanes, the caller included; returns when all ran or were skipped after a cancel.
/// Tasks are taken in order from a shared counter: what one task computes must depend on i alone (EXE-4).
/// Fails: CANCELLED or DEADLINE_EXCEEDED when tasks were skipped.
typedef void (*berthi_exec_body)(void *arg, uint64_t i);
berth_status berthi_exec_parallel(berth_exec *exec, uint64_t count, berthi_exec_body body, void *arg, berth_error *err);

#endif
