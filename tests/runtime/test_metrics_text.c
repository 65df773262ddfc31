// SPDX-License-Identifier: Apache-2.0
/// The table of metrics, its JSON and its Prometheus text (MET-2), and the diagnostics that carry the same number.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/json_reader.h"
#include "runtime/runtime_support.h"

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

typedef size_t (*writer)(const berth_session *session, char *buffer, size_t capacity);

static char *text_of(berth_session *session, writer write) {
  size_t length = write(session, NULL, 0);
  char *text = malloc(length + 1);
  assert_non_null(text);
  assert_int_equal(write(session, text, length + 1), length);
  assert_int_equal(strlen(text), length);
  return text;
}

/// Two devices; some of everything happened, one request waits, one execution runs.
static world make_world(void) {
  world w = {.backend = support_open(2, "memory=256MiB,lanes=2")};
  w.session = berth_backend_session(w.backend);
  for (int i = 0; i < 6; i++) berth_report_release(support_whole(w.session, i % 2 ? BERTH_FAILED : BERTH_SUCCEEDED));
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static bool is_name(const char *text, size_t length) {
  return length > 0 && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") >= length;
}

static void the_table_is_in_order(void **state) {
  (void)state;
  uint32_t count = 0;
  const berth_metric_descriptor *table = berth_metrics_descriptors(&count);
  assert_true(count > 20);
  for (uint32_t i = 0; i < count; i++) {
    const berth_metric_descriptor *d = &table[i];
    bool counter = strcmp(d->kind, "counter") == 0;
    assert_true(counter || strcmp(d->kind, "gauge") == 0 || strcmp(d->kind, "histogram") == 0);
    assert_memory_equal(d->name, "berth_", 6);
    assert_true(is_name(d->name, strlen(d->name)));
    const char *suffix = strrchr(d->name, '_');
    assert_int_equal(counter, strcmp(suffix, "_total") == 0);
    if (strcmp(d->unit, "By") == 0) assert_string_equal(suffix, "_bytes");
    if (strcmp(d->unit, "s") == 0) assert_string_equal(suffix, "_seconds");
    assert_true(d->max_series >= 1 && d->max_series <= 9 * BERTH_DEVICES_MAX);
    assert_true(strlen(d->help) > 0 && strlen(d->updated_by) > 0);
    for (uint32_t k = 0; k < i; k++) assert_string_not_equal(table[k].name, d->name);
  }
}

// ---- Prometheus ------------------------------------------------------------------------------------------------------------------------------------------

typedef struct family {
  char name[80], kind[16];
  uint32_t series;
  double last_bucket, count;
} family;

/// One label after another: name="value", with escapes; returns past the closing brace.
static const char *check_labels(const char *at) {
  for (;;) {
    size_t length = strcspn(at, "=");
    assert_true(is_name(at, length));
    at += length;
    assert_memory_equal(at, "=\"", 2);
    for (at += 2; *at != '"'; at++) {
      assert_true(*at != '\n' && *at != '\0');
      if (*at == '\\') at++;
    }
    at++;
    if (*at == '}') return at + 1;
    assert_int_equal(*at++, ',');
  }
}

static void check_sample(const char *line, family *f) {
  size_t length = strcspn(line, "{ ");
  assert_true(is_name(line, length));
  assert_memory_equal(line, f->name, strlen(f->name)); // samples stand below their own family
  const char *suffix = line + strlen(f->name);
  bool histogram = strcmp(f->kind, "histogram") == 0;
  if (!histogram) assert_int_equal(length, strlen(f->name));
  const char *at = line[length] == '{' ? check_labels(line + length + 1) : line + length;
  assert_int_equal(*at++, ' ');
  char *end = NULL;
  double value = strtod(at, &end);
  assert_int_equal(*end, '\n');
  assert_true(value >= 0);
  if (histogram && strncmp(suffix, "_bucket", 7) == 0) {
    assert_true(value >= f->last_bucket);
    f->last_bucket = value;
  }
  if (histogram && strncmp(suffix, "_count", 6) == 0) f->count = value;
  f->series++;
}

static void end_family(const family *f) {
  uint32_t count = 0;
  const berth_metric_descriptor *table = berth_metrics_descriptors(&count);
  if (f->name[0] == '\0') return;
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(table[i].name, f->name) != 0) continue;
    bool histogram = strcmp(f->kind, "histogram") == 0;
    assert_string_equal(table[i].kind, f->kind);
    assert_true(f->series >= 1);
    assert_true(f->series <= table[i].max_series + (histogram ? BERTH_WAIT_BUCKETS + 2 : 0));
    if (histogram) assert_true(f->last_bucket == f->count); // the bucket +Inf holds all
    return;
  }
  fail_msg("%s is not in the table", f->name);
}

