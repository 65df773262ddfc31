// SPDX-License-Identifier: Apache-2.0
/// Control of the simulated devices from tests. Everything here is per ordinal, survives a close, and may be called by any thread at any time.
#ifndef BERTHI_SIM_H
#define BERTHI_SIM_H

#include "device/device.h"

/// Calls seen since the process started or since berthi_sim_reset.
typedef struct berthi_sim_counters {
  uint64_t opens, open_failures;
  uint64_t closes, close_failures; ///< closes: all calls
  uint64_t allocs, alloc_failures, frees, resets;
  uint64_t copies, settles, parallels, enters, leaves;
  uint64_t probes, probe_failures, telemetries, rereads;
  uint64_t live_devices, live_blocks, live_bytes; ///< not counts of calls: what is there now
} berthi_sim_counters;

/// Sets what is wrong with the device, as a sticky_after, lost_after... of its parameters would. The next open starts fine.
void berthi_sim_inject_fault(uint32_t ordinal, berthi_fault_class fault);
/// Lets closes that hang (parameter hang_close) go on, now and later, until the next open.
void berthi_sim_release_hang(uint32_t ordinal);
/// What `reread` reports from now on; a limit of 0 goes back to the parameters.
void berthi_sim_set_limits(uint32_t ordinal, uint64_t limit_bytes, uint64_t process_used_bytes);
void berthi_sim_read_counters(uint32_t ordinal, berthi_sim_counters *out);
/// Counters to 0 (what is live stays), no fault, no limits, hangs as at the start.
void berthi_sim_reset(uint32_t ordinal);

#endif
