// SPDX-License-Identifier: Apache-2.0
/// Snapshots of a backend's metrics inside the runtime (MET-1), and their JSON.
#ifndef BERTHI_METRICS_H
#define BERTHI_METRICS_H

#include "base/json.h"
#include "runtime/core.h"

/// The snapshot as the holder of the admission lock sees it; `devices` and `device_capacity` are the caller's. Stripes go on meanwhile.
void berthi_metrics_read_locked(berthi_core *core, berth_metrics *out) BERTHI_REQUIRES(core->lock);

/// Writes a snapshot (all devices in it) as one object, schema "berth.metrics".
void berthi_metrics_json_write(berthi_json *json, const char *key, const berthi_core *core, const berth_metrics *metrics);

#endif