static void the_prometheus_text_is_well_formed(void **state) {
  (void)state;
  world w = make_world();
  char *text = text_of(w.session, berth_metrics_prometheus);
  family f = {.name = ""};
  uint32_t families = 0, expected = 0;
  (void)berth_metrics_descriptors(&expected);
  for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
    assert_non_null(strchr(line, '\n'));
    if (strncmp(line, "# HELP ", 7) == 0) {
      end_family(&f);
      memset(&f, 0, sizeof(f));
      families++;
      assert_int_equal(sscanf(line, "# HELP %79s", f.name), 1);
    } else if (strncmp(line, "# TYPE ", 7) == 0) {
      char name[80];
      assert_int_equal(sscanf(line, "# TYPE %79s %15s", name, f.kind), 2);
      assert_string_equal(name, f.name);
    } else {
      check_sample(line, &f);
    }
  }
  end_family(&f);
  assert_int_equal(families, expected);
  free(text);
  end_world(&w);
}

static void the_prometheus_text_says_the_numbers(void **state) {
  (void)state;
  world w = make_world();
  char *text = text_of(w.session, berth_metrics_prometheus);
  assert_non_null(strstr(text, "\nberth_attempts_begun_total 6\n"));
  assert_non_null(strstr(text, "\nberth_attempts_sealed_total{outcome=\"failed\"} 3\n"));
  assert_non_null(strstr(text, "\nberth_admissions_total{decision=\"granted\"} 6\n"));
  assert_non_null(strstr(text, "\nberth_device_health{device=\"sim:1\",state=\"ok\"} 1\n"));
  assert_non_null(strstr(text, "\nberth_device_bytes{device=\"sim:0\",class=\"free\"} 268435456\n"));
  assert_non_null(strstr(text, "\nberth_queue_wait_seconds_bucket{le=\"0.000001\"} "));
  assert_non_null(strstr(text, "\nberth_queue_wait_seconds_bucket{le=\"+Inf\"} 6\n"));
  free(text);
  end_world(&w);
}

// ---- JSON ------------------------------------------------------------------------------------------------------------------------------------------------

static void the_json_is_the_snapshot(void **state) {
  (void)state;
  world w = make_world();
  berth_metrics m = support_metrics(w.session);
  char *text = text_of(w.session, berth_metrics_json);
  assert_true(json_valid(text));
  assert_true(json_is(text, "schema", "berth.metrics"));
  assert_int_equal(json_number(text, "version"), 1);
  assert_true((uint64_t)json_number(text, "sequence") >= m.sequence); // telemetry may have taken the lock between the two
  assert_int_equal(json_number(text, "backend_id"), m.backend_id);
  assert_int_equal(json_number(text, "metrics/berth_attempts_begun_total"), 6);
  assert_int_equal(json_number(text, "metrics/berth_attempts_sealed_total/failed"), 3);
  assert_int_equal(json_number(text, "metrics/berth_device_bytes/sim:1/free"), 256 << 20);
  assert_int_equal(json_number(text, "metrics/berth_device_health/sim:0/ok"), 1);
  assert_int_equal(json_number(text, "metrics/berth_attempt_duration_seconds/count"), 6);
  assert_int_equal(json_length(text, "metrics/berth_attempt_duration_seconds/buckets"), BERTH_WAIT_BUCKETS);
  uint32_t count = 0;
  const berth_metric_descriptor *table = berth_metrics_descriptors(&count);
  assert_int_equal(json_length(text, "metrics"), count);
  for (uint32_t i = 0; i < count; i++) {
    char path[128];
    snprintf(path, sizeof(path), "metrics/%s", table[i].name);
    assert_non_null(json_at(text, path));
  }
  free(text);
  end_world(&w);
}

static void a_cut_text_is_terminated(void **state) {
  (void)state;
  world w = make_world();
  size_t whole = berth_metrics_json(w.session, NULL, 0);
  for (size_t capacity = 1; capacity < 40; capacity++) {
    char buffer[64];
    memset(buffer, 'x', sizeof(buffer));
    assert_int_equal(berth_metrics_json(w.session, buffer, capacity), whole);
    assert_int_equal(strlen(buffer), capacity - 1);
    assert_int_equal(buffer[capacity], 'x');
    assert_true(berth_metrics_prometheus(w.session, buffer, capacity) > capacity);
    assert_int_equal(strlen(buffer), capacity - 1);
  }
  end_world(&w);
}

