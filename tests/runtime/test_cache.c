// SPDX-License-Identifier: Apache-2.0
/// Caches: bounded, charged to the ledger, never an error (RUN-4, LED-1).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/memory.h"
#include "base/thread.h"
#include "runtime/cache.h"
#include "runtime/runtime_support.h"

#define KIB ((uint64_t)1 << 10)

typedef struct world {
  berth_backend *backend;
  berth_session *session;
  berth_cache *cache;
} world;

static berthi_atomic32 destroyed;

static void destroy(void *value) {
  (void)value;
  berthi_add(&destroyed, 1, relaxed);
}

static world make_world(uint32_t entries, uint64_t bytes) {
  berth_cache_options options = BERTH_CACHE_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  world w = {.backend = support_open(1, "memory=1MiB")}; // K is 64 KiB
  options.max_entries = entries;
  options.max_bytes = bytes;
  w.session = berth_backend_session(w.backend);
  support_ok(berth_cache_create(w.session, &options, &w.cache, &err), &err);
  berthi_store(&destroyed, 0, relaxed);
  return w;
}

static void end_world(world *w) {
  berth_cache_release(w->cache);
  assert_int_equal(support_metrics(w->session).devices[0].cache_bytes, 0);
  support_close(w->backend);
  berth_session_release(w->session);
}

/// Inserts and lets go at once.
static bool insert(world *w, int key, uint64_t bytes) {
  static int values[64];
  berthi_cache_entry *entry = NULL;
  if (!berthi_cache_insert(w->cache, &key, sizeof(key), &values[key], bytes, destroy, &entry)) return false;
  berthi_cache_entry_release(entry);
  return true;
}

static bool has(world *w, int key) {
  berthi_cache_entry *entry = NULL;
  void *value = berthi_cache_find(w->cache, &key, sizeof(key), &entry);
  berthi_cache_entry_release(entry);
  return value != NULL;
}

static berth_cache_stats stats(world *w) {
  berth_cache_stats out = BERTH_CACHE_STATS_INIT;
  assert_int_equal(berth_cache_get_stats(w->cache, &out, NULL), BERTH_OK);
  return out;
}

static void what_is_put_in_is_found(void **state) {
  (void)state;
  world w = make_world(8, 32 * KIB);
  assert_false(has(&w, 1));
  assert_true(insert(&w, 1, KIB));
  assert_true(has(&w, 1));
  assert_false(has(&w, 2));
  assert_int_equal(support_metrics(w.session).devices[0].cache_bytes, KIB);
  berth_cache_stats s = stats(&w);
  assert_int_equal(s.entries, 1);
  assert_int_equal(s.bytes, KIB);
  assert_int_equal(s.hits, 1);
  assert_int_equal(s.misses, 2);
  end_world(&w);
  assert_int_equal(berthi_load(&destroyed, relaxed), 1);
}

static void keys_are_bytes(void **state) {
  (void)state;
  world w = make_world(8, 32 * KIB);
  berthi_cache_entry *entry = NULL;
  int value = 0;
  assert_true(berthi_cache_insert(w.cache, "ab\0c", 4, &value, 1, NULL, &entry));
  berthi_cache_entry_release(entry);
  assert_null(berthi_cache_find(w.cache, "ab\0d", 4, &entry));
  assert_null(berthi_cache_find(w.cache, "ab", 2, &entry));
  assert_ptr_equal(berthi_cache_find(w.cache, "ab\0c", 4, &entry), &value);
  berthi_cache_entry_release(entry);
  end_world(&w);
}

static void the_least_recently_used_goes_first(void **state) {
  (void)state;
  world w = make_world(3, 32 * KIB);
  for (int key = 0; key < 3; key++) assert_true(insert(&w, key, KIB));
  assert_true(has(&w, 0));
  assert_true(insert(&w, 3, KIB));
  assert_true(has(&w, 0) && has(&w, 2) && has(&w, 3));
  assert_false(has(&w, 1));
  assert_int_equal(stats(&w).evictions, 1);
  assert_int_equal(berthi_load(&destroyed, relaxed), 1);
  end_world(&w);
}

static void bytes_are_bounded(void **state) {
  (void)state;
  world w = make_world(64, 10 * KIB);
  for (int key = 0; key < 20; key++) {
    assert_true(insert(&w, key, 3 * KIB));
    assert_true(stats(&w).bytes <= 10 * KIB);
  }
  assert_int_equal(stats(&w).entries, 3);
  assert_false(insert(&w, 21, 11 * KIB)); // larger than all of it: nothing is evicted for it
  assert_int_equal(stats(&w).entries, 3);
  assert_int_equal(stats(&w).refused, 1);
  end_world(&w);
}

static void held_entries_stay(void **state) {
  (void)state;
  world w = make_world(2, 32 * KIB);
  int key = 1, value = 0;
  berthi_cache_entry *held = NULL, *other = NULL;
  assert_true(berthi_cache_insert(w.cache, &key, sizeof(key), &value, KIB, destroy, &held));
  assert_true(insert(&w, 2, KIB));
  assert_true(insert(&w, 3, KIB)); // 2 went
  berth_cache_clear(w.cache);
  assert_int_equal(stats(&w).entries, 1);
  assert_true(has(&w, 1));
  key = 4;
  assert_true(berthi_cache_insert(w.cache, &key, sizeof(key), &value, KIB, NULL, &other));
  assert_false(insert(&w, 5, KIB)); // both are held
  assert_int_equal(stats(&w).refused, 1);
  berthi_cache_entry_release(other);
  berthi_cache_entry_release(held);
  assert_true(insert(&w, 5, KIB));
  end_world(&w);
}

