// SPDX-License-Identifier: Apache-2.0
/// The texts of the public enums, as they appear in reports, metrics and diagnostics. "?" for a value that is none.
#ifndef BERTHI_NAMES_H
#define BERTHI_NAMES_H

#include "base/json.h"
#include "berth/runtime.h"

const char *berthi_outcome_name(uint32_t outcome);
const char *berthi_disposition_name(uint32_t disposition);
const char *berthi_cleanup_name(uint32_t cleanup);
const char *berthi_capacity_name(uint32_t capacity);
const char *berthi_health_name(uint32_t health);
const char *berthi_retry_name(uint32_t retry);
const char *berthi_cancel_cause_name(uint32_t cause);
const char *berthi_phase_name(uint32_t phase);
const char *berthi_refusal_name(uint32_t refusal);
const char *berthi_why_name(uint32_t bit_position);
/// Writes a BERTH_WHY_ mask as an array of names.
void berthi_why_write(berthi_json *json, const char *key, uint32_t mask);

#endif
