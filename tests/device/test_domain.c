// SPDX-License-Identifier: Apache-2.0
/// Accounting of an execution's memory: LED-2, LED-3.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "device/device.h"

static void a_charge_fits_or_adds_nothing(void **state) {
  (void)state;
  berthi_domain d;
  berth_error err = BERTH_ERROR_INIT;
  berthi_domain_init(&d, NULL, 100);
  assert_int_equal(berthi_domain_charge(&d, 60, NULL), BERTH_OK);
  assert_int_equal(berthi_domain_charge(&d, 41, &err), BERTH_RESOURCE_EXHAUSTED);
  assert_string_equal(err.reason, "grant_exhausted");
  assert_string_equal(err.facts[0].key, "asked");
  assert_int_equal(err.facts[0].value, 41);
  assert_int_equal(err.facts[1].value, 60);
  assert_int_equal(err.facts[2].value, 100);
  assert_int_equal(berthi_domain_charge(&d, UINT64_MAX, NULL), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(berthi_stat_load(&d.used), 60);
  assert_int_equal(berthi_domain_charge(&d, 40, NULL), BERTH_OK);
  berthi_domain_credit(&d, 100);
  assert_int_equal(berthi_stat_load(&d.used), 0);
  assert_int_equal(berthi_stat_load(&d.peak), 100);
}

static void shrink_stops_at_what_is_used(void **state) {
  (void)state;
  berthi_domain d;
  berthi_domain_init(&d, NULL, 100);
  assert_int_equal(berthi_domain_charge(&d, 30, NULL), BERTH_OK);
  assert_int_equal(berthi_domain_shrink(&d, 200), 0);
  assert_int_equal(berthi_domain_shrink(&d, 80), 20);
  assert_int_equal(berthi_domain_shrink(&d, 0), 50);
  assert_int_equal(berthi_stat_load(&d.limit), 30);
  assert_int_equal(berthi_domain_charge(&d, 1, NULL), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(berthi_domain_shrink(&d, 0), 0);
}

static void block_sizes_round_up(void **state) {
  (void)state;
  assert_int_equal(berthi_block_bytes(0), 64);
  assert_int_equal(berthi_block_bytes(1), 64);
  assert_int_equal(berthi_block_bytes(64), 64);
  assert_int_equal(berthi_block_bytes(65), 128);
  assert_true(berthi_block_bytes(UINT64_MAX) == UINT64_MAX);
  assert_true(berthi_block_bytes(UINT64_MAX - 62) == UINT64_MAX);
  assert_true(berthi_block_bytes(UINT64_MAX - 63) == UINT64_MAX - 63);
}

typedef struct shrinker {
  berthi_domain *domain;
  berthi_atomic32 stop;
  uint64_t over;
} shrinker;

static void charge_and_credit(void *arg) {
  shrinker *s = arg;
  while (berthi_load(&s->stop, acquire) == 0) {
    if (berthi_domain_charge(s->domain, 10, NULL) == BERTH_OK) berthi_domain_credit(s->domain, 10);
  }
}

// A charge that tested against the limit of before a shrink must not survive it: what was given back is promised to others.
static void no_charge_survives_a_shrink_below_it(void **state) {
  (void)state;
  berthi_domain d;
  berthi_thread threads[2] = {{0}};
  shrinker s = {.domain = &d};
  berthi_domain_init(&d, NULL, 1000);
  for (int i = 0; i < 2; i++) assert_int_equal(berthi_thread_start(&threads[i], "charge", charge_and_credit, &s, NULL), BERTH_OK);
  for (int i = 0; i < 20000; i++) {
    uint64_t before = berthi_load(&d.limit, seq_cst);
    uint64_t back = berthi_domain_shrink(&d, 0);
    uint64_t after = berthi_load(&d.limit, seq_cst);
    assert_int_equal(before - back, after);
    assert_true(after <= 20 && berthi_load(&d.used, seq_cst) <= after); // 10 each in use
    berthi_add(&d.limit, 1000 - after, seq_cst);
  }
  berthi_store(&s.stop, 1, release);
  for (int i = 0; i < 2; i++) berthi_thread_join(&threads[i]);
  assert_int_equal(berthi_stat_load(&d.used), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_charge_fits_or_adds_nothing),
      cmocka_unit_test(shrink_stops_at_what_is_used),
      cmocka_unit_test(block_sizes_round_up),
      cmocka_unit_test(no_charge_survives_a_shrink_below_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
