// SPDX-License-Identifier: Apache-2.0
#include "sched/sched_fixture.h"

#include <string.h>

#include "base/lock.h"

static const char *const device_names[] = {"sim:0", "sim:1", "sim:2", "sim:3"};

static uint32_t or_default(uint32_t value, uint32_t standard) { return value != 0 ? value : standard; }

static void count_devices(const scene *s, uint64_t *devices, uint64_t *blocks) {
  *devices = *blocks = 0;
  for (uint32_t i = 0; i < s->devices; i++) {
    berthi_sim_counters counters;
    berthi_sim_read_counters(s->first + i, &counters);
    *devices += counters.live_devices;
    *blocks += counters.live_blocks;
  }
}

berth_status scene_try_open(scene *s, const scene_setup *setup, berth_error *err) {
  berth_device_options devices[SCENE_DEVICES];
  berth_backend_options options = setup->options;
  *s = (scene){.first = setup->first, .devices = or_default(setup->devices, 1)};
  for (uint32_t i = 0; i < s->devices; i++) {
    devices[i] = (berth_device_options){
        .struct_size = sizeof devices[i],
        .name = device_names[setup->first + i],
        .capacity_bytes = (or_default(setup->units, 2) + 1) * SCENE_UNIT,
        .cache_bytes = SCENE_UNIT,
        .default_grant_bytes = SCENE_UNIT,
        .slots = or_default(setup->slots, 2),
        .lanes = or_default(setup->lanes, 2),
        .parameters = i + 1 == s->devices && setup->last_parameters != NULL ? setup->last_parameters : setup->parameters,
    };
  }
  count_devices(s, &s->device_count, &s->block_count);
  options.struct_size = sizeof options;
  options.devices = devices;
  options.device_count = s->devices;
  if (options.telemetry_interval == 0) options.telemetry_interval = -1;
  berth_status status = berth_backend_open(&options, &s->backend, err);
  if (status == BERTH_OK) s->session = berth_backend_session(s->backend);
  return status;
}

void scene_open(scene *s, const scene_setup *setup) {
  static const scene_setup standard;
  berth_error err = BERTH_ERROR_INIT;
  berthi_sched_calm(true);
  scene_ok(scene_try_open(s, setup != NULL ? setup : &standard, &err), &err);
  berthi_sched_calm(false);
}

bool scene_reason_is(const berth_error *err, const char *reason) { return err->reason != NULL && strcmp(err->reason, reason) == 0; }

void scene_ok(berth_status status, const berth_error *err) {
  if (status != BERTH_OK) berthi_sched_fail("status %d, %s: %s", (int)status, err->reason != NULL ? err->reason : "", err->message);
}

// ---- laws --------------------------------------------------------------------------------------------------------------------------------------------

static uint64_t sum(const uint64_t *values, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++) total += values[i];
  return total;
}

static void equal(const char *law, uint64_t left, uint64_t right) {
  if (left != right) berthi_sched_fail("law: %s: %llu against %llu", law, (unsigned long long)left, (unsigned long long)right);
}

static void device_laws(const berth_device_metrics *d) {
  equal("LED-4", d->total_bytes,
        d->grant_bytes + d->resident_bytes + d->cache_bytes + d->library_bytes + d->reserve_bytes + d->leaked_bytes + d->withheld_bytes +
            d->external_bytes + d->free_bytes);
  berthi_sched_check(d->grant_bytes + d->withheld_bytes <= d->query_limit_bytes);
  berthi_sched_check(d->active <= d->slots && d->lanes_promised <= d->lanes);
  if (d->health == BERTH_HEALTH_OK) equal("HLT-1: withheld in service", d->withheld_bytes, 0);
}

