// SPDX-License-Identifier: Apache-2.0
/// What the examples share: a claim that ends the program when it does not hold, and the opening of a backend on one simulated device.
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/berth.h"

#define MIB ((uint64_t)1 << 20)
#define MILLISECOND ((int64_t)1000000)
#define SECOND ((int64_t)1000000000)

#if defined(__SANITIZE_THREAD__)
#define EXAMPLE_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EXAMPLE_UNDER_TSAN 1
#endif
#endif
#ifndef EXAMPLE_UNDER_TSAN
#define EXAMPLE_UNDER_TSAN 0
#endif

/// Ends the program with a failure unless `claim` holds.
#define EXPECT(claim) example_expect((claim), #claim, __FILE__, __LINE__)

/// Ends the program with the library's own words unless `status` is the expected code.
#define EXPECT_STATUS(expected, status, err) example_expect_status((expected), (status), (err), __FILE__, __LINE__)
#define EXPECT_OK(status, err) EXPECT_STATUS(BERTH_OK, (status), (err))

static inline void example_expect(bool holds, const char *claim, const char *file, int line) {
  if (holds) return;
  fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, claim);
  exit(1);
}

static inline void example_expect_status(berth_status expected, berth_status status, const berth_error *err, const char *file, int line) {
  if (status == expected) return;
  fprintf(stderr, "%s:%d: %s instead of %s: %s: %s\n", file, line, berth_status_name(status), berth_status_name(expected),
          err->reason ? err->reason : "", err->message);
  exit(1);
}

/// Opens a backend on one device whose executions may use `grantable` bytes together. Caches get one byte, so that the figures are round.
static inline berth_backend *example_open(const char *device_name, const char *parameters, uint64_t grantable) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = device_name;
  device.parameters = parameters;
  device.capacity_bytes = grantable + 1;
  device.cache_bytes = 1;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = &device;
  options.device_count = 1;
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_backend_open(&options, &backend, &err), &err);
  return backend;
}

/// Closes the backend and expects that nothing is left of it.
static inline void example_close(berth_backend *backend, berth_session *session) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_backend_close_wait(backend, berth_now() + 20 * SECOND, BERTH_NO_DEADLINE, &report, &err), &err);
  EXPECT(report.state == BERTH_STATE_CLOSED);
  EXPECT(report.devices_leaked == 0 && report.bytes_held == 0 && report.holders_total == 0);
  EXPECT(report.active_observation_permits == 0 && report.active_device_permits == 0);
  berth_session_release(session);
  berth_backend_release(backend);
}

/// Expects that the laws of the metrics hold and that nothing is promised any more.
static inline berth_metrics example_idle_metrics(const berth_session *session) {
  berth_metrics m = BERTH_METRICS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_session_metrics(session, &m, &err), &err);
  EXPECT(m.begun == m.sealed + m.open);
  EXPECT(m.submitted == m.granted + m.expired + m.cancelled + m.refused + m.closed + m.queued);
  EXPECT(m.sealed == m.delivered + m.taken + m.held + m.overflowed);
  EXPECT(m.promised_bytes == 0 && m.live_grants == 0);
  return m;
}

static inline const char *example_outcome(berth_outcome outcome) {
  static const char *const names[] = {"succeeded", "failed", "cancelled", "dropped", "crashed"};
  return names[outcome];
}

#endif
