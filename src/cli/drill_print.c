// SPDX-License-Identifier: Apache-2.0
// What a drill shows while it runs, and its totals.
#include <inttypes.h>

#include "cli_text.h"
#include "drill.h"

static const char *const outcome_names[] = {"succeeded", "failed", "cancelled", "dropped", "crashed"};
static const char *const why_names[] = {"bytes", "lanes", "slots", "order", "group", "health"};
static const char *const health_names[] = {"OK", "SUSPECT", "QUARANTINED", "PROBING", "LOST", "RESTART_REQUIRED"};
static const char *const state_names[] = {"OPEN", "CLOSING", "DEVICES_QUIESCENT", "CLOSED"};

void drill_print_live(const drill *d, bool terminal) {
  const berth_metrics *m = &d->metrics;
  char share[2 * CLI_WORD];
  printf("%s%5.1f s  queue %-4" PRIu64 " active %u/%u  lanes %u/%u  %s  granted %" PRIu64 "  expired %" PRIu64 "  cancelled %" PRIu64
         "  refused %" PRIu64 "  overtaken %" PRIu64 "%s%s",
         terminal ? "\r\033[K" : "", (double)(berth_now() - d->began) / 1e9, m->queued, d->figures.active, d->figures.slots,
         d->figures.lanes_promised, d->figures.lanes, cli_share_text(m->promised_bytes, d->query_limit, share), m->granted, m->expired, m->cancelled,
         m->refused, m->overtakes_max, d->figures.health == BERTH_HEALTH_OK ? "" : "  health ",
         d->figures.health == BERTH_HEALTH_OK ? "" : health_names[d->figures.health]);
  printf("%s", terminal ? "" : "\n");
  fflush(stdout);
}

static void print_why(const drill *d) {
  printf("why %" PRIu64 " waited:", d->total.queued);
  for (int i = 0; i < 6; i++) {
    if (d->total.why[i] > 0) printf("  %s %" PRIu64, why_names[i], d->total.why[i]);
  }
  printf("\nreasons:");
  for (int i = 0; i < DRILL_REASONS && d->total.reasons[i].name != NULL; i++)
    printf("  %s %" PRIu64, d->total.reasons[i].name, d->total.reasons[i].count);
  printf("\n");
}

static void print_close(const drill *d) {
  const berth_close_report *c = &d->closed;
  printf("close: %s, permits %" PRIu64 " + %" PRIu64 ", queued ended %" PRIu64 ", late successes %" PRIu64 ", devices released %d, leaked %d\n",
         state_names[c->state], c->active_observation_permits, c->active_device_permits, c->queued_ended, c->late_successes,
         __builtin_popcountll(c->devices_released), __builtin_popcountll(c->devices_leaked));
}

static void print_laws(const drill *d) {
  if (d->broken_count == 0) {
    printf("laws hold\n");
    return;
  }
  printf("LAWS BROKEN\n");
  for (uint32_t i = 0; i < d->broken_count; i++) printf("  broken: %s\n", d->broken[i]);
}

void drill_print_end(const drill *d) {
  const berth_metrics *m = &d->metrics;
  char p50[CLI_WORD], p99[CLI_WORD], most[CLI_WORD], promised[CLI_WORD], leaked[CLI_WORD], took[CLI_WORD];
  printf("%s: %" PRIu64 " attempts and %" PRIu64 " scoped entries of %" PRIu64 " threads in %s, seed %" PRIu64 "%s\n", d->options.device,
         d->total.attempts, d->total.entries, d->options.threads, cli_time_text(d->ended - d->began, took), d->options.seed,
         d->interrupted ? ", interrupted" : "");
  printf("submitted %" PRIu64 " = granted %" PRIu64 " + expired %" PRIu64 " + cancelled %" PRIu64 " + refused %" PRIu64 " + closed %" PRIu64
         " + queued %" PRIu64 "\n",
         m->submitted, m->granted, m->expired, m->cancelled, m->refused, m->closed, m->queued);
  printf("begun %" PRIu64 " = sealed %" PRIu64 " + open %" PRIu64 "   outcomes", m->begun, m->sealed, m->open);
  for (int i = 0; i < 5; i++) printf(" %s %" PRIu64, outcome_names[i], m->outcomes[i]);
  printf("\nsealed %" PRIu64 " = delivered %" PRIu64 " + taken %" PRIu64 " + held %" PRIu64 " + overflowed %" PRIu64 "\n", m->sealed, m->delivered,
         m->taken, m->held, m->overflowed);
  printf("grown %" PRIu64 ", refused %" PRIu64 "   shrunk %" PRIu64 "   cancels fired %" PRIu64 ", already finished %" PRIu64 ", too late %" PRIu64
         "\n",
         m->grows, m->grows_refused, m->shrinks, d->fired[0], d->fired[1], d->fired[2]);
  if (m->quarantines > 0) printf("quarantines %" PRIu64 ", health in the end %s\n", m->quarantines, health_names[d->figures.health]);
  if (d->options.why) print_why(d);
  print_close(d);
  printf("queue at most %" PRIu64 "   wait p50 %s   p99 %s   max %s   snapshots checked %" PRIu64 "\n", m->queue_high_watermark,
         cli_time_text((int64_t)drill_wait_quantile(&d->total, 0.5), p50), cli_time_text((int64_t)drill_wait_quantile(&d->total, 0.99), p99),
         cli_time_text((int64_t)d->total.wait_max, most), d->snapshots);
  printf("overtaken at most %" PRIu64 " of %" PRIu64 "%s   promised %s   leaked %s   ", m->overtakes_max, d->options.max_bypass,
         d->options.bypass_after > 1 ? ", more before --bypass-after" : "", cli_bytes_text(m->promised_bytes, promised),
         cli_bytes_text(d->closed.bytes_leaked, leaked));
  print_laws(d);
}

