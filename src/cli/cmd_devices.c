// SPDX-License-Identifier: Apache-2.0
// berth devices: every device with its state, its limits and where they come from, and the defaults that a backend would take.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "args.h"
#include "berth/berth.h"
#include "cli_text.h"
#include "commands.h"

static const char synopsis[] = "berth devices [--no-open] [--verbose] [--json]";
static const char details[] = "Each available device is opened for a moment, to see its health and a telemetry sample; --no-open only lists. "
                              "Defaults can be set where a backend\n"
                              "is opened: see berth/runtime/backend.h.\n";

static const int64_t SAMPLE_LIMIT = 500000000;
static const int64_t CLOSE_LIMIT = 20000000000;

typedef struct options {
  bool no_open, verbose, json;
} options;

typedef struct seen {
  bool opened;
  berth_error refusal; ///< when it was not opened
  berth_health health;
  berth_startup_record record;
  berth_telemetry telemetry;
} seen;

static const char *const health_names[] = {"OK", "SUSPECT", "QUARANTINED", "PROBING", "LOST", "RESTART_REQUIRED"};
static const char *const capability_names[] = {"host_memory", "f32", "f64", "complex", "blas", "parallel_lanes", "async"};

// ---- looking ---------------------------------------------------------------------------------------------------------------------------------

// The first sample comes soon after the open, from a thread of its own.
static void await_sample(berth_session *session, berth_telemetry *out) {
  const struct timespec pause = {0, 2000000};
  int64_t until = berth_now() + SAMPLE_LIMIT;
  *out = (berth_telemetry)BERTH_TELEMETRY_INIT;
  while (berth_session_telemetry(session, 0, out, NULL) == BERTH_OK && out->status != BERTH_OK && berth_now() < until) nanosleep(&pause, NULL);
}

static void look(const char *name, seen *out) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options backend = BERTH_BACKEND_OPTIONS_INIT;
  berth_metrics metrics = BERTH_METRICS_INIT;
  berth_device_metrics figures;
  berth_close_report closed = BERTH_CLOSE_REPORT_INIT;
  berth_backend *opened = NULL;
  device.name = name;
  backend.devices = &device;
  backend.device_count = 1;
  if (berth_backend_open(&backend, &opened, &out->refusal) != BERTH_OK) return;
  berth_session *session = berth_backend_session(opened);
  out->record = (berth_startup_record)BERTH_STARTUP_RECORD_INIT;
  metrics.devices = &figures;
  metrics.device_capacity = 1;
  out->opened = berth_session_startup_record(session, 0, &out->record, &out->refusal) == BERTH_OK &&
                berth_session_metrics(session, &metrics, &out->refusal) == BERTH_OK;
  if (out->opened) out->health = figures.health;
  await_sample(session, &out->telemetry);
  berth_session_release(session);
  berth_backend_close_wait(opened, berth_now() + CLOSE_LIMIT, BERTH_NO_DEADLINE, &closed, NULL);
  berth_backend_release(opened);
}

// ---- for people ------------------------------------------------------------------------------------------------------------------------------

static void print_telemetry(const berth_telemetry *t) {
  char age[CLI_WORD], share[2 * CLI_WORD];
  if (t->status != BERTH_OK) {
    printf("  telemetry not read");
    return;
  }
  printf("  telemetry %s old", cli_time_text(t->age, age));
  if (t->valid & 1u) printf(", %.0f %% busy", t->utilization_percent);
  if (t->valid & 2u) printf(", %s used", cli_share_text(t->memory_used_bytes, t->memory_total_bytes, share));
  if (t->valid & 4u) printf(", %.0f C", t->temperature_celsius);
  if ((t->valid & 32u) && t->throttled) printf(", throttled");
}

static void print_defaults(const berth_device_description *d, const seen *s) {
  char grant[CLI_WORD], cache[CLI_WORD], limit[CLI_WORD];
  printf("        %s, %s\n", d->model, d->identity);
  printf("        limit %s (%s)\n", cli_bytes_text(d->limit_bytes, limit), d->limit_source);
  printf("        slots %u", s->opened ? s->record.slots : d->default_slots);
  if (s->opened) {
    printf(", default grant %s, caches at most %s", cli_bytes_text(s->record.default_grant_bytes, grant),
           cli_bytes_text(s->record.cache_bytes, cache));
  }
  printf("\n        can:");
  for (uint32_t i = 0; i < sizeof capability_names / sizeof *capability_names; i++) {
    if ((d->capabilities >> i) & 1u) printf(" %s", capability_names[i]);
  }
  printf("\n");
}

static void print_device(const options *o, const berth_device_description *d, const seen *s) {
  char capacity[CLI_WORD];
  if (!d->available) {
    printf("%-7s unavailable: %s\n", d->name, d->unavailable_because);
    return;
  }
  if (!s->opened && !o->no_open) {
    printf("%-7s cannot be opened: %s\n", d->name, s->refusal.message);
    return;
  }
  uint32_t lanes = s->opened ? s->record.lanes : d->default_lanes;
  uint64_t bytes = s->opened ? s->record.capacity_bytes : d->default_capacity_bytes;
  printf("%-7s %s  %u lane%s  %s (%s)", d->name, s->opened ? health_names[s->health] : "available", lanes, lanes == 1 ? "" : "s",
         cli_bytes_text(bytes, capacity), s->opened ? s->record.limit_source : d->limit_source);
  if (s->opened) print_telemetry(&s->telemetry);
  printf("\n");
  if (o->verbose) print_defaults(d, s);
}

