// SPDX-License-Identifier: Apache-2.0
/// The scoped door: admit, call back, release.
#ifndef BERTH_RUNTIME_RUN_H
#define BERTH_RUNTIME_RUN_H

#include "berth/runtime/admission.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What runs inside the entry, once, on the calling thread, with no lock held. Its value comes back untouched.
typedef intptr_t (*berth_run_fn)(berth_exec *exec, void *arg);

/// Options of a scoped entry. A field that is 0 means its default.
typedef struct berth_run_options {
  size_t struct_size;
  uint64_t bytes;         ///< As berth_request.
  uint32_t lanes;
  uint32_t capabilities;
  uint64_t devices;
  int32_t priority;
  int64_t deadline;       ///< Absolute, for waiting and running; 0: none (a scoped entry has no queue deadline of its own).
  berth_cancel *cancel;   ///< Borrowed during the call.
  berth_lanes *lane_set;  ///< Borrowed during the call.
  berth_cache *cache;     ///< The cached form (RUN-4); it differs in cache access only. Borrowed during the call.
  const char *group;
  bool report;            ///< The entry is an attempt and its report comes back in the result.
  const char *query_id;   ///< With `report`.
  const char *trace_context; ///< With `report`.
  uint32_t max_events;    ///< With `report`.
} berth_run_options;
#define BERTH_RUN_OPTIONS_INIT BERTH_SIZED(berth_run_options)

/// Three results that are kept apart (RUN-1): the returned status is the entry's; `value` is what fn returned; `cleanup` is the clean-up's.
typedef struct berth_run_result {
  size_t struct_size;
  bool ran;              ///< fn was called (and returned).
  intptr_t value;        ///< Of fn; 0 when it did not run.
  berth_status cleanup;  ///< OK, or what the release met (a device fault, an affinity that could not be restored).
  berth_error cleanup_error;
  berth_report *report;  ///< With options.report: one reference, the caller's to release; also after a refusal.
} berth_run_result;
#define BERTH_RUN_RESULT_INIT BERTH_SIZED(berth_run_result)

/// Admits, runs fn(exec, arg) once on the calling thread, and releases. Admission is complete before fn starts; fn never runs after a failed
/// admission, is never retried, and its failure is never reported as the entry's.
///
/// Owns:    borrows all; fills `out_result` (may be NULL; then no report is asked for).
/// Threads: any. Blocks: until lanes, bytes and a slot are given back by others, first in, first out for lanes, or until the deadline.
/// Fails:   FAILED_PRECONDITION `reentered`, `incompatible_context`, `resource_poisoned`, `executor`, `device_quarantined`, `forked`; ABORTED
///          `contended` (it would wait on a thread of the library, or a caller-managed lane set is in use); and the reasons of berth_session_admit.
/// Source:  RUN-1 to RUN-6. Since: 0.1
BERTH_API berth_status berth_run(berth_session *session, const berth_run_options *options, berth_run_fn fn, void *arg, berth_run_result *out_result,
                                 berth_error *err);

/// Admits like berth_run and gives the execution to hold: many scoped calls (berth_exec_run) without another admission. Ended by
/// berth_exec_finish or berth_exec_release.
///
/// With `report` the execution is an attempt whose report nobody receives: it goes to the abandoned queue. To receive it, use the asynchronous door.
///
/// Owns: borrows; returns the execution. Threads: any. Blocks, Fails: as berth_run. Source: RUN-5. Since: 0.1
BERTH_API berth_status berth_exec_hold(berth_session *session, const berth_run_options *options, berth_exec **out_exec, berth_error *err);

/// Calls fn(exec, arg) as a scoped entry inside an execution that is held or taken: the same guards against re-entry, no admission.
///
/// Owns: borrows. Threads: one at a time. Blocks: never. Fails: `reentered`, `resource_poisoned`, `concurrent_use`, `execution_released`, `forked`;
/// `cancelled`, `deadline_exceeded` before fn. Since: 0.1
BERTH_API berth_status berth_exec_run(berth_exec *exec, berth_run_fn fn, void *arg, intptr_t *out_value, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
