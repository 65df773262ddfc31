// SPDX-License-Identifier: Apache-2.0
/// The backend: owner of a set of devices in this process.
#ifndef BERTH_RUNTIME_BACKEND_H
#define BERTH_RUNTIME_BACKEND_H

#include "berth/device.h"
#include "berth/runtime/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Severity of a log record.
typedef enum berth_log_level { BERTH_LOG_INFO = 0, BERTH_LOG_WARNING = 1, BERTH_LOG_ERROR = 2 } berth_log_level;

/// Receives log records. May be called from any thread of the library with no lock held; must not call into the backend.
typedef void (*berth_log_fn)(void *arg, berth_log_level level, const char *message);
/// Receives the begin and the end of each named phase ("admit", "queue", "execute", "settle", "seal", "cleanup"...). As berth_log_fn.
typedef void (*berth_trace_fn)(void *arg, const char *phase, bool begin, uint64_t id, int64_t time);

#define BERTH_NONE_U32 UINT32_MAX ///< For fields where 0 means the default: none at all.

/// Options of a backend. A field that is 0 means its default. Spans are nanoseconds.
typedef struct berth_backend_options {
  size_t struct_size;
  const berth_device_options *devices; ///< Borrowed during the call. Default: one device "cpu:0".
  uint32_t device_count;               ///< 0 with devices NULL: the default. At most BERTH_DEVICES_MAX.
  uint32_t max_queued;                 ///< Requests from submission to grant, all groups. Default 1024, at most 1048576.
  uint32_t max_queued_per_group;       ///< Default of each named group. Default 64.
  uint32_t max_groups;                 ///< Named groups. Default 64, at most 4096.
  uint32_t max_bypass;                 ///< Overtakes before a waiter may become a barrier. Default 16 (ADM-6).
  uint32_t abandoned_detail;           ///< Abandoned reports kept whole. Default 64; BERTH_NONE_U32: none.
  uint32_t abandoned_max;              ///< Abandoned reports kept in all. Default 1024; BERTH_NONE_U32: no queue.
  uint32_t probe_limit;                ///< Failed probes after which a device is lost. Default 3.
  int64_t queue_deadline;              ///< Span after which a queued request of an attempt expires. Default 30 s.
  int64_t aging_interval;              ///< One step of priority is worth this much waiting. Default 1 s.
  int64_t bypass_after;                ///< Waiting before a waiter may become a barrier. Default 100 ms.
  int64_t telemetry_interval;          ///< Default 1 s; negative: telemetry is not read.
  int64_t telemetry_stale;             ///< Age after which a sample says so. Default 5 s.
  int64_t suspect_limit;               ///< Longest stay in SUSPECT. Default 1 s, at most 1 s.
  int64_t probe_interval;              ///< Pause before a probe of a quarantined device. Default 1 s.
  int64_t cleanup_limit;               ///< A device whose clean-up at close takes longer counts as leaked until it ends. Default 5 s.
  berth_log_fn log;                    ///< NULL: none.
  berth_trace_fn trace;                ///< NULL: none.
  void *observer_arg;                  ///< For log and trace.
} berth_backend_options;
#define BERTH_BACKEND_OPTIONS_INIT BERTH_SIZED(berth_backend_options)

/// Opens a backend: validates the options whole (BCK-1), leases each device by its stable identity (BCK-2), starts them, and publishes the
/// backend once each device's startup record matches its profile (BCK-3). Starts a keeper, a notifier, a telemetry thread and one thread per device.
///
/// Owns:    borrows `options`; returns one reference, given up with berth_backend_release.
/// Threads: any.
/// Blocks:  while the devices start.
/// Fails:   INVALID_ARGUMENT `invalid_configuration` (facts and message name field, value and bound); ALREADY_EXISTS `backend_already_live` (facts
///          holder, generation, state: 0 live, 1 draining, 2 leaked); NOT_FOUND `unknown_device`; UNAVAILABLE `device_unavailable`; INTERNAL
///          `profile_mismatch`, `limit_unknown`; RESOURCE_EXHAUSTED `host_exhausted`, `thread_unavailable`. Everything taken is given back; the fact
///          `rollback_quiescent` is 1 when that had ended before the return (BCK-4).
/// Source:  BCK-1 to BCK-5.
/// Since:   0.1
BERTH_API berth_status berth_backend_open(const berth_backend_options *options, berth_backend **out_backend, berth_error *err);

