// SPDX-License-Identifier: Apache-2.0
// Diagnostics: who holds what and who waits for it, with the number of the snapshot that it goes with. Everything is copied under the admission lock
// and written as JSON without it.
#include <string.h>

#include "base/json.h"
#include "runtime/metrics.h"
#include "runtime/names.h"

#define SHOWN 64 ///< of waiters, holders and groups; the totals are exact

typedef struct waiter {
  uint64_t attempt_id, bytes, devices;
  uint32_t lanes, why, ahead, overtakes, barrier;
  int32_t priority;
  int64_t waited, expires_at;
  char group[BERTH_GROUP_NAME];
} waiter;

typedef struct group_copy {
  berthi_group limits; ///< the numbers in use are copied beside
  uint64_t queued, active, lanes, bytes;
} group_copy;

typedef struct fault_copy {
  uint32_t class, failed_probes, closing;
  uint64_t external_charged, external_measured, default_grant;
  berth_error first;
} fault_copy;

typedef struct gathered {
  berth_metrics metrics;
  berth_device_metrics devices[BERTH_DEVICES_MAX];
  fault_copy faults[BERTH_DEVICES_MAX];
  waiter waiters[SHOWN];
  group_copy groups[SHOWN];
  berth_holder holders[SHOWN];
  uint32_t waiter_count, waiters_total, group_count, groups_total, holder_count, holders_total;
  uint64_t bytes_held, state, observations, permits;
} gathered;

// ---- under the lock ------------------------------------------------------------------------------------------------------------------------------------

static void gather_waiter_locked(berthi_core *core, const berthi_request *request, int64_t now, waiter *out) BERTHI_REQUIRES(core->lock) {
  out->attempt_id = request->attempt != NULL ? request->attempt->id : 0;
  out->bytes = request->bytes;
  out->lanes = request->lanes;
  out->priority = request->priority;
  out->overtakes = request->overtakes;
  out->barrier = request->barrier;
  out->waited = now - request->submitted_at;
  out->expires_at = request->expires_at;
  out->why = berthi_request_why_locked(core, request, &out->devices, &out->ahead);
  if (request->group != NULL) memcpy(out->group, request->group->name, sizeof(out->group));
}

static void gather_queue_locked(berthi_core *core, gathered *g) BERTHI_REQUIRES(core->lock) {
  int64_t now = berthi_now();
  for (berthi_link *at = core->queue.next; at != &core->queue; at = at->next) {
    if (g->waiter_count < SHOWN) gather_waiter_locked(core, BERTHI_CONTAINER(at, berthi_request, link), now, &g->waiters[g->waiter_count++]);
    g->waiters_total++;
  }
}

static void gather_groups_locked(berthi_core *core, gathered *g) BERTHI_REQUIRES(core->lock) {
  g->groups_total = core->group_count;
  g->group_count = core->group_count < SHOWN ? core->group_count : SHOWN;
  for (uint32_t i = 0; i < g->group_count; i++) {
    const berthi_group *group = &core->groups[i];
    group_copy *copy = &g->groups[i];
    memcpy(copy->limits.name, group->name, sizeof(group->name));
    copy->limits.max_queued = group->max_queued;
    copy->limits.max_active = group->max_active;
    copy->limits.max_lanes = group->max_lanes;
    copy->limits.max_bytes = group->max_bytes;
    copy->queued = berthi_get(&group->queued);
    copy->active = berthi_get(&group->active);
    copy->lanes = berthi_get(&group->lanes);
    copy->bytes = berthi_get(&group->bytes);
  }
}

static void gather_devices_locked(berthi_core *core, gathered *g) BERTHI_REQUIRES(core->lock) {
  for (uint32_t i = 0; i < core->device_count; i++) {
    const berthi_device_slot *slot = &core->devices[i];
    fault_copy *copy = &g->faults[i];
    copy->class = (uint32_t)slot->fault;
    copy->failed_probes = slot->failed_probes;
    copy->closing = (uint32_t)slot->closing;
    copy->external_charged = berthi_get(&slot->ledger.external_charged);
    copy->external_measured = berthi_get(&slot->ledger.external_measured);
    copy->default_grant = slot->ledger.default_grant;
    copy->first = slot->first_fault;
  }
}

