// SPDX-License-Identifier: Apache-2.0
/// Health of a device (HLT-1): the automaton of states.def, driven by sticky errors, probes and operators. Probes run on the device's own thread.
#include "runtime/core.h"

static void set_health_locked(berthi_device_slot *slot, berth_health to) {
  uint32_t from = (uint32_t)berthi_get(&slot->health);
  berthi_edge(BERTHI_HEALTH, from, to);
  berthi_put(&slot->health, to);
  if (to == BERTH_HEALTH_QUARANTINED && from != BERTH_HEALTH_PROBING) {
    berthi_up(&slot->quarantines, 1);
    berthi_up(&slot->core->counters.quarantines, 1);
  }
}

// Back in service: what health withheld is free again.
static void heal_locked(berthi_core *core, berthi_device_slot *slot) BERTHI_REQUIRES(core->lock) {
  set_health_locked(slot, BERTH_HEALTH_OK);
  berthi_put(&slot->ledger.withheld, 0);
  slot->fault = BERTHI_DEVICE_FINE;
  slot->failed_probes = 0;
  berthi_scan_locked(core);
}

static void out_of_service_locked(berthi_core *core, berthi_device_slot *slot, berth_health to) BERTHI_REQUIRES(core->lock) {
  set_health_locked(slot, to);
  berthi_refuse_unserved_locked(core);
  berthi_scan_locked(core);  // grows on the device end; barriers move on
}

static void probe_due_locked(berthi_core *core, berthi_timer *timer, int64_t now) {
  berthi_device_slot *slot = BERTHI_CONTAINER(timer, berthi_device_slot, health_timer);
  (void)core;
  (void)now;
  slot->probe_wanted = true;
  berthi_event_set(&slot->wake);
}

static void quarantine_locked(berthi_core *core, berthi_device_slot *slot) BERTHI_REQUIRES(core->lock) {
  out_of_service_locked(core, slot, BERTH_HEALTH_QUARANTINED);
  slot->health_timer.fire = probe_due_locked;
  berthi_timer_arm_locked(core, &slot->health_timer, berthi_time_add(berthi_now(), core->options.probe_interval));
}

// SUSPECT has lasted its second: whatever the device's thread is doing, it is out.
static void suspect_over_locked(berthi_core *core, berthi_timer *timer, int64_t now) BERTHI_REQUIRES(core->lock) {
  berthi_device_slot *slot = BERTHI_CONTAINER(timer, berthi_device_slot, health_timer);
  (void)now;
  if (berthi_get(&slot->health) == BERTH_HEALTH_SUSPECT) quarantine_locked(core, slot);
}

void berthi_health_fault_locked(berthi_core *core, berthi_device_slot *slot, berthi_fault_class fault, const berth_error *cause) {
  if (slot->fault == BERTHI_DEVICE_FINE && cause) slot->first_fault = *cause;
  if (fault > slot->fault) slot->fault = fault;
  if (fault == BERTHI_DEVICE_UNKNOWN_ISOLATION) {  // nobody knows what else was hit
    berthi_store(&core->unhealthy, 1, release);
    berthi_refuse_unserved_locked(core);
  }
  if (berthi_get(&slot->health) != BERTH_HEALTH_OK) return;
  berthi_up(&slot->faults, 1);
  set_health_locked(slot, BERTH_HEALTH_SUSPECT);
  slot->resolve_wanted = true;
  slot->health_timer.fire = suspect_over_locked;
  berthi_timer_arm_locked(core, &slot->health_timer, berthi_time_add(berthi_now(), core->options.suspect_limit));
  berthi_event_set(&slot->wake);
}

// The device's thread looks at what the fault really is.
void berthi_health_resolve(berthi_device_slot *slot) {
  berthi_core *core = slot->core;
  berthi_fault_class fault = slot->kind->fault ? slot->kind->fault(slot->device) : BERTHI_DEVICE_FINE;
  berthi_after after;
  berthi_lock(core, &after);
  slot->resolve_wanted = false;
  if (berthi_get(&slot->health) == BERTH_HEALTH_SUSPECT) {
    berthi_timer_disarm_locked(core, &slot->health_timer);
    if (fault == BERTHI_DEVICE_FINE) heal_locked(core, slot);
    else if (fault == BERTHI_DEVICE_LOST) out_of_service_locked(core, slot, BERTH_HEALTH_LOST);
    else if (fault == BERTHI_DEVICE_NEEDS_RESTART) out_of_service_locked(core, slot, BERTH_HEALTH_RESTART_REQUIRED);
    else quarantine_locked(core, slot);
  }
  berthi_unlock(core, &after);
}

static bool begin_probe(berthi_device_slot *slot) {
  berthi_core *core = slot->core;
  berthi_after after;
  berthi_lock(core, &after);
  slot->probe_wanted = false;
  uint64_t health = berthi_get(&slot->health);
  bool probe = health == BERTH_HEALTH_QUARANTINED || health == BERTH_HEALTH_LOST;
  if (probe) set_health_locked(slot, BERTH_HEALTH_PROBING);
  berthi_unlock(core, &after);
  return probe;
}

