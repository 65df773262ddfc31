// SPDX-License-Identifier: Apache-2.0
/// What the process may use of the machine (LED-6), against files that stand in for /proc and /sys.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/cpu/cpu_internal.h"
#include "device/sysroot_files.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

// A machine of 4 CPUs and 16 GiB without control groups; the process uses 100 pages.
static int machine(void **state) {
  static sysroot root;
  berth_test_sysroot_create(&root);
  berth_test_sysroot_put(&root, "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
  berth_test_sysroot_put(&root, "/proc/self/statm", "1000 100 50 1 0 200 0\n");
  berth_test_sysroot_put(&root, "/proc/self/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n");
  *state = &root;
  return 0;
}

static int demolish(void **state) {
  berth_test_sysroot_destroy(*state);
  return 0;
}

static berth_status read_limits(const sysroot *root, const char *more, uint32_t lanes, berthi_device_limits *out, berth_error *err) {
  char text[256], identity[BERTH_DEVICE_IDENTITY];
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  snprintf(text, sizeof(text), "sysroot=%s%s", root->path, more);
  options.parameters = text;
  options.lanes = lanes;
  return berthi_cpu_kind.limits(0, &options, identity, out, err);
}

static berthi_device_limits limits_of(const sysroot *root) {
  berthi_device_limits limits;
  assert_int_equal(read_limits(root, "", 0, &limits, NULL), BERTH_OK);
  return limits;
}

static void the_whole_machine(void **state) {
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, 16 * GIB);
  assert_string_equal(limits.limit_source, "half of physical memory 16 GiB");
  assert_int_equal(limits.process_used_bytes, 100 * 4096);
  assert_int_equal(limits.default_capacity_bytes, 8 * GIB - 100 * 4096);
  assert_int_equal(limits.lanes, 4);
  assert_int_equal(limits.slots, 16);
}

static void one_cpu(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/status", "Cpus_allowed_list:\t7\n");
  assert_int_equal(limits_of(*state).lanes, 1);
}

static void cpus_beyond_1023_and_lanes_beyond_256(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/status", "Cpus_allowed_list:\t0,1020-1030,4095\n");
  assert_int_equal(limits_of(*state).lanes, 13);
  berth_test_sysroot_put(*state, "/proc/self/status", "Cpus_allowed_list:\t0-2047\n");
  assert_int_equal(limits_of(*state).lanes, BERTHI_LANES_MAX);
}

static void version_2_limits(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "0::/a/b\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/a/b/memory.max", "268435456\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, 256 * MIB);
  assert_string_equal(limits.limit_source, "half of cgroup memory.max 256 MiB");
  assert_int_equal(limits.lanes, 2); // rounded down
}

// The group itself has no limit, its parent has one, and the grandparent a smaller one.
static void the_smallest_of_all_levels_binds(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "0::/top/middle/leaf\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/top/middle/leaf/memory.max", "max\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/top/middle/memory.max", "8589934592\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/top/memory.max", "4294967296\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/top/middle/leaf/cpu.max", "300000 100000\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/top/cpu.max", "100000 100000\n");
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, 4 * GIB);
  assert_int_equal(limits.lanes, 1);
}

static void half_a_cpu_is_one_lane(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "0::/\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu.max", "50000 100000\n");
  assert_int_equal(limits_of(*state).lanes, 1);
}

static void version_1_limits(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/y\n0::/\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "536870912\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "300000\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, 512 * MIB);
  assert_string_equal(limits.limit_source, "half of cgroup memory.limit_in_bytes 512 MiB");
  assert_int_equal(limits.lanes, 3);
}

static void version_1_without_limits(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "5:memory:/\n4:cpu:/\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, 16 * GIB);
  assert_int_equal(limits.lanes, 4);
}

// Inside a container /proc may show the host's path while only the container's own group is mounted.
static void a_path_that_is_not_mounted(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "4:memory:/docker/0123/deep\n0::/../../host\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu.max", "200000 100000\n");
  berthi_device_limits limits = limits_of(*state);
  assert_int_equal(limits.limit_bytes, GIB);
  assert_int_equal(limits.lanes, 2);
}

static void garbage_is_no_limit(void **state) {
  static const char *const garbage[] = {"", "\n", "abc\n", "12x\n", "-5\n", "99999999999999999999999999\n", "0\n", "1 2\n"};
  for (size_t i = 0; i < BERTHI_COUNTOF(garbage); i++) {
    berth_test_sysroot_put(*state, "/proc/self/cgroup", "0::/g\nnonsense\n:\n::\n7:cpu\n");
    berth_test_sysroot_put(*state, "/sys/fs/cgroup/g/memory.max", garbage[i]);
    berth_test_sysroot_put(*state, "/sys/fs/cgroup/g/cpu.max", garbage[i]);
    berth_test_sysroot_put(*state, "/sys/fs/cgroup/cpu.max", "100000 0\n");
    berthi_device_limits limits = limits_of(*state);
    assert_int_equal(limits.limit_bytes, 16 * GIB);
    if (i < 7) assert_int_equal(limits.lanes, 4);
  }
}