static berth_metrics snapshot(const scene *s, berth_device_metrics *devices) {
  berth_metrics m = BERTH_METRICS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  uint64_t promised = 0;
  m.devices = devices;
  m.device_capacity = SCENE_DEVICES;
  scene_ok(berth_session_metrics(s->session, &m, &err), &err);
  equal("MET-1 begun", m.begun, m.sealed + m.open);
  equal("MET-1 submitted", m.submitted, m.granted + m.expired + m.cancelled + m.refused + m.closed + m.queued);
  equal("ATT-6 sealed", m.sealed, m.delivered + m.taken + m.held + m.overflowed);
  equal("outcomes", m.sealed, sum(m.outcomes, 5));
  equal("dispositions", m.sealed, sum(m.dispositions, 4));
  equal("refusals", m.refused, sum(m.refusals, BERTH_REFUSAL_KINDS));
  equal("waits", m.wait.count, m.granted);
  for (uint32_t i = 0; i < m.device_count; i++) {
    device_laws(&devices[i]);
    promised += devices[i].grant_bytes;
  }
  equal("MET-1 promised", m.promised_bytes, promised);
  m.devices = NULL;
  return m;
}

berth_metrics scene_laws(const scene *s) {
  berth_device_metrics devices[SCENE_DEVICES];
  return snapshot(s, devices);
}

berth_device_metrics scene_device(const scene *s, uint32_t device) {
  berth_device_metrics devices[SCENE_DEVICES];
  (void)snapshot(s, devices);
  return devices[device];
}

berth_metrics scene_wait_closed(scene *s) {
  berthi_sched_calm(true); // by now the scenario's own threads have ended
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_backend_close_wait(s->backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &report, &err), &err);
  equal("CLS-1 state", report.state, BERTH_STATE_CLOSED);
  equal("CLS-2 observation permits", report.active_observation_permits, 0);
  equal("CLS-2 device permits", report.active_device_permits, 0);
  equal("CLS-2 holders", report.holders_total, 0);
  equal("CLS-2 bytes held", report.bytes_held, 0);
  berth_metrics m = scene_laws(s);
  equal("ATT-1 open at the end", m.open, 0);
  equal("queued at the end", m.queued, 0);
  equal("live grants at the end", m.live_grants, 0);
  equal("promised at the end", m.promised_bytes, 0);
  equal("ATT-1 begun", m.begun, s->begun);
  berth_error closed = BERTH_ERROR_INIT;
  berth_attempt *attempt = NULL;
  berthi_sched_check(berth_session_begin_attempt(s->session, NULL, &attempt, &closed) == BERTH_CANCELLED &&
                     scene_reason_is(&closed, "backend_closed"));
  return m;
}

void scene_release(scene *s) {
  berth_session_release(s->session);
  berth_backend_release(s->backend);
  s->session = NULL;
  s->backend = NULL;
}

void scene_close(scene *s) {
  (void)scene_wait_closed(s);
  scene_release(s);
  uint64_t devices, blocks;
  count_devices(s, &devices, &blocks);
  equal("device blocks at the end", blocks, s->block_count);
  equal("devices at the end", devices, s->device_count);
}

// ---- threads -----------------------------------------------------------------------------------------------------------------------------------------

void scene_start(berthi_thread *thread, const char *name, berthi_thread_fn fn, void *arg) {
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berthi_thread_start(thread, name, fn, arg, &err), &err);
}

void scene_join(berthi_thread *threads, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) berthi_thread_join(&threads[i]);
}

void scene_await(const char *place, uint32_t count) {
  while (berthi_wait_place_count(place) < count) berthi_thread_yield();
}

void scene_sleep(int64_t nanoseconds) {
  berthi_event never;
  berthi_event_init(&never);
  (void)berthi_event_wait(&never, berthi_now() + nanoseconds, "scene.sleep");
}

void scene_await_queued(scene *s, uint64_t count) {
  while (scene_laws(s).queued < count) berthi_thread_yield();
}

// ---- attempts ----------------------------------------------------------------------------------------------------------------------------------------

berth_attempt *scene_begin(scene *s, const berth_attempt_options *options) {
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_session_begin_attempt(s->session, options, &attempt, &err);
  if (status == BERTH_OK) {
    s->begun++;
    berthi_sched_check(berth_attempt_id(attempt) != 0);
    return attempt;
  }
  berthi_sched_check(status == BERTH_CANCELLED && berth_session_is_closing(s->session));
  berthi_sched_check(scene_reason_is(&err, "backend_closing") || scene_reason_is(&err, "backend_closed"));
  s->lost++;
  return NULL;
}