static void print_backend_defaults(void) {
  printf("defaults: queue 1024, 64 for each named group; queue deadline 30 s; a step of priority is worth 1 s; at most 16 overtakes after 100 ms;\n"
         "          abandoned reports 1024, 64 of them whole; telemetry every 1 s, stale after 5 s; slots 4 for each lane\n");
}

// ---- for programs ----------------------------------------------------------------------------------------------------------------------------

static void json_text(const char *key, const char *text) {
  printf("\"%s\":", key);
  cli_json_string(stdout, text);
  printf(",");
}

static void json_number(const char *key, uint64_t value) { printf("\"%s\":%llu,", key, (unsigned long long)value); }

static void json_telemetry(const berth_telemetry *t) {
  printf("\"telemetry\":");
  if (t->status != BERTH_OK) {
    printf("null,");
    return;
  }
  printf("{\"age_ns\":%lld", (long long)t->age);
  if (t->valid & 1u) printf(",\"utilization_percent\":%.3f", t->utilization_percent);
  if (t->valid & 2u) {
    printf(",\"memory_used_bytes\":%llu,\"memory_total_bytes\":%llu", (unsigned long long)t->memory_used_bytes,
           (unsigned long long)t->memory_total_bytes);
  }
  if (t->valid & 4u) printf(",\"temperature_celsius\":%.1f", t->temperature_celsius);
  if (t->valid & 8u) printf(",\"power_watts\":%.3f", t->power_watts);
  if (t->valid & 16u) printf(",\"clock_mhz\":%.3f", t->clock_mhz);
  if (t->valid & 32u) printf(",\"throttled\":%s", t->throttled ? "true" : "false");
  printf("},");
}

static void json_opened(const seen *s) {
  json_text("health", health_names[s->health]);
  json_number("lanes", s->record.lanes);
  json_number("slots", s->record.slots);
  json_number("capacity_bytes", s->record.capacity_bytes);
  json_number("cache_bytes", s->record.cache_bytes);
  json_number("reserve_bytes", s->record.reserve_bytes);
  json_number("library_bytes", s->record.library_bytes);
  json_number("default_grant_bytes", s->record.default_grant_bytes);
  json_telemetry(&s->telemetry);
}

static void json_device(const options *o, const berth_device_description *d, const seen *s) {
  printf("{");
  json_text("name", d->name);
  json_text("model", d->model);
  json_text("identity", d->identity);
  if (!d->available) json_text("unavailable_because", d->unavailable_because);
  if (d->available && !o->no_open && !s->opened) json_text("not_opened_because", s->refusal.message);
  json_number("limit_bytes", d->limit_bytes);
  json_text("limit_source", d->limit_source);
  json_number("default_capacity_bytes", d->default_capacity_bytes);
  json_number("default_lanes", d->default_lanes);
  json_number("default_slots", d->default_slots);
  if (s->opened) json_opened(s);
  json_number("capabilities", d->capabilities);
  printf("\"available\":%s}", d->available ? "true" : "false");
}

int cli_devices(int argc, char **argv) {
  options o = {false};
  berth_device_description found[BERTH_DEVICES_MAX];
  berth_error err = BERTH_ERROR_INIT;
  uint32_t count = 0;
  int arguments = 0;
  const cli_option table[] = {
      {"no-open", CLI_FLAG, &o.no_open, NULL, "only list: open nothing", 0, 0},
      {"verbose", CLI_FLAG, &o.verbose, NULL, "limits, defaults and capabilities of each, too", 0, 0},
      {"json", CLI_FLAG, &o.json, NULL, "print one JSON object", 0, 0},
  };
  const cli_usage usage = {synopsis, details, table, sizeof table / sizeof *table, 0, 0};
  int code = cli_parse(&usage, argc, argv, &arguments);
  if (code >= 0) return code;
  memset(found, 0, sizeof found);
  found[0].struct_size = sizeof found[0];
  if (berth_devices_list(found, BERTH_DEVICES_MAX, &count, &err) != BERTH_OK) return cli_error(&err);
  if (count > BERTH_DEVICES_MAX) count = BERTH_DEVICES_MAX;
  if (o.json) printf("{\"schema\":\"berth.devices\",\"version\":1,\"devices\":[");
  for (uint32_t i = 0; i < count; i++) {
    seen s = {.opened = false};
    if (found[i].available && !o.no_open) look(found[i].name, &s);
    if (o.json) {
      printf("%s\n", i > 0 ? "," : "");
      json_device(&o, &found[i], &s);
    } else {
      print_device(&o, &found[i], &s);
    }
  }
  if (o.json) printf("\n]}\n");
  if (!o.json && o.verbose) print_backend_defaults();
  return CLI_DONE;
}
