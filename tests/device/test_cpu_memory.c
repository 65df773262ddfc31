// SPDX-License-Identifier: Apache-2.0
/// What the cpu's allocator keeps for reuse, and that it stays inside the grant.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"
#include "device/cpu/cpu_internal.h"

#define MIB ((uint64_t)1 << 20)
#if defined(BERTHI_ASAN)
#define KEEPS 0 // that build keeps nothing, so that every block is checked
#else
#define KEEPS 1
#endif

static int open_cpu(void **state) {
  berthi_device *device;
  berthi_startup startup;
  if (berthi_cpu_kind.open(0, NULL, 1, &device, &startup, NULL) != BERTH_OK) return 1;
  *state = device;
  return 0;
}

static int close_cpu(void **state) { return berthi_cpu_kind.close(*state, false, NULL); }

static void *alloc(berthi_domain *d, uint64_t bytes) {
  void *block = NULL;
  assert_int_equal(berthi_cpu_kind.alloc(d, bytes, &block, NULL), BERTH_OK);
  memset(block, 0x5a, bytes);
  return block;
}

static void small_blocks_are_reused(void **state) {
  berthi_domain d;
  berthi_domain_init(&d, *state, MIB);
  void *first = alloc(&d, 100);
  berthi_cpu_kind.free(&d, first);
  void *second = alloc(&d, 128); // the same size class
  assert_true(!KEEPS || second == first);
  berthi_cpu_kind.reset(&d);
  berthi_domain_init(&d, *state, MIB); // the next execution
  void *third = alloc(&d, 65);
  assert_true(!KEEPS || third == first);
  berthi_cpu_kind.reset(&d);
}

// What an arena keeps of small blocks is bounded.
static void a_burst_of_small_blocks_goes_back(void **state) {
  berthi_domain d;
  uint64_t live = berthi_alloc_live();
  berthi_domain_init(&d, *state, 64 * MIB);
  for (int i = 0; i < 10000; i++) (void)alloc(&d, 1024);
  assert_true(berthi_alloc_live() >= live + 10000);
  berthi_cpu_kind.reset(&d);
  assert_true(berthi_alloc_live() <= live + 130); // 128 KiB of them, and the arena
}

static void pages_are_kept_inside_the_grant(void **state) {
  if (!KEEPS) skip();
  berthi_domain d;
  berthi_domain_init(&d, *state, 10 * MIB);
  void *first = alloc(&d, 4 * MIB);
  berthi_cpu_kind.free(&d, first);
  assert_int_equal(berthi_stat_load(&d.used), 0);
  assert_true(d.kept >= 4 * MIB);
  void *second = alloc(&d, 4 * MIB - 100);
  assert_ptr_equal(second, first);
  assert_int_equal(d.kept, 0);
  berthi_cpu_kind.free(&d, second);
  void *other = alloc(&d, 3 * MIB); // much smaller: not wasted on it
  assert_true(d.kept >= 4 * MIB);
  void *large = alloc(&d, 6 * MIB); // 9 of 10 MiB in use: what was kept has to go
  assert_int_equal(d.kept, 0);
  berthi_cpu_kind.free(&d, other);
  berthi_cpu_kind.free(&d, large);
  assert_true(d.kept + berthi_stat_load(&d.used) <= 10 * MIB);
  berthi_cpu_kind.reset(&d);
  assert_int_equal(d.kept, 0);
}

// LED-3, LED-5: what a shrink gives back and what a guest is charged for is memory that nobody else may still hold.
static void kept_pages_give_way(void **state) {
  if (!KEEPS) skip();
  berthi_domain d;
  berthi_domain_init(&d, *state, 10 * MIB);
  void *a = alloc(&d, 3 * MIB), *b = alloc(&d, 3 * MIB);
  berthi_cpu_kind.free(&d, a);
  berthi_cpu_kind.free(&d, b);
  assert_true(d.kept >= 6 * MIB);
  assert_int_equal(berthi_domain_charge(&d, 6 * MIB, NULL), BERTH_OK);
  assert_in_range(d.kept, 3 * MIB, 4 * MIB); // one of the two fits still
  berthi_domain_credit(&d, 6 * MIB);
  assert_int_equal(berthi_domain_shrink(&d, MIB), 9 * MIB);
  assert_int_equal(d.kept, 0);
  berthi_cpu_kind.reset(&d);
}

