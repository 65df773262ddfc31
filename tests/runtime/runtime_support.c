// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void support_ok(berth_status status, const berth_error *err) {
  if (status != BERTH_OK) fail_msg("%s: %s", berth_status_name(status), err->message);
}

berth_backend *support_open_with(berth_backend_options *options, uint32_t devices, const char *parameters) {
  static const char *const names[] = {"sim:0", "sim:1", "sim:2", "sim:3", "sim:4", "sim:5", "sim:6", "sim:7"};
  berth_device_options list[8];
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  assert_in_range(devices, 1, 8);
  for (uint32_t i = 0; i < devices; i++) list[i] = (berth_device_options){.struct_size = sizeof(list[i]), .name = names[i], .parameters = parameters};
  options->devices = list;
  options->device_count = devices;
  support_ok(berth_backend_open(options, &backend, &err), &err);
  return backend;
}

berth_backend *support_open(uint32_t devices, const char *parameters) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.telemetry_interval = -1;
  return support_open_with(&options, devices, parameters);
}

void support_close(berth_backend *backend) {
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_backend_close_wait(backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, NULL, &err), &err);
  berth_backend_release(backend);
}

berth_attempt *support_begin(berth_session *session) {
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_session_begin_attempt(session, NULL, &attempt, &err), &err);
  return attempt;
}

berth_admission *support_admit(berth_session *session, berth_attempt *attempt, const berth_request *request) {
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_session_admit(session, attempt, request, &admission, &err), &err);
  return admission;
}

berth_exec *support_take(berth_admission *admission) {
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  support_ok(berth_admission_take(admission, &exec, &err), &err);
  return exec;
}

berth_report *support_whole(berth_session *session, int outcome) {
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  berth_attempt *attempt = support_begin(session);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = support_admit(session, attempt, NULL);
  support_ok(berth_exec_finish(support_take(admission), outcome, NULL, &err), &err);
  support_ok(berth_completion_poll(completion, &report, &err), &err);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  return report;
}

static uint64_t sum(const uint64_t *values, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++) total += values[i];
  return total;
}

static void check_equal(const char *law, uint64_t left, uint64_t right) {
  if (left != right) fail_msg("%s: %llu against %llu", law, (unsigned long long)left, (unsigned long long)right);
}

static void check_below(const char *law, uint64_t value, uint64_t bound) {
  if (value > bound) fail_msg("%s: %llu above %llu", law, (unsigned long long)value, (unsigned long long)bound);
}

static void check_device(const berth_device_metrics *d) {
  check_equal("LED-4: the classes sum to the total", d->total_bytes,
              d->grant_bytes + d->resident_bytes + d->cache_bytes + d->library_bytes + d->reserve_bytes + d->leaked_bytes + d->withheld_bytes +
                  d->external_bytes + d->free_bytes);
  check_below("LED-1: each class within the device", d->free_bytes, d->total_bytes);
  check_below("LED-1: grants within the device", d->grant_bytes, d->total_bytes);
  check_below("LED-1: caches within K", d->cache_bytes, d->cache_limit_bytes);
  check_below("LED-1: active within slots", d->active, d->slots);
  check_below("LED-1: promised lanes within lanes", d->lanes_promised, d->lanes);
}

void support_check_laws(const berth_metrics *m) {
  uint64_t promised = 0, grants = 0;
  check_equal("MET-1: begun = sealed + open", m->begun, m->sealed + m->open);
  check_equal("MET-1: submitted", m->submitted, m->granted + m->expired + m->cancelled + m->refused + m->closed + m->queued);
  check_equal("ATT-6: sealed", m->sealed, m->delivered + m->taken + m->held + m->overflowed);
  check_equal("outcomes sum to sealed", m->sealed, sum(m->outcomes, 5));
  check_equal("dispositions sum to sealed", m->sealed, sum(m->dispositions, 4));
  check_equal("refusals sum to refused", m->refused, sum(m->refusals, BERTH_REFUSAL_KINDS));
  check_equal("a wait for each grant", m->wait.count, m->granted);
  check_equal("the waits' buckets", m->wait.count, sum(m->wait.buckets, BERTH_WAIT_BUCKETS));
  check_equal("the durations' buckets", m->duration.count, sum(m->duration.buckets, BERTH_WAIT_BUCKETS));
  for (int i = 0; i < 5; i++) check_below("an outcome is not above their sum", m->outcomes[i], m->sealed);
  for (int i = 0; i < 4; i++) check_below("a disposition is not above their sum", m->dispositions[i], m->sealed);
  for (uint32_t i = 0; i < m->device_count; i++) {
    check_device(&m->devices[i]);
    promised += m->devices[i].grant_bytes;
    grants += m->devices[i].grants;
  }
  check_equal("MET-1: promised bytes = sum of live grants", m->promised_bytes, promised);
  check_equal("the devices' grants sum to granted", m->granted, grants);
}

berth_metrics support_metrics(berth_session *session) {
  static __thread berth_device_metrics devices[BERTH_DEVICES_MAX];
  berth_error err = BERTH_ERROR_INIT;
  berth_metrics metrics = BERTH_METRICS_INIT;
  metrics.devices = devices;
  metrics.device_capacity = BERTH_DEVICES_MAX;
  support_ok(berth_session_metrics(session, &metrics, &err), &err);
  support_check_laws(&metrics);
  return metrics;
}
