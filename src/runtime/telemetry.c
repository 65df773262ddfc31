// SPDX-License-Identifier: Apache-2.0
/// The telemetry thread: samples for people (TEL-1), and limits that are read again (LED-5, LED-6).
///
/// A device call may hang. While the thread is inside one, `telemetry_device` names the device; the closer sets `telemetry_stop` and then looks at
/// `telemetry_device`, this thread sets `telemetry_device` and then looks at `telemetry_stop`, all four sequentially consistent. So either this thread
/// sees the stop and stays out, or the closer sees which device is in use and treats its clean-up as hanging until the word is 0.
#include "runtime/core.h"

// ---- the limits ----------------------------------------------------------------------------------------------------------------------------------------

/// What others use of the limit, as far as it can be told: everything in use less what was promised here, and at least what was declared for libraries.
static uint64_t used_by_others(const berthi_ledger *ledger, uint64_t striped, uint64_t used) {
  uint64_t ours = berthi_get(&ledger->grants) + striped + berthi_get(&ledger->resident) + berthi_get(&ledger->cache);
  uint64_t others = used > ours ? used - ours : 0;
  return others > ledger->library ? others : ledger->library;
}

static uint64_t striped_in_use(const berthi_core *core, uint32_t device) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    const berthi_stripe *stripe = &core->stripes[i];
    bool busy = (berthi_load(&stripe->grant, relaxed) & 3u) == BERTHI_STRIPE_BUSY; // an estimate of a moment
    if (busy && berthi_load(&stripe->device, relaxed) == device) bytes += berthi_get(&stripe->bytes);
  }
  return bytes;
}

/// A limit below the capacity lowers Q; what others use beyond what the limit leaves beside the capacity is external.
static bool apply_limits_locked(berthi_core *core, berthi_device_slot *slot, const berthi_device_limits *limits) BERTHI_REQUIRES(core->lock) {
  berthi_ledger *ledger = &slot->ledger;
  uint64_t managed = ledger->capacity < limits->limit_bytes ? ledger->capacity : limits->limit_bytes;
  uint64_t beside = limits->limit_bytes - managed;
  uint64_t others = ledger->reserve + used_by_others(ledger, striped_in_use(core, slot->index), limits->process_used_bytes);
  uint64_t external = others > beside ? others - beside : 0;
  uint64_t query_limit = managed > ledger->cache_limit ? managed - ledger->cache_limit : 0;
  if (external == berthi_get(&ledger->external_measured) && query_limit == berthi_get(&ledger->query_limit)) return false;
  berthi_put(&ledger->external_measured, external);
  berthi_put(&ledger->query_limit, query_limit);
  return true;
}

static void apply_limits(berthi_core *core, berthi_device_slot *slot, const berthi_device_limits *limits) {
  if (limits->limit_bytes == 0) return; // not known: what was known before stands
  berthi_after after;
  berthi_lock(core, &after);
  if (slot->closing == BERTHI_SLOT_LIVE && apply_limits_locked(core, slot, limits)) berthi_scan_locked(core);
  berthi_unlock(core, &after);
}

// ---- the samples ---------------------------------------------------------------------------------------------------------------------------------------

/// A failed reading leaves the last sample with its age.
static void store_sample(berthi_core *core, berthi_device_slot *slot, berth_status status, const berthi_telemetry *sample) {
  int64_t now = berthi_now();
  berthi_mutex_lock(&core->telemetry_lock);
  slot->sample_status = status;
  if (status == BERTH_OK) {
    slot->sample = *sample;
    slot->sample_at = now > 0 ? now : 1; // 0: never
  }
  berthi_mutex_unlock(&core->telemetry_lock);
}

static bool stopped(berthi_core *core) { return berthi_load(&core->telemetry_stop, seq_cst) != 0; }

static void read_device(berthi_core *core, berthi_device_slot *slot) {
  berthi_telemetry sample = {0};
  berthi_device_limits limits = {0};
  berth_status status = BERTH_UNAVAILABLE, limits_status = BERTH_UNAVAILABLE;
  berthi_store(&core->telemetry_device, slot->index + 1, seq_cst);
  bool inside = !stopped(core) && slot->device != NULL;
  if (inside && slot->kind->telemetry != NULL) status = slot->kind->telemetry(slot->device, &sample, NULL);
  if (inside && slot->kind->reread != NULL) limits_status = slot->kind->reread(slot->device, &limits, NULL);
  berthi_store(&core->telemetry_device, 0, seq_cst);
  if (!inside || stopped(core)) return;
  store_sample(core, slot, status, &sample);
  if (limits_status == BERTH_OK) apply_limits(core, slot, &limits);
}

void berthi_telemetry_main(void *arg) {
  berthi_core *core = arg;
  int64_t interval = core->options.telemetry_interval;
  berthi_thread_self()->flags |= BERTHI_THREAD_INTERNAL;
  while (!stopped(core) && interval > 0) {
    for (uint32_t i = 0; i < core->device_count && !stopped(core); i++) read_device(core, &core->devices[i]);
    int64_t next = berthi_time_add(berthi_now(), interval);
    while (!stopped(core) && berthi_event_wait(&core->telemetry_wake, next, "telemetry.interval")) berthi_event_clear(&core->telemetry_wake);
  }
  berthi_event_set(&core->keeper_wake); // whoever stopped this thread may look again
  berthi_core_release(core);
}

// ---- reading a sample ------------------------------------------------------------------------------------------------------------------------------------

static void fill_sample(const berthi_device_slot *slot, int64_t stale, int64_t now, berth_telemetry *out) {
  const berthi_telemetry *s = &slot->sample;
  out->age = slot->sample_at != 0 ? now - slot->sample_at : BERTH_NO_DEADLINE;
  if (slot->sample_at == 0 || slot->sample_status != BERTH_OK)
    out->status = BERTH_UNAVAILABLE;
  else if (out->age > stale)
    out->status = BERTH_DEADLINE_EXCEEDED;
  out->valid = s->valid;
  out->utilization_percent = s->utilization_percent;
  out->temperature_celsius = s->temperature_celsius;
  out->power_watts = s->power_watts;
  out->clock_mhz = s->clock_mhz;
  out->memory_used_bytes = s->memory_used_bytes;
  out->memory_total_bytes = s->memory_total_bytes;
  out->throttled = s->throttled;
}

berth_status berth_session_telemetry(const berth_session *session, uint32_t device, berth_telemetry *out_sample, berth_error *err) {
  if (session == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session is NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  if (berthi_gate_is_closed(&core->gate)) return berthi_core_fail_closing(core, err);
  if (device >= core->device_count) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device: %u, at most %u", device, core->device_count - 1);
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  int64_t now = berthi_now();
  berthi_mutex_lock(&core->telemetry_lock);
  fill_sample(&core->devices[device], core->options.telemetry_stale, now, &sample);
  berthi_mutex_unlock(&core->telemetry_lock);
  if (sample.age < 0) sample.age = 0; // read after `now` was
  return berthi_output_copy(out_sample, &sample, sizeof(sample), "berth_telemetry", err);
}
