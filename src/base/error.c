// SPDX-License-Identifier: Apache-2.0
/// Status names, the table of reasons, and the filling of errors. Nothing here allocates or locks.
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/annotate.h"
#include "base/json.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

static const berth_reason reasons[] = {
    {"", BERTH_OK, BERTH_RETRY_NEVER, ""},
#define X(id, name, code, retry, summary) {name, BERTH_##code, BERTH_RETRY_##retry, summary},
#include "base/reasons.def"
#undef X
};

_Static_assert(BERTHI_COUNTOF(reasons) == BERTHI_R_COUNT, "one row for each reason");

static const char *const status_names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS",
};

static const char *const retry_names[] = {"NEVER", "BACKOFF", "CHANGE", "OTHER_DEVICE", "RECOVER", "NOW"};

const char *berth_version(void) { return STRINGIFY(BERTH_VERSION_MAJOR) "." STRINGIFY(BERTH_VERSION_MINOR) "." STRINGIFY(BERTH_VERSION_PATCH); }

const char *berth_status_name(berth_status code) {
  if (code < 0 || (size_t)code >= BERTHI_COUNTOF(status_names)) return "UNKNOWN_CODE";
  return status_names[code];
}

/// The row of a reason; that of NONE for a number that is no reason.
static const berth_reason *reason_row(berthi_reason reason) {
  size_t index = (size_t)reason;
  return &reasons[index < BERTHI_COUNTOF(reasons) ? index : 0];
}

/// The row with this name, or NULL. Names are static, so the address usually decides.
static const berth_reason *reason_by_name(const char *name) {
  if (name == NULL) return NULL;
  for (size_t i = 1; i < BERTHI_COUNTOF(reasons); i++) {
    if (reasons[i].name == name || strcmp(reasons[i].name, name) == 0) return &reasons[i];
  }
  return NULL;
}

const char *berthi_reason_name(berthi_reason reason) { return reason_row(reason)->name; }
berth_status berthi_reason_code(berthi_reason reason) { return reason_row(reason)->code; }
berth_retry berthi_reason_retry(berthi_reason reason) { return reason_row(reason)->retry; }
const char *berthi_reason_summary(berthi_reason reason) { return reason_row(reason)->summary; }

berth_status berth_reason_info(const char *name, uint32_t index, berth_reason *out_reason, berth_error *err) {
  if (out_reason == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_reason is NULL");
  const berth_reason *row = NULL;
  if (name != NULL) {
    row = reason_by_name(name);
    if (row == NULL) return berthi_fail(err, BERTHI_R_UNKNOWN_REASON, "'%.64s' is not a reason of this version", name);
  } else {
    if (index >= BERTHI_R_COUNT - 1) {
      return berthi_fail(err, BERTHI_R_UNKNOWN_REASON, "index %u, the table has %d reasons", index, BERTHI_R_COUNT - 1);
    }
    row = &reasons[index + 1];
  }
  *out_reason = *row;
  return BERTH_OK;
}

#undef berthi_fail
berth_status berthi_fail(berth_error *err, berthi_reason reason, const char *format, ...) {
  const berth_reason *row = reason_row(reason);
  if (err == NULL) return row->code;
  err->code = row->code;
  err->fact_count = 0;
  err->reason = row->name;
  size_t length = strlen(row->name);
  memcpy(err->message, row->name, length);
  err->message[length++] = ':';
  err->message[length++] = ' ';
  va_list args;
  va_start(args, format);
  int written = vsnprintf(err->message + length, sizeof err->message - length, format, args);
  va_end(args);
  if (written < 0) err->message[length] = '\0';
  return row->code;
}

void berthi_fact(berth_error *err, const char *key, int64_t value) {
  if (err == NULL || err->fact_count >= BERTH_ERROR_FACTS) return;
  err->facts[err->fact_count++] = (berth_fact){.key = key, .value = value};
}

size_t berth_error_json(const berth_error *error, char *buffer, size_t capacity) {
  static const berth_error none = BERTH_ERROR_INIT;
  if (error == NULL) error = &none;
  const berth_reason *row = reason_by_name(error->reason);
  berthi_json json;
  berthi_json_init(&json, buffer, capacity);
  berthi_json_object_begin(&json, NULL);
  berthi_json_string(&json, "schema", "berth.error");
  berthi_json_i64(&json, "version", 1);
  berthi_json_i64(&json, "code", error->code);
  berthi_json_string(&json, "status", berth_status_name(error->code));
  berthi_json_string(&json, "reason", error->reason);
  berthi_json_string(&json, "retry", row != NULL ? retry_names[row->retry] : NULL);
  berthi_json_string_n(&json, "message", error->message, strnlen(error->message, sizeof error->message));
  berthi_json_object_begin(&json, "facts");
  for (uint32_t i = 0; i < error->fact_count && i < BERTH_ERROR_FACTS; i++) {
    berthi_json_i64(&json, error->facts[i].key, error->facts[i].value);
  }
  berthi_json_object_end(&json);
  berthi_json_object_end(&json);
  return berthi_json_finish(&json);
}

const char *berthi_bytes_text(uint64_t bytes, char out[BERTHI_BYTES_TEXT]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  uint32_t unit = 0;
  while (unit + 1 < BERTHI_COUNTOF(units) && (bytes >> (10 * (unit + 1))) != 0) unit++;
  uint64_t scale = (uint64_t)1 << (10 * unit);
  uint64_t whole = bytes / scale;
  uint64_t tenths = unit == 0 ? 0 : ((bytes % scale) * 10 + scale / 2) / scale;
  if (tenths == 10) {
    whole++;
    tenths = 0;
  }
  if (whole == 1024 && unit + 1 < BERTHI_COUNTOF(units)) {
    whole = 1;
    unit++;
  }
  if (tenths == 0) {
    snprintf(out, BERTHI_BYTES_TEXT, "%llu %s", (unsigned long long)whole, units[unit]);
  } else {
    snprintf(out, BERTHI_BYTES_TEXT, "%llu.%u %s", (unsigned long long)whole, (unsigned)tenths, units[unit]);
  }
  return out;
}