void berthi_health_probe(berthi_device_slot *slot) {
  berthi_core *core = slot->core;
  berth_error error = BERTH_ERROR_INIT;
  if (!begin_probe(slot)) return;
  berth_status status = slot->kind->probe ? slot->kind->probe(slot->device, &error) : BERTH_OK;
  berthi_fault_class fault = slot->kind->fault ? slot->kind->fault(slot->device) : BERTHI_DEVICE_FINE;
  berthi_after after;
  berthi_lock(core, &after);
  bool by_hand = slot->quarantine_wanted;
  slot->quarantine_wanted = false;
  if (by_hand && fault < BERTHI_DEVICE_LOST) {
    out_of_service_locked(core, slot, BERTH_HEALTH_QUARANTINED);
  } else if (!status && fault == BERTHI_DEVICE_FINE) {
    berthi_store(&core->unhealthy, 0, release);
    heal_locked(core, slot);
  } else if (fault == BERTHI_DEVICE_NEEDS_RESTART) {
    out_of_service_locked(core, slot, BERTH_HEALTH_RESTART_REQUIRED);
  } else if (fault == BERTHI_DEVICE_LOST || ++slot->failed_probes >= core->options.probe_limit) {
    out_of_service_locked(core, slot, BERTH_HEALTH_LOST);
  } else {
    quarantine_locked(core, slot);
  }
  berthi_unlock(core, &after);
  berthi_log(core, status ? BERTH_LOG_WARNING : BERTH_LOG_INFO, "%s: probe %s", slot->startup.name, status ? error.message : "passed");
}

static berth_status find_slot(berth_backend *backend, uint32_t device, berthi_core **core, berthi_device_slot **slot, berth_error *err) {
  if (!backend) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend must not be NULL");
  *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(*core, err));
  if (device >= (*core)->device_count) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device: %u given, the backend has %u", device, (*core)->device_count);
  }
  *slot = &(*core)->devices[device];
  return berthi_gate_is_closed(&(*core)->gate) ? berthi_core_fail_closing(*core, err) : BERTH_OK;
}

static berth_status wrong_state(const berthi_device_slot *slot, uint64_t health, berth_error *err) {
  return berthi_fail(err, BERTHI_R_DEVICE_STATE, "%s is %s", slot->startup.name, berthi_state_name(BERTHI_HEALTH, (uint32_t)health));
}

berth_status berth_device_quarantine(berth_backend *backend, uint32_t device, berth_error *err) {
  berthi_core *core;
  berthi_device_slot *slot;
  BERTHI_TRY(find_slot(backend, device, &core, &slot, err));
  berth_status status = BERTH_OK;
  berthi_after after;
  berthi_lock(core, &after);
  uint64_t health = berthi_get(&slot->health);
  if (health == BERTH_HEALTH_LOST || health == BERTH_HEALTH_RESTART_REQUIRED) status = wrong_state(slot, health, err);
  else if (health == BERTH_HEALTH_OK || health == BERTH_HEALTH_SUSPECT) out_of_service_locked(core, slot, BERTH_HEALTH_QUARANTINED);
  slot->quarantine_wanted = health == BERTH_HEALTH_PROBING;
  slot->probe_wanted = false;
  berthi_timer_disarm_locked(core, &slot->health_timer);  // by hand: it stays until an operator restores it
  berthi_unlock(core, &after);
  return status;
}

berth_status berth_device_restore(berth_backend *backend, uint32_t device, berth_error *err) {
  berthi_core *core;
  berthi_device_slot *slot;
  BERTHI_TRY(find_slot(backend, device, &core, &slot, err));
  berth_status status = BERTH_OK;
  berthi_after after;
  berthi_lock(core, &after);
  uint64_t health = berthi_get(&slot->health);
  if (health == BERTH_HEALTH_QUARANTINED || health == BERTH_HEALTH_LOST) {
    berthi_timer_disarm_locked(core, &slot->health_timer);
    slot->failed_probes = 0;
    slot->probe_wanted = true;
  } else {
    status = wrong_state(slot, health, err);
  }
  berthi_unlock(core, &after);
  if (!status) berthi_event_set(&slot->wake);
  return status;
}

berth_status berth_device_charge(berth_backend *backend, uint32_t device, int64_t bytes, berth_error *err) {
  berthi_core *core;
  berthi_device_slot *slot;
  BERTHI_TRY(find_slot(backend, device, &core, &slot, err));
  berth_status status = BERTH_OK;
  berthi_after after;
  berthi_lock(core, &after);
  uint64_t charged = berthi_get(&slot->ledger.external_charged);
  if (bytes < 0 && (bytes == INT64_MIN || (uint64_t)-bytes > charged)) {
    status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "bytes: %lld credited, %llu are charged", (long long)bytes, (unsigned long long)charged);
  } else if (bytes > 0 && charged > (uint64_t)INT64_MAX - (uint64_t)bytes) {
    status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "bytes: %lld more than can be counted", (long long)bytes);
  } else {
    berthi_put(&slot->ledger.external_charged, charged + (uint64_t)bytes);
    berthi_scan_locked(core);
  }
  berthi_unlock(core, &after);
  return status;
}
