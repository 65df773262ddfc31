// SPDX-License-Identifier: Apache-2.0
#include "runtime/fixture.h"

#include <dirent.h>

#include "base/memory.h"
#include "base/thread.h"
#include "runtime/core.h"
#include "runtime/runtime_support.h"

void fx_check_failed(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: %s\n", file, line, what);
  abort();
}

void fx_ok(berth_status status, const berth_error *err) {
  if (status != BERTH_OK) fail_msg("%s: %s", berth_status_name(status), err ? err->message : "");
}

void fx_expect(berth_status status, const berth_error *err, berth_status code, const char *reason) {
  if (status != code || (status && strcmp(err->reason, reason) != 0)) {
    fail_msg("%s %s instead of %s %s (%s)", berth_status_name(status), status ? err->reason : "", berth_status_name(code), reason, err->message);
  }
  if (status) {
    assert_int_equal(err->code, code);
    assert_true(strlen(err->message) > strlen(reason) + 2);  // it says more than its name
    assert_int_equal(strncmp(err->message, reason, strlen(reason)), 0);
  }
}

// Each thread keeps the records of its entries until it ends.
uint64_t fx_blocks(void) {
  uint64_t spare = 0;
  for (const berthi_entry *entry = berthi_thread_self()->spare_entries; entry; entry = entry->outer) spare++;
  return berthi_alloc_live() - spare;
}

berth_backend_options fx_options(void) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.telemetry_interval = -1;
  return options;
}

static uint32_t or_else(uint32_t value, uint32_t fallback) { return value ? value : fallback; }

berth_status fx_try_open(fx *f, const fx_spec *spec, const berth_backend_options *options, berth_error *err) {
  static const char *const names[] = {"sim:0", "sim:1", "sim:2", "sim:3"};
  fx_spec standard = {0};
  berth_device_options devices[4];
  char parameters[4][256];
  if (!spec) spec = &standard;
  *f = (fx){.devices = or_else(spec->devices, 1), .blocks = fx_blocks()};
  uint32_t lanes = or_else(spec->lanes, 8);
  uint64_t q = or_else(spec->q, 100) * FX_UNIT;
  for (uint32_t i = 0; i < f->devices; i++) {
    const char *more = i == 1 && spec->parameters_of1 ? spec->parameters_of1 : spec->parameters;
    snprintf(parameters[i], sizeof parameters[i], "memory=64GiB,lanes=%u%s%s", lanes, more ? "," : "", more ? more : "");
    devices[i] = (berth_device_options){
        .struct_size = sizeof devices[i],
        .name = names[i],
        .capacity_bytes = q + FX_UNIT,
        .cache_bytes = FX_UNIT,
        .default_grant_bytes = or_else(spec->grant, 1) * FX_UNIT,
        .slots = or_else(spec->slots, 32),
        .lanes = lanes,
        .parameters = parameters[i],
    };
  }
  berth_backend_options known = options ? *options : fx_options();
  known.devices = devices;
  known.device_count = f->devices;
  berth_status status = berth_backend_open(&known, &f->backend, err);
  if (!status) f->session = berth_backend_session(f->backend);
  return status;
}

void fx_open(fx *f, const fx_spec *spec, const berth_backend_options *options) {
  berth_error err = BERTH_ERROR_INIT;
  fx_ok(fx_try_open(f, spec, options, &err), &err);
}

berth_metrics fx_metrics(const fx *f) { return support_metrics(f->session); }

void fx_release(fx *f) {
  berth_metrics m = fx_metrics(f);
  assert_int_equal(m.promised_bytes, 0);
  assert_int_equal(m.live_grants, 0);
  assert_int_equal(m.queued, 0);
  for (uint32_t i = 0; i < m.device_count; i++) {
    assert_int_equal(m.devices[i].grant_bytes, 0);
    assert_int_equal(m.devices[i].active, 0);
    assert_int_equal(m.devices[i].lanes_promised, 0);
    assert_int_equal(m.devices[i].cache_bytes, 0);
    assert_int_equal(m.devices[i].resident_bytes, 0);
  }
  berth_session_release(f->session);
  berth_backend_release(f->backend);
  fx_until(fx_blocks() <= f->blocks);
}

