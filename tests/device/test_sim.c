// SPDX-License-Identifier: Apache-2.0
/// The simulated device does what its script says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"
#include "device/kinds.h"
#include "device/sim/sim.h"

static berthi_device *open_sim(uint32_t ordinal, const char *parameters) {
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  berthi_device *device = NULL;
  berthi_startup startup;
  berth_error err = BERTH_ERROR_INIT;
  options.parameters = parameters;
  berth_status status = berthi_sim_kind.open(ordinal, &options, 2, &device, &startup, &err);
  if (status != BERTH_OK) print_error("%s\n", err.message);
  assert_int_equal(status, BERTH_OK);
  return device;
}

static void close_sim(berthi_device *device) { assert_int_equal(berthi_sim_kind.close(device, false, NULL), BERTH_OK); }

static berth_status try_alloc(berthi_domain *domain, uint64_t bytes, const char *reason) {
  berth_error err = BERTH_ERROR_INIT;
  void *block = NULL;
  berth_status status = berthi_sim_kind.alloc(domain, bytes, &block, &err);
  if (status != BERTH_OK) assert_string_equal(err.reason, reason);
  return status;
}

static void an_allocation_fails_once(void **state) {
  (void)state;
  berthi_domain d;
  berthi_device *device = open_sim(1, "fail_alloc=2");
  berthi_domain_init(&d, device, 1 << 20);
  assert_int_equal(try_alloc(&d, 64, NULL), BERTH_OK);
  assert_int_equal(try_alloc(&d, 64, "device_exhausted"), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(try_alloc(&d, 64, NULL), BERTH_OK);
  assert_int_equal(berthi_stat_load(&d.used), 128);
  berthi_sim_kind.reset(&d);
  close_sim(device);
}

static void allocations_fail_from_then_on(void **state) {
  (void)state;
  berthi_domain d;
  berthi_device *device = open_sim(1, "fail_alloc_from=2");
  berthi_domain_init(&d, device, 1 << 20);
  assert_int_equal(try_alloc(&d, 64, NULL), BERTH_OK);
  for (int i = 0; i < 3; i++) assert_int_equal(try_alloc(&d, 64, "device_exhausted"), BERTH_RESOURCE_EXHAUSTED);
  berthi_sim_kind.reset(&d);
  close_sim(device);
}

// LED-2: the device's own end is another reason than the grant's.
static void the_device_itself_runs_out(void **state) {
  (void)state;
  berthi_domain a, b;
  berthi_device *device = open_sim(1, "memory=1MiB");
  berthi_domain_init(&a, device, 1 << 20);
  berthi_domain_init(&b, device, 1 << 20);
  assert_int_equal(try_alloc(&a, 700 << 10, NULL), BERTH_OK);
  assert_int_equal(try_alloc(&b, 700 << 10, "device_exhausted"), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(try_alloc(&b, 2 << 20, "grant_exhausted"), BERTH_RESOURCE_EXHAUSTED);
  assert_int_equal(berthi_stat_load(&b.used), 0);
  berthi_sim_kind.reset(&a);
  assert_int_equal(try_alloc(&b, 700 << 10, NULL), BERTH_OK);
  berthi_sim_kind.reset(&b);
  close_sim(device);
}

static void a_device_of_a_terabyte(void **state) {
  (void)state;
  berthi_domain d;
  void *block;
  berthi_device *device = open_sim(1, "memory=1TiB");
  berthi_domain_init(&d, device, (uint64_t)1 << 40);
  assert_int_equal(berthi_sim_kind.alloc(&d, (uint64_t)1 << 38, &block, NULL), BERTH_OK);
  ((char *)block)[(uint64_t)1 << 37] = 1;
  berthi_sim_kind.free(&d, block);
  close_sim(device);
}

static void fault_after(const char *parameters, berthi_fault_class expected) {
  berthi_domain d;
  berthi_device *device = open_sim(2, parameters);
  berthi_domain_init(&d, device, 1 << 20);
  assert_int_equal(try_alloc(&d, 64, NULL), BERTH_OK);
  assert_int_equal(berthi_sim_kind.settle(&d, NULL), BERTH_OK);
  assert_int_equal(berthi_sim_kind.fault(device), BERTHI_DEVICE_FINE);
  assert_int_equal(try_alloc(&d, 64, "device_fault"), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.fault(device), expected);
  assert_int_equal(berthi_sim_kind.settle(&d, NULL), BERTH_INTERNAL);
  berth_status probed = berthi_sim_kind.probe(device, NULL);
  assert_int_equal(probed, expected == BERTHI_DEVICE_STICKY ? BERTH_OK : BERTH_INTERNAL);
  assert_int_equal(try_alloc(&d, 64, "device_fault"), probed);
  berthi_sim_kind.reset(&d);
  close_sim(device);
}

// HLT-1
static void faults_come_when_the_script_says(void **state) {
  (void)state;
  fault_after("sticky_after=3", BERTHI_DEVICE_STICKY);
  fault_after("lost_after=3", BERTHI_DEVICE_LOST);
  fault_after("restart_after=3", BERTHI_DEVICE_NEEDS_RESTART);
  fault_after("unknown_after=3", BERTHI_DEVICE_UNKNOWN_ISOLATION);
}

static void probes_fail_first(void **state) {
  (void)state;
  berthi_device *device = open_sim(2, "probe_fails=2");
  berthi_sim_inject_fault(2, BERTHI_DEVICE_STICKY);
  assert_int_equal(berthi_sim_kind.probe(device, NULL), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.probe(device, NULL), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.fault(device), BERTHI_DEVICE_STICKY);
  assert_int_equal(berthi_sim_kind.probe(device, NULL), BERTH_OK);
  assert_int_equal(berthi_sim_kind.fault(device), BERTHI_DEVICE_FINE);
  close_sim(device);
}

static void a_probe_finds_it_lost(void **state) {
  (void)state;
  berthi_device *device = open_sim(2, "probe_lost=1");
  berthi_sim_inject_fault(2, BERTHI_DEVICE_STICKY);
  assert_int_equal(berthi_sim_kind.probe(device, NULL), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.fault(device), BERTHI_DEVICE_LOST);
  close_sim(device);
}

static void one_copy_and_one_settle_fail(void **state) {
  (void)state;
  berthi_domain d;
  char a[8] = "abc", b[8] = "";
  berthi_device *device = open_sim(2, "fail_copy=1,fail_settle=1");
  berthi_domain_init(&d, device, 1 << 20);
  assert_int_equal(berthi_sim_kind.copy(&d, BERTHI_COPY_DOWNLOAD, b, a, sizeof(a), NULL), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.copy(&d, BERTHI_COPY_DOWNLOAD, b, a, sizeof(a), NULL), BERTH_OK);
  assert_string_equal(b, "abc");
  assert_int_equal(berthi_sim_kind.settle(&d, NULL), BERTH_INTERNAL);
  assert_int_equal(berthi_sim_kind.settle(&d, NULL), BERTH_OK);
  assert_int_equal(berthi_sim_kind.fault(device), BERTHI_DEVICE_FINE);
  close_sim(device);
}

static void an_open_fails(void **state) {
  (void)state;
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  berthi_device *device = NULL;
  berthi_startup startup;
  options.parameters = "fail_open=1";
  assert_int_equal(berthi_sim_kind.open(3, &options, 1, &device, &startup, NULL), BERTH_UNAVAILABLE);
  assert_null(device);
}

// CLS-4
static void completion_is_not_proved_at_first(void **state) {
  (void)state;
  berthi_device *device = open_sim(3, "unprovable_close=2");
  assert_int_not_equal(berthi_sim_kind.close(device, false, NULL), BERTH_OK);
  assert_int_not_equal(berthi_sim_kind.close(device, false, NULL), BERTH_OK);
  close_sim(device);
  device = open_sim(3, "unprovable_close=2");
  assert_int_equal(berthi_sim_kind.close(device, true, NULL), BERTH_OK);
}

static void close_in_a_thread(void *arg) { (void)berthi_sim_kind.close(arg, false, NULL); }

static void a_close_hangs_until_released(void **state) {
  (void)state;
  berthi_sim_reset(4);
  berthi_sim_counters counters;
  berthi_thread thread = {0};
  berthi_device *device = open_sim(4, "hang_close=1");
  assert_int_equal(berthi_thread_start(&thread, "close", close_in_a_thread, device, NULL), BERTH_OK);
  while (berthi_wait_place_count("sim close hangs") == 0) berthi_thread_yield();
  berthi_sim_read_counters(4, &counters);
  assert_int_equal(counters.live_devices, 1);
  berthi_sim_release_hang(4);
  berthi_thread_join(&thread);
  berthi_sim_read_counters(4, &counters);
  assert_int_equal(counters.live_devices, 0);
  assert_int_equal(counters.closes, 1);
}

// A leak is forced while its close still hangs: what the hung thread holds stays valid.
static void a_forced_close_overtakes_a_hung_one(void **state) {
  (void)state;
  berthi_thread thread = {0};
  berthi_sim_counters counters;
  berthi_device *device = open_sim(5, "hang_close=1");
  assert_int_equal(berthi_thread_start(&thread, "close", close_in_a_thread, device, NULL), BERTH_OK);
  while (berthi_wait_place_count("sim close hangs") == 0) berthi_thread_yield();
  assert_int_equal(berthi_sim_kind.close(device, true, NULL), BERTH_OK);
  berthi_sim_release_hang(5);
  berthi_thread_join(&thread);
  berthi_sim_read_counters(5, &counters);
  assert_int_equal(counters.live_devices, 0);
}

static void latency_is_waited(void **state) {
  (void)state;
  berthi_domain d;
  berthi_device *device = open_sim(6, "alloc_latency=3ms");
  berthi_domain_init(&d, device, 1 << 20);
  int64_t before = berthi_now();
  assert_int_equal(try_alloc(&d, 64, NULL), BERTH_OK);
  assert_true(berthi_now() - before >= 3000000);
  berthi_sim_kind.reset(&d);
  close_sim(device);
}

// LED-6
static void limits_change_while_open(void **state) {
  (void)state;
  berthi_device_limits limits;
  berthi_sim_reset(7);
  berthi_device *device = open_sim(7, "memory=2GiB,process_used=1GiB");
  assert_int_equal(berthi_sim_kind.reread(device, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, (uint64_t)2 << 30);
  assert_int_equal(limits.process_used_bytes, (uint64_t)1 << 30);
  assert_int_equal(limits.default_capacity_bytes, (uint64_t)1 << 30);
  berthi_sim_set_limits(7, (uint64_t)1 << 20, 5);
  assert_int_equal(berthi_sim_kind.reread(device, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, 1 << 20);
  assert_int_equal(limits.process_used_bytes, 5);
  close_sim(device);
  berthi_sim_reset(7);
  device = open_sim(7, "memory=2GiB,reread_memory=1GiB");
  assert_int_equal(berthi_sim_kind.reread(device, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, (uint64_t)1 << 30);
  close_sim(device);
}

// BCK-3: what a validation must find.
static void nonsense(void **state) {
  (void)state;
  berthi_device_limits limits;
  berthi_startup startup;
  char identity[BERTH_DEVICE_IDENTITY];
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  options.parameters = "nonsense=1";
  assert_int_equal(berthi_sim_kind.limits(8, &options, identity, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.default_capacity_bytes, 0);
  options.parameters = "nonsense=2";
  assert_int_equal(berthi_sim_kind.limits(8, &options, identity, &limits, NULL), BERTH_OK);
  assert_true(limits.default_capacity_bytes > limits.limit_bytes);
  options.parameters = "nonsense=3";
  berthi_device *device;
  assert_int_equal(berthi_sim_kind.open(8, &options, 1, &device, &startup, NULL), BERTH_OK);
  assert_string_not_equal(startup.identity, identity);
  close_sim(device);
  options.parameters = "nonsense=4";
  assert_int_equal(berthi_sim_kind.limits(8, &options, identity, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.lanes, 0);
  options.parameters = "nonsense=5";
  assert_int_equal(berthi_sim_kind.limits(8, &options, identity, &limits, NULL), BERTH_OK);
  assert_true(limits.limit_bytes == UINT64_MAX);
  options.parameters = "nonsense=6";
  assert_int_equal(berthi_sim_kind.limits(8, &options, identity, &limits, NULL), BERTH_INVALID_ARGUMENT);
}

static void an_enter_fails(void **state) {
  (void)state;
  berthi_lanemask lanes = {{1}};
  berthi_affinity saved;
  berth_error err = BERTH_ERROR_INIT;
  berthi_device *device = open_sim(9, "fail_enter=1");
  assert_int_equal(berthi_sim_kind.enter(device, &lanes, &saved, &err), BERTH_FAILED_PRECONDITION);
  assert_string_equal(err.reason, "executor");
  assert_int_equal(berthi_sim_kind.enter(device, &lanes, &saved, &err), BERTH_OK);
  assert_int_equal(berthi_sim_kind.leave(device, &saved, &err), BERTH_OK);
  close_sim(device);
}

static void telemetry_fails_first(void **state) {
  (void)state;
  berthi_telemetry sample;
  berthi_device *device = open_sim(9, "telemetry_fails=1");
  assert_int_equal(berthi_sim_kind.telemetry(device, &sample, NULL), BERTH_UNAVAILABLE);
  assert_int_equal(berthi_sim_kind.telemetry(device, &sample, NULL), BERTH_OK);
  close_sim(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_allocation_fails_once),
      cmocka_unit_test(allocations_fail_from_then_on),
      cmocka_unit_test(the_device_itself_runs_out),
      cmocka_unit_test(a_device_of_a_terabyte),
      cmocka_unit_test(faults_come_when_the_script_says),
      cmocka_unit_test(probes_fail_first),
      cmocka_unit_test(a_probe_finds_it_lost),
      cmocka_unit_test(one_copy_and_one_settle_fail),
      cmocka_unit_test(an_open_fails),
      cmocka_unit_test(completion_is_not_proved_at_first),
      cmocka_unit_test(a_close_hangs_until_released),
      cmocka_unit_test(a_forced_close_overtakes_a_hung_one),
      cmocka_unit_test(latency_is_waited),
      cmocka_unit_test(limits_change_while_open),
      cmocka_unit_test(nonsense),
      cmocka_unit_test(an_enter_fails),
      cmocka_unit_test(telemetry_fails_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