/// Gives the process's shared default backend: cpu:0 with all defaults, opened at first use, opened anew when it was closed.
///
/// Owns:    returns one reference; the process keeps another one, so releasing it does not close the backend.
/// Threads: any.
/// Blocks:  as berth_backend_open, at first use.
/// Fails:   as berth_backend_open.
/// Since:   0.1
BERTH_API berth_status berth_backend_default(berth_backend **out_backend, berth_error *err);

/// Retains a backend: one more handle.
///
/// Owns:    adds one reference. Threads: any holder of a reference. Blocks: never. Since: 0.1
BERTH_API berth_backend *berth_backend_retain(berth_backend *backend);

/// Releases a handle. The last one signals close exactly as berth_backend_close does, and never waits (BCK-5).
///
/// Owns:    takes one reference; NULL is a no-op; a no-op in a forked child. Threads: any, callbacks included. Blocks: never. Since: 0.1
BERTH_API void berth_backend_release(berth_backend *backend);

/// Gives a session: the weak capability on this backend.
///
/// Owns:    returns one session reference, given up with berth_session_release; it never keeps a device owned (SES-1).
/// Threads: any holder of the backend. Blocks: never. Since: 0.1
BERTH_API berth_session *berth_backend_session(berth_backend *backend);

/// Signals close: an atomic gate. Queued requests end as closed, running executions finish. Idempotent, from anywhere.
///
/// Owns:    borrows; handles stay valid. Threads: any, callbacks and destructors included. Blocks: never. Source: CLS-1. Since: 0.1
BERTH_API void berth_backend_close(berth_backend *backend);

/// State of a backend's life (CLS-1).
typedef enum berth_close_state {
  BERTH_STATE_OPEN = 0,
  BERTH_STATE_CLOSING = 1,
  BERTH_STATE_DEVICES_QUIESCENT = 2,
  BERTH_STATE_CLOSED = 3
} berth_close_state;

/// Phase of an attempt that still holds something.
typedef enum berth_phase {
  BERTH_PHASE_OPEN = 0,     ///< Begun, not submitted.
  BERTH_PHASE_QUEUED = 1,
  BERTH_PHASE_GRANTED = 2,  ///< Granted, not taken.
  BERTH_PHASE_RUNNING = 3,
  BERTH_PHASE_RELEASING = 4
} berth_phase;

/// One remaining holder.
typedef struct berth_holder {
  uint64_t attempt_id; ///< 0: a scoped entry without a report.
  uint64_t execution_id;
  berth_phase phase;
  uint32_t device;
  uint32_t lanes;
  uint64_t bytes;
  int64_t age; ///< Nanoseconds since it began this phase's hold.
} berth_holder;

/// Evidence of a close. `holders` is the caller's array of `holder_capacity` elements, or NULL.
typedef struct berth_close_report {
  size_t struct_size;
  berth_close_state state;
  uint64_t active_observation_permits;
  uint64_t active_device_permits;
  uint64_t queued_ended;             ///< Waiters that close ended.
  uint64_t late_successes;           ///< Clean-ups that succeeded after a waiter's deadline or after their limit.
  uint64_t deadlines_elapsed;        ///< Waits whose deadline passed.
  uint64_t activity_leases_pending;  ///< Destructors that have not returned.
  uint64_t devices_leaked;           ///< Bit i: device i.
  uint64_t devices_released;         ///< Bit i: the lease of device i is free again.
  uint64_t bytes_held;               ///< Promised to the remaining holders.
  uint64_t bytes_leaked;             ///< On leaked devices.
  uint32_t holders_total;
  uint32_t holder_count;             ///< Filled.
  uint32_t holder_capacity;          ///< In.
  berth_holder *holders;             ///< In.
} berth_close_report;
#define BERTH_CLOSE_REPORT_INIT BERTH_SIZED(berth_close_report)

/// Signals close and waits until the backend is CLOSED or the deadline passes; fills the report in both cases. A later call can still succeed.
/// At `cancel_at` (BERTH_NO_DEADLINE: never) what still runs is cancelled.
///
/// Owns:    borrows. Threads: any but those named under Fails.
/// Blocks:  until CLOSED or `deadline`; the one absolute deadline covers locks, wait and clean-up.
/// Fails:   DEADLINE_EXCEEDED `wait_timeout`; ABORTED `would_deadlock` inside a callback, an entry or a child of this backend (nothing is waited
///          for, the signal is given all the same); FAILED_PRECONDITION `forked`.
/// Source:  CLS-2 to CLS-4. Since: 0.1
BERTH_API berth_status berth_backend_close_wait(berth_backend *backend, int64_t deadline, int64_t cancel_at, berth_close_report *out_report,
                                                berth_error *err);