static void fail_every_allocation(uint64_t bytes, berthi_device *device) {
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t nth = 1; nth <= 4; nth++) {
      berthi_domain d;
      berth_error err = BERTH_ERROR_INIT;
      void *block;
      berthi_domain_init(&d, device, 64 * MIB);
      berthi_fault_plan(BERTHI_FAULT_ALLOC, nth, sticky);
      berth_status status = berthi_cpu_kind.alloc(&d, bytes, &block, &err);
      (void)berthi_fault_plan_end();
      if (status != BERTH_OK) assert_string_equal(err.reason, "device_exhausted");
      if (status != BERTH_OK) assert_int_equal(berthi_stat_load(&d.used), 0);
      block = alloc(&d, bytes);
      berthi_cpu_kind.free(&d, block);
      berthi_cpu_kind.reset(&d);
      assert_int_equal(berthi_stat_load(&d.used), 0);
    }
  }
}

// LED-2
static void any_allocation_can_fail(void **state) {
  fail_every_allocation(100, *state);
  fail_every_allocation(100000, *state);
  fail_every_allocation(5 * MIB, *state);
}

typedef struct user {
  berthi_device *device;
  uint64_t wrong;
} user;

// Executions that come and go share the store of arenas.
static void come_and_go(void *arg) {
  user *u = arg;
  for (uint64_t i = 0; i < 2000; i++) {
    berthi_domain d;
    void *a, *b;
    berthi_domain_init(&d, u->device, 16 * MIB);
    if (berthi_cpu_kind.alloc(&d, i % 700, &a, NULL) != BERTH_OK) u->wrong++;
    if (berthi_cpu_kind.alloc(&d, i % 7 == 0 ? 3 * MIB : 64, &b, NULL) != BERTH_OK) u->wrong++;
    if (i % 2 == 0) berthi_cpu_kind.free(&d, b);
    berthi_cpu_kind.reset(&d);
    if (berthi_stat_load(&d.used) != 0) u->wrong++;
  }
}

static void executions_in_four_threads(void **state) {
  berthi_thread threads[4] = {{0}};
  user users[4];
  for (int i = 0; i < 4; i++) {
    users[i] = (user){*state, 0};
    assert_int_equal(berthi_thread_start(&threads[i], "user", come_and_go, &users[i], NULL), BERTH_OK);
  }
  for (int i = 0; i < 4; i++) berthi_thread_join(&threads[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(users[i].wrong, 0);
}

// CLS-4: forced while memory is out, the device stays behind for its holder.
static void a_forced_close_leaves_what_is_in_use(void **state) {
  (void)state;
  berthi_device *device;
  berthi_startup startup;
  berthi_domain d;
  assert_int_equal(berthi_cpu_kind.open(0, NULL, 1, &device, &startup, NULL), BERTH_OK);
  berthi_domain_init(&d, device, MIB);
  void *block = alloc(&d, 100);
  assert_int_equal(berthi_cpu_kind.close(device, true, NULL), BERTH_OK);
  berthi_cpu_kind.free(&d, block);
  berthi_cpu_kind.reset(&d);
  assert_int_equal(berthi_cpu_kind.close(device, false, NULL), BERTH_OK); // nothing is in use now: it can be proved
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_cpu, close_cpu)
  const struct CMUnitTest tests[] = {
      TEST(small_blocks_are_reused),
      TEST(a_burst_of_small_blocks_goes_back),
      TEST(pages_are_kept_inside_the_grant),
      TEST(kept_pages_give_way),
      TEST(any_allocation_can_fail),
      TEST(executions_in_four_threads),
      cmocka_unit_test(a_forced_close_leaves_what_is_in_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
