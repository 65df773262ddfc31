// SPDX-License-Identifier: Apache-2.0
/// Attempts: one try at executing one query or program. The owner handle alone can end it.
#ifndef BERTH_RUNTIME_ATTEMPT_H
#define BERTH_RUNTIME_ATTEMPT_H

#include "berth/runtime/report.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_attempt berth_attempt;

/// Options of an attempt (ATT-3).
typedef struct berth_attempt_options {
  size_t struct_size;
  const char *query_id;      ///< 1 to 256 bytes of UTF-8, not blank; NULL: none. Copied.
  const char *trace_context; ///< 1 to 1024 bytes, not blank (a W3C traceparent, for one); NULL: none. Copied.
  const char *group;         ///< NULL: the default group, which has no limits. Copied.
  int64_t deadline;          ///< Absolute; 0 or BERTH_NO_DEADLINE: none.
  uint32_t max_events;       ///< Recorded events kept, at most 65536. Default 0: none.
} berth_attempt_options;
#define BERTH_ATTEMPT_OPTIONS_INIT BERTH_SIZED(berth_attempt_options)

/// Begins an attempt: takes an observation permit on the gate, which is the linearization against close (ATT-1).
///
/// Owns:    borrows all; returns the owner handle.
/// Threads: any. Blocks: never.
/// Fails:   CANCELLED `backend_closing`, `backend_closed`; INVALID_ARGUMENT (too long or blank: refused, never cut); RESOURCE_EXHAUSTED
///          `host_exhausted`, `group_limit`; FAILED_PRECONDITION `forked`. A loser leaves nothing counted.
/// Since:   0.1
BERTH_API berth_status berth_session_begin_attempt(berth_session *session, const berth_attempt_options *options, berth_attempt **out_attempt,
                                                   berth_error *err);

/// Returns the number of the attempt, unique in the process; never 0.
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API uint64_t berth_attempt_id(const berth_attempt *attempt);

/// Gives the attempt's cancel token.
///
/// Owns: returns one reference. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_cancel *berth_attempt_cancel_token(berth_attempt *attempt);

/// Tells that planning starts. Refused when the backend is closing: end the attempt then; its report says unplanned with `backend_closing` (SES-4).
///
/// Owns: borrows. Threads: the owner's. Blocks: never.
/// Fails: CANCELLED `backend_closing`, `cancelled`; DEADLINE_EXCEEDED; FAILED_PRECONDITION `already_terminal`, `forked`. Since: 0.1
BERTH_API berth_status berth_attempt_plan_started(berth_attempt *attempt, berth_error *err);

/// Tells that planning ended with a disposition, and names the plan (at most 95 bytes are kept; NULL: none). A later call replaces it, until an
/// execution is taken.
///
/// Owns: borrows. Threads: the owner's. Blocks: never. Fails: INVALID_ARGUMENT; FAILED_PRECONDITION `already_terminal`, `forked`. Since: 0.1
BERTH_API berth_status berth_attempt_plan_finished(berth_attempt *attempt, berth_disposition disposition, const char *plan, berth_error *err);

/// Records an event; beyond `max_events` it is counted as lost. `name` (at most 31 bytes are kept) is copied.
///
/// Owns: borrows. Threads: any that holds the owner or its execution. Blocks: never. Since: 0.1
BERTH_API void berth_attempt_record(berth_attempt *attempt, const char *name, int64_t value);

/// Gives a counted receiver of the report.
///
/// Owns: returns one receiver. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_completion *berth_attempt_completion(berth_attempt *attempt);

/// Ends the attempt with an outcome and, for failures, a cause (NULL: none). The first terminal decision wins. Once an admission was submitted its
/// execution or refusal decides; before that decision this call records the outcome and cancels, and sealing follows the release (ATT-4).
///
/// Owns: borrows; the handle stays valid until released. Threads: the owner's. Blocks: never.
/// Fails: FAILED_PRECONDITION `already_terminal`; INVALID_ARGUMENT (outcomes dropped and crashed are not for callers); `forked`. Since: 0.1
BERTH_API berth_status berth_attempt_finish(berth_attempt *attempt, berth_outcome outcome, const berth_error *cause, berth_error *err);

/// Releases the owner handle; an attempt that has not ended ends as dropped.
///
/// Owns: takes; NULL is a no-op. Threads: the owner's. Blocks: never. Since: 0.1
BERTH_API void berth_attempt_release(berth_attempt *attempt);

#ifdef __cplusplus
}
#endif
#endif
