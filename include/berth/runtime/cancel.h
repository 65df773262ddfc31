// SPDX-License-Identifier: Apache-2.0
/// Cancel tokens: irreversible, one per attempt or made by the caller and named in requests (ATT-7).
#ifndef BERTH_RUNTIME_CANCEL_H
#define BERTH_RUNTIME_CANCEL_H

#include "berth/runtime/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_cancel berth_cancel;

/// What firing a token did.
typedef enum berth_cancel_result {
  BERTH_CANCEL_FIRED = 0,            ///< It is cancelled now (or was before).
  BERTH_CANCEL_ALREADY_FINISHED = 1, ///< The attempt's report is sealed.
  BERTH_CANCEL_TOO_LATE = 2          ///< The outcome is decided, the report not yet sealed.
} berth_cancel_result;

/// Why a token is fired. The caller outranks the deadline, the deadline the close.
typedef enum berth_cancel_cause {
  BERTH_CANCEL_NONE = 0,
  BERTH_CANCEL_BY_CALLER = 1,
  BERTH_CANCEL_BY_DEADLINE = 2,
  BERTH_CANCEL_BY_CLOSE = 3
} berth_cancel_cause;

/// Runs when the token fires, at most once, on the backend's notifier thread (USR-2), where a call that would wait answers `contended`.
typedef void (*berth_cancel_fn)(void *arg, berth_cancel_cause cause);

/// Makes a token that requests and scoped entries can name; one token may serve many.
///
/// Owns:    borrows the session; returns one reference. Threads: any. Blocks: never.
/// Fails:   RESOURCE_EXHAUSTED `host_exhausted`; FAILED_PRECONDITION `forked`. Since: 0.1
BERTH_API berth_status berth_cancel_create(berth_session *session, berth_cancel **out_cancel, berth_error *err);

/// Owns: adds one reference. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_cancel *berth_cancel_retain(berth_cancel *cancel);

/// Owns: takes one reference; NULL is a no-op. Never fires. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_cancel_release(berth_cancel *cancel);

/// Fires the token and says what happened. Never stops another attempt. Queued requests leave the queue at once.
///
/// Owns: borrows. Threads: any; not from a signal handler. Blocks: never; no user code runs on this stack. Since: 0.1
BERTH_API berth_cancel_result berth_cancel_fire(berth_cancel *cancel);

/// Returns why the token is fired, or BERTH_CANCEL_NONE.
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_cancel_cause berth_cancel_check(const berth_cancel *cancel);

/// Hooks a callback to the token, to interrupt a guest engine. One hook at a time; NULL unhooks, after which the callback does not start any
/// more and is not running (called on its own notifier thread it only unhooks). Hooked late, it runs all the same.
///
/// Owns:    borrows `arg` until unhooked or run. Threads: any. Blocks: to unhook, until a running callback has returned.
/// Fails:   FAILED_PRECONDITION `forked`. A second hook replaces the first. Since: 0.1
BERTH_API berth_status berth_cancel_hook(berth_cancel *cancel, berth_cancel_fn fn, void *arg, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
