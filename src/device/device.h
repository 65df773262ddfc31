// SPDX-License-Identifier: Apache-2.0
/// The device vtable: all that the runtime knows of a device. Fits devices with separate memory, asynchronous queues and sticky errors.
///
/// The runtime calls with no lock held. `close`, `probe` and `telemetry` run on threads that may hang without harming other devices (CLS-4,
/// TEL-1). Everything else returns without waiting for other executions.
#ifndef BERTHI_DEVICE_H
#define BERTHI_DEVICE_H

#include "base/atomic.h"
#include "base/lock.h"
#include "berth/device.h"

typedef struct berthi_device berthi_device;
typedef struct berthi_device_kind berthi_device_kind;

/// A set of lanes of one device: bit i is lane i.
#define BERTHI_LANES_MAX 256
#define BERTHI_LANE_WORDS (BERTHI_LANES_MAX / 64)
typedef struct berthi_lanemask {
  uint64_t w[BERTHI_LANE_WORDS];
} berthi_lanemask;

/// What is wrong with a device, as far as the device itself can tell.
typedef enum berthi_fault_class {
  BERTHI_DEVICE_FINE = 0,
  BERTHI_DEVICE_STICKY = 1,           ///< every later call would fail; a probe decides
  BERTHI_DEVICE_LOST = 2,             ///< gone
  BERTHI_DEVICE_NEEDS_RESTART = 3,    ///< only a new process cures it
  BERTHI_DEVICE_UNKNOWN_ISOLATION = 4 ///< other devices may be hit: the whole backend is unhealthy
} berthi_fault_class;

/// Limits and identity, read at open and re-read by the telemetry thread (LED-6).
typedef struct berthi_device_limits {
  uint64_t limit_bytes;            ///< what the process may use of the device in all
  uint64_t default_capacity_bytes; ///< what to manage when the options do not say
  uint64_t process_used_bytes;     ///< what the process (or others) use of limit_bytes now
  uint32_t lanes;                  ///< CPUs that may be used
  uint32_t slots;                  ///< default slots
  uint32_t capabilities;
  char limit_source[96];
} berthi_device_limits;

/// What a device reports of itself once it is open; checked against the validated profile (BCK-3) and readable after close.
typedef struct berthi_startup {
  char model[64];
  char identity[BERTH_DEVICE_IDENTITY];
  uint64_t total_bytes;
  uint32_t lanes;
  uint32_t capabilities;
  int64_t open_nanoseconds;
} berthi_startup;

/// One telemetry sample. `valid` has a bit per field.
enum {
  BERTHI_TELEMETRY_UTILIZATION = 1u << 0,
  BERTHI_TELEMETRY_MEMORY = 1u << 1,
  BERTHI_TELEMETRY_TEMPERATURE = 1u << 2,
  BERTHI_TELEMETRY_POWER = 1u << 3,
  BERTHI_TELEMETRY_CLOCK = 1u << 4,
  BERTHI_TELEMETRY_THROTTLE = 1u << 5
};
typedef struct berthi_telemetry {
  uint32_t valid;
  double utilization_percent;
  uint64_t memory_used_bytes;
  uint64_t memory_total_bytes;
  double temperature_celsius;
  double power_watts;
  double clock_mhz;
  bool throttled;
} berthi_telemetry;

/// The memory domain of one execution: enforces the grant (LED-2). Embedded in the execution; `berthi_domain_init` makes it without a call to
/// the device. Children of the execution use it concurrently.
typedef struct berthi_domain {
  berthi_device *device;
  berthi_atomic64 limit;  ///< the grant; lowered under `lock`, raised (an atomic add) by its owner
  berthi_atomic64 used;   ///< allocated and charged; written under `lock`, read by anyone
  berthi_atomic64 peak;   ///< the same
  berthi_atomic64 blocks; ///< live blocks; the same
  berthi_mutex lock;      ///< rank LEAF; guards what follows, and the writes above
  uint64_t kept;          ///< freed bytes that the device keeps for reuse inside the grant: used + kept <= limit
  void *list;             ///< device-private: live blocks
  void *queue;            ///< device-private: queue of asynchronous work, NULL until first used
} berthi_domain;

/// Copies between memories.
typedef enum berthi_copy { BERTHI_COPY_UPLOAD, BERTHI_COPY_DOWNLOAD, BERTHI_COPY_INSIDE } berthi_copy;

typedef void (*berthi_lane_body)(void *arg, uint64_t i);

/// What a lane work item needs to stop early.
typedef struct berthi_parallel {
  uint64_t count;
  berthi_lane_body body;
  void *arg;
  berthi_atomic32 *cancel; ///< non-zero: skip what has not started; may be NULL
  uint64_t skipped;        ///< out: tasks skipped
} berthi_parallel;

/// Saved affinity of a thread inside a lane set.
typedef struct berthi_affinity {
  bool narrowed;
  uint64_t words[16]; ///< 1024 CPUs
} berthi_affinity;

struct berthi_device_kind {
  const char *name; ///< "cpu"
  /// Describes ordinal `ordinal` without opening it; NOT_FOUND when there is no such ordinal.
  berth_status (*describe)(uint32_t ordinal, berth_device_description *out, berth_error *err);
  /// Stable identity and limits for the options, still without opening: configuration is validated with it (BCK-1).
  berth_status (*limits)(uint32_t ordinal, const berth_device_options *options, char identity[BERTH_DEVICE_IDENTITY], berthi_device_limits *out,
                         berth_error *err);
  berth_status (*open)(uint32_t ordinal, const berth_device_options *options, uint32_t lanes, berthi_device **out, berthi_startup *startup,
                       berth_error *err);
  /// Proves that nothing of this process uses the device any more and frees `device`. On failure (unprovable) the device stays as it is
  /// and is leaked. May hang. `force` frees what can be freed without proof.
  berth_status (*close)(berthi_device *device, bool force, berth_error *err);
  /// Limits of an open device, read again.
  berth_status (*reread)(berthi_device *device, berthi_device_limits *out, berth_error *err);

