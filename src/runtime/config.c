// SPDX-License-Identifier: Apache-2.0
// Defaults and bounds of a backend's options. Everything is checked before anything is taken (BCK-1).
#include "runtime/config.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define SECOND ((int64_t)1000000000)
#define SPAN_MAX (SECOND * 86400 * 365)
#define MANY_MAX 1048576u
#define GRANT_FLOOR ((uint64_t)64 << 20)
#define BYTES_MAX ((uint64_t)1 << 60)
#define FIELD 64

// ---- refusals ----------------------------------------------------------------------------------------------------------------------------------

static int64_t fact_of(uint64_t value) { return value > INT64_MAX ? INT64_MAX : (int64_t)value; }

static berth_status refuse(berth_error *err, const char *field, uint64_t value, const char *side, uint64_t bound) {
  berth_status status =
      berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "%s: %llu, at %s %llu", field, (unsigned long long)value, side, (unsigned long long)bound);
  berthi_fact(err, "value", fact_of(value));
  berthi_fact(err, "bound", fact_of(bound));
  return status;
}

static berth_status at_most(berth_error *err, const char *field, uint64_t value, uint64_t bound) {
  return value <= bound ? BERTH_OK : refuse(err, field, value, "most", bound);
}

/// Sizes get a second, readable form. `why` says where the bound comes from.
static berth_status bytes_at_most(berth_error *err, const char *field, uint64_t value, uint64_t bound, const char *why) {
  if (value <= bound) return BERTH_OK;
  char given[BERTHI_BYTES_TEXT], most[BERTHI_BYTES_TEXT];
  berth_status status = berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "%s: %llu (%s), at most %llu (%s; %s)", field, (unsigned long long)value,
                                    berthi_bytes_text(value, given), (unsigned long long)bound, berthi_bytes_text(bound, most), why);
  berthi_fact(err, "value", fact_of(value));
  berthi_fact(err, "bound", fact_of(bound));
  return status;
}

static const char *field_of(char out[FIELD], uint32_t device, const char *name) {
  snprintf(out, FIELD, "devices[%u].%s", device, name);
  return out;
}

// ---- the backend's own fields --------------------------------------------------------------------------------------------------------------------

/// A count: 0 means the default, NONE (where it is allowed) means 0.
static berth_status count_field(berth_error *err, const char *field, uint32_t *value, uint32_t fallback, uint32_t most, bool none) {
  if (none && *value == BERTH_NONE_U32) {
    *value = 0;
    return BERTH_OK;
  }
  if (*value == 0) *value = fallback;
  return at_most(err, field, *value, most);
}

static berth_status span_field(berth_error *err, const char *field, int64_t *value, int64_t fallback, int64_t most) {
  if (*value == 0) *value = fallback;
  if (*value < 0) {
    berth_status status = berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "%s: %lld ns, at least 1", field, (long long)*value);
    berthi_fact(err, "value", *value);
    berthi_fact(err, "bound", 1);
    return status;
  }
  return at_most(err, field, (uint64_t)*value, (uint64_t)most);
}

static berth_status resolve_counts(berth_backend_options *o, berth_error *err) {
  BERTHI_TRY(count_field(err, "max_queued", &o->max_queued, 1024, MANY_MAX, false));
  BERTHI_TRY(count_field(err, "max_queued_per_group", &o->max_queued_per_group, 64, MANY_MAX, false));
  BERTHI_TRY(count_field(err, "max_groups", &o->max_groups, 64, 4096, false));
  BERTHI_TRY(count_field(err, "max_bypass", &o->max_bypass, 16, MANY_MAX, false));
  BERTHI_TRY(count_field(err, "abandoned_detail", &o->abandoned_detail, 64, MANY_MAX, true));
  BERTHI_TRY(count_field(err, "abandoned_max", &o->abandoned_max, 1024, MANY_MAX, true));
  // More detail than reports is no mistake: every report keeps its detail then.
  if (o->abandoned_detail > o->abandoned_max) o->abandoned_detail = o->abandoned_max;
  return count_field(err, "probe_limit", &o->probe_limit, 3, 1000, false);
}

