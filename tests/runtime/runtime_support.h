// SPDX-License-Identifier: Apache-2.0
/// What the runtime's tests share: a backend on simulated devices, and shorthands that end the test with the error's message.
#ifndef BERTH_TESTS_RUNTIME_SUPPORT_H
#define BERTH_TESTS_RUNTIME_SUPPORT_H

#include "berth/runtime.h"

/// Opens sim:0 ... with the parameters (NULL: the device's own), one for each device. Telemetry is off.
berth_backend *support_open(uint32_t devices, const char *parameters);
/// The same with options of the caller's; `devices` and `device_count` are filled in.
berth_backend *support_open_with(berth_backend_options *options, uint32_t devices, const char *parameters);
/// Closes, waits until CLOSED, releases the handle.
void support_close(berth_backend *backend);

berth_attempt *support_begin(berth_session *session);
/// Begins and admits with the request (NULL: defaults).
berth_admission *support_admit(berth_session *session, berth_attempt *attempt, const berth_request *request);
berth_exec *support_take(berth_admission *admission);
/// One whole attempt with a report: begins, admits, takes and finishes with the outcome. The caller's to release.
berth_report *support_whole(berth_session *session, int outcome);

/// A snapshot with its devices (of at most BERTH_DEVICES_MAX, valid until the next call of the thread); every law is checked.
berth_metrics support_metrics(berth_session *session);
/// Ends the test when a law of the snapshot does not hold (MET-1, LED-4). The devices must all be there.
void support_check_laws(const berth_metrics *metrics);

void support_ok(berth_status status, const berth_error *err);

#endif
