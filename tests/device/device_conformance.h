// SPDX-License-Identifier: Apache-2.0
/// What every kind of device must do. One suite, run on each kind; a kind lists what it does not support and what is known to fail, and a case
/// of either list that passes is a failure, so the lists stay true.
#ifndef BERTH_TEST_DEVICE_CONFORMANCE_H
#define BERTH_TEST_DEVICE_CONFORMANCE_H

#include "device/device.h"

typedef struct conformance_target {
  const char *device;                   ///< "cpu:0"
  const char *parameters;               ///< may be NULL
  uint32_t lanes;                       ///< to open with; 0: what the limits say
  const char *const *unsupported;       ///< names of cases, NULL-terminated; may be NULL
  const char *const *expected_failures; ///< the same
} conformance_target;

/// Runs every case and prints a line each. Returns the number of surprises.
int berth_test_conformance(const conformance_target *target);

#endif