static void gather(berthi_core *core, gathered *g) {
  berthi_after after;
  g->metrics.devices = g->devices;
  g->metrics.device_capacity = BERTH_DEVICES_MAX;
  berthi_lock(core, &after); // for change: a look at why somebody waits may raise a barrier
  berthi_metrics_read_locked(core, &g->metrics);
  gather_devices_locked(core, g);
  gather_queue_locked(core, g);
  gather_groups_locked(core, g);
  berthi_holders_locked(core, UINT64_MAX, true, g->holders, SHOWN, &g->holder_count, &g->holders_total, &g->bytes_held);
  g->state = berthi_load(&core->state, acquire);
  uint64_t gate = berthi_load(&core->gate, acquire);
  g->observations = berthi_gate_observations(gate);
  g->permits = berthi_gate_devices(gate);
  berthi_unlock(core, &after);
}

// ---- without it ----------------------------------------------------------------------------------------------------------------------------------------

static void write_limit(berthi_json *json, const char *key, uint64_t limit, uint64_t unlimited) {
  if (limit == unlimited)
    berthi_json_string(json, key, NULL);
  else
    berthi_json_u64(json, key, limit);
}

static void write_ledger(berthi_json *json, const berth_device_metrics *d, const fault_copy *f) {
  berthi_json_object_begin(json, "ledger");
  berthi_json_u64(json, "total", d->total_bytes);
  berthi_json_u64(json, "grant", d->grant_bytes);
  berthi_json_u64(json, "resident", d->resident_bytes);
  berthi_json_u64(json, "cache", d->cache_bytes);
  berthi_json_u64(json, "library", d->library_bytes);
  berthi_json_u64(json, "reserve", d->reserve_bytes);
  berthi_json_u64(json, "leaked", d->leaked_bytes);
  berthi_json_u64(json, "withheld", d->withheld_bytes);
  berthi_json_u64(json, "external", d->external_bytes);
  berthi_json_u64(json, "free", d->free_bytes);
  berthi_json_u64(json, "external_charged", f->external_charged);
  berthi_json_u64(json, "external_measured", f->external_measured);
  berthi_json_u64(json, "query_limit", d->query_limit_bytes);
  berthi_json_u64(json, "cache_limit", d->cache_limit_bytes);
  berthi_json_u64(json, "default_grant", f->default_grant);
  berthi_json_object_end(json);
}

static void write_health(berthi_json *json, const berth_device_metrics *d, const fault_copy *f) {
  static const char *const closing[] = {"live", "cleaning", "released", "leaked"};
  static const char *const classes[] = {"fine", "sticky", "lost", "needs_restart", "unknown_isolation"};
  berthi_json_string(json, "health", berthi_health_name((uint32_t)d->health));
  berthi_json_string(json, "fault_class", f->class < BERTHI_COUNTOF(classes) ? classes[f->class] : "?");
  berthi_json_u64(json, "failed_probes", f->failed_probes);
  berthi_json_string(json, "cleanup", f->closing < BERTHI_COUNTOF(closing) ? closing[f->closing] : "?");
  if (f->first.code == BERTH_OK) {
    berthi_json_string(json, "first_fault", NULL);
    return;
  }
  berthi_json_object_begin(json, "first_fault");
  berthi_json_string(json, "code", berth_status_name(f->first.code));
  berthi_json_string(json, "reason", f->first.reason);
  berthi_json_string(json, "message", f->first.message);
  berthi_json_object_end(json);
}

static void write_devices(berthi_json *json, const berthi_core *core, const gathered *g) {
  berthi_json_array_begin(json, "devices");
  for (uint32_t i = 0; i < core->device_count; i++) {
    const berth_device_metrics *d = &g->devices[i];
    berthi_json_object_begin(json, NULL);
    berthi_json_string(json, "name", core->devices[i].startup.name);
    berthi_json_string(json, "identity", core->devices[i].identity);
    berthi_json_u64(json, "active", d->active);
    berthi_json_u64(json, "slots", d->slots);
    berthi_json_u64(json, "lanes_promised", d->lanes_promised);
    berthi_json_u64(json, "lanes", d->lanes);
    write_ledger(json, d, &g->faults[i]);
    write_health(json, d, &g->faults[i]);
    berthi_json_object_end(json);
  }
  berthi_json_array_end(json);
}

