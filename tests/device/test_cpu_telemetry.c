// SPDX-License-Identifier: Apache-2.0
/// Telemetry of the cpu (TEL-1), from files that stand in: what cannot be read is not valid.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/cpu/cpu_internal.h"
#include "device/sysroot_files.h"

typedef struct fixture {
  sysroot root;
  berthi_device *device;
} fixture;

static int open_cpu(void **state) {
  static fixture f;
  char text[128];
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  berthi_startup startup;
  berth_test_sysroot_create(&f.root);
  berth_test_sysroot_put(&f.root, "/proc/meminfo", "MemTotal:       1024 kB\nMemAvailable:   256 kB\n");
  berth_test_sysroot_put(&f.root, "/proc/self/status", "Cpus_allowed_list:\t1,2\n");
  berth_test_sysroot_put(&f.root, "/proc/stat",
                         "cpu  9 9 9 9 9\ncpu0 900 0 0 0 0 0 0 0\ncpu1 10 0 10 80 0 0 0 0 0 0\ncpu2 10 0 10 80 0 0 0 0 0 0\nintr 5\n");
  berth_test_sysroot_put(&f.root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\ncpu MHz\t\t: 2450.3\n");
  snprintf(text, sizeof(text), "sysroot=%s,memory=1MiB", f.root.path);
  options.parameters = text;
  assert_int_equal(berthi_cpu_kind.open(0, &options, 2, &f.device, &startup, NULL), BERTH_OK);
  assert_string_equal(startup.model, "A Processor");
  *state = &f;
  return 0;
}

static int close_cpu(void **state) {
  fixture *f = *state;
  assert_int_equal(berthi_cpu_kind.close(f->device, false, NULL), BERTH_OK);
  berth_test_sysroot_destroy(&f->root);
  return 0;
}

static berthi_telemetry sample(fixture *f) {
  berthi_telemetry out;
  assert_int_equal(berthi_cpu_kind.telemetry(f->device, &out, NULL), BERTH_OK);
  return out;
}

// CPU 1: 30 of 100 busy, CPU 2: 50 of 100; CPU 0 is not ours.
static void utilization_is_of_the_lanes_cpus(void **state) {
  fixture *f = *state;
  berth_test_sysroot_put(&f->root, "/proc/stat",
                         "cpu  9 9 9 9 9\ncpu0 1900 0 0 0 0 0 0 0\ncpu1 30 0 20 140 10 0 0 0 0 0\ncpu2 50 0 20 130 0 0 0 0 0 0\n");
  berthi_telemetry t = sample(f);
  assert_true(t.valid & BERTHI_TELEMETRY_UTILIZATION);
  assert_float_equal(t.utilization_percent, 40.0, 0.01);
}

static void counters_that_fall_give_no_sample(void **state) {
  fixture *f = *state;
  berth_test_sysroot_put(&f->root, "/proc/stat", "cpu  1\ncpu1 1 0 1 8 0 0 0 0\ncpu2 1 0 1 8 0 0 0 0\n");
  assert_false(sample(f).valid & BERTHI_TELEMETRY_UTILIZATION);
  berth_test_sysroot_put(&f->root, "/proc/stat", "cpu  1\ncpu1 11 0 1 8 0 0 0 0\ncpu2 1 0 1 18 0 0 0 0\n");
  assert_float_equal(sample(f).utilization_percent, 50.0, 0.01);
}

static void memory_of_the_machine_or_of_the_group(void **state) {
  fixture *f = *state;
  berthi_telemetry t = sample(f);
  assert_true(t.valid & BERTHI_TELEMETRY_MEMORY);
  assert_int_equal(t.memory_total_bytes, 1024 * 1024);
  assert_int_equal(t.memory_used_bytes, 768 * 1024);
  berth_test_sysroot_put(&f->root, "/proc/self/cgroup", "0::/g\n");
  berth_test_sysroot_put(&f->root, "/sys/fs/cgroup/g/memory.max", "524288\n");
  berth_test_sysroot_put(&f->root, "/sys/fs/cgroup/g/memory.current", "1000\n");
  t = sample(f);
  assert_int_equal(t.memory_total_bytes, 524288);
  assert_int_equal(t.memory_used_bytes, 1000);
}

static void temperature_of_the_hottest_processor_sensor(void **state) {
  fixture *f = *state;
  assert_false(sample(f).valid & BERTHI_TELEMETRY_TEMPERATURE);
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon0/name", "nvme\n");
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon0/temp1_input", "90000\n");
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon1/name", "k10temp\n");
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon1/temp1_input", "51500\n");
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon2/name", "k10temp\n");
  berth_test_sysroot_put(&f->root, "/sys/class/hwmon/hwmon2/temp1_input", "48000\n");
  berthi_telemetry t = sample(f);
  assert_true(t.valid & BERTHI_TELEMETRY_TEMPERATURE);
  assert_float_equal(t.temperature_celsius, 51.5, 0.01);
}

static void clock_of_cpufreq_or_cpuinfo(void **state) {
  fixture *f = *state;
  assert_float_equal(sample(f).clock_mhz, 2450, 0.01);
  berth_test_sysroot_put(&f->root, "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n");
  berth_test_sysroot_put(&f->root, "/sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "2000000\n");
  assert_float_equal(sample(f).clock_mhz, 2500, 0.01);
}

static void throttling_by_heat_or_quota(void **state) {
  fixture *f = *state;
  assert_false(sample(f).valid & BERTHI_TELEMETRY_THROTTLE);
  berth_test_sysroot_put(&f->root, "/proc/self/cgroup", "0::/g\n");
  berth_test_sysroot_put(&f->root, "/sys/fs/cgroup/g/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 4\n");
  assert_false(sample(f).valid & BERTHI_TELEMETRY_THROTTLE); // the first is only a base
  berthi_telemetry t = sample(f);
  assert_true(t.valid & BERTHI_TELEMETRY_THROTTLE);
  assert_false(t.throttled);
  berth_test_sysroot_put(&f->root, "/sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "2\n");
  assert_true(sample(f).throttled);
}

static void power_is_a_difference(void **state) {
  fixture *f = *state;
  berth_test_sysroot_put(&f->root, "/sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");
  assert_false(sample(f).valid & BERTHI_TELEMETRY_POWER);
  berth_test_sysroot_put(&f->root, "/sys/class/powercap/intel-rapl:0/energy_uj", "2000000\n");
  berthi_telemetry t = sample(f);
  assert_true(t.valid & BERTHI_TELEMETRY_POWER);
  assert_true(t.power_watts > 0);
  berth_test_sysroot_put(&f->root, "/sys/class/powercap/intel-rapl:0/energy_uj", "5\n");
  assert_false(sample(f).valid & BERTHI_TELEMETRY_POWER);
}

static void nothing_readable_is_an_error(void **state) {
  fixture *f = *state;
  berthi_telemetry out;
  berth_error err = BERTH_ERROR_INIT;
  berthi_fault_plan(BERTHI_FAULT_FILE, 1, true);
  assert_int_equal(berthi_cpu_kind.telemetry(f->device, &out, &err), BERTH_UNAVAILABLE);
  berthi_fault_plan_end();
  assert_string_equal(err.reason, "telemetry_unavailable");
  assert_int_equal(out.valid, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_cpu, close_cpu)
  const struct CMUnitTest tests[] = {
      TEST(utilization_is_of_the_lanes_cpus),
      TEST(counters_that_fall_give_no_sample),
      TEST(memory_of_the_machine_or_of_the_group),
      TEST(temperature_of_the_hottest_processor_sensor),
      TEST(clock_of_cpufreq_or_cpuinfo),
      TEST(throttling_by_heat_or_quota),
      TEST(power_is_a_difference),
      TEST(nothing_readable_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