/// The handle goes first, the last held entry takes the cache with it.
static void a_held_entry_outlives_the_handle(void **state) {
  (void)state;
  world w = make_world(2, 32 * KIB);
  int key = 1, value = 0;
  berthi_cache_entry *held = NULL;
  assert_true(berthi_cache_insert(w.cache, &key, sizeof(key), &value, KIB, destroy, &held));
  berth_cache_release(w.cache);
  assert_int_equal(berthi_load(&destroyed, relaxed), 0);
  assert_int_equal(support_metrics(w.session).devices[0].cache_bytes, KIB);
  berthi_cache_entry_release(held);
  assert_int_equal(berthi_load(&destroyed, relaxed), 1);
  w.cache = NULL;
  end_world(&w);
}

static void a_key_is_stored_once(void **state) {
  (void)state;
  world w = make_world(4, 32 * KIB);
  assert_true(insert(&w, 1, KIB));
  assert_false(insert(&w, 1, 2 * KIB));
  assert_int_equal(stats(&w).refused, 0);
  assert_int_equal(stats(&w).bytes, KIB);
  assert_int_equal(support_metrics(w.session).devices[0].cache_bytes, KIB);
  end_world(&w);
}

/// LED-1: all caches of a device together stay within K.
static void caches_share_the_device(void **state) {
  (void)state;
  world w = make_world(64, 60 * KIB);
  world other = w;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_cache_create(w.session, NULL, &other.cache, &err), &err);
  for (int key = 0; key < 6; key++) assert_true(insert(&w, key, 10 * KIB));
  assert_false(insert(&other, 1, 10 * KIB)); // nothing of its own to evict
  assert_int_equal(stats(&other).refused, 1);
  assert_true(insert(&other, 2, 4 * KIB));
  assert_int_equal(support_metrics(w.session).devices[0].cache_bytes, 64 * KIB);
  assert_true(insert(&w, 7, 10 * KIB)); // evicts its own
  assert_int_equal(stats(&w).evictions, 1);
  berth_cache_release(other.cache);
  end_world(&w);
}

static void a_full_machine_is_a_miss(void **state) {
  (void)state;
  world w = make_world(4, 32 * KIB);
  berthi_fault_plan(BERTHI_FAULT_ALLOC, 1, true);
  assert_false(insert(&w, 1, KIB));
  (void)berthi_fault_plan_end();
  assert_int_equal(stats(&w).refused, 1);
  assert_true(insert(&w, 1, KIB));
  end_world(&w);
}

static void a_closing_backend_takes_nothing_in(void **state) {
  (void)state;
  world w = make_world(4, 32 * KIB);
  assert_true(insert(&w, 1, KIB));
  berth_backend_close(w.backend);
  assert_false(insert(&w, 2, KIB));
  assert_true(has(&w, 1));
  end_world(&w);
}

static void options_are_checked(void **state) {
  (void)state;
  world w = make_world(4, 32 * KIB);
  berth_cache_options options = BERTH_CACHE_OPTIONS_INIT;
  berth_cache *cache = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.device = 1;
  assert_int_equal(berth_cache_create(w.session, &options, &cache, &err), BERTH_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "device: 1, at most 0"));
  options = (berth_cache_options)BERTH_CACHE_OPTIONS_INIT;
  options.max_entries = 2000000;
  assert_int_equal(berth_cache_create(w.session, &options, &cache, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_cache_create(w.session, NULL, NULL, &err), BERTH_INVALID_ARGUMENT);
  assert_false(berthi_cache_insert(NULL, "k", 1, &cache, 1, NULL, &(berthi_cache_entry *){NULL}));
  assert_null(berthi_cache_find(NULL, "k", 1, &(berthi_cache_entry *){NULL}));
  berth_cache_release(NULL);
  berth_cache_clear(NULL);
  end_world(&w);
}

static void use_for_a_while(void *arg) {
  world *w = arg;
  for (int i = 0; i < 400; i++) {
    int key = (i * 7) % 40;
    if (!has(w, key)) (void)insert(w, key, KIB + (uint64_t)key);
    if (i % 100 == 99) berth_cache_clear(w->cache);
  }
}

static void threads_share_a_cache(void **state) {
  (void)state;
  world w = make_world(16, 20 * KIB);
  berthi_thread threads[4];
  berth_error err = BERTH_ERROR_INIT;
  for (int i = 0; i < 4; i++) support_ok(berthi_thread_start(&threads[i], "user", use_for_a_while, &w, &err), &err);
  for (int i = 0; i < 4; i++) berthi_thread_join(&threads[i]);
  berth_cache_stats s = stats(&w);
  assert_true(s.entries <= 16 && s.bytes <= 20 * KIB);
  assert_int_equal(support_metrics(w.session).devices[0].cache_bytes, s.bytes);
  end_world(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_put_in_is_found),
      cmocka_unit_test(keys_are_bytes),
      cmocka_unit_test(the_least_recently_used_goes_first),
      cmocka_unit_test(bytes_are_bounded),
      cmocka_unit_test(held_entries_stay),
      cmocka_unit_test(a_held_entry_outlives_the_handle),
      cmocka_unit_test(a_key_is_stored_once),
      cmocka_unit_test(caches_share_the_device),
      cmocka_unit_test(a_full_machine_is_a_miss),
      cmocka_unit_test(a_closing_backend_takes_nothing_in),
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(threads_share_a_cache),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