/// Fills the close report as it is now, without signalling or waiting.
///
/// Owns:    borrows. Threads: any. Blocks: never longer than a few microseconds under the admission lock.
/// Fails:   INVALID_ARGUMENT; FAILED_PRECONDITION `forked`. Since: 0.1
BERTH_API berth_status berth_backend_close_state(berth_backend *backend, berth_close_report *out_report, berth_error *err);

/// Seals as `crashed` what a longjmp over an entry of the calling thread has lost, and gives its grants back.
///
/// Threads: the thread that lost the entry. Blocks: as the release of an execution.
/// Fails:   FAILED_PRECONDITION `forked`. Returns in `out_healed` (may be NULL) how many entries it healed. Source: USR-1. Since: 0.1
BERTH_API berth_status berth_backend_heal(berth_backend *backend, uint32_t *out_healed, berth_error *err);

/// Waits until no backend of this process holds the lease of a device.
///
/// Owns:    borrows the name ("cpu:0"). Threads: any. Blocks: until free or `deadline`.
/// Fails:   DEADLINE_EXCEEDED `wait_timeout` (facts as backend_already_live); NOT_FOUND `unknown_device`. Source: BCK-2. Since: 0.1
BERTH_API berth_status berth_lease_wait(const char *device, int64_t deadline, berth_error *err);

/// Frees the lease of a leaked device. Whoever calls states that nothing uses it; `who` is logged and kept in the record of the next holder.
///
/// Owns:    borrows. Threads: any. Blocks: never.
/// Fails:   FAILED_PRECONDITION `not_leaked` when the lease is live, draining or free; NOT_FOUND `unknown_device`. Source: BCK-2. Since: 0.1
BERTH_API berth_status berth_lease_force(const char *device, const char *who, berth_error *err);

/// Takes a device out of service by hand. Running executions go on; waiters without another device end refused.
///
/// Owns:    borrows. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT; CANCELLED `backend_closing`, `backend_closed`; FAILED_PRECONDITION
/// `device_state` from LOST and RESTART_REQUIRED. Source: HLT-1. Since: 0.1
BERTH_API berth_status berth_device_quarantine(berth_backend *backend, uint32_t device, berth_error *err);

/// Puts a quarantined or lost device back into service, by hand: a probe runs first, on the device's own thread.
///
/// Owns:    borrows. Threads: any. Blocks: never (watch the health in the metrics).
/// Fails:   as berth_device_quarantine; FAILED_PRECONDITION `device_state` from OK, SUSPECT, PROBING and RESTART_REQUIRED. Since: 0.1
BERTH_API berth_status berth_device_restore(berth_backend *backend, uint32_t device, berth_error *err);

/// Charges (or credits, negative) bytes that others in the process hold on a device to the class `external`. It lowers what admission can
/// promise and stops new grants before it breaks old ones (LED-5).
///
/// Owns:    borrows. Threads: any. Blocks: never.
/// Fails:   INVALID_ARGUMENT (no such device, or more credited than was charged); CANCELLED `backend_closing`, `backend_closed`. Since: 0.1
BERTH_API berth_status berth_device_charge(berth_backend *backend, uint32_t device, int64_t bytes, berth_error *err);

#define BERTH_GROUP_NAME 64
#define BERTH_UNLIMITED_U64 UINT64_MAX

/// Limits and use of a group (ADM-12). In limits 0 means the default: unlimited, for `max_queued` the backend's max_queued_per_group.
typedef struct berth_group_limits {
  size_t struct_size;
  uint32_t max_queued;
  uint32_t max_active;
  uint32_t max_lanes;
  uint64_t max_bytes;
  // Use, filled by berth_group_get, ignored by berth_group_set:
  uint32_t queued;
  uint32_t active;
  uint32_t lanes;
  uint64_t bytes;
} berth_group_limits;
#define BERTH_GROUP_LIMITS_INIT BERTH_SIZED(berth_group_limits)

/// Sets the limits of a group, made at first use. What is queued or running stays; a raised limit reruns the scan.
///
/// Owns:    borrows. Threads: any. Blocks: never.
/// Fails:   INVALID_ARGUMENT (name empty or over 63 bytes); RESOURCE_EXHAUSTED `group_limit`; CANCELLED `backend_closing`. Since: 0.1
BERTH_API berth_status berth_group_set(berth_backend *backend, const char *name, const berth_group_limits *limits, berth_error *err);

/// Fills limits and use of a group.
///
/// Owns:    borrows. Threads: any. Blocks: never. Fails: NOT_FOUND `unknown_group`. Since: 0.1
BERTH_API berth_status berth_group_get(berth_backend *backend, const char *name, berth_group_limits *out_limits, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
