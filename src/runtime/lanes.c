// SPDX-License-Identifier: Apache-2.0
#include "runtime/lanes.h"

static berth_status find_slot(const berthi_core *core, const berth_lanes_options *o, berthi_device_slot **out, berth_error *err) {
  if (o->device < core->device_count) {
    *out = &core->devices[o->device];
    return BERTH_OK;
  }
  berth_status status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device: %u, at most %u", o->device, core->device_count - 1);
  berthi_fact(err, "value", o->device);
  berthi_fact(err, "bound", core->device_count - 1);
  return status;
}

static berth_status fill_mask(const berthi_device_slot *slot, const berth_lanes_options *o, berthi_lanemask *mask, berth_error *err) {
  if (slot->kind->lane_of_cpu == NULL)
    return berthi_fail(err, BERTHI_R_CAPABILITY_UNSUPPORTED, "%s has no CPUs to choose from; only an executor can be given", slot->startup.name);
  if (o->cpus == NULL || o->cpu_count == 0) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "cpus: none, at least 1 (or an executor)");
  for (uint32_t i = 0; i < o->cpu_count; i++) {
    int lane = slot->kind->lane_of_cpu(slot->device, o->cpus[i]);
    if (lane >= 0 && (uint32_t)lane < slot->ledger.lanes) {
      berthi_lanes_set(mask, (uint32_t)lane);
      continue;
    }
    berth_status status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "cpus[%u]: CPU %u is none of the %u lanes of %s", i, o->cpus[i],
                                      slot->ledger.lanes, slot->startup.name);
    berthi_fact(err, "cpu", o->cpus[i]);
    return status;
  }
  return BERTH_OK;
}

static berth_status fill_executor(const berth_lanes_options *o, berth_lanes *lanes, berth_error *err) {
  lanes->executor = o->executor;
  lanes->executor_arg = o->executor_arg;
  lanes->executor_lanes = o->executor_lanes;
  if (o->executor_lanes >= 1) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "executor_lanes: 0, at least 1: the threads behind the executor");
}

/// Inside a device permit, so that the device is not closed meanwhile.
static berth_status make(berthi_core *core, const berth_lanes_options *o, berth_lanes **out, berth_error *err) {
  berthi_device_slot *slot = NULL;
  BERTHI_TRY(find_slot(core, o, &slot, err));
  berth_lanes *lanes = berthi_alloc(sizeof(*lanes));
  if (lanes == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a lane set needs %zu bytes", sizeof(*lanes));
  lanes->core = core;
  lanes->device = o->device;
  berthi_stat_store(&lanes->refs, 1);
  berth_status status = o->executor != NULL ? fill_executor(o, lanes, err) : fill_mask(slot, o, &lanes->mask, err);
  if (status != BERTH_OK) {
    berthi_free(lanes);
    return status;
  }
  berthi_core_retain(core);
  *out = lanes;
  return BERTH_OK;
}

berth_status berth_lanes_create(berth_session *session, const berth_lanes_options *options, berth_lanes **out_lanes, berth_error *err) {
  if (session == NULL || out_lanes == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and out_lanes are required");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berth_lanes_options known;
  BERTHI_TRY(berthi_options_copy(options, &known, sizeof(known), "berth_lanes_options", err));
  if (!berthi_gate_take(&core->gate, BERTHI_GATE_DEVICE)) return berthi_core_fail_closing(core, err);
  berth_status status = make(core, &known, out_lanes, err);
  if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
  return status;
}

berth_lanes *berthi_lanes_retain(berth_lanes *lanes) {
  if (lanes != NULL) berthi_ref_up(&lanes->refs);
  return lanes;
}

void berth_lanes_release(berth_lanes *lanes) {
  if (lanes == NULL || berthi_core_forked(lanes->core)) return;
  if (!berthi_ref_down(&lanes->refs)) return;
  berthi_core *core = lanes->core;
  berthi_free(lanes);
  berthi_core_release(core);
}

bool berthi_lanes_caller_managed(const berth_lanes *lanes) { return lanes != NULL && lanes->executor != NULL; }

bool berthi_lanes_allowed(const berthi_core *core, const berthi_request *request, uint32_t device, berthi_lanemask *out) {
  const berth_lanes *lanes = request->lane_set;
  *out = (berthi_lanemask){{0}};
  if (lanes != NULL) {
    if (lanes->device != device || lanes->executor != NULL) return false; // a caller-managed set takes no lanes of the device
    *out = lanes->mask;
    return true;
  }
  uint32_t count = core->devices[device].ledger.lanes;
  for (uint32_t w = 0; w < BERTHI_LANE_WORDS && count > 64 * w; w++)
    out->w[w] = count - 64 * w >= 64 ? UINT64_MAX : ((uint64_t)1 << (count - 64 * w)) - 1;
  return true;
}

bool berthi_lanes_try_enter(berth_lanes *lanes) {
  uint32_t free = 0;
  if (lanes->executor == NULL) return true;
  return berthi_cas(&lanes->busy, &free, 1, acquire); // pairs with berthi_lanes_leave
}

berth_status berthi_lanes_enter(berth_lanes *lanes, bool *out_entered, berth_error *err) {
  *out_entered = false;
  if (!berthi_lanes_caller_managed(lanes)) return BERTH_OK;
  *out_entered = berthi_lanes_try_enter(lanes);
  return *out_entered ? BERTH_OK : berthi_fail(err, BERTHI_R_CONTENDED, "lane_set: another execution is using the caller-managed lanes");
}

void berthi_lanes_leave(berth_lanes *lanes) {
  if (lanes->executor == NULL) return;
  berthi_assert(berthi_stat_load(&lanes->busy) == 1, "RUN-3");
  berthi_store(&lanes->busy, 0, release);
}

berth_executor_fn berthi_lanes_executor(const berth_lanes *lanes, void **out_arg, uint32_t *out_lanes) {
  if (!berthi_lanes_caller_managed(lanes)) return NULL;
  *out_arg = lanes->executor_arg;
  *out_lanes = lanes->executor_lanes;
  return lanes->executor;
}
