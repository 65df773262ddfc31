// SPDX-License-Identifier: Apache-2.0
/// Building a berth_error from a reason. The reason fixes the code; nothing here allocates.
#ifndef BERTHI_ERROR_H
#define BERTHI_ERROR_H

#include "berth/base.h"

typedef enum berthi_reason {
  BERTHI_R_NONE = 0,
#define X(id, name, code, retry, summary) BERTHI_R_##id,
#include "base/reasons.def"
#undef X
  BERTHI_R_COUNT
} berthi_reason;

const char *berthi_reason_name(berthi_reason reason); ///< "" for NONE.
berth_status berthi_reason_code(berthi_reason reason);
berth_retry berthi_reason_retry(berthi_reason reason);
const char *berthi_reason_summary(berthi_reason reason);

/// Fills `err` (when not NULL) with the reason and a formatted message, and returns the reason's code. Facts start empty.
/// The message begins with the reason's name and a colon, added here.
berth_status berthi_fail(berth_error *err, berthi_reason reason, const char *format, ...) __attribute__((format(printf, 3, 4)));
#if defined(__clang_analyzer__)
// What the analyzer cannot see from outside error.c: it never returns success.
#define berthi_fail(...) ((void)(berthi_fail)(__VA_ARGS__), (berth_status)BERTH_INTERNAL)
#endif

/// Appends a fact; ignored when `err` is NULL or full. `key` must be a static string.
void berthi_fact(berth_error *err, const char *key, int64_t value);

/// Formats bytes for people into a caller's buffer ("12 GiB", "1.5 MiB", "512 B") and returns it.
#define BERTHI_BYTES_TEXT 24
const char *berthi_bytes_text(uint64_t bytes, char out[BERTHI_BYTES_TEXT]);

#define BERTHI_TRY(expr) \
  do { \
    berth_status berthi_try_status = (expr); \
    if (berthi_try_status != BERTH_OK) return berthi_try_status; \
  } while (0)

/// Checks and copies a caller's option struct into `known` (size `known_size`, zeroed first). Refuses struct_size 0, and a larger struct
/// whose tail beyond `known_size` is not zero. `options` NULL leaves all zero.
berth_status berthi_options_copy(const void *options, void *known, size_t known_size, const char *what, berth_error *err);

/// Checks and fills a caller's sized output struct: copies min(their struct_size, size) bytes of `value` and keeps their struct_size.
berth_status berthi_output_copy(void *out, const void *value, size_t size, const char *what, berth_error *err);

#endif
