// SPDX-License-Identifier: Apache-2.0
// A simulated device: scripted memory, latency and faults, so that admission, health and close can be tried without hardware.
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/sim/sim_internal.h"

enum { NONSENSE_NONE, NONSENSE_NO_CAPACITY, NONSENSE_CAPACITY_ABOVE_LIMIT, NONSENSE_IDENTITY, NONSENSE_NO_LANES, NONSENSE_LIMIT };

void berthi_sim_delay(int64_t latency) {
  if (latency <= 0) return;
  berthi_event never;
  berthi_event_init(&never);
  (void)berthi_event_wait(&never, berthi_time_add(berthi_now(), latency), "sim latency");
}

static const char *fault_name(uint32_t fault) {
  static const char *const names[] = {"no", "a sticky", "a lost-device", "a needs-restart", "an unknown-isolation"};
  return names[fault < BERTHI_COUNTOF(names) ? fault : 0];
}

static berth_status fail_fault(sim_device *sim, const char *what, uint32_t fault, berth_error *err) {
  berth_status status = berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: %s under %s fault", sim->base.name, what, fault_name(fault));
  berthi_fact(err, "fault_class", fault);
  return status;
}

berth_status berthi_sim_begin(sim_device *sim, const char *what, berth_error *err) {
  const sim_script *script = &sim->script;
  uint64_t n = berthi_add(&sim->operations, 1, relaxed) + 1;
  if (n == script->sticky_after) berthi_store(&sim->control->fault, BERTHI_DEVICE_STICKY, release);
  if (n == script->lost_after) berthi_store(&sim->control->fault, BERTHI_DEVICE_LOST, release);
  if (n == script->restart_after) berthi_store(&sim->control->fault, BERTHI_DEVICE_NEEDS_RESTART, release);
  if (n == script->unknown_after) berthi_store(&sim->control->fault, BERTHI_DEVICE_UNKNOWN_ISOLATION, release);
  uint32_t fault = berthi_load(&sim->control->fault, acquire);
  return BERTHI_LIKELY(fault == BERTHI_DEVICE_FINE) ? BERTH_OK : fail_fault(sim, what, fault, err);
}

static berth_status check_ordinal(uint32_t ordinal, berth_error *err) {
  if (ordinal < BERTHI_SIM_ORDINALS) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_UNKNOWN_DEVICE, "sim:%u is beyond the last one, sim:%u", ordinal, BERTHI_SIM_ORDINALS - 1);
}

static void fill_limits(const sim_script *script, uint64_t memory, uint64_t process_used, berthi_device_limits *out) {
  memset(out, 0, sizeof(*out));
  char text[BERTHI_BYTES_TEXT];
  out->limit_bytes = script->nonsense == NONSENSE_LIMIT ? UINT64_MAX : memory;
  out->process_used_bytes = process_used;
  out->default_capacity_bytes = memory > process_used ? memory - process_used : 0;
  if (script->nonsense == NONSENSE_NO_CAPACITY) out->default_capacity_bytes = 0;
  if (script->nonsense == NONSENSE_CAPACITY_ABOVE_LIMIT) out->default_capacity_bytes = memory <= UINT64_MAX / 2 ? memory * 2 : UINT64_MAX;
  out->lanes = script->nonsense == NONSENSE_NO_LANES ? 0 : (uint32_t)script->lanes;
  out->slots = (uint32_t)script->slots;
  out->capabilities = (uint32_t)script->capabilities;
  snprintf(out->limit_source, sizeof(out->limit_source), "parameter memory %s", berthi_bytes_text(memory, text));
}

static berth_status sim_limits(uint32_t ordinal, const berth_device_options *options, char identity[BERTH_DEVICE_IDENTITY], berthi_device_limits *out,
                               berth_error *err) {
  sim_script script;
  BERTHI_TRY(check_ordinal(ordinal, err));
  BERTHI_TRY(berthi_sim_script_parse(options != NULL ? options->parameters : NULL, &script, err));
  snprintf(identity, BERTH_DEVICE_IDENTITY, "sim:%u", ordinal);
  fill_limits(&script, script.memory, script.process_used, out);
  return BERTH_OK;
}

static berth_status sim_describe(uint32_t ordinal, berth_device_description *out, berth_error *err) {
  char identity[BERTH_DEVICE_IDENTITY];
  berthi_device_limits limits;
  BERTHI_TRY(sim_limits(ordinal, NULL, identity, &limits, err));
  snprintf(out->name, sizeof(out->name), "sim:%u", ordinal);
  snprintf(out->model, sizeof(out->model), "simulated, sim:0 to sim:%u", BERTHI_SIM_ORDINALS - 1);
  memcpy(out->identity, identity, sizeof(out->identity));
  out->available = true;
  out->limit_bytes = limits.limit_bytes;
  memcpy(out->limit_source, limits.limit_source, sizeof(out->limit_source));
  out->default_capacity_bytes = limits.default_capacity_bytes;
  out->default_lanes = limits.lanes;
  out->default_slots = limits.slots;
  out->capabilities = limits.capabilities;
  return BERTH_OK;
}

