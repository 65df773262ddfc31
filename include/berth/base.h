// SPDX-License-Identifier: Apache-2.0
/// Status codes, reasons, errors, time and version: what every other header of Berth stands on.
///
/// Conventions, valid for the whole library:
///
/// * Every fallible function returns a `berth_status`; 0 is success. The codes are the canonical gRPC codes, with their retry meaning
///   (https://grpc.io/docs/guides/status-codes/).
/// * Its last argument is a caller-owned `berth_error *`, or NULL. It is written on failure only, and writing it never allocates.
/// * Option structs begin with `struct_size`, set by their `..._INIT` macro. A size of 0 is refused; a shorter struct of an older header
///   is accepted and its missing fields mean their defaults; a field that is 0 means its default. NULL options mean all defaults.
/// * Times are absolute nanoseconds on the monotonic clock (`berth_now`); "no deadline" is `BERTH_NO_DEADLINE`. An expired deadline still
///   gets one uncontended try.
/// * The words *borrows* (reads during the call only), *retains* (takes a reference of its own), *takes* (ownership passes to the
///   library) and *returns* (ownership passes to the caller) mean one thing each.
/// * `release(NULL)` is a no-op. `close`, `cancel`, `release` and every read of metrics cannot fail and do not allocate.
/// * After `fork`, handles that the child inherited answer `forked` from fallible calls, their releases do nothing, and predicates say
///   that the backend is closing (CLS-6).
#ifndef BERTH_BASE_H
#define BERTH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BERTH_API __attribute__((visibility("default")))
#else
#define BERTH_API
#endif

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0

/// A canonical status code. Values are those of gRPC and never change.
typedef int32_t berth_status;
enum {
  BERTH_OK = 0,
  BERTH_CANCELLED = 1,
  BERTH_UNKNOWN = 2,
  BERTH_INVALID_ARGUMENT = 3,
  BERTH_DEADLINE_EXCEEDED = 4,
  BERTH_NOT_FOUND = 5,
  BERTH_ALREADY_EXISTS = 6,
  BERTH_PERMISSION_DENIED = 7,
  BERTH_RESOURCE_EXHAUSTED = 8,
  BERTH_FAILED_PRECONDITION = 9,
  BERTH_ABORTED = 10,
  BERTH_OUT_OF_RANGE = 11,
  BERTH_UNIMPLEMENTED = 12,
  BERTH_INTERNAL = 13,
  BERTH_UNAVAILABLE = 14,
  BERTH_DATA_LOSS = 15
};

/// What a caller should do about a failure.
typedef enum berth_retry {
  BERTH_RETRY_NEVER = 0,        ///< The same call will fail again.
  BERTH_RETRY_BACKOFF = 1,      ///< Overload: wait, then try again.
  BERTH_RETRY_CHANGE = 2,       ///< Change the request or the configuration first.
  BERTH_RETRY_OTHER_DEVICE = 3, ///< Another device may serve it.
  BERTH_RETRY_RECOVER = 4,      ///< The backend or the process must recover first.
  BERTH_RETRY_NOW = 5           ///< Nothing stands in the way of trying again at once.
} berth_retry;

/// The value of an option or information struct whose `struct_size` is set and whose other fields are 0; what each `..._INIT` macro stands for.
#ifdef __cplusplus
extern "C++" {
template <class Struct> inline Struct berth_sized() {
  Struct value = Struct();
  value.struct_size = sizeof(Struct);
  return value;
}
}
#define BERTH_SIZED(type) berth_sized<type>()
#else
#define BERTH_SIZED(type) \
  { .struct_size = sizeof(type) }
#endif

#define BERTH_NO_DEADLINE INT64_MAX
#define BERTH_ERROR_FACTS 6
#define BERTH_ERROR_MESSAGE 248

/// A number that belongs to an error: a value, a bound, an identity. `key` is a static string.
typedef struct berth_fact {
  const char *key;
  int64_t value;
} berth_fact;

/// A failure in full. Fixed size, owned by the caller, valid after every handle is gone. Holds no SQL text and no credentials.
typedef struct berth_error {
  berth_status code;                      ///< Canonical code.
  uint32_t fact_count;                    ///< Facts in use.
  const char *reason;                     ///< Stable reason, a static string such as "admission_queue_full"; never NULL after a failure.
  berth_fact facts[BERTH_ERROR_FACTS];    ///< Numbers of the failure.
  char message[BERTH_ERROR_MESSAGE];      ///< For people: value, bound, way out. NUL-terminated.
} berth_error;

#ifdef __cplusplus
#define BERTH_ERROR_INIT berth_error()
#else
#define BERTH_ERROR_INIT \
  { 0 }
#endif

/// What is fixed about a reason.
typedef struct berth_reason {
  const char *name;
  berth_status code;
  berth_retry retry;
  const char *summary; ///< One sentence.
} berth_reason;

/// Returns the version of the library in use as "major.minor.patch".
///
/// Owns:    returns a static string.
/// Threads: any, at any time.
/// Blocks:  never.
/// Since:   0.1
BERTH_API const char *berth_version(void);

/// Returns the name of a status code, such as "RESOURCE_EXHAUSTED"; "UNKNOWN_CODE" for a value that is none.
///
/// Owns:    returns a static string.
/// Threads: any.
/// Blocks:  never.
/// Since:   0.1
BERTH_API const char *berth_status_name(berth_status code);

/// Looks a reason up by its stable name; with `name` NULL, by its position `index` in the table of all reasons.
///
/// Owns:    borrows `name`; fills `out_reason` with static strings.
/// Threads: any.
/// Blocks:  never.
/// Fails:   NOT_FOUND `unknown_reason` when there is none (so a loop over `index` ends).
/// Since:   0.1
BERTH_API berth_status berth_reason_info(const char *name, uint32_t index, berth_reason *out_reason, berth_error *err);

/// Returns the time on the monotonic clock, in nanoseconds. All deadlines are values of this clock.
///
/// Threads: any.
/// Blocks:  never; no system call on usual hardware.
/// Since:   0.1
BERTH_API int64_t berth_now(void);

/// Writes an error as one JSON object (schema "berth.error", version 1) into `buffer`, always NUL-terminated when `capacity` > 0.
///
/// Owns:    borrows everything.
/// Threads: any.
/// Blocks:  never.
/// Returns: the length of the whole text without its NUL; it was cut if this is not below `capacity`.
/// Since:   0.1
BERTH_API size_t berth_error_json(const berth_error *error, char *buffer, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
