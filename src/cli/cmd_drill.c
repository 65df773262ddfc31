// SPDX-License-Identifier: Apache-2.0
// berth drill: over-subscribes a device on purpose and shows that every law holds.
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "bench/measure.h"
#include "commands.h"
#include "drill.h"
#include "interrupt.h"

static const char synopsis[] = "berth drill [OPTION]...";
static const char details[] = "Ranges are LEAST..MOST or one value. Rates are percent of the jobs. A device is simulated by default, so nothing is "
                              "computed; --device cpu:0 drills\n"
                              "the real one. --faults is appended to the parameters of a simulated device, such as sticky_after=5000,probe_fails=1.\n"
                              "Ctrl-C ends the drill early: it drains, and the totals are printed. Exit code 1: a law is broken.\n";

static const int64_t CLOSE_LIMIT = 20000000000;
static const int64_t TICK = 100000000;

// ---- options ---------------------------------------------------------------------------------------------------------------------------------

typedef struct texts {
  const char *bytes, *lanes, *work, *priority;
} texts;

static bool parse_plain(const char *text, uint64_t *out) {
  char *end;
  *out = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

static bool parse_time(const char *text, uint64_t *out) {
  int64_t span;
  bool ok = cli_parse_span(text, &span);
  *out = ok ? (uint64_t)span : 0;
  return ok;
}

static int parse_range(const char *name, const char *text, bool (*parse)(const char *, uint64_t *), uint64_t least, uint64_t most, drill_range *out) {
  char first[64];
  if (text == NULL) return -1;
  const char *dots = strstr(text, "..");
  size_t length = dots == NULL ? strlen(text) : (size_t)(dots - text);
  if (length >= sizeof first) return cli_usage_error("--%s %s is no range", name, text);
  memcpy(first, text, length);
  first[length] = '\0';
  if (!parse(first, &out->least) || !parse(dots == NULL ? first : dots + 2, &out->most))
    return cli_usage_error("--%s '%s' is no range such as 1..4", name, text);
  if (out->least > out->most || out->least < least || out->most > most) {
    return cli_usage_error("--%s %s: from %llu to at most %llu", name, text, (unsigned long long)least, (unsigned long long)most);
  }
  return -1;
}

static int parse_ranges(const texts *t, drill_options *o) {
  int code = parse_range("bytes", t->bytes, cli_parse_bytes, 1, (uint64_t)1 << 50, &o->bytes);
  if (code < 0) code = parse_range("lanes", t->lanes, parse_plain, 1, 256, &o->lanes);
  if (code < 0) code = parse_range("work", t->work, parse_time, 0, 3600000000000u, &o->work);
  if (code < 0) code = parse_range("priority", t->priority, parse_plain, 0, 1000, &o->priority);
  return code;
}

static int parse(int argc, char **argv, drill_options *o) {
  texts t = {NULL, NULL, NULL, NULL};
  int arguments = 0;
  const cli_option table[] = {
      {"device", CLI_TEXT, &o->device, "NAME", "device to drill (default sim:0)", 0, 0},
      {"parameters", CLI_TEXT, &o->parameters, "LIST", "parameters of the device, such as memory=1GiB,lanes=16 (the default)", 0, 0},
      {"faults", CLI_TEXT, &o->faults, "LIST", "faults of a simulated device, such as sticky_after=5000", 0, 0},
      {"threads", CLI_NUMBER, &o->threads, "N", "threads (default 64)", 1, 4096},
      {"seconds", CLI_SPAN, &o->time, "TIME", "how long (default 5s)", 0, 0},
      {"jobs", CLI_NUMBER, &o->jobs, "N", "end after so many jobs", 1, 0},
      {"bytes", CLI_TEXT, &t.bytes, "RANGE", "memory of a job (default 4MiB..256MiB)", 0, 0},
      {"lanes", CLI_TEXT, &t.lanes, "RANGE", "lanes of a job (default 1..2)", 0, 0},
      {"work", CLI_TEXT, &t.work, "RANGE", "duration of a job (default 100us..4ms)", 0, 0},
      {"spin", CLI_FLAG, &o->spin, NULL, "jobs keep a CPU busy instead of waiting on the clock", 0, 0},
      {"priority", CLI_TEXT, &t.priority, "RANGE", "priority of a job (default 0..3)", 0, 0},
      {"entries", CLI_NUMBER, &o->entries, "RATE", "jobs that are scoped entries (default 25)", 0, 100},
      {"cancel", CLI_NUMBER, &o->cancel, "RATE", "jobs cancelled from outside (default 3)", 0, 100},
      {"expire", CLI_NUMBER, &o->expire, "RATE", "jobs with a short queue deadline (default 3)", 0, 100},
      {"drop", CLI_NUMBER, &o->drop, "RATE", "attempts dropped, with nobody to receive their report (default 2)", 0, 100},
      {"grow", CLI_NUMBER, &o->grow, "RATE", "jobs that grow or shrink (default 3)", 0, 100},
      {"oversize", CLI_NUMBER, &o->oversize, "RATE", "jobs that ask more than the device has (default 1)", 0, 100},
      {"groups", CLI_NUMBER, &o->groups, "N", "groups (default 3; 0: none)", 0, DRILL_GROUPS},
      {"group-active", CLI_NUMBER, &o->group_active, "N", "executions of one group at a time (default: half of the slots)", 1, UINT32_MAX},
      {"group-bytes", CLI_BYTES, &o->group_bytes, "BYTES", "memory of one group (default: three quarters)", 1, 0},
      {"group-queued", CLI_NUMBER, &o->group_queued, "N", "waiting requests of one group (default 64)", 1, UINT32_MAX},
      {"queue", CLI_NUMBER, &o->queue, "N", "waiting requests in all (default: seven eighths of the threads)", 1, 1048576},
      {"queue-deadline", CLI_SPAN, &o->queue_deadline, "TIME", "queue deadline of the other jobs (default 30s)", 0, 0},
      {"max-bypass", CLI_NUMBER, &o->max_bypass, "N", "overtakes after which a waiter is a barrier (default 16)", 1, UINT32_MAX},
      {"bypass-after", CLI_SPAN, &o->bypass_after, "TIME", "and the waiting (default 1ns, so that overtakes have a bound)", 0, 0},
      {"seed", CLI_NUMBER, &o->seed, "N", "seed of the jobs (default 1)", 0, 0},
      {"why", CLI_FLAG, &o->why, NULL, "print why jobs waited and how they failed", 0, 0},
      {"json", CLI_FLAG, &o->json, NULL, "print one JSON object", 0, 0},
  };
  const cli_usage usage = {synopsis, details, table, sizeof table / sizeof *table, 0, 0};
  *o = (drill_options){.device = "sim:0",
                       .threads = 64,
                       .time = 5000000000,
                       .bypass_after = 1,
                       .max_bypass = 16,
                       .seed = 1,
                       .groups = 3,
                       .entries = 25,
                       .cancel = 3,
                       .expire = 3,
                       .drop = 2,
                       .grow = 3,
                       .oversize = 1,
                       .bytes = {4u << 20, 256u << 20},
                       .lanes = {1, 2},
                       .work = {100000, 4000000},
                       .priority = {0, 3}};
  int code = cli_parse(&usage, argc, argv, &arguments);
  if (code < 0) code = parse_ranges(&t, o);
  if (o->queue == 0) o->queue = o->threads * 7 / 8 > 0 ? o->threads * 7 / 8 : 1;
  if (o->bypass_after == 0) o->bypass_after = 1; // 0 would mean the backend's default
  return code;
}

// ---- opening and closing ---------------------------------------------------------------------------------------------------------------------

static berth_status open_backend(drill *d, berth_error *err) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options backend = BERTH_BACKEND_OPTIONS_INIT;
  const drill_options *o = &d->options;
  char parameters[1024];
  bool simulated = strncmp(o->device, "sim:", 4) == 0;
  snprintf(parameters, sizeof parameters, "%s%s%s",
           o->parameters != NULL ? o->parameters
           : simulated           ? "memory=1GiB,lanes=16"
                                 : "",
           o->faults != NULL ? "," : "", o->faults != NULL ? o->faults : "");
  device.name = o->device;
  if (parameters[0] != '\0') device.parameters = parameters;
  backend.devices = &device;
  backend.device_count = 1;
  backend.max_queued = (uint32_t)o->queue;
  backend.max_bypass = (uint32_t)o->max_bypass;
  backend.bypass_after = o->bypass_after;
  backend.probe_interval = 10000000;
  berth_status status = berth_backend_open(&backend, &d->backend, err);
  if (status != BERTH_OK) return status;
  d->session = berth_backend_session(d->backend);
  d->record = (berth_startup_record)BERTH_STARTUP_RECORD_INIT;
  status = berth_session_startup_record(d->session, 0, &d->record, err);
  d->query_limit = d->record.capacity_bytes - d->record.cache_bytes;
  return status;
}