static void fill_startup(const sim_device *sim, uint32_t lanes, int64_t begun, berthi_startup *out) {
  memset(out, 0, sizeof(*out));
  snprintf(out->model, sizeof(out->model), "simulated");
  snprintf(out->identity, sizeof(out->identity), "sim:%u%s", sim->base.ordinal, sim->script.nonsense == NONSENSE_IDENTITY ? "-changed" : "");
  out->total_bytes = sim->script.memory;
  out->lanes = lanes;
  out->capabilities = (uint32_t)sim->script.capabilities;
  out->open_nanoseconds = berthi_now() - begun;
}

static berth_status create(uint32_t ordinal, const sim_script *script, sim_device **out, berth_error *err) {
  sim_device *sim = berthi_alloc(sizeof(*sim));
  if (sim == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "sim:%u cannot be created", ordinal);
  sim->base.kind = &berthi_sim_kind;
  sim->base.ordinal = ordinal;
  snprintf(sim->base.name, sizeof(sim->base.name), "sim:%u", ordinal);
  sim->script = *script;
  sim->control = berthi_sim_control(ordinal);
  berthi_stat_store(&sim->users, 1);
  berthi_event_clear(&sim->control->hang);
  berthi_store(&sim->control->fault, BERTHI_DEVICE_FINE, release);
  berthi_stat_add(&sim->control->live_devices, 1);
  *out = sim;
  return BERTH_OK;
}

static berth_status sim_open(uint32_t ordinal, const berth_device_options *options, uint32_t lanes, berthi_device **out, berthi_startup *startup,
                             berth_error *err) {
  int64_t begun = berthi_now();
  sim_script script;
  BERTHI_TRY(check_ordinal(ordinal, err));
  sim_control *control = berthi_sim_control(ordinal);
  berthi_stat_add(&control->opens, 1);
  sim_device *sim = NULL;
  berth_status status = berthi_sim_script_parse(options != NULL ? options->parameters : NULL, &script, err);
  if (status == BERTH_OK) {
    berthi_sim_delay(script.open_latency);
    if (script.fail_open) status = berthi_fail(err, BERTHI_R_DEVICE_UNAVAILABLE, "sim:%u: open refused by the script", ordinal);
  }
  if (status == BERTH_OK) status = create(ordinal, &script, &sim, err);
  if (sim == NULL) {
    berthi_stat_add(&control->open_failures, 1);
    return status;
  }
  fill_startup(sim, lanes, begun, startup);
  *out = &sim->base;
  return BERTH_OK;
}

// The last one out frees: a forced close may overtake one that hangs.
static void drop_user(sim_device *sim) {
  if (berthi_sub(&sim->users, 1, acq_rel) == 1) berthi_free(sim);
}

static berth_status prove_idle(sim_device *sim, berth_error *err) {
  uint64_t n = berthi_add(&sim->closes, 1, relaxed) + 1;
  if (n <= sim->script.unprovable_close)
    return berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: the script lets completion not be proved (close %llu)", sim->base.name,
                       (unsigned long long)n);
  uint64_t blocks = berthi_load(&sim->blocks, acquire);
  if (blocks == 0) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: %llu blocks are still allocated", sim->base.name, (unsigned long long)blocks);
}

static berth_status sim_close(berthi_device *device, bool force, berth_error *err) {
  sim_device *sim = sim_of(device);
  sim_control *control = sim->control;
  berthi_stat_add(&control->closes, 1);
  (void)berthi_add(&sim->users, 1, relaxed); // the owner's count is still there
  berth_status status = BERTH_OK;
  if (!force) {
    berthi_sim_delay(sim->script.close_latency);
    if (sim->script.hang_close) (void)berthi_event_wait(&control->hang, BERTH_NO_DEADLINE, "sim close hangs");
    if (berthi_load(&sim->closed, acquire) == 0) status = prove_idle(sim, err);
  }
  if (status != BERTH_OK) {
    berthi_stat_add(&control->close_failures, 1);
  } else if (berthi_exchange(&sim->closed, 1, acq_rel) == 0) {
    berthi_stat_add(&control->live_devices, (uint64_t)-1);
    // Live blocks name the device; then forcing leaves it behind on purpose.
    if (berthi_load(&sim->blocks, acquire) == 0) drop_user(sim);
  }
  drop_user(sim);
  return status;
}

static berth_status sim_reread(berthi_device *device, berthi_device_limits *out, berth_error *err) {
  (void)err;
  sim_device *sim = sim_of(device);
  sim_control *control = sim->control;
  berthi_stat_add(&control->rereads, 1);
  uint64_t memory = sim->script.reread_memory != 0 ? sim->script.reread_memory : sim->script.memory;
  uint64_t used = sim->script.process_used;
  uint64_t limit = berthi_load(&control->limit, acquire);
  if (limit != 0) {
    memory = limit;
    used = berthi_stat_load(&control->process_used);
  }
  fill_limits(&sim->script, memory, used, out);
  return BERTH_OK;
}

