// SPDX-License-Identifier: Apache-2.0
/// The session: a cheap, clonable, weak capability on a backend. And what can be read through it: metrics, diagnostics, telemetry.
///
/// Holding a session never keeps a device owned (SES-1). After close, identity, is_closing, same_backend, describe, metrics, counters, take_abandoned
/// and startup records still answer with final values; begin, admit, run, diagnostics and telemetry fail (SES-3).
#ifndef BERTH_RUNTIME_SESSION_H
#define BERTH_RUNTIME_SESSION_H

#include "berth/runtime/attempt.h"
#include "berth/runtime/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Clones the session. Owns: adds one reference. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_session *berth_session_retain(berth_session *session);
/// Owns: takes one reference; NULL is a no-op. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_session_release(berth_session *session);

/// Who this backend is.
typedef struct berth_identity {
  uint64_t backend_id; ///< Unique in the process.
  uint64_t generation; ///< Rises with each backend opened in the process.
  int32_t process;     ///< Process that opened it.
} berth_identity;

/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_identity berth_session_identity(const berth_session *session);

/// Returns whether close has been signalled (true in a forked child). An early exit only: the gate decides (SES-4).
///
/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API bool berth_session_is_closing(const berth_session *session);

/// Returns whether both sessions belong to the same backend. Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API bool berth_session_same_backend(const berth_session *a, const berth_session *b);

/// Writes a line for debugging. Buffer rules as berth_error_json. Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API size_t berth_session_describe(const berth_session *session, char *buffer, size_t capacity);

/// What a device reported when it started.
typedef struct berth_startup_record {
  size_t struct_size;
  char name[BERTH_DEVICE_NAME];
  char model[64];
  char identity[BERTH_DEVICE_IDENTITY];
  uint64_t total_bytes, capacity_bytes, cache_bytes, reserve_bytes, library_bytes, default_grant_bytes;
  uint32_t lanes, slots, capabilities;
  uint64_t generation;
  int64_t open_nanoseconds;
  char limit_source[96];
  char forced_by[64]; ///< Who forced the lease before this backend took it; empty otherwise.
} berth_startup_record;
#define BERTH_STARTUP_RECORD_INIT BERTH_SIZED(berth_startup_record)

/// Fills the startup record of device `device`; answers after close, too (BCK-3).
///
/// Owns: borrows. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT (names the number of devices). Since: 0.1
BERTH_API berth_status berth_session_startup_record(const berth_session *session, uint32_t device, berth_startup_record *out_record, berth_error *err);

#define BERTH_WAIT_BUCKETS 16 ///< Upper bounds 1 us x 4^i for i in 0..14, then the rest.

/// Distribution of a time.
typedef struct berth_distribution {
  uint64_t buckets[BERTH_WAIT_BUCKETS];
  uint64_t count, sum, max; ///< Nanoseconds.
} berth_distribution;

/// One device in a metrics snapshot. The classes of bytes sum to capacity_bytes + reserve_bytes + library_bytes (LED-4).
typedef struct berth_device_metrics {
  uint64_t total_bytes; ///< The sum of the classes.
  uint64_t grant_bytes, resident_bytes, cache_bytes, library_bytes, reserve_bytes, leaked_bytes, withheld_bytes, external_bytes, free_bytes;
  uint64_t query_limit_bytes; ///< Q.
  uint64_t cache_limit_bytes; ///< K.
  uint32_t active, slots, lanes_promised, lanes;
  berth_health health;
  uint64_t grants, quarantines, faults;
} berth_device_metrics;

/// Refusals are counted by these reasons.
typedef enum berth_refusal {
  BERTH_REFUSED_QUEUE_FULL,
  BERTH_REFUSED_EXCEEDS_DEVICE,
  BERTH_REFUSED_CAPABILITY,
  BERTH_REFUSED_QUARANTINED,
  BERTH_REFUSED_UNHEALTHY,
  BERTH_REFUSED_OTHER,
  BERTH_REFUSAL_KINDS
} berth_refusal;