static berth_status set_groups(drill *d, bool wide, berth_error *err) {
  const drill_options *o = &d->options;
  for (uint64_t i = 0; i < o->groups; i++) {
    char name[16];
    berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
    uint64_t active = o->group_active != 0 ? o->group_active : (d->record.slots + 1) / 2;
    limits.max_active = (uint32_t)(wide ? active : (active + 1) / 2);
    limits.max_bytes = o->group_bytes != 0 ? o->group_bytes : d->query_limit / 4 * 3;
    limits.max_queued = (uint32_t)o->group_queued;
    snprintf(name, sizeof name, "tenant%u", (unsigned)i);
    berth_status status = berth_group_set(d->backend, name, &limits, err);
    if (status != BERTH_OK) return status;
  }
  return BERTH_OK;
}

// Jobs must fit into the device and into their group, or nothing but refusals is drilled.
static int check_fit(const drill *d) {
  const drill_options *o = &d->options;
  if (o->bytes.least > d->query_limit) return cli_usage_error("--bytes: the device can ever grant %llu", (unsigned long long)d->query_limit);
  if (o->lanes.least > d->record.lanes) return cli_usage_error("--lanes: the device has %u", d->record.lanes);
  return -1;
}

static void close_backend(drill *d) {
  berth_error err = BERTH_ERROR_INIT;
  int64_t deadline = berth_now() + CLOSE_LIMIT;
  d->closed = (berth_close_report)BERTH_CLOSE_REPORT_INIT;
  d->close_status = berth_backend_close_wait(d->backend, deadline, deadline - CLOSE_LIMIT / 4, &d->closed, &err);
  if (d->close_status != BERTH_OK) fprintf(stderr, "berth: closing: %s\n", err.message);
}

