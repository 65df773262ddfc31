// SPDX-License-Identifier: Apache-2.0
/// Lane sets: CPUs that entries can ask for, managed by Berth or by the caller's own threads (RUN-3). And caches (RUN-4).
#ifndef BERTH_RUNTIME_LANES_H
#define BERTH_RUNTIME_LANES_H

#include "berth/runtime/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_lanes berth_lanes;
typedef struct berth_cache berth_cache;

/// Runs body(body_arg, i) for each i in [0, count) on the caller's own threads and returns when all have run. Non-zero: it could not (`executor`).
typedef int (*berth_executor_fn)(void *arg, uint64_t count, void (*body)(void *body_arg, uint64_t i), void *body_arg);

/// Options of a lane set.
typedef struct berth_lanes_options {
  size_t struct_size;
  uint32_t device;            ///< Index of the device whose lanes these are. Default 0.
  const uint32_t *cpus;       ///< CPU numbers as the system counts them; each must be a lane of the device. Borrowed. Unused with an executor.
  uint32_t cpu_count;
  berth_executor_fn executor; ///< Caller-managed set: one entry at a time, others get `contended`; it takes no lanes of the device. NULL: managed.
  void *executor_arg;
  uint32_t executor_lanes;    ///< Threads behind the executor, at least 1.
} berth_lanes_options;
#define BERTH_LANES_OPTIONS_INIT BERTH_SIZED(berth_lanes_options)

/// Makes a lane set. An entry that names a managed set narrows its thread to the granted CPUs while it runs.
///
/// Owns: borrows; returns one reference; requests retain it. Threads: any. Blocks: never.
/// Fails: INVALID_ARGUMENT (no CPUs, a CPU that is not a lane of the device: named); UNIMPLEMENTED `capability_unsupported` (a device without CPUs);
/// CANCELLED `backend_closing`; RESOURCE_EXHAUSTED `host_exhausted`; `forked`. Since: 0.1
BERTH_API berth_status berth_lanes_create(berth_session *session, const berth_lanes_options *options, berth_lanes **out_lanes, berth_error *err);

/// Owns: takes one reference; NULL is a no-op. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_lanes_release(berth_lanes *lanes);

/// Bounds of a cache. 0 means its default.
typedef struct berth_cache_options {
  size_t struct_size;
  uint32_t max_entries; ///< Default 256.
  uint64_t max_bytes;   ///< Default 8 MiB. Charged to the class `cache` of the device while an entry lives.
  uint32_t device;      ///< Whose ledger is charged. Default 0.
} berth_cache_options;
#define BERTH_CACHE_OPTIONS_INIT BERTH_SIZED(berth_cache_options)

/// Counters of a cache.
typedef struct berth_cache_stats {
  size_t struct_size;
  uint32_t entries;
  uint64_t bytes, hits, misses, evictions, clears, refused;
} berth_cache_stats;
#define BERTH_CACHE_STATS_INIT BERTH_SIZED(berth_cache_stats)

/// Makes an empty cache of plans, packed operands and workspaces. It never changes a result.
///
/// Owns: borrows; returns one reference. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT; `host_exhausted`; `forked`. Since: 0.1
BERTH_API berth_status berth_cache_create(berth_session *session, const berth_cache_options *options, berth_cache **out_cache, berth_error *err);
/// Owns: takes one reference; NULL is a no-op. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_cache_release(berth_cache *cache);
/// Drops every entry that is not in use. Owns: borrows. Threads: any. Blocks: never. Since: 0.1
BERTH_API void berth_cache_clear(berth_cache *cache);
/// Owns: borrows. Threads: any. Blocks: never. Fails: INVALID_ARGUMENT. Since: 0.1
BERTH_API berth_status berth_cache_get_stats(const berth_cache *cache, berth_cache_stats *out_stats, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
