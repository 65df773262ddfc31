// SPDX-License-Identifier: Apache-2.0
// One snapshot as JSON or as Prometheus text, both driven by metrics.def (MET-2). Attempt ids, query ids and groups are never labels.
#include <string.h>

#include "base/json.h"
#include "runtime/metrics.h"
#include "runtime/names.h"

typedef enum source { ONE, MANY, TIMES, DEVICE64, DEVICE32, CLASSES, HEALTH } source;

typedef struct metric_row {
  source source;
  size_t offset; ///< in berth_metrics, or in berth_device_metrics
  uint32_t count;
  const char *(*value_name)(uint32_t value);
} metric_row;

static const char *decision_name(uint32_t decision) {
  static const char *const names[] = {"granted", "expired", "cancelled", "refused", "closed"};
  return names[decision];
}

static const char *class_name(uint32_t class) {
  static const char *const names[] = {"grant", "resident", "cache", "library", "reserve", "leaked", "withheld", "external", "free"};
  return names[class];
}

// Rows of several numbers rest on their fields lying side by side.
_Static_assert(offsetof(berth_metrics, closed) == offsetof(berth_metrics, granted) + 4 * sizeof(uint64_t), "five decisions");
_Static_assert(offsetof(berth_device_metrics, free_bytes) == offsetof(berth_device_metrics, grant_bytes) + 8 * sizeof(uint64_t), "nine classes");

static const berth_metric_descriptor descriptors[] = {
#define X(name, unit, kind, labels, series, source, field, count, value_name, by, help) {name, unit, kind, labels, by, series, help},
#include "runtime/metrics.def"
#undef X
};

#define FIELD_ONE(field) offsetof(berth_metrics, field)
#define FIELD_MANY(field) offsetof(berth_metrics, field)
#define FIELD_TIMES(field) offsetof(berth_metrics, field)
#define FIELD_DEVICE64(field) offsetof(berth_device_metrics, field)
#define FIELD_DEVICE32(field) offsetof(berth_device_metrics, field)
#define FIELD_CLASSES(field) offsetof(berth_device_metrics, field)
#define FIELD_HEALTH(field) offsetof(berth_device_metrics, field)
static const metric_row rows[] = {
#define X(name, unit, kind, labels, series, source, field, count, value_name, by, help) {source, FIELD_##source(field), count, value_name},
#include "runtime/metrics.def"
#undef X
};

const berth_metric_descriptor *berth_metrics_descriptors(uint32_t *out_count) {
  if (out_count != NULL) *out_count = BERTHI_COUNTOF(descriptors);
  return descriptors;
}

// ---- numbers of a row ------------------------------------------------------------------------------------------------------------------------------------

static uint64_t number_at(const void *base, size_t offset) {
  uint64_t value = 0;
  memcpy(&value, (const char *)base + offset, sizeof(value));
  return value;
}

static const berth_distribution *times_of(const berth_metrics *metrics, const metric_row *row) {
  return (const berth_distribution *)(const void *)((const char *)metrics + row->offset);
}

/// Number `index` of the row for one device.
static uint64_t device_number(const berth_device_metrics *device, const metric_row *row, uint32_t index) {
  uint32_t narrow = 0;
  if (row->source == HEALTH) return (uint32_t)device->health == index;
  if (row->source != DEVICE32) return number_at(device, row->offset + index * sizeof(uint64_t));
  memcpy(&narrow, (const char *)device + row->offset, sizeof(narrow));
  return narrow;
}

/// Devices that the snapshot holds.
static uint32_t devices_in(const berth_metrics *metrics) {
  if (metrics->devices == NULL) return 0;
  return metrics->device_capacity < metrics->device_count ? metrics->device_capacity : metrics->device_count;
}

// ---- JSON ------------------------------------------------------------------------------------------------------------------------------------------------

static double seconds(uint64_t nanoseconds) { return (double)nanoseconds / 1e9; }