// ---- diagnostics -----------------------------------------------------------------------------------------------------------------------------------------

static char *diagnostics(berth_session *session) {
  berth_error err = BERTH_ERROR_INIT;
  size_t length = 0;
  support_ok(berth_diagnostics_json(session, NULL, 0, &length, &err), &err);
  char *text = malloc(length + 256);
  assert_non_null(text);
  support_ok(berth_diagnostics_json(session, text, length + 256, &length, &err), &err);
  assert_int_equal(strlen(text), length);
  assert_true(json_valid(text));
  return text;
}

static void diagnostics_of_a_quiet_backend(void **state) {
  (void)state;
  world w = make_world();
  char *text = diagnostics(w.session);
  assert_true(json_is(text, "schema", "berth.diagnostics"));
  assert_true(json_is(text, "state", "open"));
  assert_int_equal(json_number(text, "sequence"), json_number(text, "snapshot/sequence"));
  assert_int_equal(json_length(text, "devices"), 2);
  assert_true(json_is(text, "devices/1/name", "sim:1"));
  assert_int_equal(json_number(text, "devices/0/ledger/free"), 256 << 20);
  assert_true(json_is(text, "devices/0/health", "ok"));
  assert_true(json_is(text, "devices/0/first_fault", "null"));
  assert_int_equal(json_number(text, "waiters_total"), 0);
  assert_int_equal(json_length(text, "waiters"), 0);
  free(text);
  end_world(&w);
}

static void diagnostics_name_waiters_holders_and_groups(void **state) {
  (void)state;
  world w = make_world();
  berth_error err = BERTH_ERROR_INIT;
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  request.devices = 1;
  request.bytes = 200 << 20;
  request.queue_deadline = BERTH_NO_DEADLINE;
  berth_attempt *holder = support_begin(w.session), *waiter = NULL;
  berth_admission *held = support_admit(w.session, holder, &request);
  options.group = "night";
  support_ok(berth_session_begin_attempt(w.session, &options, &waiter, &err), &err);
  berth_admission *waiting = support_admit(w.session, waiter, &request);
  char *text = diagnostics(w.session);
  assert_int_equal(json_number(text, "waiters_total"), 1);
  assert_int_equal(json_number(text, "waiters/0/attempt_id"), berth_attempt_id(waiter));
  assert_true(json_is(text, "waiters/0/why/0", "bytes"));
  assert_true(json_is(text, "waiters/0/group", "night"));
  assert_true(json_is(text, "waiters/0/expires_at", "null"));
  assert_int_equal(json_number(text, "waiters/0/ahead"), 0);
  assert_int_equal(json_number(text, "waiters/0/devices"), 1);
  assert_true(json_is(text, "groups/0/name", "night"));
  assert_int_equal(json_number(text, "groups/0/queued"), 1);
  assert_true(json_is(text, "groups/0/max_bytes", "null"));
  assert_true(json_number(text, "holders_total") >= 1);
  assert_true(json_number(text, "bytes_held") >= 200 << 20);
  free(text);
  berth_admission_release(waiting);
  berth_attempt_release(waiter);
  berth_admission_release(held);
  berth_attempt_release(holder);
  end_world(&w);
}

static void diagnostics_end_with_the_close(void **state) {
  (void)state;
  world w = make_world();
  berth_error err = BERTH_ERROR_INIT;
  size_t length = 0;
  berth_backend_close(w.backend);
  assert_int_equal(berth_diagnostics_json(w.session, NULL, 0, &length, &err), BERTH_CANCELLED);
  assert_true(strcmp(err.reason, "backend_closing") == 0 || strcmp(err.reason, "backend_closed") == 0);
  support_close(w.backend);
  assert_int_equal(berth_diagnostics_json(w.session, NULL, 0, &length, &err), BERTH_CANCELLED);
  assert_string_equal(err.reason, "backend_closed");
  char *text = text_of(w.session, berth_metrics_json); // SES-3: metrics go on
  assert_true(json_valid(text));
  free(text);
  berth_session_release(w.session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_is_in_order),
      cmocka_unit_test(the_prometheus_text_is_well_formed),
      cmocka_unit_test(the_prometheus_text_says_the_numbers),
      cmocka_unit_test(the_json_is_the_snapshot),
      cmocka_unit_test(a_cut_text_is_terminated),
      cmocka_unit_test(diagnostics_of_a_quiet_backend),
      cmocka_unit_test(diagnostics_name_waiters_holders_and_groups),
      cmocka_unit_test(diagnostics_end_with_the_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
