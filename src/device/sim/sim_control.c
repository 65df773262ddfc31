// SPDX-License-Identifier: Apache-2.0
// What survives of each simulated ordinal, and the script that its parameters give it.
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "device/sim/sim_internal.h"

static sim_control controls[BERTHI_SIM_ORDINALS];

sim_control *berthi_sim_control(uint32_t ordinal) {
  berthi_assert(ordinal < BERTHI_SIM_ORDINALS, "sim ordinal");
  return &controls[ordinal];
}

void berthi_sim_inject_fault(uint32_t ordinal, berthi_fault_class fault) {
  berthi_store(&berthi_sim_control(ordinal)->fault, (uint32_t)fault, release);
}

void berthi_sim_release_hang(uint32_t ordinal) { berthi_event_set(&berthi_sim_control(ordinal)->hang); }

void berthi_sim_set_limits(uint32_t ordinal, uint64_t limit_bytes, uint64_t process_used_bytes) {
  sim_control *control = berthi_sim_control(ordinal);
  berthi_stat_store(&control->process_used, process_used_bytes);
  berthi_store(&control->limit, limit_bytes, release);
}

// Each counter of the public struct has a word of the same name.
#define SIM_CALLS(X) \
  X(opens) \
  X(open_failures) \
  X(closes) \
  X(close_failures) \
  X(allocs) \
  X(alloc_failures) \
  X(frees) \
  X(resets) \
  X(copies) \
  X(settles) \
  X(parallels) \
  X(enters) \
  X(leaves) \
  X(probes) \
  X(probe_failures) \
  X(telemetries) \
  X(rereads)
#define SIM_LEVELS(X) \
  X(live_devices) \
  X(live_blocks) \
  X(live_bytes)

void berthi_sim_read_counters(uint32_t ordinal, berthi_sim_counters *out) {
  sim_control *control = berthi_sim_control(ordinal);
#define READ(field) out->field = berthi_stat_load(&control->field);
  SIM_CALLS(READ)
  SIM_LEVELS(READ)
#undef READ
}

void berthi_sim_reset(uint32_t ordinal) {
  sim_control *control = berthi_sim_control(ordinal);
#define CLEAR(field) berthi_stat_store(&control->field, 0);
  SIM_CALLS(CLEAR)
#undef CLEAR
  berthi_store(&control->fault, BERTHI_DEVICE_FINE, release);
  berthi_store(&control->limit, 0, release);
  berthi_event_clear(&control->hang);
}

#define FIELD(name, kind, low, high) \
  { #name, BERTHI_PARAM_##kind, offsetof(sim_script, name), 0, low, high }
static const berthi_parameter parameters[] = {
    FIELD(memory, BYTES, 1, UINT64_MAX),
    FIELD(lanes, U64, 1, BERTHI_LANES_MAX),
    FIELD(slots, U64, 1, UINT32_MAX),
    FIELD(capabilities, U64, 0, UINT32_MAX),
    FIELD(open_latency, NANOSECONDS, 0, 0),
    FIELD(alloc_latency, NANOSECONDS, 0, 0),
    FIELD(copy_latency, NANOSECONDS, 0, 0),
    FIELD(settle_latency, NANOSECONDS, 0, 0),
    FIELD(close_latency, NANOSECONDS, 0, 0),
    FIELD(probe_latency, NANOSECONDS, 0, 0),
    FIELD(telemetry_latency, NANOSECONDS, 0, 0),
    FIELD(fail_open, BOOL, 0, 0),
    FIELD(fail_alloc, U64, 0, 0),
    FIELD(fail_alloc_from, U64, 0, 0),
    FIELD(fail_copy, U64, 0, 0),
    FIELD(fail_settle, U64, 0, 0),
    FIELD(fail_enter, U64, 0, 0),
    FIELD(sticky_after, U64, 0, 0),
    FIELD(lost_after, U64, 0, 0),
    FIELD(restart_after, U64, 0, 0),
    FIELD(unknown_after, U64, 0, 0),
    FIELD(probe_fails, U64, 0, 0),
    FIELD(probe_lost, BOOL, 0, 0),
    FIELD(telemetry_fails, U64, 0, 0),
    FIELD(hang_close, BOOL, 0, 0),
    FIELD(unprovable_close, U64, 0, 0),
    FIELD(nonsense, U64, 0, 5),
    FIELD(reread_memory, BYTES, 0, 0),
    FIELD(process_used, BYTES, 0, 0),
};

berth_status berthi_sim_script_parse(const char *text, sim_script *out, berth_error *err) {
  *out = (sim_script){
      .memory = (uint64_t)1 << 30,
      .lanes = 4,
      .capabilities = BERTH_CAP_HOST_MEMORY | BERTH_CAP_F32 | BERTH_CAP_F64 | BERTH_CAP_COMPLEX | BERTH_CAP_BLAS | BERTH_CAP_PARALLEL_LANES,
  };
  BERTHI_TRY(berthi_parameters_parse(text, parameters, BERTHI_COUNTOF(parameters), out, err));
  if (out->slots == 0) out->slots = 4 * out->lanes;
  return BERTH_OK;
}
