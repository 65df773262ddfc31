// SPDX-License-Identifier: Apache-2.0
/// Opening a backend, its handles, and the process's default one (BCK-1 to BCK-5).
#include <string.h>

#include "runtime/close.h"
#include "runtime/config.h"
#include "runtime/core.h"

#define ROLLBACK_SLICE 1000000000 ///< a second: how long a failed open waits for quiescence

static berthi_atomic64 generations; ///< of this process

static void fill_ledger(berthi_ledger *ledger, const berthi_config_device *device) {
  const berth_device_options *options = &device->options;
  ledger->capacity = options->capacity_bytes;
  ledger->cache_limit = options->cache_bytes;
  ledger->library = options->library_bytes;
  ledger->reserve = options->reserve_bytes;
  ledger->default_grant = options->default_grant_bytes;
  ledger->slots = options->slots;
  ledger->lanes = options->lanes;
  berthi_put(&ledger->query_limit, ledger->capacity - ledger->cache_limit);
  for (uint32_t lane = 0; lane < options->lanes; lane++) berthi_lanes_set(&ledger->lanes_free, lane);
}

static void fill_slot(berthi_core *core, uint32_t index, const berthi_config_device *device) {
  berthi_device_slot *slot = &core->devices[index];
  slot->core = core;
  slot->index = index;
  slot->kind = device->kind;
  slot->ordinal = device->ordinal;
  memcpy(slot->identity, device->identity, sizeof slot->identity);
  slot->capabilities = device->limits.capabilities;
  fill_ledger(&slot->ledger, device);
  berthi_event_init(&slot->wake);
  slot->sample_status = BERTH_UNAVAILABLE;
  berth_startup_record *record = &slot->startup;
  record->struct_size = sizeof *record;
  memcpy(record->name, device->name, sizeof record->name);
  memcpy(record->limit_source, device->limits.limit_source, sizeof record->limit_source);
  record->capacity_bytes = slot->ledger.capacity;
  record->cache_bytes = slot->ledger.cache_limit;
  record->reserve_bytes = slot->ledger.reserve;
  record->library_bytes = slot->ledger.library;
  record->default_grant_bytes = slot->ledger.default_grant;
  record->lanes = slot->ledger.lanes;
  record->slots = slot->ledger.slots;
  record->capabilities = slot->capabilities;
  record->generation = core->generation;
}

static berthi_core *make_core(const berthi_config *config) {
  berthi_core *core = berthi_alloc_aligned(sizeof *core, BERTHI_CACHE_LINE);
  if (!core) return NULL;
  core->devices = berthi_alloc(config->device_count * sizeof *core->devices);
  core->groups = berthi_alloc(config->options.max_groups * sizeof *core->groups);
  if (!core->devices || !core->groups) {
    berthi_free(core->devices);
    berthi_free(core->groups);
    berthi_free(core);
    return NULL;
  }
  core->id = core->generation = berthi_add(&generations, 1, relaxed) + 1;  // only uniqueness matters
  core->epoch = berthi_fork_epoch();
  core->process = berthi_process_id();
  core->wall_offset = berthi_wall_now() - berthi_now();
  core->options = config->options;
  core->device_count = config->device_count;
  core->stripe_count = BERTHI_STRIPES;
  berthi_stat_store(&core->handles, 1);
  berthi_stat_store(&core->users, 1);
  berthi_stat_store(&core->refs, 1);
  berthi_mutex_init(&core->lock, BERTHI_RANK_ADMISSION);
  berthi_mutex_init(&core->notifier_lock, BERTHI_RANK_NOTIFIER);
  berthi_mutex_init(&core->telemetry_lock, BERTHI_RANK_TELEMETRY);
  berthi_list_init(&core->queue);
  berthi_list_init(&core->executions);
  berthi_list_init(&core->attempts);
  berthi_list_init(&core->hooked);
  berthi_list_init(&core->grows);
  berthi_list_init(&core->keeper_notes);
  berthi_list_init(&core->abandoned);
  berthi_list_init(&core->notes);
  core->keeper_next = BERTH_NO_DEADLINE;
  berthi_event_init(&core->keeper_wake);
  berthi_event_init(&core->closed_event);
  berthi_event_init(&core->notifier_wake);
  berthi_event_init(&core->telemetry_wake);
  for (uint32_t i = 0; i < config->device_count; i++) fill_slot(core, i, &config->devices[i]);
  return core;
}

// A thread of the backend: detached, with a reference on the core's memory.
static berth_status start(berthi_core *core, const char *name, berthi_thread_fn main, void *arg, berth_error *err) {
  berthi_core_retain(core);
  berth_status status = berthi_thread_start_detached(name, main, arg, err);
  if (status) berthi_core_release(core);
  return status;
}