static void write_waiter(berthi_json *json, const berthi_core *core, const waiter *w) {
  berthi_json_object_begin(json, NULL);
  berthi_json_u64(json, "attempt_id", w->attempt_id);
  berthi_json_u64(json, "ahead", w->ahead);
  berthi_json_i64(json, "waited", w->waited);
  if (w->expires_at == BERTH_NO_DEADLINE)
    berthi_json_string(json, "expires_at", NULL);
  else
    berthi_json_i64(json, "expires_at", w->expires_at);
  berthi_why_write(json, "why", w->why);
  berthi_json_u64(json, "devices", w->devices);
  berthi_json_u64(json, "overtakes", w->overtakes);
  berthi_json_string(json, "barrier", w->barrier < core->device_count ? core->devices[w->barrier].startup.name : NULL);
  write_limit(json, "bytes", w->bytes, 0); // null: the device's default grant
  berthi_json_u64(json, "lanes", w->lanes);
  berthi_json_i64(json, "priority", w->priority);
  berthi_json_string(json, "group", w->group[0] != '\0' ? w->group : NULL);
  berthi_json_object_end(json);
}

static void write_queue(berthi_json *json, const berthi_core *core, const gathered *g) {
  berthi_json_u64(json, "waiters_total", g->waiters_total);
  berthi_json_array_begin(json, "waiters");
  for (uint32_t i = 0; i < g->waiter_count; i++) write_waiter(json, core, &g->waiters[i]);
  berthi_json_array_end(json);
}

static void write_groups(berthi_json *json, const gathered *g) {
  berthi_json_u64(json, "groups_total", g->groups_total);
  berthi_json_array_begin(json, "groups");
  for (uint32_t i = 0; i < g->group_count; i++) {
    const group_copy *group = &g->groups[i];
    berthi_json_object_begin(json, NULL);
    berthi_json_string(json, "name", group->limits.name);
    berthi_json_u64(json, "queued", group->queued);
    berthi_json_u64(json, "active", group->active);
    berthi_json_u64(json, "lanes", group->lanes);
    berthi_json_u64(json, "bytes", group->bytes);
    berthi_json_u64(json, "max_queued", group->limits.max_queued);
    write_limit(json, "max_active", group->limits.max_active, UINT32_MAX);
    write_limit(json, "max_lanes", group->limits.max_lanes, UINT32_MAX);
    write_limit(json, "max_bytes", group->limits.max_bytes, BERTH_UNLIMITED_U64);
    berthi_json_object_end(json);
  }
  berthi_json_array_end(json);
}

static void write_holders(berthi_json *json, const berthi_core *core, const gathered *g) {
  berthi_json_u64(json, "holders_total", g->holders_total);
  berthi_json_u64(json, "bytes_held", g->bytes_held);
  berthi_json_array_begin(json, "holders");
  for (uint32_t i = 0; i < g->holder_count; i++) {
    const berth_holder *holder = &g->holders[i];
    berthi_json_object_begin(json, NULL);
    berthi_json_u64(json, "attempt_id", holder->attempt_id);
    berthi_json_u64(json, "execution_id", holder->execution_id);
    berthi_json_string(json, "phase", berthi_phase_name((uint32_t)holder->phase));
    berthi_json_string(json, "device", holder->device < core->device_count ? core->devices[holder->device].startup.name : NULL);
    berthi_json_u64(json, "lanes", holder->lanes);
    berthi_json_u64(json, "bytes", holder->bytes);
    berthi_json_i64(json, "age", holder->age);
    berthi_json_object_end(json);
  }
  berthi_json_array_end(json);
}

static void write_all(berthi_json *json, const berthi_core *core, const gathered *g) {
  berthi_json_object_begin(json, NULL);
  berthi_json_string(json, "schema", "berth.diagnostics");
  berthi_json_u64(json, "version", 1);
  berthi_json_u64(json, "sequence", g->metrics.sequence);
  berthi_json_string(json, "state", berthi_state_name(BERTHI_BACKEND, (uint32_t)g->state));
  berthi_json_u64(json, "observation_permits", g->observations);
  berthi_json_u64(json, "device_permits", g->permits);
  berthi_metrics_json_write(json, "snapshot", core, &g->metrics);
  write_devices(json, core, g);
  write_queue(json, core, g);
  write_groups(json, g);
  write_holders(json, core, g);
  berthi_json_object_end(json);
}

berth_status berth_diagnostics_json(const berth_session *session, char *buffer, size_t capacity, size_t *out_length, berth_error *err) {
  if (session == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session is NULL");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  if (berthi_gate_is_closed(&core->gate)) return berthi_core_fail_closing(core, err);
  gathered *g = berthi_alloc(sizeof(*g));
  if (g == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "diagnostics need %zu bytes", sizeof(*g));
  gather(core, g);
  berthi_json json;
  berthi_json_init(&json, buffer, capacity);
  write_all(&json, core, g);
  size_t length = berthi_json_finish(&json);
  berthi_free(g);
  if (out_length != NULL) *out_length = length;
  return BERTH_OK;
}
