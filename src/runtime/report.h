// SPDX-License-Identifier: Apache-2.0
/// What report.c and report_json.c share.
#ifndef BERTHI_REPORT_H
#define BERTHI_REPORT_H

#include "runtime/core.h"

/// The attempt whose part the report is.
berth_attempt *berthi_report_attempt(const berth_report *report);
/// Fills all of `out` from a sealed report.
void berthi_report_fill_locked(const berth_attempt *attempt, berth_report_info *out) BERTHI_REQUIRES(attempt->lock);

#endif
