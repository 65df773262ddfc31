// SPDX-License-Identifier: Apache-2.0
/// The runtime: backend, session, attempt, admission, execution, scoped entry, report.
#ifndef BERTH_RUNTIME_H
#define BERTH_RUNTIME_H

#include "berth/runtime/admission.h"
#include "berth/runtime/attempt.h"
#include "berth/runtime/backend.h"
#include "berth/runtime/cancel.h"
#include "berth/runtime/exec.h"
#include "berth/runtime/lanes.h"
#include "berth/runtime/report.h"
#include "berth/runtime/run.h"
#include "berth/runtime/session.h"

#endif
