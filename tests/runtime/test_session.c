// SPDX-License-Identifier: Apache-2.0
/// The session: who it is, what still answers after close, and what a forked child sees (SES-1 to SES-3, CLS-6).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/core.h"
#include "runtime/runtime_support.h"

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

static world make_world(void) {
  world w = {.backend = support_open(2, "memory=256MiB,lanes=2")};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static void assert_described(berth_session *session, const char *text) {
  char line[200];
  size_t length = berth_session_describe(session, line, sizeof(line));
  assert_int_equal(length, strlen(line));
  if (strstr(line, text) == NULL) fail_msg("'%s' does not say '%s'", line, text);
}

static void who_it_is(void **state) {
  (void)state;
  world w = make_world();
  berth_identity identity = berth_session_identity(w.session);
  assert_true(identity.backend_id != 0);
  assert_int_equal(identity.process, getpid());
  assert_described(w.session, "open: sim:0 sim:1");
  char small[8];
  assert_true(berth_session_describe(w.session, small, sizeof(small)) > sizeof(small));
  assert_int_equal(strlen(small), sizeof(small) - 1);
  end_world(&w);
  world next = make_world();
  assert_true(berth_session_identity(next.session).generation > identity.generation);
  end_world(&next);
}

static void clones_are_the_same_backend(void **state) {
  (void)state;
  world w = make_world();
  berth_session *clone = berth_session_retain(w.session), *another = berth_backend_session(w.backend);
  assert_true(berth_session_same_backend(clone, w.session));
  assert_true(berth_session_same_backend(another, w.session));
  assert_false(berth_session_same_backend(NULL, w.session));
  assert_false(berth_session_same_backend(NULL, NULL));
  berth_session_release(clone);
  berth_session_release(another);
  berth_session_release(NULL);
  end_world(&w);
}

static void it_keeps_no_device_owned(void **state) {
  (void)state;
  world w = make_world();
  berth_error err = BERTH_ERROR_INIT;
  berth_backend_release(w.backend); // the last handle signals close; the session is weak (SES-1)
  assert_true(berth_session_is_closing(w.session));
  support_ok(berth_lease_wait("sim:0", BERTH_NO_DEADLINE, &err), &err);
  support_ok(berth_lease_wait("sim:1", BERTH_NO_DEADLINE, &err), &err);
  berth_session_release(w.session);
}

static void what_answers_after_close(void **state) {
  (void)state;
  world w = make_world();
  berth_error err = BERTH_ERROR_INIT;
  berth_attempt *attempt = NULL;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  assert_false(berth_session_is_closing(w.session));
  support_close(w.backend);
  assert_true(berth_session_is_closing(w.session));
  assert_described(w.session, "closed");
  support_ok(berth_session_startup_record(w.session, 1, &record, &err), &err);
  assert_string_equal(record.name, "sim:1");
  assert_int_equal(record.capacity_bytes, 256 << 20);
  assert_int_equal(record.lanes, 2);
  assert_string_equal(record.forced_by, "");
  assert_int_equal(berth_session_startup_record(w.session, 2, &record, &err), BERTH_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "the backend has 2"));
  assert_int_equal(berth_session_begin_attempt(w.session, NULL, &attempt, &err), BERTH_CANCELLED);
  assert_string_equal(err.reason, "backend_closed");
  (void)support_metrics(w.session);
  berth_session_release(w.session);
}

typedef struct inherited {
  world w;
  berth_report *report;
  berth_cache *cache;
} inherited;

#define EXPECT(condition) \
  if (!(condition)) return __LINE__

/// In the child: fallible calls answer `forked`, releases are no-ops, predicates say closing. The admission lock is held by nobody who is here.
static int check_child(inherited *i) {
  berth_error err = BERTH_ERROR_INIT;
  berth_metrics metrics = BERTH_METRICS_INIT;
  berth_telemetry telemetry = BERTH_TELEMETRY_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_cache_stats stats = BERTH_CACHE_STATS_INIT;
  berth_lanes_options lanes_options = BERTH_LANES_OPTIONS_INIT;
  berth_lanes *lanes = NULL;
  size_t length = 0;
  char buffer[256];
  berth_session *s = i->w.session;
  EXPECT(berth_session_is_closing(s));
  EXPECT(berth_session_metrics(s, &metrics, &err) == BERTH_FAILED_PRECONDITION && strcmp(err.reason, "forked") == 0);
  EXPECT(berth_diagnostics_json(s, NULL, 0, &length, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_session_telemetry(s, 0, &telemetry, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_session_startup_record(s, 0, &record, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_report_get(i->report, &info, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_group_set(i->w.backend, "g", NULL, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_group_get(i->w.backend, "g", &limits, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_cache_get_stats(i->cache, &stats, &err) == BERTH_FAILED_PRECONDITION);
  EXPECT(berth_lanes_create(s, &lanes_options, &lanes, &err) == BERTH_FAILED_PRECONDITION && strcmp(err.reason, "forked") == 0);
  EXPECT(berth_metrics_json(s, buffer, sizeof(buffer)) == 0 && buffer[0] == '\0');
  EXPECT(berth_metrics_prometheus(s, buffer, sizeof(buffer)) == 0);
  EXPECT(berth_report_json(i->report, buffer, sizeof(buffer)) == 0);
  EXPECT(berth_session_attempt_counters(s).begun == 0);
  EXPECT(berth_session_describe(s, buffer, sizeof(buffer)) > 0 && strstr(buffer, "fork") != NULL);
  EXPECT(berth_session_identity(s).process == getppid());
  berth_cache_clear(i->cache);
  berth_cache_release(i->cache);
  berth_report_release(i->report);
  berth_session_release(s);
  return 0;
}

static void a_child_is_told(void **state) {
  (void)state;
  inherited i = {.w = make_world()};
  berth_error err = BERTH_ERROR_INIT;
  i.report = support_whole(i.w.session, BERTH_SUCCEEDED);
  support_ok(berth_cache_create(i.w.session, NULL, &i.cache, &err), &err);
  berthi_core *core = berthi_core_of_session(i.w.session);
  berthi_after after;
  fflush(NULL);
  berthi_lock(core, &after); // caught half-way: a child that takes the lock or waits for the sequence would hang
  pid_t child = fork();
  if (child == 0) _exit(check_child(&i) % 255);
  berthi_unlock(core, &after);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) != 0) fail_msg("line %d", WEXITSTATUS(status));
  berth_cache_release(i.cache);
  berth_report_release(i.report);
  end_world(&i.w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_it_is),
      cmocka_unit_test(clones_are_the_same_backend),
      cmocka_unit_test(it_keeps_no_device_owned),
      cmocka_unit_test(what_answers_after_close),
      cmocka_unit_test(a_child_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
