// SPDX-License-Identifier: Apache-2.0
/// The thread of one device: probes and clean-up, so that a device that hangs harms no other (CLS-4).
#include "runtime/core.h"

static bool wants(berthi_device_slot *slot, bool *resolve, bool *probe, bool *cleanup, bool *leave) {
  berthi_core *core = slot->core;
  berthi_after after;
  berthi_lock(core, &after);
  *cleanup = slot->cleanup_wanted;
  *resolve = slot->resolve_wanted && !slot->cleanup_begun;  // afterwards there may be no device
  *probe = slot->probe_wanted && !slot->cleanup_begun;
  *leave = slot->thread_leave && !*cleanup;
  berthi_unlock(core, &after);
  return *resolve || *probe || *cleanup || *leave;
}

// CLEANING -> RELEASED or LEAKED. A success after the limit turns LEAKED into RELEASED: late, and counted.
static void clean_up(berthi_device_slot *slot) {
  berthi_core *core = slot->core;
  berth_error error = BERTH_ERROR_INIT;
  berthi_trace(core, "cleanup", true, slot->index);
  berth_status status = slot->device ? slot->kind->close(slot->device, false, &error) : BERTH_OK;
  berthi_trace(core, "cleanup", false, slot->index);
  if (!status) berthi_lease_give(slot->identity, core->id);
  else berthi_lease_state(slot->identity, core->id, 2);
  berthi_after after;
  berthi_lock(core, &after);
  berthi_timer_disarm_locked(core, &slot->cleanup_timer);
  slot->cleanup_wanted = false;
  slot->thread_leave = true;
  if (!status) {
    if (slot->closing == BERTHI_SLOT_LEAKED) {
      berthi_up(&core->late_successes, 1);
      berthi_put(&slot->ledger.leaked, 0);
    }
    slot->device = NULL;
    slot->closing = BERTHI_SLOT_RELEASED;
  } else {
    slot->closing = BERTHI_SLOT_LEAKED;
    slot->cleanup_error = error;
  }
  berthi_unlock(core, &after);
  if (status) berthi_log(core, BERTH_LOG_ERROR, "%s: clean-up is not proven, the device is leaked: %s", slot->startup.name, error.message);
  berthi_event_set(&core->keeper_wake);
}

void berthi_device_main(void *arg) {
  berthi_device_slot *slot = arg;
  berthi_core *core = slot->core;
  berthi_thread_self()->flags |= BERTHI_THREAD_INTERNAL;
  for (bool leave = false; !leave;) {
    bool resolve, probe, cleanup;
    berthi_event_clear(&slot->wake);
    if (!wants(slot, &resolve, &probe, &cleanup, &leave)) (void)berthi_event_wait(&slot->wake, BERTH_NO_DEADLINE, "device.idle");
    if (resolve) berthi_health_resolve(slot);
    if (probe) berthi_health_probe(slot);
    if (cleanup) clean_up(slot);
  }
  berthi_core_release(core);
}