berth_admission *scene_admit(scene *s, berth_attempt *attempt, const berth_request *request) {
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_session_admit(s->session, attempt, request, &admission, &err), &err);
  return admission;
}

berth_exec *scene_take(berth_admission *admission) {
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  scene_ok(berth_admission_take(admission, &exec, &err), &err);
  return exec;
}

static void check_report(const berth_report_info *r) {
  berthi_sched_check(r->begun_at != BERTH_NO_TIME && r->sealed_at >= r->begun_at);
  berthi_sched_check(r->taken_at == BERTH_NO_TIME || (r->granted_at != BERTH_NO_TIME && r->taken_at >= r->granted_at));
  berthi_sched_check(r->granted_at == BERTH_NO_TIME || r->granted_at >= r->submitted_at);
  berthi_sched_check((r->granted_at == BERTH_NO_TIME) == (r->device == BERTH_NO_DEVICE));
  berthi_sched_check((r->granted_at == BERTH_NO_TIME) == (r->capacity == BERTH_CAPACITY_NONE));
}

void scene_report(scene *s, berth_completion *completion, berth_report_info *out_info) {
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  scene_ok(berth_completion_wait(completion, BERTH_NO_DEADLINE, &report, &err), &err);
  scene_ok(berth_report_get(report, &info, &err), &err);
  check_report(&info);
  berth_report_release(report);
  s->reports++;
  if (out_info != NULL) *out_info = info;
}

static void end_of_admission(berth_admission *admission, scene_end *end) {
  berth_exec *exec = NULL;
  end->status = berth_admission_wait(admission, BERTH_NO_DEADLINE, &end->error);
  end->granted = end->status == BERTH_OK;
  if (!end->granted) return;
  end->status = berth_admission_take(admission, &exec, &end->error);
  end->taken = end->status == BERTH_OK;
  if (end->taken) (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
}

void scene_attempt(scene *s, const berth_attempt_options *options, const berth_request *request, scene_end *end) {
  *end = (scene_end){.begun = false};
  berth_attempt *attempt = scene_begin(s, options);
  if (attempt == NULL) return;
  end->begun = true;
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = NULL;
  end->status = berth_session_admit(s->session, attempt, request, &admission, &end->error);
  if (end->status == BERTH_OK) end_of_admission(admission, end);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  scene_report(s, completion, &end->report);
  berth_completion_release(completion);
}

void scene_hold(scene *s, const berth_request *request, scene_held *held) {
  held->attempt = scene_begin(s, NULL);
  berthi_sched_check(held->attempt != NULL);
  held->completion = berth_attempt_completion(held->attempt);
  held->admission = scene_admit(s, held->attempt, request);
  held->exec = scene_take(held->admission);
}

void scene_finish(scene *s, scene_held *held, int outcome, berth_report_info *out_info) {
  (void)berth_exec_finish(held->exec, outcome, NULL, NULL);
  scene_report(s, held->completion, out_info);
  berth_admission_release(held->admission);
  berth_attempt_release(held->attempt);
  berth_completion_release(held->completion);
  *held = (scene_held){NULL, NULL, NULL, NULL};
}

berth_request scene_units(uint32_t units) {
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = units * SCENE_UNIT;
  request.queue_deadline = BERTH_NO_DEADLINE;
  return request;
}

static intptr_t nothing(berth_exec *exec, void *arg) {
  uint32_t *ran = arg;
  void *memory = NULL;
  berthi_sched_point();
  if (berth_exec_alloc(exec, 64, &memory, NULL) == BERTH_OK) berth_exec_free(exec, memory);
  *ran += 1;
  return 42;
}

bool scene_run(scene *s, const berth_run_options *options, berth_error *err) {
  uint32_t ran = 0;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_status status = berth_run(s->session, options, nothing, &ran, &result, err);
  berthi_sched_check(ran == (status == BERTH_OK) && result.ran == (ran == 1));
  berthi_sched_check(!result.ran || result.value == 42);
  return ran == 1;
}
