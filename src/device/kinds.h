// SPDX-License-Identifier: Apache-2.0
/// The kinds that the registry knows. Only registry.c and tests of one kind include this.
#ifndef BERTHI_KINDS_H
#define BERTHI_KINDS_H

#include "device/device.h"

#define BERTHI_SIM_ORDINALS 64u

extern const berthi_device_kind berthi_cpu_kind; ///< absent from the deterministic scheduler's build
extern const berthi_device_kind berthi_sim_kind;

#endif
