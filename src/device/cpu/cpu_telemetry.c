// SPDX-License-Identifier: Apache-2.0
// Telemetry of the host (TEL-1). What cannot be read is not valid; no sample fails as long as one field could be read.
//
// Utilization is of the CPUs that the lanes have (all processes'); where lanes have none, of the whole machine. It is the difference to the
// sample before, so the first sample after open covers the time since open.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/cpu/cpu_internal.h"

#define STAT_BYTES ((size_t)128 << 10)
#define HWMON_MAX 32

typedef struct cpu_times {
  uint64_t busy, total;
} cpu_times;

// "cpu3 user nice system idle iowait irq softirq steal ...": idle and iowait are not busy; guests are inside user.
static bool parse_times(const char *at, cpu_times *out) {
  uint64_t value[8] = {0};
  int count = 0;
  while (count < 8 && berthi_sysfile_number(&at, &value[count])) count++;
  if (count < 4) return false;
  uint64_t total = 0;
  for (int i = 0; i < 8; i++) total += value[i];
  out->busy += total - value[3] - value[4];
  out->total += total;
  return true;
}

static bool has_cpu(const cpu_device *cpu, uint64_t number) {
  for (uint32_t lane = 0; lane < cpu->lanes; lane++) {
    if (cpu->cpus[lane] >= 0 && (uint64_t)cpu->cpus[lane] == number) return true;
  }
  return cpu->cpus[0] < 0;
}

static bool read_times(const cpu_device *cpu, cpu_times *out) {
  char *text = berthi_alloc(STAT_BYTES);
  bool any = false;
  *out = (cpu_times){0};
  if (text != NULL && berthi_sysfile_read(cpu->parameters.sysroot, "/proc/stat", text, STAT_BYTES)) {
    for (const char *line = strstr(text, "\ncpu"); line != NULL; line = strstr(line, "\ncpu")) {
      uint64_t number;
      line += 4;
      const char *at = line;
      if (berthi_sysfile_number(&at, &number) && has_cpu(cpu, number) && parse_times(at, out)) any = true;
    }
  }
  berthi_free(text);
  return any;
}

static void sample_utilization(cpu_device *cpu, berthi_telemetry *out) {
  cpu_sampler *last = &cpu->sampler;
  cpu_times now;
  if (!read_times(cpu, &now)) return;
  // Counters of a CPU that came back online can fall: then this sample only becomes the next one's base.
  if (last->has_times && now.total > last->total && now.busy >= last->busy && now.busy - last->busy <= now.total - last->total) {
    out->utilization_percent = 100.0 * (double)(now.busy - last->busy) / (double)(now.total - last->total);
    out->valid |= BERTHI_TELEMETRY_UTILIZATION;
  }
  last->busy = now.busy;
  last->total = now.total;
  last->has_times = true;
}

static void sample_memory(const cpu_device *cpu, const cpu_cgroup *group, berthi_telemetry *out) {
  char text[4096];
  uint64_t total, available;
  bool machine = berthi_sysfile_read(cpu->parameters.sysroot, "/proc/meminfo", text, sizeof(text)) &&
                 berthi_sysfile_field(text, "MemTotal:", &total) && berthi_sysfile_field(text, "MemAvailable:", &available) && available <= total;
  if (group->has_current && (!machine || group->memory_limit / 1024 < total)) {
    out->memory_used_bytes = group->memory_current;
    out->memory_total_bytes = group->memory_limit;
  } else if (machine && total <= UINT64_MAX / 1024) {
    out->memory_used_bytes = (total - available) * 1024;
    out->memory_total_bytes = total * 1024;
  } else {
    return;
  }
  out->valid |= BERTHI_TELEMETRY_MEMORY;
}

