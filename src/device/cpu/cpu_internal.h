// SPDX-License-Identifier: Apache-2.0
/// Shared by the files of the cpu device.
#ifndef BERTHI_CPU_INTERNAL_H
#define BERTHI_CPU_INTERNAL_H

#include "base/lock.h"
#include "base/thread.h"
#include "device/kinds.h"

#define CPU_CAPABILITIES (BERTH_CAP_HOST_MEMORY | BERTH_CAP_F32 | BERTH_CAP_F64 | BERTH_CAP_COMPLEX | BERTH_CAP_BLAS | BERTH_CAP_PARALLEL_LANES)
#define CPU_PATH_MAX 512

/// Parameters of the kind.
typedef struct cpu_parameters {
  char sysroot[200]; ///< stands before every /proc and /sys path; empty: the machine's own
  uint64_t memory;   ///< upper bound on the limit, or the limit where none can be read; 0: none
} cpu_parameters;
berth_status berthi_cpu_parameters(const char *text, cpu_parameters *out, berth_error *err);

// sysfile.c: the only reader of /proc and /sys. A fault point (BERTHI_FAULT_FILE).
/// Reads at most size - 1 bytes and terminates them; false when the file cannot be opened or read.
bool berthi_sysfile_read(const char *sysroot, const char *path, char *out, size_t size);
/// A file that holds one number and nothing else but white space.
bool berthi_sysfile_u64(const char *sysroot, const char *path, uint64_t *out);
/// The number after `key` at the start of a line of `text`, such as "MemTotal:" of /proc/meminfo.
bool berthi_sysfile_field(const char *text, const char *key, uint64_t *out);
/// A decimal number at *text, which moves behind it; false when there is none or it does not fit.
bool berthi_sysfile_number(const char **text, uint64_t *out);

// cgroup.c: the groups of this process, from the innermost to the root.
typedef struct cpu_cgroup {
  uint64_t memory_limit;   ///< UINT64_MAX: none
  const char *memory_file; ///< name of the file that set it
  uint64_t quota_milli;    ///< thousandths of a CPU; UINT64_MAX: none
  uint64_t memory_current; ///< of the group that limits; valid if has_current
  bool has_current;
  uint64_t throttled; ///< periods in which some group was out of quota
  bool has_throttled;
} cpu_cgroup;
void berthi_cgroup_read(const char *sysroot, cpu_cgroup *out);

// affinity.c: sets of CPUs of any size.
typedef struct cpu_set {
  uint32_t words;
  uint64_t *w;
} cpu_set;
static inline bool cpu_set_test(const cpu_set *set, uint32_t cpu) { return cpu / 64 < set->words && ((set->w[cpu / 64] >> (cpu % 64)) & 1u); }
uint32_t berthi_cpu_set_count(const cpu_set *set);
void berthi_cpu_set_free(cpu_set *set);
/// Adds one CPU; false when memory is out.
bool berthi_cpu_set_add(cpu_set *set, uint32_t cpu);
/// The CPUs that the calling thread may use: the kernel's mask, or with a sysroot that has one, Cpus_allowed_list of its /proc/self/status.
bool berthi_cpu_set_allowed(const char *sysroot, cpu_set *out);
berth_status berthi_cpu_enter(berthi_device *device, const berthi_lanemask *lanes, berthi_affinity *saved, berth_error *err);
berth_status berthi_cpu_leave(berthi_device *device, const berthi_affinity *saved, berth_error *err);

// cpu_limits.c (LED-6)
berth_status berthi_cpu_limits(const cpu_parameters *parameters, const berth_device_options *options, berthi_device_limits *out, berth_error *err);

// topology.c
/// Puts the CPUs of `allowed` in the order in which lanes take them: one per core first. `synthetic` NULL: this machine; else a description
/// for hwloc, for tests. Writes at most `capacity`; every CPU written is in `allowed` and none is written twice. Returns their number.
uint32_t berthi_topology_order(const cpu_set *allowed, const char *synthetic, int *out, uint32_t capacity);

// worker_pool.c
typedef struct cpu_pool cpu_pool;
/// `cpus[i]` is lane i's CPU, or -1 for a lane that is not pinned. No thread is started yet.
berth_status berthi_pool_create(const int *cpus, uint32_t lanes, cpu_pool **out, berth_error *err);
/// Stops and joins the workers.
void berthi_pool_close(cpu_pool *pool);
void berthi_pool_run(cpu_pool *pool, const berthi_lanemask *lanes, berthi_parallel *work);
uint32_t berthi_pool_started(cpu_pool *pool); ///< workers that run

// cpu_memory.c
typedef struct cpu_arena cpu_arena;
typedef struct cpu_store {
  berthi_mutex lock; ///< rank DEVICE; guards the rest
  cpu_arena *idle;
  uint32_t idle_count;
  uint32_t used_count; ///< arenas that domains hold: executions that have not been reset
} cpu_store;
void berthi_store_init(cpu_store *store);
void berthi_store_close(cpu_store *store); ///< frees the idle arenas
bool berthi_store_busy(cpu_store *store);
berth_status berthi_cpu_alloc(berthi_domain *domain, uint64_t bytes, void **out, berth_error *err);
void berthi_cpu_free(berthi_domain *domain, void *memory);
void berthi_cpu_reset(berthi_domain *domain);
void berthi_cpu_trim(berthi_domain *domain);

// cpu_telemetry.c
typedef struct cpu_sampler {
  berthi_mutex lock; ///< rank DEVICE; guards the rest: what the last sample read, to make differences
  uint64_t busy, total;
  uint64_t throttles;
  uint64_t energy;
  int64_t energy_at;
  bool has_times, has_throttles, has_energy;
} cpu_sampler;

typedef struct cpu_device {
  berthi_device base; ///< first
  // constant after open
  cpu_parameters parameters;
  uint64_t option_lanes;
  uint32_t lanes;
  int cpus[BERTHI_LANES_MAX]; ///< -1: not pinned
  cpu_pool *pool;
  cpu_store store;
  cpu_sampler sampler;
} cpu_device;
static inline cpu_device *cpu_of(berthi_device *device) { return (cpu_device *)(void *)device; }

void berthi_sampler_init(cpu_device *cpu);
berth_status berthi_cpu_telemetry(berthi_device *device, berthi_telemetry *out, berth_error *err);

#endif