static berth_status resolve_spans(berth_backend_options *o, berth_error *err) {
  BERTHI_TRY(span_field(err, "queue_deadline", &o->queue_deadline, 30 * SECOND, SPAN_MAX));
  BERTHI_TRY(span_field(err, "aging_interval", &o->aging_interval, SECOND, 3600 * SECOND));
  BERTHI_TRY(span_field(err, "bypass_after", &o->bypass_after, SECOND / 10, SPAN_MAX));
  if (o->telemetry_interval < 0)
    o->telemetry_interval = -1;
  else
    BERTHI_TRY(span_field(err, "telemetry_interval", &o->telemetry_interval, SECOND, SPAN_MAX));
  BERTHI_TRY(span_field(err, "telemetry_stale", &o->telemetry_stale, 5 * SECOND, SPAN_MAX));
  BERTHI_TRY(span_field(err, "suspect_limit", &o->suspect_limit, SECOND, SECOND));
  BERTHI_TRY(span_field(err, "probe_interval", &o->probe_interval, SECOND, SPAN_MAX));
  return span_field(err, "cleanup_limit", &o->cleanup_limit, 5 * SECOND, SPAN_MAX);
}

// ---- one device ----------------------------------------------------------------------------------------------------------------------------------

/// What the device says must make sense before its options are compared with it.
static berth_status check_limits(const berthi_config_device *device, uint32_t index, berth_error *err) {
  const berthi_device_limits *limits = &device->limits;
  char field[FIELD];
  BERTHI_TRY(at_most(err, field_of(field, index, "limit (as the device reports it)"), limits->limit_bytes, BYTES_MAX));
  if (limits->limit_bytes == 0) return refuse(err, field_of(field, index, "limit (as the device reports it)"), 0, "least", 1);
  if (limits->lanes == 0) return refuse(err, field_of(field, index, "lanes (as the device reports them)"), 0, "least", 1);
  if (device->options.capacity_bytes != 0) return BERTH_OK;
  if (limits->default_capacity_bytes == 0) return refuse(err, field_of(field, index, "capacity_bytes (the device's default)"), 0, "least", 1);
  return bytes_at_most(err, field_of(field, index, "capacity_bytes (the device's default)"), limits->default_capacity_bytes, limits->limit_bytes,
                       limits->limit_source);
}

static berth_status resolve_lanes(berthi_config_device *device, uint32_t index, berth_error *err) {
  berth_device_options *o = &device->options;
  const berthi_device_limits *limits = &device->limits;
  char field[FIELD];
  uint32_t most = limits->lanes < BERTHI_LANES_MAX ? limits->lanes : BERTHI_LANES_MAX;
  if (o->lanes == 0) o->lanes = most;
  BERTHI_TRY(at_most(err, field_of(field, index, "lanes"), o->lanes, most));
  // A kind that gives four slots a lane means four for each lane that is used.
  bool per_lane = limits->slots == 0 || limits->slots == 4 * limits->lanes;
  if (o->slots == 0) o->slots = per_lane ? 4 * o->lanes : limits->slots;
  return at_most(err, field_of(field, index, "slots"), o->slots, BERTHI_SLOTS_MAX);
}

static berth_status resolve_capacity(berthi_config_device *device, uint32_t index, berth_error *err) {
  berth_device_options *o = &device->options;
  const berthi_device_limits *limits = &device->limits;
  char field[FIELD];
  uint64_t aside = 0;
  if (!berthi_size_add(o->reserve_bytes, o->library_bytes, &aside)) aside = UINT64_MAX;
  uint64_t room = o->capacity_bytes != 0 ? limits->limit_bytes : limits->default_capacity_bytes;
  BERTHI_TRY(bytes_at_most(err, field_of(field, index, "reserve_bytes + library_bytes"), aside, room - 1, limits->limit_source));
  if (o->capacity_bytes == 0) o->capacity_bytes = room - aside;
  return bytes_at_most(err, field_of(field, index, "capacity_bytes"), o->capacity_bytes, room - aside, limits->limit_source);
}

