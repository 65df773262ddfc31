// SPDX-License-Identifier: Apache-2.0
/// Shared by the files of the simulated device.
#ifndef BERTHI_SIM_INTERNAL_H
#define BERTHI_SIM_INTERNAL_H

#include "base/lock.h"
#include "device/kinds.h"
#include "device/sim/sim.h"

/// What the parameters say. An N of "the Nth" counts from 1 in the life of one open; 0 is never.
typedef struct sim_script {
  uint64_t memory, lanes, slots, capabilities;
  int64_t open_latency, alloc_latency, copy_latency, settle_latency, close_latency, probe_latency, telemetry_latency;
  bool fail_open, probe_lost, hang_close;
  uint64_t fail_alloc, fail_alloc_from, fail_copy, fail_settle, fail_enter;
  uint64_t sticky_after, lost_after, restart_after, unknown_after;
  uint64_t probe_fails, unprovable_close, telemetry_fails;
  uint64_t nonsense;
  uint64_t reread_memory, process_used;
} sim_script;

/// What survives of an ordinal between opens. All words are atomic; none orders another.
typedef struct sim_control {
  berthi_atomic32 fault; ///< berthi_fault_class
  berthi_event hang;     ///< set: closes do not hang
  berthi_atomic64 limit, process_used;
  berthi_atomic64 opens, open_failures, closes, close_failures;
  berthi_atomic64 allocs, alloc_failures, frees, resets;
  berthi_atomic64 copies, settles, parallels, enters, leaves;
  berthi_atomic64 probes, probe_failures, telemetries, rereads;
  berthi_atomic64 live_devices, live_blocks, live_bytes;
} sim_control;

typedef struct sim_device {
  berthi_device base; ///< first
  sim_script script;
  sim_control *control;
  berthi_atomic64 operations; ///< allocs, copies, settles
  berthi_atomic64 allocs, copies, settles, enters, closes, probes, telemetries;
  berthi_atomic64 blocks, bytes; ///< live
  berthi_atomic32 users;         ///< the owner, and every close under way: the last one out frees
  berthi_atomic32 closed;
} sim_device;

sim_control *berthi_sim_control(uint32_t ordinal);
berth_status berthi_sim_script_parse(const char *text, sim_script *out, berth_error *err);
static inline sim_device *sim_of(berthi_device *device) { return (sim_device *)(void *)device; }

/// Waits a latency of the script: virtual time under the deterministic scheduler.
void berthi_sim_delay(int64_t latency);
/// Counts an operation, raises the fault that the script has for it, and refuses when the device is not fine.
berth_status berthi_sim_begin(sim_device *sim, const char *what, berth_error *err);

// sim_memory.c
berth_status berthi_sim_alloc(berthi_domain *domain, uint64_t bytes, void **out, berth_error *err);
void berthi_sim_free(berthi_domain *domain, void *memory);
void berthi_sim_reset_domain(berthi_domain *domain);
berth_status berthi_sim_copy(berthi_domain *domain, berthi_copy direction, void *to, const void *from, uint64_t bytes, berth_error *err);

#endif