  // Memory of one execution. Refusals: grant_exhausted, device_exhausted, device_fault.
  berth_status (*alloc)(berthi_domain *domain, uint64_t bytes, void **out, berth_error *err);
  void (*free)(berthi_domain *domain, void *memory);
  /// Frees every live block, and what is kept. Every domain whose `list` is not NULL is reset before it goes, also when no block is live.
  void (*reset)(berthi_domain *domain);
  /// Gives back to the system what the domain keeps beyond limit - used. NULL: nothing is ever kept.
  void (*trim)(berthi_domain *domain);

  // Work of one execution.
  berth_status (*copy)(berthi_domain *domain, berthi_copy direction, void *to, const void *from, uint64_t bytes, berth_error *err);
  /// Waits until everything the execution queued has ended (also after failures). NULL: nothing is ever queued.
  berth_status (*settle)(berthi_domain *domain, berth_error *err);
  /// Runs the work on the lanes of the mask; the calling thread is the first of them.
  void (*parallel)(berthi_device *device, const berthi_lanemask *lanes, berthi_parallel *work);
  /// Narrows the calling thread to the lanes' CPUs / restores it. NULL: the device has no CPUs of its own.
  berth_status (*enter)(berthi_device *device, const berthi_lanemask *lanes, berthi_affinity *saved, berth_error *err);
  berth_status (*leave)(berthi_device *device, const berthi_affinity *saved, berth_error *err);
  /// Lane index of a CPU, or -1. NULL: no CPUs.
  int (*lane_of_cpu)(berthi_device *device, uint32_t cpu);

  // Health.
  /// Sticky state as known now; cheap, touches no hardware. NULL: always fine.
  berthi_fault_class (*fault)(berthi_device *device);
  /// Tries the device out; OK means it works again and the sticky state is cleared. May hang.
  berth_status (*probe)(berthi_device *device, berth_error *err);
  berth_status (*telemetry)(berthi_device *device, berthi_telemetry *out, berth_error *err);
};

/// Every kind begins its device with this.
struct berthi_device {
  const berthi_device_kind *kind;
  uint32_t ordinal;
  char name[BERTH_DEVICE_NAME];
};

/// Finds a kind and ordinal by a name such as "sim:1". Fails: NOT_FOUND unknown_device (names the kinds there are).
berth_status berthi_device_find(const char *name, const berthi_device_kind **out_kind, uint32_t *out_ordinal, berth_error *err);

// Domain accounting, common to all kinds (device/domain.c).
void berthi_domain_init(berthi_domain *domain, berthi_device *device, uint64_t limit);
/// Charges bytes if they fit; nothing is added before the test, so a refused large request never disturbs a small one. Refusal: grant_exhausted
/// with facts asked, used, limit. Takes the domain's lock; may give kept pages back to the system.
berth_status berthi_domain_charge(berthi_domain *domain, uint64_t bytes, berth_error *err);
void berthi_domain_credit(berthi_domain *domain, uint64_t bytes);
/// Lowers the limit to at least what is used; returns the bytes given back, of which nothing is kept any more when it returns.
uint64_t berthi_domain_shrink(berthi_domain *domain, uint64_t to_bytes);
/// What a block of `bytes` is charged: rounded up to 64 (BERTHI_BLOCK_ALIGN), at least 64.
#define BERTHI_BLOCK_ALIGN 64u
uint64_t berthi_block_bytes(uint64_t bytes); ///< UINT64_MAX on overflow

// Parameters of a kind: "key=value,key=value" (device/parameters.c).
typedef struct berthi_parameter {
  const char *key;
  enum { BERTHI_PARAM_BYTES, BERTHI_PARAM_NANOSECONDS, BERTHI_PARAM_U64, BERTHI_PARAM_BOOL, BERTHI_PARAM_TEXT } type;
  size_t offset; ///< in the target struct: uint64_t, int64_t, uint64_t, bool, or char[text_size]
  size_t text_size;
  uint64_t minimum, maximum; ///< of numbers; both 0: any
} berthi_parameter;
/// Fails: invalid_configuration naming key, value and bound, or the keys there are.
berth_status berthi_parameters_parse(const char *text, const berthi_parameter *known, size_t count, void *target, berth_error *err);

// Lane masks.
static inline bool berthi_lanes_test(const berthi_lanemask *m, uint32_t lane) { return (m->w[lane / 64] >> (lane % 64)) & 1u; }
static inline void berthi_lanes_set(berthi_lanemask *m, uint32_t lane) { m->w[lane / 64] |= (uint64_t)1 << (lane % 64); }
static inline void berthi_lanes_clear(berthi_lanemask *m, uint32_t lane) { m->w[lane / 64] &= ~((uint64_t)1 << (lane % 64)); }
static inline uint32_t berthi_lanes_count(const berthi_lanemask *m) {
  uint32_t n = 0;
  for (int i = 0; i < BERTHI_LANE_WORDS; i++) n += (uint32_t)__builtin_popcountll(m->w[i]);
  return n;
}
static inline bool berthi_lanes_overlap(const berthi_lanemask *a, const berthi_lanemask *b) {
  uint64_t both = 0;
  for (int i = 0; i < BERTHI_LANE_WORDS; i++) both |= a->w[i] & b->w[i];
  return both != 0;
}

#endif
