// SPDX-License-Identifier: Apache-2.0
/// Devices: what could be opened, and how a backend is told to open it.
#ifndef BERTH_DEVICE_H
#define BERTH_DEVICE_H

#include "berth/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_DEVICE_NAME 32
#define BERTH_DEVICE_IDENTITY 96
#define BERTH_DEVICES_MAX 64

/// What a device can do. A request names the bits it requires; placement never relaxes one.
enum {
  BERTH_CAP_HOST_MEMORY = 1u << 0,     ///< Its memory is the host's: pointers can be read by the caller.
  BERTH_CAP_F32 = 1u << 1,
  BERTH_CAP_F64 = 1u << 2,
  BERTH_CAP_COMPLEX = 1u << 3,
  BERTH_CAP_BLAS = 1u << 4,            ///< Matrix products.
  BERTH_CAP_PARALLEL_LANES = 1u << 5,  ///< More than one lane can work for one execution.
  BERTH_CAP_ASYNC = 1u << 6            ///< Queues run behind the caller.
};

/// Health of a device (HLT-1).
typedef enum berth_health {
  BERTH_HEALTH_OK = 0,
  BERTH_HEALTH_SUSPECT = 1,
  BERTH_HEALTH_QUARANTINED = 2,
  BERTH_HEALTH_PROBING = 3,
  BERTH_HEALTH_LOST = 4,
  BERTH_HEALTH_RESTART_REQUIRED = 5
} berth_health;

/// A device that this process could open, or why it could not. Sizes in bytes.
typedef struct berth_device_description {
  size_t struct_size;
  char name[BERTH_DEVICE_NAME];         ///< "cpu:0"
  char model[64];                       ///< For people.
  char identity[BERTH_DEVICE_IDENTITY]; ///< Stable identity that the lease is taken by.
  bool available;
  char unavailable_because[160];        ///< Empty when available.
  uint64_t limit_bytes;                 ///< What the process may use of it (LED-6).
  char limit_source[96];                ///< Where that figure comes from, such as "half of cgroup memory.max 24 GiB".
  uint64_t default_capacity_bytes;      ///< What a backend would manage by default.
  uint32_t default_lanes;
  uint32_t default_slots;
  uint32_t capabilities;                ///< BERTH_CAP_ bits.
} berth_device_description;
#define BERTH_DEVICE_DESCRIPTION_INIT BERTH_SIZED(berth_device_description)

/// Options of one device of a backend. A field that is 0 means its default.
typedef struct berth_device_options {
  size_t struct_size;
  const char *name;              ///< "cpu:0", "sim:0"; required. Borrowed during the call.
  uint64_t capacity_bytes;       ///< Managed capacity: what the ledger may promise to grants, residents and caches. Default: see device.
  uint64_t cache_bytes;          ///< Share of the capacity that caches may charge (K). Default: a sixteenth of the capacity.
  uint64_t reserve_bytes;        ///< Kept out of the capacity's use (class `reserve`).
  uint64_t library_bytes;        ///< Declared use of libraries (class `library`).
  uint64_t default_grant_bytes;  ///< Grant of a request that names no bytes. Default: Q / slots, at least 64 MiB, at most Q.
  uint32_t slots;                ///< Concurrent executions. Default: 4 x lanes.
  uint32_t lanes;                ///< CPUs used. Default: the quota rounded down, at least 1.
  const char *parameters;        ///< "key=value,key=value" for the kind of device; unknown keys are refused. Borrowed during the call.
} berth_device_options;
#define BERTH_DEVICE_OPTIONS_INIT BERTH_SIZED(berth_device_options)

/// Lists the devices that this process could open, available or not. Takes no lease and starts nothing.
///
/// Owns:    fills up to `capacity` elements of `out` (each with its struct_size set by the caller in element 0; stride is that size).
/// Threads: any.
/// Blocks:  while it reads the machine's description; a few milliseconds.
/// Fails:   INVALID_ARGUMENT.
/// Since:   0.1
BERTH_API berth_status berth_devices_list(berth_device_description *out, uint32_t capacity, uint32_t *out_count, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
