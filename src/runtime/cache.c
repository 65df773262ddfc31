// SPDX-License-Identifier: Apache-2.0
// A bounded list, most recently used first, with a hash over the keys. The device's ledger is charged before an entry is linked and credited after it
// is unlinked, with the admission lock alone: the cache's lock is never held together with it.
#include "runtime/cache.h"

#include <string.h>

#include "runtime/core.h"

#define DEFAULT_ENTRIES 256u
#define DEFAULT_BYTES ((uint64_t)8 << 20)
#define ENTRIES_MAX 1048576u
#define BUCKETS_MAX 4096u

struct berthi_cache_entry {
  berthi_link link; ///< by use
  berthi_cache_entry *chain;
  berth_cache *cache;
  uint64_t hash, bytes;
  uint32_t users; ///< holders; none of them: it may be dropped
  void *value;
  berthi_cache_destroy destroy;
  size_t key_length;
  unsigned char key[];
};

struct berth_cache {
  // Constant after creation.
  berthi_core *core; ///< one memory reference
  uint32_t device, max_entries, bucket_mask;
  uint64_t max_bytes;
  // Atomic.
  berthi_atomic32 refs; ///< handles and held entries
  // Under the lock.
  berthi_mutex lock;
  berthi_link entries;
  berth_cache_stats stats;
  berthi_cache_entry *buckets[];
};

static uint64_t hash_of(const void *key, size_t length) {
  const unsigned char *bytes = key;
  uint64_t hash = 0x9e3779b97f4a7c15u ^ length;
  for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash ^ (hash >> 29);
}

static berthi_cache_entry *entry_of(berthi_link *link) { return BERTHI_CONTAINER(link, berthi_cache_entry, link); }

// ---- the ledger's class `cache` ------------------------------------------------------------------------------------------------------------------------

static bool charge(berth_cache *cache, uint64_t bytes) {
  berthi_core *core = cache->core;
  berthi_ledger *ledger = &core->devices[cache->device].ledger;
  berthi_after after;
  berthi_lock(core, &after);
  bool fits = !berthi_gate_is_closed(&core->gate) && bytes <= ledger->cache_limit - berthi_get(&ledger->cache);
  if (fits) berthi_up(&ledger->cache, bytes);
  berthi_unlock(core, &after);
  return fits;
}

// No scan: what caches may charge is apart from what can be granted (LED-1), so a credit makes no waiter grantable.
static void credit(berth_cache *cache, uint64_t bytes) {
  berthi_core *core = cache->core;
  berthi_ledger *ledger = &core->devices[cache->device].ledger;
  if (bytes == 0) return;
  berthi_after after;
  berthi_lock(core, &after);
  berthi_assert(berthi_get(&ledger->cache) >= bytes, "LED-1");
  berthi_down(&ledger->cache, bytes);
  berthi_unlock(core, &after);
}

// ---- entries ---------------------------------------------------------------------------------------------------------------------------------------------

static berthi_cache_entry *lookup(const berth_cache *cache, uint64_t hash, const void *key, size_t length) {
  berthi_cache_entry *entry = cache->buckets[hash & cache->bucket_mask];
  while (entry != NULL && (entry->hash != hash || entry->key_length != length || memcmp(entry->key, key, length) != 0)) entry = entry->chain;
  return entry;
}

/// Takes the entry out of list and hash; the caller drops it without the lock.
static void unlink_locked(berth_cache *cache, berthi_cache_entry *entry) BERTHI_REQUIRES(cache->lock) {
  berthi_cache_entry **at = &cache->buckets[entry->hash & cache->bucket_mask];
  while (*at != entry) at = &(*at)->chain;
  *at = entry->chain;
  berthi_list_remove(&entry->link);
  cache->stats.entries--;
  cache->stats.bytes -= entry->bytes;
}

static void link_locked(berth_cache *cache, berthi_cache_entry *entry) BERTHI_REQUIRES(cache->lock) {
  berthi_cache_entry **bucket = &cache->buckets[entry->hash & cache->bucket_mask];
  entry->chain = *bucket;
  *bucket = entry;
  berthi_list_insert_after(&cache->entries, &entry->link);
  cache->stats.entries++;
  cache->stats.bytes += entry->bytes;
}