// ---- running ---------------------------------------------------------------------------------------------------------------------------------

static void take_abandoned(drill *d) {
  berth_report *reports[64];
  uint32_t count;
  while ((count = berth_session_take_abandoned(d->session, reports, 64)) > 0) {
    for (uint32_t i = 0; i < count; i++) {
      berth_report_info info = BERTH_REPORT_INFO_INIT;
      if (berth_report_get(reports[i], &info, NULL) == BERTH_OK && (uint32_t)info.outcome < 5) d->abandoned_outcomes[info.outcome]++;
      berth_report_release(reports[i]);
    }
  }
}

static void read_metrics(drill *d) {
  d->metrics = (berth_metrics)BERTH_METRICS_INIT;
  d->metrics.devices = &d->figures;
  d->metrics.device_capacity = 1;
  if (berth_session_metrics(d->session, &d->metrics, NULL) != BERTH_OK) drill_broken(d, "a snapshot can always be read");
}

static bool start_thread(pthread_t *thread, void *(*fn)(void *), void *arg) { return pthread_create(thread, NULL, fn, arg) == 0; }

static void init_clocked(pthread_mutex_t *lock, pthread_cond_t *wake) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); // berth_now's
  pthread_cond_init(wake, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(lock, NULL);
}

static bool is_over(const drill *d) {
  if (d->options.jobs > 0 && atomic_load_explicit(&d->jobs, memory_order_relaxed) >= d->options.jobs) return true;
  return berth_now() - d->began >= d->options.time && d->options.jobs == 0;
}