static bool is_cpu_sensor(const char *name) {
  static const char *const names[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz"};
  for (size_t i = 0; i < BERTHI_COUNTOF(names); i++) {
    if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
  }
  return false;
}

static void sample_temperature(const char *sysroot, berthi_telemetry *out) {
  for (int i = 0; i < HWMON_MAX; i++) {
    char path[96], name[32];
    uint64_t milli;
    snprintf(path, sizeof(path), "/sys/class/hwmon/hwmon%d/name", i);
    if (!berthi_sysfile_read(sysroot, path, name, sizeof(name)) || !is_cpu_sensor(name)) continue;
    snprintf(path, sizeof(path), "/sys/class/hwmon/hwmon%d/temp1_input", i);
    if (!berthi_sysfile_u64(sysroot, path, &milli) || milli > 200000) continue;
    double celsius = (double)milli / 1000.0;
    if (!(out->valid & BERTHI_TELEMETRY_TEMPERATURE) || celsius > out->temperature_celsius) out->temperature_celsius = celsius;
    out->valid |= BERTHI_TELEMETRY_TEMPERATURE;
  }
}

static bool cpu_number_file(const cpu_device *cpu, uint32_t lane, const char *file, uint64_t *out) {
  char path[128];
  if (cpu->cpus[lane] < 0) return false;
  snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", cpu->cpus[lane], file);
  return berthi_sysfile_u64(cpu->parameters.sysroot, path, out);
}

static bool clock_of_cpuinfo(const char *sysroot, double *out) {
  char text[2048];
  uint64_t mhz;
  if (!berthi_sysfile_read(sysroot, "/proc/cpuinfo", text, sizeof(text))) return false;
  const char *at = strstr(text, "cpu MHz");
  if (at == NULL || (at = strchr(at, ':')) == NULL) return false;
  at++;
  if (!berthi_sysfile_number(&at, &mhz)) return false;
  *out = (double)mhz;
  return mhz > 0;
}

// The mean over the lanes' CPUs.
static void sample_clock(const cpu_device *cpu, berthi_telemetry *out) {
  double sum = 0;
  uint32_t count = 0;
  for (uint32_t lane = 0; lane < cpu->lanes; lane++) {
    uint64_t khz;
    if (!cpu_number_file(cpu, lane, "cpufreq/scaling_cur_freq", &khz)) continue;
    sum += (double)khz / 1000.0;
    count++;
  }
  bool ok = count > 0;
  if (ok) out->clock_mhz = sum / count;
  if (!ok) ok = clock_of_cpuinfo(cpu->parameters.sysroot, &out->clock_mhz);
  if (ok) out->valid |= BERTHI_TELEMETRY_CLOCK;
}

// Throttled: since the sample before, a core was slowed by heat or the group ran out of its CPU quota.
static void sample_throttle(cpu_device *cpu, const cpu_cgroup *group, berthi_telemetry *out) {
  cpu_sampler *last = &cpu->sampler;
  uint64_t sum = group->throttled;
  bool any = group->has_throttled;
  for (uint32_t lane = 0; lane < cpu->lanes; lane++) {
    uint64_t count;
    if (!cpu_number_file(cpu, lane, "thermal_throttle/core_throttle_count", &count)) continue;
    sum += count;
    any = true;
  }
  if (!any) return;
  if (last->has_throttles) {
    out->throttled = sum > last->throttles;
    out->valid |= BERTHI_TELEMETRY_THROTTLE;
  }
  last->throttles = sum;
  last->has_throttles = true;
}

static void sample_power(cpu_device *cpu, berthi_telemetry *out) {
  cpu_sampler *last = &cpu->sampler;
  uint64_t microjoules;
  if (!berthi_sysfile_u64(cpu->parameters.sysroot, "/sys/class/powercap/intel-rapl:0/energy_uj", &microjoules)) return;
  int64_t now = berthi_now();
  if (last->has_energy && microjoules >= last->energy && now > last->energy_at) { // the counter wraps
    out->power_watts = (double)(microjoules - last->energy) * 1000.0 / (double)(now - last->energy_at);
    out->valid |= BERTHI_TELEMETRY_POWER;
  }
  last->energy = microjoules;
  last->energy_at = now;
  last->has_energy = true;
}

static void sample(cpu_device *cpu, berthi_telemetry *out) {
  cpu_cgroup group;
  memset(out, 0, sizeof(*out));
  berthi_cgroup_read(cpu->parameters.sysroot, &group);
  sample_utilization(cpu, out);
  sample_memory(cpu, &group, out);
  sample_temperature(cpu->parameters.sysroot, out);
  sample_clock(cpu, out);
  sample_throttle(cpu, &group, out);
  sample_power(cpu, out);
}

void berthi_sampler_init(cpu_device *cpu) {
  berthi_telemetry first;
  berthi_mutex_init(&cpu->sampler.lock, BERTHI_RANK_DEVICE);
  sample(cpu, &first);
}

berth_status berthi_cpu_telemetry(berthi_device *device, berthi_telemetry *out, berth_error *err) {
  cpu_device *cpu = cpu_of(device);
  berthi_mutex_lock(&cpu->sampler.lock);
  sample(cpu, out);
  berthi_mutex_unlock(&cpu->sampler.lock);
  if (out->valid == 0) return berthi_fail(err, BERTHI_R_TELEMETRY_UNAVAILABLE, "cpu:0: nothing of /proc and /sys can be read");
  return BERTH_OK;
}