static berth_status resolve_shares(berthi_config_device *device, uint32_t index, berth_error *err) {
  berth_device_options *o = &device->options;
  char field[FIELD];
  if (o->cache_bytes == 0) o->cache_bytes = o->capacity_bytes / 16;
  BERTHI_TRY(bytes_at_most(err, field_of(field, index, "cache_bytes"), o->cache_bytes, o->capacity_bytes - 1, "one byte less than the capacity"));
  uint64_t grantable = o->capacity_bytes - o->cache_bytes;
  if (o->default_grant_bytes == 0) {
    uint64_t floor = GRANT_FLOOR < grantable ? GRANT_FLOOR : grantable;
    uint64_t share = grantable / o->slots;
    o->default_grant_bytes = share > floor ? share : floor;
  }
  return bytes_at_most(err, field_of(field, index, "default_grant_bytes"), o->default_grant_bytes, grantable, "the capacity less the caches' share");
}

static berth_status check_twins(const berthi_config *config, uint32_t index, berth_error *err) {
  const berthi_config_device *device = &config->devices[index];
  for (uint32_t i = 0; i < index; i++) {
    if (strcmp(config->devices[i].identity, device->identity) != 0) continue;
    berth_status status =
        berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "devices[%u].name: %s is the same device as devices[%u], %s; at most once each", index,
                    device->name, i, config->devices[i].name);
    berthi_fact(err, "value", index);
    berthi_fact(err, "bound", i);
    return status;
  }
  return BERTH_OK;
}

static berth_status resolve_device(berthi_config *config, uint32_t index, const void *given, berth_error *err) {
  berthi_config_device *device = &config->devices[index];
  char field[FIELD];
  snprintf(field, sizeof(field), "devices[%u]", index);
  BERTHI_TRY(berthi_options_copy(given, &device->options, sizeof(device->options), field, err));
  if (device->options.name == NULL)
    return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "devices[%u].name: NULL, at least a name such as cpu:0", index);
  BERTHI_TRY(berthi_device_find(device->options.name, &device->kind, &device->ordinal, err));
  snprintf(device->name, sizeof(device->name), "%s:%u", device->kind->name, device->ordinal);
  BERTHI_TRY(device->kind->limits(device->ordinal, &device->options, device->identity, &device->limits, err));
  BERTHI_TRY(check_twins(config, index, err));
  BERTHI_TRY(check_limits(device, index, err));
  BERTHI_TRY(resolve_lanes(device, index, err));
  BERTHI_TRY(resolve_capacity(device, index, err));
  return resolve_shares(device, index, err);
}

// ---- all of it -----------------------------------------------------------------------------------------------------------------------------------

static berth_status check_device_count(const berth_backend_options *o, berth_error *err) {
  if (o->devices == NULL && o->device_count != 0)
    return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "devices: NULL with device_count %u, at least the array, or at most 0", o->device_count);
  if (o->devices != NULL && o->device_count == 0) return refuse(err, "device_count", 0, "least", 1);
  return at_most(err, "device_count", o->device_count, BERTH_DEVICES_MAX);
}

berth_status berthi_config_resolve(const berth_backend_options *options, berthi_config *out, berth_error *err) {
  static const berth_device_options standard = {.struct_size = sizeof(standard), .name = "cpu:0"};
  memset(out, 0, sizeof(*out));
  BERTHI_TRY(berthi_options_copy(options, &out->options, sizeof(out->options), "berth_backend_options", err));
  BERTHI_TRY(check_device_count(&out->options, err));
  BERTHI_TRY(resolve_counts(&out->options, err));
  BERTHI_TRY(resolve_spans(&out->options, err));
  const berth_device_options *devices = out->options.devices != NULL ? out->options.devices : &standard;
  out->device_count = out->options.devices != NULL ? out->options.device_count : 1;
  size_t stride = devices->struct_size; // of the header that the caller was built with; one too small is refused at the first element
  for (uint32_t i = 0; i < out->device_count; i++) {
    const char *given = (const char *)devices + stride * i;
    size_t size = 0;
    memcpy(&size, given, sizeof(size));
    char field[FIELD];
    if (size != stride) return refuse(err, field_of(field, i, "struct_size"), size, size < stride ? "least" : "most", stride);
    BERTHI_TRY(resolve_device(out, i, given, err));
  }
  out->options.devices = NULL;
  out->options.device_count = out->device_count;
  return BERTH_OK;
}
