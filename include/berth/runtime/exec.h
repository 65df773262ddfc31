// SPDX-License-Identifier: Apache-2.0
/// The admitted execution: the only thing an operation accepts (EXE-0).
///
/// An execution belongs to its attempt, not to a thread. One thread at a time uses it; use by two at once is reported as `concurrent_use`,
/// where it can be seen. Threads that the user's code starts get child executions.
#ifndef BERTH_RUNTIME_EXEC_H
#define BERTH_RUNTIME_EXEC_H

#include "berth/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_exec berth_exec;
typedef struct berth_backend berth_backend;
typedef struct berth_session berth_session;

/// What was granted, and what is in use of it.
typedef struct berth_exec_info {
  size_t struct_size;
  uint64_t execution_id;    ///< Number of the execution in its backend's generation.
  uint64_t attempt_id;      ///< 0 for a scoped entry without a report.
  uint32_t device;          ///< Index of the device in the backend.
  uint32_t lanes;           ///< Lanes promised.
  uint64_t grant_bytes;     ///< Bytes promised now (after shrink and grow).
  uint64_t used_bytes;      ///< Allocated and charged now.
  uint64_t peak_bytes;      ///< Highest value of used_bytes.
  uint64_t operations;      ///< Operations begun.
  uint64_t bytes_moved;     ///< Bytes that operations read and wrote.
  int64_t deadline;         ///< Of the attempt; BERTH_NO_DEADLINE when there is none.
} berth_exec_info;
#define BERTH_EXEC_INFO_INIT BERTH_SIZED(berth_exec_info)

/// Fills `out_info` with the grant and its use.
///
/// Owns:    borrows.
/// Threads: the one that uses the execution.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT; FAILED_PRECONDITION `execution_released`, `forked`.
/// Since:   0.1
BERTH_API berth_status berth_exec_get_info(const berth_exec *exec, berth_exec_info *out_info, berth_error *err);

/// Allocates `bytes` of the device's memory inside the grant, 64-byte aligned, contents undefined. 0 bytes gives a valid unique pointer.
///
/// Owns:    returns the block; what is not freed returns when the execution ends.
/// Threads: the one that uses the execution or a child of it.
/// Blocks:  never.
/// Fails:   RESOURCE_EXHAUSTED `grant_exhausted` (over the grant; names asked and left), `device_exhausted` (the device itself, LED-2);
///          FAILED_PRECONDITION `execution_released`, `forked`.
/// Since:   0.1
BERTH_API berth_status berth_exec_alloc(berth_exec *exec, uint64_t bytes, void **out_memory, berth_error *err);

/// Frees a block of berth_exec_alloc of the same execution (or of its children); NULL is a no-op.
///
/// Owns:    takes the block.
/// Threads: as berth_exec_alloc.
/// Blocks:  never.
/// Since:   0.1
BERTH_API void berth_exec_free(berth_exec *exec, void *memory);

/// Charges (or credits, negative) bytes that a guest library allocates for this execution, so that it runs under its promise (LED-5). A credit
/// of more than is charged credits what is there.
///
/// Owns:    borrows. Threads: any that may use the execution or a child of it, several at once. Blocks: never.
/// Fails:   RESOURCE_EXHAUSTED `grant_exhausted`; FAILED_PRECONDITION `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_charge(berth_exec *exec, int64_t bytes, berth_error *err);

/// Gives back what is above `bytes`, at once, down to what is in use (LED-3).
///
/// Owns:    borrows; returns the new grant in `out_grant` (may be NULL). Threads: the one that uses the execution. Blocks: never.
/// Fails:   `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_shrink(berth_exec *exec, uint64_t bytes, uint64_t *out_grant, berth_error *err);

/// Raises the grant by `bytes`; waits for others to give back, before every admission (LED-3).
///
/// Owns:    borrows. Threads: the one that uses the execution. Blocks: until granted or `deadline`.
/// Fails:   ABORTED `would_deadlock` (the growing executions wait for each other and this is the youngest; it keeps what it has: release, spill or run
///          alone), `contended` on the notifier thread; OUT_OF_RANGE `request_exceeds_device`; DEADLINE_EXCEEDED `wait_timeout`, `deadline_exceeded`;
///          CANCELLED `cancelled`; FAILED_PRECONDITION `device_quarantined`, `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_grow(berth_exec *exec, uint64_t bytes, int64_t deadline, berth_error *err);

/// Joins a later fragment to the grant: its device must have the capabilities; queue and ledger do not change (ADM-11).
///
/// Owns: borrows. Threads: the one that uses the execution. Blocks: never. Fails: UNIMPLEMENTED `capability_unsupported`; `cancelled`,
/// `deadline_exceeded`; `execution_released`, `forked`. Works while the backend closes. Since: 0.1
BERTH_API berth_status berth_exec_join_fragment(berth_exec *exec, uint32_t capabilities, berth_error *err);

/// Tells whether the execution is cancelled or past its deadline; call it in long loops of your own.
///
/// Owns: borrows. Threads: any. Blocks: never; reads no clock. Fails: CANCELLED `cancelled`, `backend_closing` (cancelled by the close);
/// DEADLINE_EXCEEDED; `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_check(const berth_exec *exec, berth_error *err);

/// Waits until everything the execution queued on its device has ended.
///
/// Owns: borrows. Threads: the one that uses the execution. Blocks: until settled. Fails: INTERNAL `device_fault`; `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_synchronize(berth_exec *exec, berth_error *err);

/// Gives a child execution, for a thread that the user's code started: it works under the same grant and never waits for admission (RUN-5).
///
/// Owns: returns the child; release it before the execution ends. A child used later answers `execution_released`.
/// Threads: any that may use the execution. Blocks: never. Fails: `host_exhausted`; `execution_released`, `forked`. Since: 0.1
BERTH_API berth_status berth_exec_child(berth_exec *exec, berth_exec **out_child, berth_error *err);

/// Ends the execution with an outcome (BERTH_SUCCEEDED, BERTH_FAILED or BERTH_OUTCOME_CANCELLED of report.h) and a cause (NULL: none): the work settles,
/// the report is sealed, then the capacity is free (EXE-2). Takes the handle, also on failure.
///
/// Owns: takes. Threads: the one that uses the execution. Blocks: until the device has settled. Fails: the clean-up's error (the execution has ended all
/// the same); INVALID_ARGUMENT for an outcome that is not for callers (ends as failed). Since: 0.1
BERTH_API berth_status berth_exec_finish(berth_exec *exec, int outcome, const berth_error *cause, berth_error *err);

/// Releases the handle: an execution ends as dropped, a child just ends.
///
/// Owns: takes; NULL is a no-op. Threads: the one that uses it. Blocks: as berth_exec_finish. Since: 0.1
BERTH_API void berth_exec_release(berth_exec *exec);

#ifdef __cplusplus
}
#endif
#endif
