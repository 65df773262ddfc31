// SPDX-License-Identifier: Apache-2.0
// The host's processors and memory as a device. There is one, cpu:0.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/cpu/cpu_internal.h"

#define CPU_IDENTITY "cpu:host"

static const berthi_parameter known_parameters[] = {
    {"sysroot", BERTHI_PARAM_TEXT, offsetof(cpu_parameters, sysroot), sizeof(((cpu_parameters *)0)->sysroot), 0, 0},
    {"memory", BERTHI_PARAM_BYTES, offsetof(cpu_parameters, memory), 0, (uint64_t)1 << 20, UINT64_MAX},
};

berth_status berthi_cpu_parameters(const char *text, cpu_parameters *out, berth_error *err) {
  memset(out, 0, sizeof(*out));
  return berthi_parameters_parse(text, known_parameters, BERTHI_COUNTOF(known_parameters), out, err);
}

static berth_status check_ordinal(uint32_t ordinal, berth_error *err) {
  if (ordinal == 0) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_UNKNOWN_DEVICE, "cpu:%u: all processors are cpu:0; lanes divide them", ordinal);
}

static void read_model(const char *sysroot, char out[64]) {
  static const char key[] = "model name";
  char text[2048];
  snprintf(out, 64, "cpu");
  if (!berthi_sysfile_read(sysroot, "/proc/cpuinfo", text, sizeof(text))) return;
  const char *at = strstr(text, key);
  if (at == NULL || (at = strchr(at, ':')) == NULL) return;
  at += 1 + strspn(at + 1, " \t");
  size_t length = strcspn(at, "\n");
  if (length > 0) snprintf(out, 64, "%.*s", (int)(length > 63 ? 63 : length), at);
}

static berth_status cpu_limits(uint32_t ordinal, const berth_device_options *options, char identity[BERTH_DEVICE_IDENTITY], berthi_device_limits *out,
                               berth_error *err) {
  cpu_parameters parameters;
  BERTHI_TRY(check_ordinal(ordinal, err));
  BERTHI_TRY(berthi_cpu_parameters(options != NULL ? options->parameters : NULL, &parameters, err));
  snprintf(identity, BERTH_DEVICE_IDENTITY, CPU_IDENTITY);
  return berthi_cpu_limits(&parameters, options, out, err);
}

static berth_status cpu_describe(uint32_t ordinal, berth_device_description *out, berth_error *err) {
  berthi_device_limits limits;
  berth_error failure = BERTH_ERROR_INIT;
  BERTHI_TRY(check_ordinal(ordinal, err));
  snprintf(out->name, sizeof(out->name), "cpu:0");
  read_model("", out->model);
  out->capabilities = CPU_CAPABILITIES;
  // What cannot be known makes it unavailable and says why; the list goes on.
  if (cpu_limits(ordinal, NULL, out->identity, &limits, &failure) != BERTH_OK) {
    snprintf(out->unavailable_because, sizeof(out->unavailable_because), "%.159s", failure.message);
    return BERTH_OK;
  }
  out->available = true;
  out->limit_bytes = limits.limit_bytes;
  memcpy(out->limit_source, limits.limit_source, sizeof(out->limit_source));
  out->default_capacity_bytes = limits.default_capacity_bytes;
  out->default_lanes = limits.lanes;
  out->default_slots = limits.slots;
  return BERTH_OK;
}

// Lanes that find no CPU are not pinned: where the mask cannot be read but the option says how many.
static void assign_cpus(cpu_device *cpu) {
  cpu_set allowed;
  uint32_t found = 0;
  if (berthi_cpu_set_allowed(cpu->parameters.sysroot, &allowed)) {
    found = berthi_topology_order(&allowed, NULL, cpu->cpus, cpu->lanes);
    berthi_cpu_set_free(&allowed);
  }
  for (; found < cpu->lanes; found++) cpu->cpus[found] = -1;
}

static void fill_startup(const cpu_device *cpu, uint64_t total, int64_t begun, berthi_startup *out) {
  memset(out, 0, sizeof(*out));
  read_model(cpu->parameters.sysroot, out->model);
  snprintf(out->identity, sizeof(out->identity), CPU_IDENTITY);
  out->total_bytes = total;
  out->lanes = cpu->lanes;
  out->capabilities = CPU_CAPABILITIES;
  out->open_nanoseconds = berthi_now() - begun;
}