static void write_times(berthi_json *json, const char *key, const berth_distribution *times) {
  uint64_t below = 0;
  berthi_json_object_begin(json, key);
  berthi_json_u64(json, "count", times->count);
  berthi_json_double(json, "sum", seconds(times->sum));
  berthi_json_double(json, "max", seconds(times->max));
  berthi_json_array_begin(json, "buckets");
  for (uint32_t i = 0; i < BERTH_WAIT_BUCKETS; i++) {
    below += times->buckets[i];
    berthi_json_object_begin(json, NULL);
    if (i + 1 < BERTH_WAIT_BUCKETS)
      berthi_json_double(json, "le", seconds((uint64_t)berthi_histogram_bound(i)));
    else
      berthi_json_string(json, "le", NULL);
    berthi_json_u64(json, "count", below);
    berthi_json_object_end(json);
  }
  berthi_json_array_end(json);
  berthi_json_object_end(json);
}

static void write_devices(berthi_json *json, const char *key, const berthi_core *core, const berth_metrics *metrics, const metric_row *row) {
  berthi_json_object_begin(json, key);
  for (uint32_t d = 0; d < devices_in(metrics); d++) {
    const char *name = core->devices[d].startup.name;
    if (row->value_name == NULL) {
      berthi_json_u64(json, name, device_number(&metrics->devices[d], row, 0));
      continue;
    }
    berthi_json_object_begin(json, name);
    for (uint32_t i = 0; i < row->count; i++) berthi_json_u64(json, row->value_name(i), device_number(&metrics->devices[d], row, i));
    berthi_json_object_end(json);
  }
  berthi_json_object_end(json);
}

static void write_row(berthi_json *json, const char *key, const berthi_core *core, const berth_metrics *metrics, const metric_row *row) {
  switch (row->source) {
  case ONE:
    berthi_json_u64(json, key, number_at(metrics, row->offset));
    break;
  case MANY:
    berthi_json_object_begin(json, key);
    for (uint32_t i = 0; i < row->count; i++) berthi_json_u64(json, row->value_name(i), number_at(metrics, row->offset + i * sizeof(uint64_t)));
    berthi_json_object_end(json);
    break;
  case TIMES:
    write_times(json, key, times_of(metrics, row));
    break;
  default:
    write_devices(json, key, core, metrics, row);
    break;
  }
}

void berthi_metrics_json_write(berthi_json *json, const char *key, const berthi_core *core, const berth_metrics *metrics) {
  berthi_json_object_begin(json, key);
  berthi_json_string(json, "schema", "berth.metrics");
  berthi_json_u64(json, "version", 1);
  berthi_json_u64(json, "sequence", metrics->sequence);
  berthi_json_u64(json, "backend_id", metrics->backend_id);
  berthi_json_u64(json, "generation", metrics->generation);
  berthi_json_object_begin(json, "metrics");
  for (size_t i = 0; i < BERTHI_COUNTOF(rows); i++) write_row(json, descriptors[i].name, core, metrics, &rows[i]);
  berthi_json_object_end(json);
  berthi_json_object_end(json);
}

size_t berth_metrics_json(const berth_session *session, char *buffer, size_t capacity) {
  berth_device_metrics devices[BERTH_DEVICES_MAX];
  berth_metrics metrics = {.device_capacity = BERTH_DEVICES_MAX, .devices = devices};
  const berthi_core *core = berthi_core_of_session(session);
  berthi_json json;
  berthi_json_init(&json, buffer, capacity);
  if (session == NULL || berthi_core_forked(core)) return 0;
  berthi_metrics_read(core, &metrics);
  berthi_metrics_json_write(&json, NULL, core, &metrics);
  return berthi_json_finish(&json);
}

// ---- Prometheus ------------------------------------------------------------------------------------------------------------------------------------------