static berth_status start_threads(berthi_core *core, berth_error *err) {
  BERTHI_TRY(start(core, "berth-notifier", berthi_notifier_main, core, err));
  core->notifier_started = true;
  for (uint32_t i = 0; i < core->device_count; i++) {
    BERTHI_TRY(start(core, "berth-device", berthi_device_main, &core->devices[i], err));
    core->devices[i].thread_started = true;
  }
  return BERTH_OK;
}

// BCK-3: what started must be what was validated.
static berth_status check_startup(const berthi_device_slot *slot, const berthi_startup *startup, berth_error *err) {
  if (strcmp(startup->identity, slot->identity) != 0) {
    return berthi_fail(err, BERTHI_R_PROFILE_MISMATCH, "%s started as \"%s\", its profile says \"%s\"", slot->startup.name, startup->identity, slot->identity);
  }
  if (startup->lanes < slot->ledger.lanes) {
    return berthi_fail(err, BERTHI_R_PROFILE_MISMATCH, "%s started with %u lanes, its profile says %u", slot->startup.name, startup->lanes, slot->ledger.lanes);
  }
  if (startup->total_bytes < slot->ledger.capacity) {
    return berthi_fail(err, BERTHI_R_PROFILE_MISMATCH, "%s started with %llu bytes, its profile manages %llu", slot->startup.name,
                       (unsigned long long)startup->total_bytes, (unsigned long long)slot->ledger.capacity);
  }
  return BERTH_OK;
}

static berth_status open_device(berthi_core *core, berthi_device_slot *slot, const berthi_config_device *device, berth_error *err) {
  berthi_startup startup = {0};
  BERTHI_TRY(berthi_lease_take(slot->identity, slot->startup.name, core, slot->startup.forced_by, err));
  berth_status status = slot->kind->open(slot->ordinal, &device->options, slot->ledger.lanes, &slot->device, &startup, err);
  if (status) {
    berthi_lease_give(slot->identity, core->id);
    return status;
  }
  memcpy(slot->startup.model, startup.model, sizeof slot->startup.model);
  memcpy(slot->startup.identity, startup.identity, sizeof slot->startup.identity);
  slot->startup.total_bytes = startup.total_bytes;
  slot->startup.open_nanoseconds = startup.open_nanoseconds;
  slot->capabilities = startup.capabilities;
  slot->startup.capabilities = startup.capabilities;
  return check_startup(slot, &startup, err);
}

// BCK-4: everything taken is given back by the ordinary close; the error says whether that had ended in a bounded slice.
static void roll_back(berthi_core *core, berth_error *err) {
  berthi_close_signal(core);
  bool quiescent = berthi_event_wait(&core->closed_event, berthi_time_add(berthi_now(), ROLLBACK_SLICE), "open.rollback");
  berthi_fact(err, "rollback_quiescent", quiescent);
  berthi_core_release(core);
}

static berth_status open_core(const berthi_config *config, berthi_core **out_core, berth_error *err) {
  berthi_core *core = make_core(config);
  if (!core) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a backend of %zu bytes", sizeof *core);
  berth_status status = start(core, "berth-keeper", berthi_keeper_main, core, err);
  if (status) {
    berthi_core_release(core);
    return status;
  }
  status = start_threads(core, err);
  for (uint32_t i = 0; !status && i < core->device_count; i++) status = open_device(core, &core->devices[i], &config->devices[i], err);
  if (!status && core->options.telemetry_interval > 0) status = start(core, "berth-telemetry", berthi_telemetry_main, core, err);
  if (status) {
    roll_back(core, err);
    return status;
  }
  *out_core = core;
  return BERTH_OK;
}

berth_status berth_backend_open(const berth_backend_options *options, berth_backend **out_backend, berth_error *err) {
  if (!out_backend) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_backend must not be NULL");
  berthi_config *config = berthi_alloc(sizeof *config);
  if (!config) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a configuration of %zu bytes", sizeof *config);
  berthi_core *core = NULL;
  berth_status status = berthi_config_resolve(options, config, err);
  if (!status) status = open_core(config, &core, err);
  berthi_free(config);
  if (status) return status;
  berthi_log(core, BERTH_LOG_INFO, "backend %llu: open with %u devices", (unsigned long long)core->id, core->device_count);
  *out_backend = &core->backend;
  return BERTH_OK;
}

berth_backend *berth_backend_retain(berth_backend *backend) {
  if (!backend) return NULL;
  berthi_core *core = berthi_core_of_backend(backend);
  if (!berthi_core_forked(core)) berthi_ref_up(&core->handles);
  return backend;
}

void berth_backend_release(berth_backend *backend) {
  if (!backend) return;
  berthi_core *core = berthi_core_of_backend(backend);
  if (berthi_core_forked(core) || !berthi_ref_down(&core->handles)) return;
  berthi_close_signal(core);
  berthi_core_leave(core);
  berthi_core_release(core);
}

berth_session *berth_backend_session(berth_backend *backend) {
  if (!backend) return NULL;
  return berth_session_retain(&berthi_core_of_backend(backend)->session);
}
