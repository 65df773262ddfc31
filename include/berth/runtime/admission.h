// SPDX-License-Identifier: Apache-2.0
/// Admission: the asynchronous door to an execution.
#ifndef BERTH_RUNTIME_ADMISSION_H
#define BERTH_RUNTIME_ADMISSION_H

#include "berth/runtime/attempt.h"
#include "berth/runtime/backend.h"
#include "berth/runtime/lanes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_admission berth_admission;

/// A request (ADM-3). A field that is 0 means its default.
typedef struct berth_request {
  size_t struct_size;
  uint64_t bytes;            ///< Never clamped. Default: the default grant of the device that is chosen.
  uint32_t lanes;            ///< Promised. Default 1.
  uint32_t capabilities;     ///< BERTH_CAP_ bits the device must have.
  uint64_t devices;          ///< Allowed devices, bit i for device i. Default: all.
  int32_t priority;          ///< One step is worth one aging_interval of waiting; -1000 to 1000. Default 0.
  int64_t queue_deadline;    ///< Absolute; 0: now + the backend's queue_deadline; BERTH_NO_DEADLINE: none.
  berth_cancel *cancel;      ///< A token that cancels this request and its execution as well as the attempt's own; NULL: none. Retained.
  berth_lanes *lane_set;     ///< Lanes to choose from; NULL: all lanes of the device. Retained.
  void *activity;            ///< Opaque lease of the caller, released last of all with `activity_release(activity)` (ADM-2).
  void (*activity_release)(void *activity); ///< May close the backend. NULL: none.
} berth_request;
#define BERTH_REQUEST_INIT BERTH_SIZED(berth_request)

/// Submits the attempt's one admission. A grant that is possible at once is made at once. Never queues what can never fit.
///
/// Owns:    borrows the attempt and the request; returns the admission. On failure (a refusal ends the attempt, which seals its report) there is none,
///          and the activity lease is released.
/// Threads: the attempt's owner. Blocks: never.
/// Fails:   UNAVAILABLE `admission_queue_full`, `backend_unhealthy`; OUT_OF_RANGE `request_exceeds_device`; UNIMPLEMENTED `capability_unsupported`;
///          FAILED_PRECONDITION `device_quarantined`, `already_admitted`, `already_terminal`, `incompatible_context`, `forked`; CANCELLED
///          `backend_closing`, `backend_closed`, `cancelled`; DEADLINE_EXCEEDED; INVALID_ARGUMENT.
/// Since:   0.1
BERTH_API berth_status berth_session_admit(berth_session *session, berth_attempt *attempt, const berth_request *request,
                                           berth_admission **out_admission, berth_error *err);

/// State of an admission (ADM-1).
typedef enum berth_admission_state {
  BERTH_ADMISSION_NEW = 0,
  BERTH_ADMISSION_QUEUED = 1,
  BERTH_ADMISSION_GRANTED = 2,
  BERTH_ADMISSION_REFUSED = 3,
  BERTH_ADMISSION_CANCELLED = 4,
  BERTH_ADMISSION_EXPIRED = 5,
  BERTH_ADMISSION_CLOSED = 6,
  BERTH_ADMISSION_TAKEN = 7,
  BERTH_ADMISSION_RETURNED = 8
} berth_admission_state;

/// Returns the state; fills `err` with the refusal when there is one. Repeats the same answer (ADM-10).
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_admission_state berth_admission_poll(berth_admission *admission, berth_error *err);

/// Waits for the decision. A wait that times out does not expire the request (ADM-5).
///
/// Owns: borrows. Threads: any. Blocks: until decided or `deadline`.
/// Fails: the refusal's code and reason; DEADLINE_EXCEEDED `wait_timeout`; ABORTED `contended` on the notifier thread when it would wait;
/// FAILED_PRECONDITION `forked`. OK: granted (or taken). Since: 0.1
BERTH_API berth_status berth_admission_wait(berth_admission *admission, int64_t deadline, berth_error *err);

typedef void (*berth_admission_fn)(void *arg, berth_admission_state state);

/// Asks to be told of the decision: the descriptor (an eventfd, or -1) gets the 8 byte value 1 once, after the decision is visible; the callback (or
/// NULL) runs once, also when asked late, on the notifier thread (ADM-10).
///
/// Owns: borrows `fd` and `arg` until told. Threads: any. Blocks: never. Fails: FAILED_PRECONDITION `already_taken` for a second one; `forked`. Since: 0.1
BERTH_API berth_status berth_admission_notify(berth_admission *admission, int fd, berth_admission_fn fn, void *arg, berth_error *err);

/// Cancels the request: queued it leaves the queue, granted and untaken it returns the grant. Answers as berth_cancel_fire.
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_cancel_result berth_admission_cancel(berth_admission *admission);

/// Why a request waits (ADM-9).
typedef struct berth_why {
  size_t struct_size;
  uint32_t mask;            ///< BERTH_WHY_ bits; 0 when it does not wait.
  uint32_t ahead;           ///< Waiters with an earlier key.
  uint32_t overtakes;
  uint32_t bypass_limit;    ///< max_bypass.
  bool barrier;
  int64_t waited;
  int64_t expires_at;
  uint32_t holders_total;   ///< Executions that hold what it waits for.
  uint32_t holder_count;    ///< Filled.
  uint32_t holder_capacity; ///< In.
  berth_holder *holders;    ///< In; the caller's array.
} berth_why;
#define BERTH_WHY_INIT BERTH_SIZED(berth_why)

/// Tells why the request waits, with who holds what it waits for.
///
/// Owns: borrows. Threads: any. Blocks: never longer than a scan under the admission lock. Fails: INVALID_ARGUMENT; `forked`. Since: 0.1
BERTH_API berth_status berth_admission_why(berth_admission *admission, berth_why *out_why, berth_error *err);

/// Takes the granted execution; succeeds once.
///
/// Owns: returns the execution; the admission handle stays valid until released. Threads: any. Blocks: never.
/// Fails: FAILED_PRECONDITION `not_granted`, `already_taken`, `forked`, or the refusal. Since: 0.1
BERTH_API berth_status berth_admission_take(berth_admission *admission, berth_exec **out_exec, berth_error *err);

/// Releases the admission: a waiter is cancelled, an untaken grant returned, a taken execution goes on.
///
/// Owns: takes; NULL is a no-op. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_admission_release(berth_admission *admission);

#ifdef __cplusplus
}
#endif
#endif