/// Nanoseconds as decimal seconds, without the process's locale.
static void put_seconds(berthi_json *text, uint64_t nanoseconds) {
  uint64_t fraction = nanoseconds % 1000000000u;
  int digits = 9;
  while (digits > 1 && fraction % 10 == 0) {
    fraction /= 10;
    digits--;
  }
  berthi_text(text, "%llu.%0*llu", (unsigned long long)(nanoseconds / 1000000000u), digits, (unsigned long long)fraction);
}

static void put_label_value(berthi_json *text, const char *value) {
  while (*value != '\0') {
    size_t plain = strcspn(value, "\n\"\\");
    berthi_text(text, "%.*s", (int)plain, value);
    value += plain;
    if (*value == '\0') return;
    if (*value == '\n')
      berthi_text(text, "\\n");
    else
      berthi_text(text, "\\%c", *value);
    value++;
  }
}

static void put_times(berthi_json *text, const char *name, const berth_distribution *times) {
  uint64_t below = 0;
  for (uint32_t i = 0; i < BERTH_WAIT_BUCKETS; i++) {
    below += times->buckets[i];
    berthi_text(text, "%s_bucket{le=\"", name);
    if (i + 1 < BERTH_WAIT_BUCKETS)
      put_seconds(text, (uint64_t)berthi_histogram_bound(i));
    else
      berthi_text(text, "+Inf");
    berthi_text(text, "\"} %llu\n", (unsigned long long)below);
  }
  berthi_text(text, "%s_sum ", name);
  put_seconds(text, times->sum);
  berthi_text(text, "\n%s_count %llu\n", name, (unsigned long long)times->count);
}

static void put_device(berthi_json *text, const char *name, const char *label, const char *device, const berth_device_metrics *metrics,
                       const metric_row *row) {
  for (uint32_t i = 0; i < row->count; i++) {
    berthi_text(text, "%s{device=\"", name);
    put_label_value(text, device);
    if (row->value_name != NULL) berthi_text(text, "\",%s=\"%s", label, row->value_name(i));
    berthi_text(text, "\"} %llu\n", (unsigned long long)device_number(metrics, row, i));
  }
}

/// The label that is not `device`.
static const char *own_label(const char *labels) {
  const char *comma = strchr(labels, ',');
  return comma != NULL ? comma + 1 : labels;
}

static void put_row(berthi_json *text, const berth_metric_descriptor *descriptor, const berthi_core *core, const berth_metrics *metrics,
                    const metric_row *row) {
  const char *name = descriptor->name, *label = own_label(descriptor->labels);
  berthi_text(text, "# HELP %s %s\n# TYPE %s %s\n", name, descriptor->help, name, descriptor->kind);
  switch (row->source) {
  case ONE:
    berthi_text(text, "%s %llu\n", name, (unsigned long long)number_at(metrics, row->offset));
    break;
  case MANY:
    for (uint32_t i = 0; i < row->count; i++)
      berthi_text(text, "%s{%s=\"%s\"} %llu\n", name, label, row->value_name(i),
                  (unsigned long long)number_at(metrics, row->offset + i * sizeof(uint64_t)));
    break;
  case TIMES:
    put_times(text, name, times_of(metrics, row));
    break;
  default:
    for (uint32_t d = 0; d < devices_in(metrics); d++) put_device(text, name, label, core->devices[d].startup.name, &metrics->devices[d], row);
    break;
  }
}

size_t berth_metrics_prometheus(const berth_session *session, char *buffer, size_t capacity) {
  berth_device_metrics devices[BERTH_DEVICES_MAX];
  berth_metrics metrics = {.device_capacity = BERTH_DEVICES_MAX, .devices = devices};
  const berthi_core *core = berthi_core_of_session(session);
  berthi_json text;
  berthi_json_init(&text, buffer, capacity);
  if (session == NULL || berthi_core_forked(core)) return 0;
  berthi_metrics_read(core, &metrics);
  for (size_t i = 0; i < BERTHI_COUNTOF(rows); i++) put_row(&text, &descriptors[i], core, &metrics, &rows[i]);
  return berthi_json_finish(&text);
}