/// A coherent snapshot (MET-1). Laws that hold inside it:
///   begun = sealed + open
///   submitted = granted + expired + cancelled + refused + closed + queued
///   promised_bytes = sum of the devices' grant_bytes
///   sealed = delivered + taken + held + overflowed
typedef struct berth_metrics {
  size_t struct_size;
  uint64_t sequence;   ///< Rises with each change.
  uint64_t backend_id, generation;
  uint64_t begun, sealed, open;
  uint64_t submitted, granted, expired, cancelled, refused, closed, queued;
  uint64_t live_grants, promised_bytes;
  uint64_t delivered, taken, held, overflowed;
  uint64_t outcomes[5];       ///< By berth_outcome; their sum is `sealed`.
  uint64_t dispositions[4];   ///< By berth_disposition; their sum is `sealed`.
  uint64_t refusals[BERTH_REFUSAL_KINDS]; ///< Their sum is `refused`.
  uint64_t queue_high_watermark, overtakes, overtakes_max;
  uint64_t grows, grows_refused, shrinks, cancels, quarantines, crashes_healed;
  berth_distribution wait;           ///< Submission to grant, of all grants.
  berth_distribution cancel_latency; ///< Cancel to credited memory.
  berth_distribution duration;       ///< Begin to seal, of all attempts.
  uint32_t device_count;
  uint32_t device_capacity;      ///< In.
  berth_device_metrics *devices; ///< In: the caller's array, or NULL.
} berth_metrics;
#define BERTH_METRICS_INIT BERTH_SIZED(berth_metrics)

/// Takes a coherent snapshot. The same through every session and the backend. Stops nobody, resets nothing.
///
/// Owns: borrows; fills the caller's struct and array. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT; `forked`. Since: 0.1
BERTH_API berth_status berth_session_metrics(const berth_session *session, berth_metrics *out_metrics, berth_error *err);

/// Exact attempt counters: begun, sealed (reports ready), abandoned (pushed to the queue), overflowed.
typedef struct berth_attempt_counters {
  uint64_t begun, sealed, abandoned, overflowed;
} berth_attempt_counters;

/// Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API berth_attempt_counters berth_session_attempt_counters(const berth_session *session);

/// Takes up to `max` abandoned reports, oldest first. Empty without an abandoned queue, and in a forked child.
///
/// Owns: returns one reference of each. Threads: any. Blocks: never. Returns: how many. Since: 0.1
BERTH_API uint32_t berth_session_take_abandoned(berth_session *session, berth_report **out_reports, uint32_t max);

/// A telemetry sample. For people only; admission never reads it (TEL-1).
typedef struct berth_telemetry {
  size_t struct_size;
  berth_status status;  ///< OK; UNAVAILABLE: never read or cannot be read; DEADLINE_EXCEEDED: stale.
  int64_t age;          ///< Nanoseconds since it was read.
  uint32_t valid;       ///< Bits: 1 utilization, 2 memory, 4 temperature, 8 power, 16 clock, 32 throttling.
  double utilization_percent, temperature_celsius, power_watts, clock_mhz;
  uint64_t memory_used_bytes, memory_total_bytes;
  bool throttled;
} berth_telemetry;
#define BERTH_TELEMETRY_INIT BERTH_SIZED(berth_telemetry)

/// Fills the last sample of a device; never touches the device.
///
/// Owns: borrows. Threads: any. Blocks: never. Fails: CANCELLED `backend_closing`, `backend_closed`; INVALID_ARGUMENT; `forked`. Since: 0.1
BERTH_API berth_status berth_session_telemetry(const berth_session *session, uint32_t device, berth_telemetry *out_sample, berth_error *err);

/// What is fixed about a metric (MET-2).
typedef struct berth_metric_descriptor {
  const char *name;       ///< "berth_admissions_total"
  const char *unit;       ///< UCUM: "1", "By", "s"
  const char *kind;       ///< "counter", "gauge", "histogram"
  const char *labels;     ///< Closed label set, such as "device,class"; "" for none
  const char *updated_by; ///< The transition that updates it
  uint32_t max_series;
  const char *help;
} berth_metric_descriptor;

/// Returns the table of metrics. Owns: returns a static array. Threads: any. Blocks: never. Since: 0.1
BERTH_API const berth_metric_descriptor *berth_metrics_descriptors(uint32_t *out_count);

/// Write one snapshot as JSON (schema "berth.metrics", version 1) or Prometheus text. Buffer rules as berth_error_json.
///
/// Owns: borrows. Threads: any. Blocks: never. Returns: the length; 0 in a forked child. Since: 0.1
BERTH_API size_t berth_metrics_json(const berth_session *session, char *buffer, size_t capacity);
BERTH_API size_t berth_metrics_prometheus(const berth_session *session, char *buffer, size_t capacity);

/// Writes diagnostics: a metrics snapshot, each ledger, the queue with why each waits, groups, holders, health; all with the snapshot's sequence number.
///
/// Owns: borrows; `out_length` as berth_error_json returns. Threads: any. Blocks: never longer than a scan under the admission lock.
/// Fails: CANCELLED `backend_closing`, `backend_closed`; `forked`. Since: 0.1
BERTH_API berth_status berth_diagnostics_json(const berth_session *session, char *buffer, size_t capacity, size_t *out_length, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