// ---- JSON ------------------------------------------------------------------------------------------------------------------------------------

static void field(const char *key, uint64_t value) { printf("\"%s\":%" PRIu64 ",", key, value); }

static void json_histograms(const drill *d) {
  printf("\"why\":{");
  for (int i = 0; i < 6; i++) printf("%s\"%s\":%" PRIu64, i > 0 ? "," : "", why_names[i], d->total.why[i]);
  printf("},\"reasons\":{");
  for (int i = 0; i < DRILL_REASONS && d->total.reasons[i].name != NULL; i++) {
    printf("%s\"%s\":%" PRIu64, i > 0 ? "," : "", d->total.reasons[i].name, d->total.reasons[i].count);
  }
  printf("},");
}

static void json_laws(const drill *d) {
  printf("\"laws_hold\":%s,\"broken\":[", d->broken_count == 0 ? "true" : "false");
  for (uint32_t i = 0; i < d->broken_count; i++) {
    printf("%s", i > 0 ? "," : "");
    cli_json_string(stdout, d->broken[i]);
  }
  printf("],");
}

static void json_close(const drill *d) {
  printf("\"close\":{\"state\":\"%s\",", state_names[d->closed.state]);
  field("observation_permits", d->closed.active_observation_permits);
  field("device_permits", d->closed.active_device_permits);
  field("queued_ended", d->closed.queued_ended);
  field("late_successes", d->closed.late_successes);
  field("devices_released", d->closed.devices_released);
  printf("\"bytes_leaked\":%" PRIu64 "}", d->closed.bytes_leaked);
}

void drill_print_json(const drill *d) {
  const berth_metrics *m = &d->metrics;
  printf("{\"schema\":\"berth.drill\",\"version\":1,\"device\":");
  cli_json_string(stdout, d->options.device);
  printf(",\"interrupted\":%s,", d->interrupted ? "true" : "false");
  field("seed", d->options.seed);
  field("threads", d->options.threads);
  field("nanoseconds", (uint64_t)(d->ended - d->began));
  field("attempts", d->total.attempts);
  field("entries", d->total.entries);
  field("submitted", m->submitted);
  field("granted", m->granted);
  field("expired", m->expired);
  field("cancelled", m->cancelled);
  field("refused", m->refused);
  field("closed", m->closed);
  field("queued", m->queued);
  field("begun", m->begun);
  field("sealed", m->sealed);
  field("open", m->open);
  printf("\"outcomes\":{");
  for (int i = 0; i < 5; i++) printf("%s\"%s\":%" PRIu64, i > 0 ? "," : "", outcome_names[i], m->outcomes[i]);
  printf("},");
  json_histograms(d);
  field("wait_p50_ns", drill_wait_quantile(&d->total, 0.5));
  field("wait_p99_ns", drill_wait_quantile(&d->total, 0.99));
  field("wait_max_ns", d->total.wait_max);
  field("queue_high_watermark", m->queue_high_watermark);
  field("overtakes_max", m->overtakes_max);
  field("max_bypass", d->options.max_bypass);
  field("quarantines", m->quarantines);
  field("promised_bytes", m->promised_bytes);
  field("leaked_bytes", d->closed.bytes_leaked);
  field("snapshots", d->snapshots);
  json_laws(d);
  json_close(d);
  printf("}\n");
}
