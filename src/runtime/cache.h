// SPDX-License-Identifier: Apache-2.0
/// Caches of plans, packed operands and workspaces (RUN-4). A cache holds what can be made again, so nothing here is ever an error: a find that misses
/// and an insert that is refused both mean "make it yourself".
///
/// Guarantees. The entries' bytes never exceed the cache's own bound, nor, together with every other cache of the device, the device's K (LED-1). A
/// found entry stays until it is released. A destroyer runs with no lock held, on the thread that drops the entry.
#ifndef BERTHI_CACHE_H
#define BERTHI_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/runtime/lanes.h"

typedef struct berthi_cache_entry berthi_cache_entry;
typedef void (*berthi_cache_destroy)(void *value);

/// The value under the key with the entry held, or NULL. `cache` may be NULL.
void *berthi_cache_find(berth_cache *cache, const void *key, size_t key_length, berthi_cache_entry **out_entry);
/// Stores a value of `bytes` under the key. True: the cache owns the value, and the entry is held for the caller. False (no room, already there, backend
/// closing, no cache): the value stays the caller's.
bool berthi_cache_insert(berth_cache *cache, const void *key, size_t key_length, void *value, uint64_t bytes, berthi_cache_destroy destroy,
                         berthi_cache_entry **out_entry);
void berthi_cache_entry_release(berthi_cache_entry *entry);

berth_cache *berthi_cache_retain(berth_cache *cache);

#endif
