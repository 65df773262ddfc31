// SPDX-License-Identifier: Apache-2.0
// Chooses the items, prints the machine and the results for people or as one JSON object (schema "berth.bench", version 1).
#include <string.h>
#include <sys/utsname.h>

#include "measure.h"

typedef struct printer {
  bool json;
  uint32_t results, missed;
} printer;

// ---- the machine -----------------------------------------------------------------------------------------------------------------------------

static bool read_line(const char *path, const char *key, char *out, size_t capacity) {
  char text[512];
  bool found = false;
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  while (!found && fgets(text, sizeof text, file) != NULL) {
    if (strncmp(text, key, strlen(key)) != 0) continue;
    const char *from = key[0] == '\0' ? text : strchr(text, ':');
    if (from == NULL) continue;
    from += strspn(from, ": \t");
    snprintf(out, capacity, "%.*s", (int)strcspn(from, "\n"), from);
    found = true;
  }
  fclose(file);
  return found;
}

void measure_describe_machine(measure_machine *out) {
  struct utsname name;
  memset(out, 0, sizeof *out);
  if (!read_line("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu)) snprintf(out->cpu, sizeof out->cpu, "unknown");
  if (!read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", "", out->clocksource, sizeof out->clocksource)) {
    snprintf(out->clocksource, sizeof out->clocksource, "unknown");
  }
  if (uname(&name) == 0) snprintf(out->kernel, sizeof out->kernel, "%.64s %.64s %.24s", name.sysname, name.release, name.machine);
  out->cpus = measure_cpus();
  out->library = berth_version();
#if defined(__clang__)
  out->compiler = "clang " __clang_version__;
#else
  out->compiler = "gcc " __VERSION__;
#endif
}

static void print_json_text(const char *text) {
  putchar('"');
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') putchar('\\');
    if (*c >= 0x20) putchar(*c);
  }
  putchar('"');
}

static void print_head(const measure_options *options, const measure_machine *machine) {
  char clock[64];
  snprintf(clock, sizeof clock, "%s%s", options->clock != NULL ? "" : "kernel ", options->clock != NULL ? options->clock : machine->clocksource);
  if (!options->json) {
    printf("berth %s, %s\n%s, %u CPUs, %s, clock %s\n\n", machine->library, machine->compiler, machine->cpu, machine->cpus, machine->kernel, clock);
    return;
  }
  printf("{\"schema\":\"berth.bench\",\"version\":1,\"library\":");
  print_json_text(machine->library);
  printf(",\"compiler\":");
  print_json_text(machine->compiler);
  printf(",\"cpu\":");
  print_json_text(machine->cpu);
  printf(",\"cpus\":%u,\"kernel\":", machine->cpus);
  print_json_text(machine->kernel);
  printf(",\"clock\":");
  print_json_text(clock);
  printf(",\"results\":[");
}

// ---- results ---------------------------------------------------------------------------------------------------------------------------------

static bool is_met(const measure_result *r) {
  return r->bound == MEASURE_NO_BUDGET || (r->bound == MEASURE_AT_MOST ? r->value <= r->budget : r->value >= r->budget);
}

static void print_json_result(const measure_result *r) {
  printf("\n{\"name\":");
  print_json_text(r->name);
  printf(",\"value\":%.6g,\"unit\":", r->value);
  print_json_text(r->unit);
  if (r->bound == MEASURE_NO_BUDGET) {
    printf(",\"budget\":null,\"bound\":null,\"met\":null");
  } else {
    printf(",\"budget\":%.6g,\"bound\":\"%s\",\"met\":%s", r->budget, r->bound == MEASURE_AT_MOST ? "at_most" : "at_least",
           is_met(r) ? "true" : "false");
  }
  if (r->peer == NULL) {
    printf(",\"peer\":null,\"peer_value\":null");
  } else {
    printf(",\"peer\":");
    print_json_text(r->peer);
    printf(",\"peer_value\":%.6g", r->peer_value);
  }
  printf(",\"samples\":%u,\"note\":", r->samples);
  print_json_text(r->note);
  printf("}");
}

static void number(double value, char out[32]) { snprintf(out, 32, value >= 100 || value == (double)(int64_t)value ? "%.0f" : "%.3g", value); }

static void print_result(const measure_result *r) {
  char value[32], budget[32], peer[32], bound[48] = "", beside[96] = "";
  number(r->value, value);
  number(r->budget, budget);
  number(r->peer_value, peer);
  if (r->bound != MEASURE_NO_BUDGET) snprintf(bound, sizeof bound, "%s %s %s", r->bound == MEASURE_AT_MOST ? "at most" : "at least", budget, r->unit);
  if (r->peer != NULL) snprintf(beside, sizeof beside, "; %s %s", r->peer, peer);
  printf("%-6s %-22s %8s %-8s %-18s %s%s\n",
         r->bound == MEASURE_NO_BUDGET ? ""
         : is_met(r)                   ? "ok"
                                       : "MISSED",
         r->name, value, r->unit, bound, r->note, beside);
}

static void tell(void *arg, const measure_result *result) {
  printer *p = arg;
  if (p->json) {
    if (p->results > 0) putchar(',');
    print_json_result(result);
  } else {
    print_result(result);
  }
  fflush(stdout);
  p->results++;
  if (!is_met(result)) p->missed++;
}

static bool is_chosen(const measure_options *options, const measure_item *item) {
  return options->only == NULL || strncmp(options->only, item->name, strlen(options->only)) == 0;
}

static uint32_t list(const measure_options *options, const measure_item *items, uint32_t count) {
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!is_chosen(options, &items[i])) continue;
    chosen++;
    if (options->list) printf("%-10s %s\n", items[i].name, items[i].summary);
  }
  return chosen;
}

int measure_main(const measure_options *options, const measure_item *items, uint32_t count) {
  printer p = {.json = options->json};
  measure m = {.seconds = options->seconds, .tell = tell, .arg = &p};
  measure_machine machine;
  if (list(options, items, count) == 0) {
    fprintf(stderr, "no measurement is named '%s'; --list names them\n", options->only);
    return 2;
  }
  if (options->list) return 0;
  measure_describe_machine(&machine);
  print_head(options, &machine);
  for (uint32_t i = 0; i < count; i++) {
    if (is_chosen(options, &items[i])) items[i].run(&m);
  }
  if (p.json) {
    printf("\n],\"missed\":%u}\n", p.missed);
  } else {
    printf("\n%u figures, %u outside their budget\n", p.results, p.missed);
  }
  return m.failed ? 1 : 0;
}
