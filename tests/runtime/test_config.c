// SPDX-License-Identifier: Apache-2.0
/// Defaults and bounds of the options: validated whole, and each refusal names field, value and bound (BCK-1).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/sim/sim.h"
#include "runtime/config.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

static berth_device_options sim(const char *name, const char *parameters) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = name;
  device.parameters = parameters;
  return device;
}

static berth_status resolve(const berth_device_options *devices, uint32_t count, berthi_config *out, berth_error *err) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = devices;
  options.device_count = count;
  return berthi_config_resolve(&options, out, err);
}

static int64_t fact(const berth_error *err, const char *key) {
  for (uint32_t i = 0; i < err->fact_count; i++) {
    if (strcmp(err->facts[i].key, key) == 0) return err->facts[i].value;
  }
  fail_msg("no fact %s in %s", key, err->message);
  return 0;
}

static void assert_refused(berth_status status, const berth_error *err, const char *field) {
  assert_int_equal(status, BERTH_INVALID_ARGUMENT);
  assert_string_equal(err->reason, "invalid_configuration");
  if (strstr(err->message, field) == NULL) fail_msg("'%s' does not name %s", err->message, field);
}

/// One device that must be refused, naming the field.
static void refuse_device(berthi_config *config, berth_device_options device, const char *field, int64_t value, int64_t bound) {
  berth_error err = BERTH_ERROR_INIT;
  assert_refused(resolve(&device, 1, config, &err), &err, field);
  assert_int_equal(fact(&err, "value"), value);
  assert_int_equal(fact(&err, "bound"), bound);
}

static int make_config(void **state) {
  *state = berthi_alloc(sizeof(berthi_config));
  return *state == NULL;
}

static int free_config(void **state) {
  berthi_free(*state);
  return 0;
}

static void backend_defaults(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", "memory=1GiB,lanes=2,slots=8");
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  const berth_backend_options *o = &config->options;
  assert_null(o->devices);
  assert_int_equal(o->device_count, 1);
  assert_int_equal(o->max_queued, 1024);
  assert_int_equal(o->max_queued_per_group, 64);
  assert_int_equal(o->max_groups, 64);
  assert_int_equal(o->max_bypass, 16);
  assert_int_equal(o->abandoned_detail, 64);
  assert_int_equal(o->abandoned_max, 1024);
  assert_int_equal(o->probe_limit, 3);
  assert_int_equal(o->queue_deadline, 30 * SECOND);
  assert_int_equal(o->aging_interval, SECOND);
  assert_int_equal(o->bypass_after, SECOND / 10);
  assert_int_equal(o->telemetry_interval, SECOND);
  assert_int_equal(o->telemetry_stale, 5 * SECOND);
  assert_int_equal(o->suspect_limit, SECOND);
  assert_int_equal(o->cleanup_limit, 5 * SECOND);
}

static void device_defaults(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:3", "memory=1GiB,lanes=2,slots=8");
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  const berthi_config_device *d = &config->devices[0];
  assert_string_equal(d->name, "sim:3");
  assert_string_equal(d->identity, "sim:3");
  assert_int_equal(d->ordinal, 3);
  assert_int_equal(d->options.lanes, 2);
  assert_int_equal(d->options.slots, 8);
  assert_int_equal(d->options.capacity_bytes, 1024 * MIB);
  assert_int_equal(d->options.cache_bytes, 64 * MIB);
  assert_int_equal(d->options.default_grant_bytes, 120 * MIB); // Q / slots
}

static void default_grant_has_a_floor_and_a_ceiling(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", "memory=1GiB,lanes=4,slots=64");
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  assert_int_equal(config->devices[0].options.default_grant_bytes, 64 * MIB);
  device.capacity_bytes = 32 * MIB;
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  assert_int_equal(config->devices[0].options.default_grant_bytes, 30 * MIB); // all of Q
}

static void reserve_and_library_come_off_the_default_capacity(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", "memory=1GiB");
  device.reserve_bytes = 100 * MIB;
  device.library_bytes = 24 * MIB;
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  assert_int_equal(config->devices[0].options.capacity_bytes, 900 * MIB);
}

static void slots_follow_the_lanes_in_use(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", "memory=1GiB,lanes=8,slots=32");
  device.lanes = 2;
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  assert_int_equal(config->devices[0].options.slots, 8);
}

