// SPDX-License-Identifier: Apache-2.0
/// A backend's configuration with every default filled in, validated whole before anything is acquired (BCK-1).
#ifndef BERTHI_CONFIG_H
#define BERTHI_CONFIG_H

#include "berth/runtime/backend.h"
#include "device/device.h"

#define BERTHI_SLOTS_MAX 4096u

typedef struct berthi_config_device {
  const berthi_device_kind *kind;
  uint32_t ordinal;
  char name[BERTH_DEVICE_NAME];
  char identity[BERTH_DEVICE_IDENTITY];
  berth_device_options options; ///< every field set; `name` and `parameters` are the caller's strings
  berthi_device_limits limits;
} berthi_config_device;

/// Some 25 KiB: on the heap, not on a stack.
typedef struct berthi_config {
  /// Defaults filled in; `devices` is NULL. Here 0 means none for `abandoned_detail` and `abandoned_max`, and a negative `telemetry_interval` means
  /// that no telemetry is read.
  berth_backend_options options;
  uint32_t device_count;
  berthi_config_device devices[BERTH_DEVICES_MAX];
} berthi_config;

/// Validates and completes the options. Asks the kinds for identities and limits; opens, leases and allocates nothing.
/// Fails: INVALID_ARGUMENT invalid_configuration (names field, value and bound; facts value, bound), NOT_FOUND unknown_device, and what the kind's
/// limits answer (limit_unknown, device_unavailable).
berth_status berthi_config_resolve(const berth_backend_options *options, berthi_config *out, berth_error *err);

#endif