static berth_status sim_settle(berthi_domain *domain, berth_error *err) {
  sim_device *sim = sim_of(domain->device);
  berthi_stat_add(&sim->control->settles, 1);
  berth_status status = berthi_sim_begin(sim, "settle", err);
  berthi_sim_delay(sim->script.settle_latency); // also under a fault: what was queued must have ended
  if (berthi_add(&sim->settles, 1, relaxed) + 1 == sim->script.fail_settle && status == BERTH_OK)
    status = berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: settle refused by the script", sim->base.name);
  return status;
}

static void sim_parallel(berthi_device *device, const berthi_lanemask *lanes, berthi_parallel *work) {
  (void)lanes;
  berthi_stat_add(&sim_of(device)->control->parallels, 1);
  uint64_t i = 0;
  for (; i < work->count; i++) {
    if (work->cancel != NULL && berthi_load(work->cancel, relaxed) != 0) break; // a hint: nothing is read because of it
    work->body(work->arg, i);
  }
  work->skipped = work->count - i;
}

static berth_status sim_enter(berthi_device *device, const berthi_lanemask *lanes, berthi_affinity *saved, berth_error *err) {
  (void)lanes;
  sim_device *sim = sim_of(device);
  memset(saved, 0, sizeof(*saved));
  berthi_stat_add(&sim->control->enters, 1);
  if (berthi_add(&sim->enters, 1, relaxed) + 1 == sim->script.fail_enter)
    return berthi_fail(err, BERTHI_R_EXECUTOR, "%s: enter refused by the script", sim->base.name);
  return BERTH_OK;
}

static berth_status sim_leave(berthi_device *device, const berthi_affinity *saved, berth_error *err) {
  (void)saved;
  (void)err;
  berthi_stat_add(&sim_of(device)->control->leaves, 1);
  return BERTH_OK;
}

static berthi_fault_class sim_fault(berthi_device *device) { return (berthi_fault_class)berthi_load(&sim_of(device)->control->fault, acquire); }

static berth_status probe_result(sim_device *sim, berth_error *err) {
  uint64_t n = berthi_add(&sim->probes, 1, relaxed) + 1;
  if (sim->script.probe_lost) berthi_store(&sim->control->fault, BERTHI_DEVICE_LOST, release);
  uint32_t fault = berthi_load(&sim->control->fault, acquire);
  if (fault > BERTHI_DEVICE_STICKY) return fail_fault(sim, "probe", fault, err);
  if (n <= sim->script.probe_fails)
    return berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: probe %llu refused by the script", sim->base.name, (unsigned long long)n);
  // A worse fault that came in between stays.
  if (fault == BERTHI_DEVICE_STICKY) (void)berthi_cas(&sim->control->fault, &fault, BERTHI_DEVICE_FINE, acq_rel);
  return BERTH_OK;
}

static berth_status sim_probe(berthi_device *device, berth_error *err) {
  sim_device *sim = sim_of(device);
  berthi_stat_add(&sim->control->probes, 1);
  berthi_sim_delay(sim->script.probe_latency);
  berth_status status = probe_result(sim, err);
  if (status != BERTH_OK) berthi_stat_add(&sim->control->probe_failures, 1);
  return status;
}

static berth_status sim_telemetry(berthi_device *device, berthi_telemetry *out, berth_error *err) {
  sim_device *sim = sim_of(device);
  berthi_stat_add(&sim->control->telemetries, 1);
  berthi_sim_delay(sim->script.telemetry_latency);
  if (berthi_add(&sim->telemetries, 1, relaxed) + 1 <= sim->script.telemetry_fails)
    return berthi_fail(err, BERTHI_R_TELEMETRY_UNAVAILABLE, "%s: telemetry refused by the script", sim->base.name);
  *out = (berthi_telemetry){
      .valid = BERTHI_TELEMETRY_UTILIZATION | BERTHI_TELEMETRY_MEMORY | BERTHI_TELEMETRY_TEMPERATURE,
      .utilization_percent = 0.0,
      .memory_used_bytes = berthi_stat_load(&sim->bytes),
      .memory_total_bytes = sim->script.memory,
      .temperature_celsius = 40.0,
  };
  return BERTH_OK;
}

const berthi_device_kind berthi_sim_kind = {
    .name = "sim",
    .describe = sim_describe,
    .limits = sim_limits,
    .open = sim_open,
    .close = sim_close,
    .reread = sim_reread,
    .alloc = berthi_sim_alloc,
    .free = berthi_sim_free,
    .reset = berthi_sim_reset_domain,
    .trim = NULL,
    .copy = berthi_sim_copy,
    .settle = sim_settle,
    .parallel = sim_parallel,
    .enter = sim_enter,
    .leave = sim_leave,
    .lane_of_cpu = NULL,
    .fault = sim_fault,
    .probe = sim_probe,
    .telemetry = sim_telemetry,
};