void fx_close(fx *f) {
  berth_error err = BERTH_ERROR_INIT;
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  fx_ok(berth_backend_close_wait(f->backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, &report, &err), &err);
  assert_int_equal(report.state, BERTH_STATE_CLOSED);
  assert_int_equal(report.active_device_permits, 0);
  assert_int_equal(report.active_observation_permits, 0);
  assert_int_equal(report.holders_total, 0);
  assert_int_equal(report.bytes_held, 0);
  assert_int_equal(report.devices_leaked, 0);
  assert_int_equal(report.devices_released, ((uint64_t)1 << f->devices) - 1);
  fx_release(f);
}

berth_attempt *fx_begin(const fx *f) { return support_begin(f->session); }

berth_request fx_request(uint32_t units, uint32_t lanes) {
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = units * FX_UNIT;
  request.lanes = lanes;
  return request;
}

berth_admission *fx_admit(const fx *f, berth_attempt *attempt, const berth_request *request) { return support_admit(f->session, attempt, request); }

berth_exec *fx_take(berth_admission *admission) { return support_take(admission); }

void fx_submit(const fx *f, fx_job *job, const berth_request *request, const berth_attempt_options *options) {
  *job = (fx_job){0};
  fx_ok(berth_session_begin_attempt(f->session, options, &job->attempt, &job->error), &job->error);
  job->completion = berth_attempt_completion(job->attempt);
  job->status = berth_session_admit(f->session, job->attempt, request, &job->admission, &job->error);
}

void fx_submit_units(const fx *f, fx_job *job, uint32_t units) {
  berth_request request = fx_request(units, 1);
  fx_submit(f, job, &request, NULL);
  fx_ok(job->status, &job->error);
}

void fx_wait_take(fx_job *job) {
  fx_ok(berth_admission_wait(job->admission, berth_now() + FX_PATIENCE, &job->error), &job->error);
  fx_ok(berth_admission_take(job->admission, &job->exec, &job->error), &job->error);
}

void fx_start(const fx *f, fx_job *job, uint32_t units, uint32_t lanes) {
  berth_request request = fx_request(units, lanes);
  fx_submit(f, job, &request, NULL);
  fx_ok(job->status, &job->error);
  fx_wait_take(job);
}

void fx_finish(fx_job *job, int outcome) {
  berth_exec *exec = job->exec;
  job->exec = NULL;
  fx_ok(berth_exec_finish(exec, outcome, NULL, &job->error), &job->error);
}

berth_report_info fx_report(fx_job *job) {
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  fx_ok(berth_completion_wait(job->completion, berth_now() + FX_PATIENCE, &report, &err), &err);
  fx_ok(berth_report_get(report, &info, &err), &err);
  berth_report_release(report);
  return info;
}

void fx_drop(fx_job *job) {
  berth_exec_release(job->exec);
  berth_admission_release(job->admission);
  berth_completion_release(job->completion);
  berth_attempt_release(job->attempt);
  *job = (fx_job){0};
}

berth_admission_state fx_state(const fx_job *job) { return berth_admission_poll(job->admission, NULL); }

intptr_t fx_fn_42(berth_exec *exec, void *arg) {
  (void)arg;
  return exec ? 42 : 0;
}

void fx_run_plain(const fx *f) {
  berth_error err = BERTH_ERROR_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  fx_ok(berth_run(f->session, NULL, fx_fn_42, NULL, &result, &err), &err);
  assert_true(result.ran);
  assert_int_equal(result.value, 42);
  assert_int_equal(result.cleanup, BERTH_OK);
}

static void *thread_main(void *arg) {
  fx_thread *t = arg;
  t->fn(t->arg);
  return NULL;
}

void fx_thread_start(fx_thread *t, void (*fn)(void *), void *arg) {
  t->fn = fn;
  t->arg = arg;
  fx_check(pthread_create(&t->thread, NULL, thread_main, t) == 0);
}

void fx_thread_join(fx_thread *t) { fx_check(pthread_join(t->thread, NULL) == 0); }

uint32_t fx_task_count(void) {
  uint32_t count = 0;
  DIR *directory = opendir("/proc/self/task");
  if (!directory) return 0;
  for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}