static void none_means_none(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", NULL);
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = &device;
  options.device_count = 1;
  options.abandoned_max = BERTH_NONE_U32;
  options.telemetry_interval = -5;
  assert_int_equal(berthi_config_resolve(&options, config, NULL), BERTH_OK);
  assert_int_equal(config->options.abandoned_max, 0);
  assert_int_equal(config->options.abandoned_detail, 0);
  assert_int_equal(config->options.telemetry_interval, -1);
}

static void sizes_beyond_the_device_are_refused(void **state) {
  berthi_config *config = *state;
  int64_t gib = 1 << 30;
  berth_device_options device = sim("sim:0", "memory=1GiB,lanes=2");
  device.capacity_bytes = 2 * (uint64_t)gib;
  refuse_device(config, device, "devices[0].capacity_bytes", 2 * gib, gib);
  device.reserve_bytes = 24 * MIB;
  refuse_device(config, device, "devices[0].capacity_bytes", 2 * gib, (int64_t)(1000 * MIB));
  device = sim("sim:0", "memory=1GiB,lanes=2");
  device.reserve_bytes = 900 * MIB;
  device.library_bytes = 200 * MIB;
  refuse_device(config, device, "reserve_bytes + library_bytes", (int64_t)(1100 * MIB), gib - 1);
  device.library_bytes = UINT64_MAX;
  refuse_device(config, device, "reserve_bytes + library_bytes", INT64_MAX, gib - 1);
  device = sim("sim:0", "memory=1GiB,lanes=2");
  device.cache_bytes = (uint64_t)gib;
  refuse_device(config, device, "devices[0].cache_bytes", gib, gib - 1);
  device.cache_bytes = 24 * MIB;
  device.default_grant_bytes = 1001 * MIB;
  refuse_device(config, device, "devices[0].default_grant_bytes", (int64_t)(1001 * MIB), (int64_t)(1000 * MIB));
}

static void counts_beyond_their_bounds_are_refused(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", "memory=1GiB,lanes=2");
  device.lanes = 3;
  refuse_device(config, device, "devices[0].lanes", 3, 2);
  device.lanes = 2;
  device.slots = 70000;
  refuse_device(config, device, "devices[0].slots: 70000, at most 4096", 70000, 4096);
}

static void nonsense_of_a_device_is_refused(void **state) {
  berthi_config *config = *state;
  berth_error err = BERTH_ERROR_INIT;
  static const struct {
    const char *parameters, *field;
  } cases[] = {
      {"memory=1GiB,nonsense=1", "capacity_bytes (the device's default): 0, at least 1"},
      {"memory=1GiB,nonsense=2", "capacity_bytes (the device's default): 2147483648 (2 GiB), at most 1073741824 (1 GiB"},
      {"memory=1GiB,nonsense=4", "lanes (as the device reports them): 0, at least 1"},
      {"memory=1GiB,nonsense=5", "limit (as the device reports it): 18446744073709551615, at most"},
  };
  for (size_t i = 0; i < BERTHI_COUNTOF(cases); i++) {
    berth_device_options device = sim("sim:0", cases[i].parameters);
    assert_refused(resolve(&device, 1, config, &err), &err, cases[i].field);
  }
}

static void the_field_is_named_by_the_device(void **state) {
  berthi_config *config = *state;
  berth_error err = BERTH_ERROR_INIT;
  berth_device_options devices[2] = {sim("sim:0", NULL), sim("sim:1", NULL)};
  devices[1].slots = 5000;
  assert_refused(resolve(devices, 2, config, &err), &err, "devices[1].slots: 5000, at most 4096");
}

static void one_device_twice_is_refused(void **state) {
  berthi_config *config = *state;
  berth_error err = BERTH_ERROR_INIT;
  berth_device_options devices[3] = {sim("sim:0", NULL), sim("sim:1", NULL), sim("sim:0", "lanes=1")};
  assert_refused(resolve(devices, 3, config, &err), &err, "devices[2].name");
  assert_int_equal(fact(&err, "bound"), 0);
}

static void unknown_devices_are_refused(void **state) {
  berthi_config *config = *state;
  berth_error err = BERTH_ERROR_INIT;
  berth_device_options device = sim("tpu:0", NULL);
  assert_int_equal(resolve(&device, 1, config, &err), BERTH_NOT_FOUND);
  assert_string_equal(err.reason, "unknown_device");
  device.name = NULL;
  assert_refused(resolve(&device, 1, config, &err), &err, "devices[0].name");
  device = sim("sim:0", "colour=blue");
  assert_refused(resolve(&device, 1, config, &err), &err, "colour");
}