// Until the time, the jobs or the user's patience has run out. Changes the groups' limits on the way (ADM-12).
static void attend(drill *d) {
  bool terminal = isatty(STDOUT_FILENO) != 0;
  bool wide = true;
  int64_t shown = d->began;
  for (uint64_t tick = 1; !is_over(d) && !cli_interrupted(); tick++) {
    int64_t next = d->began + (int64_t)tick * TICK;
    if (d->options.jobs == 0 && next > d->began + d->options.time) next = d->began + d->options.time;
    measure_sleep_until(next);
    take_abandoned(d);
    wide = !wide;
    set_groups(d, wide, NULL);
    if (d->options.json || (!terminal && berth_now() - shown < 1000000000)) continue;
    shown = berth_now();
    read_metrics(d);
    drill_print_live(d, terminal);
  }
  if (terminal && !d->options.json) printf("\r\033[K");
  d->interrupted = cli_interrupted();
}

static uint64_t start_workers(drill *d) {
  uint64_t started = 0;
  for (; started < d->options.threads; started++) {
    drill_worker *w = &d->workers[started];
    w->drill = d;
    w->random = d->options.seed * 0x9e3779b97f4a7c15u + started;
    init_clocked(&w->lock, &w->wake);
    if (!start_thread(&w->thread, drill_worker_main, w)) break;
  }
  return started;
}

static void stop_workers(drill *d, uint64_t started) {
  atomic_store_explicit(&d->stop, true, memory_order_relaxed);
  // With a number of jobs they end by themselves; else what pauses is woken, so that the queue drains.
  for (uint64_t i = 0; i < started; i++) drill_worker_wake(&d->workers[i]);
  for (uint64_t i = 0; i < started; i++) {
    pthread_join(d->workers[i].thread, NULL);
    drill_count_add(&d->total, &d->workers[i].counts);
  }
}

static int run(drill *d) {
  init_clocked(&d->cancel_lock, &d->cancel_wake);
  d->began = berth_now();
  if (!start_thread(&d->canceller, drill_canceller_main, d) || !start_thread(&d->reader, drill_reader_main, d)) {
    fprintf(stderr, "berth: no threads\n");
    exit(CLI_FAILED);
  }
  uint64_t started = start_workers(d);
  if (started < d->options.threads) fprintf(stderr, "berth: only %llu threads could be started\n", (unsigned long long)started);
  attend(d);
  stop_workers(d, started);
  d->ended = berth_now();
  drill_canceller_stop(d);
  take_abandoned(d);
  atomic_store_explicit(&d->reader_stop, true, memory_order_relaxed);
  pthread_join(d->reader, NULL);
  read_metrics(d);
  close_backend(d);
  drill_check_end(d);
  if (d->options.json) {
    drill_print_json(d);
  } else {
    drill_print_end(d);
  }
  if (d->broken_count > 0) return CLI_FAILED;
  return d->interrupted ? CLI_INTERRUPTED : CLI_DONE;
}

int cli_drill(int argc, char **argv) {
  berth_error err = BERTH_ERROR_INIT;
  berth_cancel *interrupt = NULL;
  drill *d = calloc(1, sizeof *d);
  if (d == NULL) return CLI_FAILED;
  int code = parse(argc, argv, &d->options);
  if (code >= 0) goto done;
  d->workers = calloc(d->options.threads, sizeof *d->workers);
  if (d->workers == NULL || open_backend(d, &err) != BERTH_OK) {
    code = d->workers == NULL ? CLI_FAILED : cli_error(&err);
    goto done;
  }
  code = check_fit(d);
  if (code < 0 && (set_groups(d, true, &err) != BERTH_OK || berth_cancel_create(d->session, &interrupt, &err) != BERTH_OK)) code = cli_error(&err);
  if (code < 0) {
    cli_watch_interrupts(interrupt);
    code = run(d);
    cli_forget_interrupts();
  } else {
    close_backend(d);
  }
done:
  berth_cancel_release(interrupt);
  berth_session_release(d->session);
  berth_backend_release(d->backend);
  free(d->workers);
  free(d);
  return code;
}
