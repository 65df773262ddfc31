// SPDX-License-Identifier: Apache-2.0
/// Reports and completions: the one immutable account of an attempt, and the counted receivers of it.
#ifndef BERTH_RUNTIME_REPORT_H
#define BERTH_RUNTIME_REPORT_H

#include "berth/device.h"
#include "berth/runtime/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_report berth_report;
typedef struct berth_completion berth_completion;

/// How far planning came (ATT-5).
typedef enum berth_disposition {
  BERTH_UNPLANNED = 0,
  BERTH_FALLBACK = 1,
  BERTH_PARTIAL = 2,
  BERTH_NATIVE = 3
} berth_disposition;

/// How the attempt ended (ATT-5).
typedef enum berth_outcome {
  BERTH_SUCCEEDED = 0,
  BERTH_FAILED = 1,
  BERTH_OUTCOME_CANCELLED = 2,
  BERTH_DROPPED = 3,
  BERTH_CRASHED = 4
} berth_outcome;

/// What waits for what: bits of why a request queued (ADM-9).
enum {
  BERTH_WHY_BYTES = 1u << 0,
  BERTH_WHY_LANES = 1u << 1,
  BERTH_WHY_SLOTS = 1u << 2,
  BERTH_WHY_ORDER = 1u << 3,
  BERTH_WHY_GROUP = 1u << 4,
  BERTH_WHY_HEALTH = 1u << 5
};

/// What became of the device memory.
typedef enum berth_cleanup { BERTH_CLEANUP_NONE = 0, BERTH_CLEANUP_PROVEN = 1, BERTH_CLEANUP_FAILED = 2 } berth_cleanup;
/// Who owns the grant after the clean-up.
typedef enum berth_capacity {
  BERTH_CAPACITY_NONE = 0,     ///< Nothing was granted.
  BERTH_CAPACITY_RETURNED = 1, ///< Free for the next.
  BERTH_CAPACITY_WITHHELD = 2, ///< Kept back until the device is healthy.
  BERTH_CAPACITY_LEAKED = 3
} berth_capacity;

#define BERTH_REPORT_QUERY_ID 257
#define BERTH_NO_DEVICE UINT32_MAX
#define BERTH_NO_TIME INT64_MIN

/// The report in numbers. Times are berth_now values; a boundary that was not crossed is BERTH_NO_TIME.
typedef struct berth_report_info {
  size_t struct_size;
  uint64_t attempt_id;
  uint64_t execution_id;
  uint64_t generation;              ///< Of the backend.
  char query_id[BERTH_REPORT_QUERY_ID]; ///< Empty when none was given.
  char group[64];                   ///< Empty for the default group.
  berth_disposition disposition;
  berth_outcome outcome;
  berth_error cause;                ///< First cause; code 0 after a success. Work that did not settle has failed, whatever its user said.
  berth_retry retry;                ///< Advice.
  berth_cancel_cause cancel_cause;
  int64_t begun_at, plan_started_at, plan_finished_at, submitted_at, granted_at, taken_at, cancelled_at, released_at, sealed_at;
  int64_t wall_begun_at;            ///< Nanoseconds since the Unix epoch.
  uint32_t why_queued;              ///< BERTH_WHY_ bits; 0 when it never queued.
  int64_t queued_for;
  uint32_t overtakes;
  uint32_t device;                  ///< Index really used, or BERTH_NO_DEVICE.
  char device_name[BERTH_DEVICE_NAME];
  uint32_t lanes;
  uint64_t bytes_granted, bytes_peak, bytes_held; ///< Held: still charged when the work ended, freed by the clean-up.
  uint64_t operations, bytes_moved, fragments;
  char plan[96];                    ///< Short name of the plan that ran (EXE-4).
  int64_t cancel_latency;           ///< From cancel to credited memory; BERTH_NO_TIME when not cancelled.
  berth_cleanup cleanup;
  berth_capacity capacity;
  berth_health health_after;
  uint32_t events, events_lost;
  bool summary_only;                ///< Detail was dropped from the abandoned queue.
} berth_report_info;
#define BERTH_REPORT_INFO_INIT BERTH_SIZED(berth_report_info)

/// A recorded event.
typedef struct berth_event {
  int64_t time;
  const char *name; ///< Static or owned by the report.
  int64_t value;
} berth_event;

/// Owns: adds one reference. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_report *berth_report_retain(berth_report *report);
/// Owns: takes one reference; NULL is a no-op. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_report_release(berth_report *report);

/// Fills the report's numbers. A sealed report never changes, save that detail may be dropped while it lies abandoned.
///
/// Owns: borrows. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT. Since: 0.1
BERTH_API berth_status berth_report_get(const berth_report *report, berth_report_info *out_info, berth_error *err);

/// Fills recorded event `index` (0 to events - 1).
///
/// Owns: borrows; the name lives as long as the report. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT `invalid_argument` (names the bound). Since: 0.1
BERTH_API berth_status berth_report_event(const berth_report *report, uint32_t index, berth_event *out_event, berth_error *err);

/// Writes the report as JSON, schema "berth.report", version 1, additive only (REP-1). Buffer rules as berth_error_json.
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API size_t berth_report_json(const berth_report *report, char *buffer, size_t capacity);

/// Owns: adds one counted receiver. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_completion *berth_completion_retain(berth_completion *completion);

/// Owns: takes one counted receiver; NULL is a no-op. Cancels nothing. A report whose last receiver goes before sealing is abandoned (ATT-6).
/// Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_completion_release(berth_completion *completion);

/// Gives the report when it is sealed.
///
/// Owns: returns one report reference. Threads: any. Blocks: never. Fails: NOT_FOUND `not_ready`; FAILED_PRECONDITION `forked`. Since: 0.1
BERTH_API berth_status berth_completion_poll(berth_completion *completion, berth_report **out_report, berth_error *err);

/// Waits for the report.
///
/// Owns: returns one report reference. Threads: any. Blocks: until sealed or `deadline`.
/// Fails: DEADLINE_EXCEEDED `wait_timeout`; ABORTED `contended` on the notifier thread, `would_deadlock` on the thread that runs the attempt's scoped
/// entry; FAILED_PRECONDITION `forked`. Since: 0.1
BERTH_API berth_status berth_completion_wait(berth_completion *completion, int64_t deadline, berth_report **out_report, berth_error *err);

/// Runs after the report is visible: on the thread that finished the attempt when that is the user's, else on the notifier thread. Once.
typedef void (*berth_completion_fn)(void *arg, berth_report *report);

/// Asks to be told when the report is sealed: the descriptor (an eventfd, or -1) gets the 8 byte value 1 once; the callback (or NULL) runs once, also
/// when asked late. One notification per attempt and kind.
///
/// Owns: borrows `fd` and `arg` until the notification; the callback borrows the report. Threads: any. Blocks: never.
/// Fails: FAILED_PRECONDITION `already_taken` for a second one; `forked`. Since: 0.1
BERTH_API berth_status berth_completion_notify(berth_completion *completion, int fd, berth_completion_fn fn, void *arg, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