static void the_parameter_is_an_upper_bound(void **state) {
  berthi_device_limits limits;
  assert_int_equal(read_limits(*state, ",memory=1GiB", 0, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, GIB);
  assert_string_equal(limits.limit_source, "half of parameter memory 1 GiB");
  assert_int_equal(read_limits(*state, ",memory=1TiB", 0, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, 16 * GIB);
}

// Where a limit cannot be known, the error says which option to set, and setting it works.
static void an_unknown_memory_limit(void **state) {
  berth_error err = BERTH_ERROR_INIT;
  berthi_device_limits limits;
  berth_test_sysroot_put(*state, "/proc/meminfo", "MemTotal: lots\n");
  assert_int_equal(read_limits(*state, "", 0, &limits, &err), BERTH_INTERNAL);
  assert_string_equal(err.reason, "limit_unknown");
  assert_non_null(strstr(err.message, "memory=BYTES"));
  berth_test_sysroot_remove(*state, "/proc/meminfo");
  assert_int_equal(read_limits(*state, "", 0, &limits, NULL), BERTH_INTERNAL);
  assert_int_equal(read_limits(*state, ",memory=2GiB", 0, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, 2 * GIB);
}

static void unknown_cpus(void **state) {
  berth_error err = BERTH_ERROR_INIT;
  berthi_device_limits limits;
  static const char *const lists[] = {"Cpus_allowed_list:\t\n", "Cpus_allowed_list:\t3-1\n", "Cpus_allowed_list:\tall\n",
                                      "Cpus_allowed_list:\t0-99999999\n"};
  for (size_t i = 0; i < BERTHI_COUNTOF(lists); i++) {
    berth_test_sysroot_put(*state, "/proc/self/status", lists[i]);
    assert_int_equal(read_limits(*state, "", 0, &limits, &err), BERTH_INTERNAL);
    assert_string_equal(err.reason, "limit_unknown");
    assert_non_null(strstr(err.message, "lanes"));
    assert_int_equal(read_limits(*state, "", 3, &limits, NULL), BERTH_OK);
    assert_int_equal(limits.lanes, 3);
  }
}

// The process already uses more than half: 64 MiB are left for the device while the limit has them.
static void the_floor_of_the_default_capacity(void **state) {
  berth_test_sysroot_put(*state, "/proc/self/cgroup", "0::/\n");
  berth_test_sysroot_put(*state, "/sys/fs/cgroup/memory.max", "268435456\n");     // 256 MiB
  berth_test_sysroot_put(*state, "/proc/self/statm", "100000 40000 1 1 1 1 1\n"); // 156 MiB and a quarter
  assert_int_equal(limits_of(*state).default_capacity_bytes, 64 * MIB);
  berth_test_sysroot_put(*state, "/proc/self/statm", "100000 64000 1 1 1 1 1\n"); // 250 MiB
  assert_int_equal(limits_of(*state).default_capacity_bytes, 6 * MIB);
  berth_test_sysroot_put(*state, "/proc/self/statm", "100000 90000 1 1 1 1 1\n");
  assert_int_equal(limits_of(*state).default_capacity_bytes, 0);
}

// Each read can fail, once and from then on: the answer is a smaller truth or an error, never a crash or a leak.
static void every_file_read_can_fail(void **state) {
  version_2_limits(state);
  uint64_t live = berthi_alloc_live();
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t nth = 1; nth < 40; nth++) {
      berthi_device_limits limits;
      berth_error err = BERTH_ERROR_INIT;
      berthi_fault_plan(BERTHI_FAULT_FILE, nth, sticky);
      berth_status status = read_limits(*state, "", 0, &limits, &err);
      uint64_t calls = berthi_fault_plan_end();
      if (status != BERTH_OK) assert_string_equal(err.reason, "limit_unknown");
      if (status == BERTH_OK) assert_in_range(limits.lanes, 1, BERTHI_LANES_MAX);
      if (calls < nth) break;
    }
  }
  assert_int_equal(berthi_alloc_live(), live);
}

// Limits are read again while the device is open.
static void a_limit_that_changes(void **state) {
  const sysroot *root = *state;
  char text[128];
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  berthi_device *device;
  berthi_startup startup;
  berthi_device_limits limits;
  berth_test_sysroot_put(root, "/proc/self/cgroup", "0::/\n");
  berth_test_sysroot_put(root, "/sys/fs/cgroup/memory.max", "4294967296\n");
  snprintf(text, sizeof(text), "sysroot=%s", root->path);
  options.parameters = text;
  assert_int_equal(berthi_cpu_kind.open(0, &options, 2, &device, &startup, NULL), BERTH_OK);
  assert_int_equal(startup.total_bytes, 4 * GIB);
  berth_test_sysroot_put(root, "/sys/fs/cgroup/memory.max", "1073741824\n");
  assert_int_equal(berthi_cpu_kind.reread(device, &limits, NULL), BERTH_OK);
  assert_int_equal(limits.limit_bytes, GIB);
  assert_int_equal(berthi_cpu_kind.close(device, false, NULL), BERTH_OK);
}

static void parameters_are_checked(void **state) {
  berthi_device_limits limits;
  assert_int_equal(read_limits(*state, ",memory=1KiB", 0, &limits, NULL), BERTH_INVALID_ARGUMENT);
  assert_int_equal(read_limits(*state, ",slots=1", 0, &limits, NULL), BERTH_INVALID_ARGUMENT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine, demolish)
  const struct CMUnitTest tests[] = {
      TEST(the_whole_machine),
      TEST(one_cpu),
      TEST(cpus_beyond_1023_and_lanes_beyond_256),
      TEST(version_2_limits),
      TEST(the_smallest_of_all_levels_binds),
      TEST(half_a_cpu_is_one_lane),
      TEST(version_1_limits),
      TEST(version_1_without_limits),
      TEST(a_path_that_is_not_mounted),
      TEST(garbage_is_no_limit),
      TEST(the_parameter_is_an_upper_bound),
      TEST(an_unknown_memory_limit),
      TEST(unknown_cpus),
      TEST(the_floor_of_the_default_capacity),
      TEST(every_file_read_can_fail),
      TEST(a_limit_that_changes),
      TEST(parameters_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