static void device_lists_must_fit(void **state) {
  berthi_config *config = *state;
  berth_error err = BERTH_ERROR_INIT;
  static berth_device_options many[BERTH_DEVICES_MAX + 1];
  many[0] = sim("sim:0", NULL);
  assert_refused(resolve(NULL, 3, config, &err), &err, "devices");
  assert_refused(resolve(many, 0, config, &err), &err, "device_count: 0, at least 1");
  assert_refused(resolve(many, BERTH_DEVICES_MAX + 1, config, &err), &err, "device_count: 65, at most 64");
}

/// Every backend field with an upper bound, one above it.
static void backend_fields_beyond_their_bounds_are_refused(void **state) {
  berthi_config *config = *state;
  berth_device_options device = sim("sim:0", NULL);
#define REFUSE(field, value) \
  do { \
    berth_error err = BERTH_ERROR_INIT; \
    berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT; \
    options.devices = &device; \
    options.device_count = 1; \
    options.field = value; \
    assert_refused(berthi_config_resolve(&options, config, &err), &err, #field); \
    assert_int_equal(fact(&err, "value"), value); \
  } while (0)
  REFUSE(max_queued, 1048577);
  REFUSE(max_queued_per_group, 1048577);
  REFUSE(max_groups, 4097);
  REFUSE(max_bypass, 1048577);
  REFUSE(abandoned_max, 1048577);
  REFUSE(queue_deadline, -1);
  REFUSE(aging_interval, -7);
  REFUSE(suspect_limit, SECOND + 1);
  REFUSE(cleanup_limit, INT64_MAX);
#undef REFUSE
}

/// An older header's shorter struct: its stride walks the array, and the missing fields mean their defaults.
static void older_device_structs_are_accepted(void **state) {
  berthi_config *config = *state;
  struct old {
    size_t struct_size;
    const char *name;
    uint64_t capacity_bytes;
  } devices[2] = {{sizeof(struct old), "sim:0", 64 * MIB}, {sizeof(struct old), "sim:1", 32 * MIB}};
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = (const berth_device_options *)(const void *)devices;
  options.device_count = 2;
  assert_int_equal(berthi_config_resolve(&options, config, NULL), BERTH_OK);
  assert_string_equal(config->devices[1].name, "sim:1");
  assert_int_equal(config->devices[1].options.capacity_bytes, 32 * MIB);
  devices[1].struct_size = sizeof(size_t);
  berth_error err = BERTH_ERROR_INIT;
  assert_refused(berthi_config_resolve(&options, config, &err), &err, "devices[1].struct_size");
  devices[0].struct_size = 0;
  assert_int_not_equal(berthi_config_resolve(&options, config, &err), BERTH_OK);
}

static void nothing_is_opened(void **state) {
  berthi_config *config = *state;
  berthi_sim_counters before, after;
  berthi_sim_read_counters(0, &before);
  uint64_t live = berthi_alloc_live();
  berth_device_options device = sim("sim:0", NULL);
  assert_int_equal(resolve(&device, 1, config, NULL), BERTH_OK);
  berthi_sim_read_counters(0, &after);
  assert_int_equal(after.opens, before.opens);
  assert_int_equal(berthi_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(backend_defaults),
      cmocka_unit_test(device_defaults),
      cmocka_unit_test(default_grant_has_a_floor_and_a_ceiling),
      cmocka_unit_test(reserve_and_library_come_off_the_default_capacity),
      cmocka_unit_test(slots_follow_the_lanes_in_use),
      cmocka_unit_test(none_means_none),
      cmocka_unit_test(sizes_beyond_the_device_are_refused),
      cmocka_unit_test(counts_beyond_their_bounds_are_refused),
      cmocka_unit_test(nonsense_of_a_device_is_refused),
      cmocka_unit_test(the_field_is_named_by_the_device),
      cmocka_unit_test(one_device_twice_is_refused),
      cmocka_unit_test(unknown_devices_are_refused),
      cmocka_unit_test(device_lists_must_fit),
      cmocka_unit_test(backend_fields_beyond_their_bounds_are_refused),
      cmocka_unit_test(older_device_structs_are_accepted),
      cmocka_unit_test(nothing_is_opened),
  };
  return cmocka_run_group_tests(tests, make_config, free_config);
}
