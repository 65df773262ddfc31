// SPDX-License-Identifier: Apache-2.0
#include "runtime/names.h"

#include "base/annotate.h"

#define NAME_OF(names, value) ((value) < BERTHI_COUNTOF(names) ? (names)[value] : "?")

const char *berthi_outcome_name(uint32_t outcome) {
  static const char *const names[] = {"succeeded", "failed", "cancelled", "dropped", "crashed"};
  return NAME_OF(names, outcome);
}

const char *berthi_disposition_name(uint32_t disposition) {
  static const char *const names[] = {"unplanned", "fallback", "partial", "native"};
  return NAME_OF(names, disposition);
}

const char *berthi_cleanup_name(uint32_t cleanup) {
  static const char *const names[] = {"none", "proven", "failed"};
  return NAME_OF(names, cleanup);
}

const char *berthi_capacity_name(uint32_t capacity) {
  static const char *const names[] = {"none", "returned", "withheld", "leaked"};
  return NAME_OF(names, capacity);
}

const char *berthi_health_name(uint32_t health) {
  static const char *const names[] = {"ok", "suspect", "quarantined", "probing", "lost", "restart_required"};
  return NAME_OF(names, health);
}

const char *berthi_retry_name(uint32_t retry) {
  static const char *const names[] = {"never", "backoff", "change", "other_device", "recover", "now"};
  return NAME_OF(names, retry);
}

const char *berthi_cancel_cause_name(uint32_t cause) {
  static const char *const names[] = {"none", "caller", "deadline", "close"};
  return NAME_OF(names, cause);
}

const char *berthi_phase_name(uint32_t phase) {
  static const char *const names[] = {"open", "queued", "granted", "running", "releasing"};
  return NAME_OF(names, phase);
}

// The reasons of ADM-4, by the kinds that berth_refusal counts.
const char *berthi_refusal_name(uint32_t refusal) {
  static const char *const names[] = {"admission_queue_full", "request_exceeds_device", "capability_unsupported",
                                      "device_quarantined",   "backend_unhealthy",      "other"};
  _Static_assert(BERTHI_COUNTOF(names) == BERTH_REFUSAL_KINDS, "a name for each kind of refusal");
  return NAME_OF(names, refusal);
}

const char *berthi_why_name(uint32_t bit_position) {
  static const char *const names[] = {"bytes", "lanes", "slots", "order", "group", "health"};
  return NAME_OF(names, bit_position);
}

void berthi_why_write(berthi_json *json, const char *key, uint32_t mask) {
  berthi_json_array_begin(json, key);
  for (uint32_t bit = 0; bit < 6; bit++) {
    if (mask & (1u << bit)) berthi_json_string(json, NULL, berthi_why_name(bit));
  }
  berthi_json_array_end(json);
}
