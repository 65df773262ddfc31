// SPDX-License-Identifier: Apache-2.0
// What this process may use of the machine (LED-6): the smallest of what the machine has, what its control groups allow and what the
// parameters say. Read at open and again while the backend lives.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "device/cpu/cpu_internal.h"

#define CAPACITY_FLOOR ((uint64_t)64 << 20)
#define CAPACITY_UNIT ((uint64_t)4096)

typedef struct memory_limit {
  uint64_t bytes; ///< UINT64_MAX: unknown
  const char *source;
} memory_limit;

static void lower(memory_limit *limit, uint64_t bytes, const char *source) {
  if (bytes == 0 || bytes >= limit->bytes) return;
  limit->bytes = bytes;
  limit->source = source;
}

static uint64_t physical_memory(const char *sysroot) {
  char text[4096];
  uint64_t kib;
  if (!berthi_sysfile_read(sysroot, "/proc/meminfo", text, sizeof(text)) || !berthi_sysfile_field(text, "MemTotal:", &kib)) return 0;
  return kib <= UINT64_MAX / 1024 ? kib * 1024 : 0;
}

// The second number of statm is the resident set in pages.
static uint64_t resident_memory(const char *sysroot) {
  char text[128];
  const char *at = text;
  uint64_t size, resident;
  long page = sysconf(_SC_PAGESIZE);
  if (!berthi_sysfile_read(sysroot, "/proc/self/statm", text, sizeof(text))) return 0;
  if (!berthi_sysfile_number(&at, &size) || !berthi_sysfile_number(&at, &resident) || page <= 0) return 0;
  return resident <= UINT64_MAX / (uint64_t)page ? resident * (uint64_t)page : 0;
}

static berth_status find_memory(const cpu_parameters *parameters, const cpu_cgroup *group, berthi_device_limits *out, berth_error *err) {
  memory_limit limit = {UINT64_MAX, NULL};
  char source[48], text[BERTHI_BYTES_TEXT];
  lower(&limit, physical_memory(parameters->sysroot), "physical memory");
  if (group->memory_limit != UINT64_MAX) {
    snprintf(source, sizeof(source), "cgroup %s", group->memory_file);
    lower(&limit, group->memory_limit, source);
  }
  lower(&limit, parameters->memory, "parameter memory");
  if (limit.bytes == UINT64_MAX)
    return berthi_fail(err, BERTHI_R_LIMIT_UNKNOWN, "neither /proc/meminfo nor a control group tells the memory; set parameters \"memory=BYTES\"");
  out->limit_bytes = limit.bytes;
  snprintf(out->limit_source, sizeof(out->limit_source), "half of %s %s", limit.source, berthi_bytes_text(limit.bytes, text));
  return BERTH_OK;
}

// Half of the limit, because the rest of the process needs memory too; less what it uses already. At least 64 MiB where that much is free.
static void find_capacity(berthi_device_limits *out) {
  uint64_t used = out->process_used_bytes, limit = out->limit_bytes;
  uint64_t capacity = limit / 2 > used ? limit / 2 - used : 0;
  uint64_t available = limit > used ? limit - used : 0;
  uint64_t floor = available < CAPACITY_FLOOR ? available : CAPACITY_FLOOR;
  if (capacity < floor) capacity = floor;
  out->default_capacity_bytes = capacity - capacity % CAPACITY_UNIT;
}

static berth_status find_lanes(const cpu_parameters *parameters, const berth_device_options *options, const cpu_cgroup *group,
                               berthi_device_limits *out, berth_error *err) {
  cpu_set allowed;
  uint64_t lanes;
  if (berthi_cpu_set_allowed(parameters->sysroot, &allowed)) {
    lanes = berthi_cpu_set_count(&allowed);
    berthi_cpu_set_free(&allowed);
  } else if (options != NULL && options->lanes > 0) {
    lanes = options->lanes;
  } else {
    return berthi_fail(err, BERTHI_R_LIMIT_UNKNOWN, "the CPUs that this process may use cannot be read; set the option lanes");
  }
  if (group->quota_milli / 1000 < lanes) lanes = group->quota_milli / 1000;
  if (lanes < 1) lanes = 1;
  if (lanes > BERTHI_LANES_MAX) lanes = BERTHI_LANES_MAX;
  out->lanes = (uint32_t)lanes;
  out->slots = 4 * out->lanes;
  return BERTH_OK;
}

berth_status berthi_cpu_limits(const cpu_parameters *parameters, const berth_device_options *options, berthi_device_limits *out, berth_error *err) {
  cpu_cgroup group;
  memset(out, 0, sizeof(*out));
  berthi_cgroup_read(parameters->sysroot, &group);
  BERTHI_TRY(find_memory(parameters, &group, out, err));
  out->process_used_bytes = resident_memory(parameters->sysroot);
  find_capacity(out);
  BERTHI_TRY(find_lanes(parameters, options, &group, out, err));
  out->capabilities = CPU_CAPABILITIES;
  return BERTH_OK;
}