static void hold_locked(berth_cache *cache, berthi_cache_entry *entry) BERTHI_REQUIRES(cache->lock) {
  entry->users++;
  berthi_ref_up(&cache->refs);
}

/// Unlinks the least recently used entry that nobody holds, onto the chain of victims; false when there is none.
static bool evict_locked(berth_cache *cache, berthi_cache_entry **victims) BERTHI_REQUIRES(cache->lock) {
  for (berthi_link *at = cache->entries.prev; at != &cache->entries; at = at->prev) {
    berthi_cache_entry *entry = entry_of(at);
    if (entry->users > 0) continue;
    unlink_locked(cache, entry);
    entry->chain = *victims;
    *victims = entry;
    return true;
  }
  return false;
}

static void drop(berth_cache *cache, berthi_cache_entry *victims) {
  uint64_t bytes = 0;
  while (victims != NULL) {
    berthi_cache_entry *next = victims->chain;
    bytes += victims->bytes;
    if (victims->destroy != NULL) victims->destroy(victims->value);
    berthi_free(victims);
    victims = next;
  }
  credit(cache, bytes);
}

static void unref(berth_cache *cache) {
  if (!berthi_ref_down(&cache->refs)) return;
  berth_cache_clear(cache);
  berthi_assert(berthi_list_empty(&cache->entries), "RUN-4"); // each held entry counts as a reference
  berthi_core *core = cache->core;
  berthi_free(cache);
  berthi_core_release(core);
}

// ---- find and insert -------------------------------------------------------------------------------------------------------------------------------------

void *berthi_cache_find(berth_cache *cache, const void *key, size_t key_length, berthi_cache_entry **out_entry) {
  *out_entry = NULL;
  if (cache == NULL || berthi_core_forked(cache->core)) return NULL;
  uint64_t hash = hash_of(key, key_length);
  void *value = NULL;
  berthi_mutex_lock(&cache->lock);
  berthi_cache_entry *entry = lookup(cache, hash, key, key_length);
  if (entry != NULL) {
    hold_locked(cache, entry);
    berthi_list_remove(&entry->link);
    berthi_list_insert_after(&cache->entries, &entry->link);
    cache->stats.hits++;
    value = entry->value;
    *out_entry = entry;
  } else {
    cache->stats.misses++;
  }
  berthi_mutex_unlock(&cache->lock);
  return value;
}

/// Drops one entry to make room at the device; false when none can go.
static bool evict_one(berth_cache *cache) {
  berthi_cache_entry *victims = NULL;
  berthi_mutex_lock(&cache->lock);
  bool found = evict_locked(cache, &victims);
  if (found) cache->stats.evictions++;
  berthi_mutex_unlock(&cache->lock);
  drop(cache, victims);
  return found;
}

static bool charge_evicting(berth_cache *cache, uint64_t bytes) {
  if (bytes > cache->max_bytes || bytes > cache->core->devices[cache->device].ledger.cache_limit) return false;
  while (!charge(cache, bytes)) {
    if (berthi_gate_is_closed(&cache->core->gate) || !evict_one(cache)) return false;
  }
  return true;
}

/// Makes room inside the cache's own bounds and links the entry, held; false when held entries leave no room, or the key came meanwhile.
static bool place(berth_cache *cache, berthi_cache_entry *entry) {
  berthi_cache_entry *victims = NULL;
  berthi_mutex_lock(&cache->lock);
  bool twin = lookup(cache, entry->hash, entry->key, entry->key_length) != NULL;
  bool fits = !twin;
  while (fits && (cache->stats.entries >= cache->max_entries || entry->bytes > cache->max_bytes - cache->stats.bytes)) {
    fits = evict_locked(cache, &victims);
    if (fits) cache->stats.evictions++;
  }
  if (fits) {
    link_locked(cache, entry);
    hold_locked(cache, entry);
  } else if (!twin) {
    cache->stats.refused++;
  }
  berthi_mutex_unlock(&cache->lock);
  drop(cache, victims);
  return fits;
}

static void count_refused(berth_cache *cache) {
  berthi_mutex_lock(&cache->lock);
  cache->stats.refused++;
  berthi_mutex_unlock(&cache->lock);
}