static berth_status cpu_open(uint32_t ordinal, const berth_device_options *options, uint32_t lanes, berthi_device **out, berthi_startup *startup,
                             berth_error *err) {
  int64_t begun = berthi_now();
  char identity[BERTH_DEVICE_IDENTITY];
  berthi_device_limits limits;
  BERTHI_TRY(cpu_limits(ordinal, options, identity, &limits, err));
  if (lanes < 1 || lanes > BERTHI_LANES_MAX)
    return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "lanes %u of cpu:0 is outside 1 to %d", lanes, BERTHI_LANES_MAX);
  cpu_device *cpu = berthi_alloc(sizeof(*cpu));
  if (cpu == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "cpu:0 cannot be created");
  cpu->base.kind = &berthi_cpu_kind;
  snprintf(cpu->base.name, sizeof(cpu->base.name), "cpu:0");
  berth_status status = berthi_cpu_parameters(options != NULL ? options->parameters : NULL, &cpu->parameters, err);
  cpu->option_lanes = options != NULL ? options->lanes : 0;
  cpu->lanes = lanes;
  if (status == BERTH_OK) assign_cpus(cpu);
  if (status == BERTH_OK) status = berthi_pool_create(cpu->cpus, lanes, &cpu->pool, err);
  if (status != BERTH_OK) {
    berthi_free(cpu);
    return status;
  }
  berthi_store_init(&cpu->store);
  berthi_sampler_init(cpu);
  fill_startup(cpu, limits.limit_bytes, begun, startup);
  *out = &cpu->base;
  return BERTH_OK;
}

static berth_status cpu_close(berthi_device *device, bool force, berth_error *err) {
  cpu_device *cpu = cpu_of(device);
  bool busy = berthi_store_busy(&cpu->store);
  if (busy && !force) return berthi_fail(err, BERTHI_R_DEVICE_FAULT, "cpu:0: an execution's memory has not been given back");
  // Forced with memory out: its holder may be running on the lanes and will free through the device, so both stay.
  if (busy) return BERTH_OK;
  berthi_pool_close(cpu->pool);
  berthi_store_close(&cpu->store);
  berthi_free(cpu);
  return BERTH_OK;
}

static berth_status cpu_reread(berthi_device *device, berthi_device_limits *out, berth_error *err) {
  cpu_device *cpu = cpu_of(device);
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  options.lanes = (uint32_t)cpu->option_lanes;
  return berthi_cpu_limits(&cpu->parameters, &options, out, err);
}

static berth_status cpu_copy(berthi_domain *domain, berthi_copy direction, void *to, const void *from, uint64_t bytes, berth_error *err) {
  (void)domain;
  (void)direction;
  (void)err;
  if (bytes > 0) memmove(to, from, bytes);
  return BERTH_OK;
}

static void cpu_parallel(berthi_device *device, const berthi_lanemask *lanes, berthi_parallel *work) {
  berthi_pool_run(cpu_of(device)->pool, lanes, work);
}

static int cpu_lane_of_cpu(berthi_device *device, uint32_t number) {
  const cpu_device *cpu = cpu_of(device);
  for (uint32_t lane = 0; lane < cpu->lanes; lane++) {
    if (cpu->cpus[lane] >= 0 && (uint32_t)cpu->cpus[lane] == number) return (int)lane;
  }
  return -1;
}

// A host that runs this has its processors; there is nothing to try out.
static berth_status cpu_probe(berthi_device *device, berth_error *err) {
  (void)device;
  (void)err;
  return BERTH_OK;
}

const berthi_device_kind berthi_cpu_kind = {
    .name = "cpu",
    .describe = cpu_describe,
    .limits = cpu_limits,
    .open = cpu_open,
    .close = cpu_close,
    .reread = cpu_reread,
    .alloc = berthi_cpu_alloc,
    .free = berthi_cpu_free,
    .reset = berthi_cpu_reset,
    .trim = berthi_cpu_trim,
    .copy = cpu_copy,
    .settle = NULL,
    .parallel = cpu_parallel,
    .enter = berthi_cpu_enter,
    .leave = berthi_cpu_leave,
    .lane_of_cpu = cpu_lane_of_cpu,
    .fault = NULL,
    .probe = cpu_probe,
    .telemetry = berthi_cpu_telemetry,
};