bool berthi_cache_insert(berth_cache *cache, const void *key, size_t key_length, void *value, uint64_t bytes, berthi_cache_destroy destroy,
                         berthi_cache_entry **out_entry) {
  *out_entry = NULL;
  if (cache == NULL || berthi_core_forked(cache->core)) return false;
  berthi_cache_entry *entry = berthi_alloc(sizeof(*entry) + key_length);
  if (entry == NULL || !charge_evicting(cache, bytes)) {
    berthi_free(entry);
    count_refused(cache);
    return false;
  }
  entry->cache = cache;
  entry->hash = hash_of(key, key_length);
  entry->bytes = bytes;
  entry->value = value;
  entry->destroy = destroy;
  entry->key_length = key_length;
  memcpy(entry->key, key, key_length);
  if (!place(cache, entry)) {
    berthi_free(entry);
    credit(cache, bytes);
    return false;
  }
  *out_entry = entry;
  return true;
}

void berthi_cache_entry_release(berthi_cache_entry *entry) {
  if (entry == NULL || berthi_core_forked(entry->cache->core)) return;
  berth_cache *cache = entry->cache;
  berthi_mutex_lock(&cache->lock);
  berthi_assert(entry->users > 0, "RUN-4");
  entry->users--;
  berthi_mutex_unlock(&cache->lock);
  unref(cache);
}

// ---- the handle ------------------------------------------------------------------------------------------------------------------------------------------

static berth_status resolve(const berthi_core *core, const berth_cache_options *options, berth_cache_options *o, berth_error *err) {
  BERTHI_TRY(berthi_options_copy(options, o, sizeof(*o), "berth_cache_options", err));
  if (o->max_entries == 0) o->max_entries = DEFAULT_ENTRIES;
  if (o->max_bytes == 0) o->max_bytes = DEFAULT_BYTES;
  if (o->max_entries > ENTRIES_MAX) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "max_entries: %u, at most %u", o->max_entries, ENTRIES_MAX);
  if (o->device < core->device_count) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device: %u, at most %u", o->device, core->device_count - 1);
}

berth_status berth_cache_create(berth_session *session, const berth_cache_options *options, berth_cache **out_cache, berth_error *err) {
  if (session == NULL || out_cache == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session and out_cache are required");
  berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berth_cache_options o;
  BERTHI_TRY(resolve(core, options, &o, err));
  uint32_t buckets = 16;
  while (buckets < o.max_entries && buckets < BUCKETS_MAX) buckets *= 2;
  berth_cache *cache = berthi_alloc(sizeof(*cache) + buckets * sizeof(cache->buckets[0]));
  if (cache == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "a cache of %u entries cannot be made", o.max_entries);
  cache->core = core;
  cache->device = o.device;
  cache->max_entries = o.max_entries;
  cache->max_bytes = o.max_bytes;
  cache->bucket_mask = buckets - 1;
  berthi_stat_store(&cache->refs, 1);
  berthi_mutex_init(&cache->lock, BERTHI_RANK_CACHE);
  berthi_list_init(&cache->entries);
  berthi_core_retain(core);
  *out_cache = cache;
  return BERTH_OK;
}

berth_cache *berthi_cache_retain(berth_cache *cache) {
  if (cache != NULL) berthi_ref_up(&cache->refs);
  return cache;
}

void berth_cache_release(berth_cache *cache) {
  if (cache != NULL && !berthi_core_forked(cache->core)) unref(cache);
}

void berth_cache_clear(berth_cache *cache) {
  berthi_cache_entry *victims = NULL;
  if (cache == NULL || berthi_core_forked(cache->core)) return;
  berthi_mutex_lock(&cache->lock);
  while (evict_locked(cache, &victims)) continue;
  cache->stats.clears++;
  berthi_mutex_unlock(&cache->lock);
  drop(cache, victims);
}

berth_status berth_cache_get_stats(const berth_cache *cache, berth_cache_stats *out_stats, berth_error *err) {
  if (cache == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "cache is NULL");
  BERTHI_TRY(berthi_core_check_fork(cache->core, err));
  berth_cache *writable = (berth_cache *)(uintptr_t)cache; // for its lock alone
  berthi_mutex_lock(&writable->lock);
  berth_cache_stats stats = cache->stats;
  berthi_mutex_unlock(&writable->lock);
  return berthi_output_copy(out_stats, &stats, sizeof(stats), "berth_cache_stats", err);
}
