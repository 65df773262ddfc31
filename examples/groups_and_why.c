// SPDX-License-Identifier: Apache-2.0
// Two tenants on one device. `reports` may run one query at a time, `dashboards` may hold half of the bytes. Each waiting query can be asked at any
// moment why it waits and for whom; a raised limit lets it go on at once.
#include "example.h"

enum { REPORTS, DASHBOARDS };

typedef struct query {
  const char *name;
  berth_attempt *attempt;
  berth_completion *completion;
  berth_admission *admission;
  berth_exec *exec;
} query;

static berth_backend *backend;
static berth_session *session;

static query submit(const char *name, const char *group, uint64_t bytes) {
  query q = {.name = name};
  berth_attempt_options begin = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  berth_error err = BERTH_ERROR_INIT;
  begin.query_id = name;
  begin.group = group;
  request.bytes = bytes;
  EXPECT_OK(berth_session_begin_attempt(session, &begin, &q.attempt, &err), &err);
  q.completion = berth_attempt_completion(q.attempt);
  EXPECT_OK(berth_session_admit(session, q.attempt, &request, &q.admission, &err), &err);
  return q;
}

static void take(query *q) {
  berth_error err = BERTH_ERROR_INIT;
  EXPECT(berth_admission_poll(q->admission, &err) == BERTH_ADMISSION_GRANTED);
  EXPECT_OK(berth_admission_take(q->admission, &q->exec, &err), &err);
}

static void finish(query *q, uint32_t why_it_queued) {
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  EXPECT_OK(berth_exec_finish(q->exec, BERTH_SUCCEEDED, NULL, &err), &err);
  EXPECT_OK(berth_completion_poll(q->completion, &report, &err), &err);
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  EXPECT((info.why_queued & why_it_queued) == why_it_queued);
  berth_report_release(report);
  berth_completion_release(q->completion);
  berth_admission_release(q->admission);
  berth_attempt_release(q->attempt);
}

/// Prints why the query waits, and expects the given bits among the reasons.
static berth_why ask(const query *q, uint32_t expected) {
  static const char *const names[] = {"bytes", "lanes", "slots", "order", "group", "health"};
  static berth_holder holders[4];
  berth_why why = BERTH_WHY_INIT;
  berth_error err = BERTH_ERROR_INIT;
  why.holders = holders;
  why.holder_capacity = 4;
  EXPECT_OK(berth_admission_why(q->admission, &why, &err), &err);
  printf("%-12s waits for", q->name);
  for (int bit = 0; bit < 6; bit++) {
    if ((why.mask >> bit) & 1u) printf(" %s", names[bit]);
  }
  printf("; %u ahead;", why.ahead);
  for (uint32_t i = 0; i < why.holder_count; i++) {
    printf(" attempt %llu holds %llu MiB", (unsigned long long)(holders[i].attempt_id & 0xffff), (unsigned long long)(holders[i].bytes / MIB));
  }
  printf("\n");
  EXPECT((why.mask & expected) == expected);
  EXPECT(berth_admission_poll(q->admission, NULL) == BERTH_ADMISSION_QUEUED);
  return why;
}

static void set_limits(int group, uint32_t max_active, uint64_t max_bytes) {
  static const char *const names[] = {"reports", "dashboards"};
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  limits.max_active = max_active;
  limits.max_bytes = max_bytes;
  EXPECT_OK(berth_group_set(backend, names[group], &limits, &err), &err);
}

static void expect_idle(const char *group) {
  berth_group_limits use = BERTH_GROUP_LIMITS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_group_get(backend, group, &use, &err), &err);
  EXPECT(use.queued == 0 && use.active == 0 && use.lanes == 0 && use.bytes == 0);
}

int main(void) {
  backend = example_open("sim:0", "memory=1GiB,lanes=8", 64 * MIB);
  session = berth_backend_session(backend);
  set_limits(REPORTS, 1, 0);
  set_limits(DASHBOARDS, 0, 32 * MIB);

  query month = submit("month end", "reports", 16 * MIB);
  query year = submit("year end", "reports", 16 * MIB);
  query tiles = submit("tiles", "dashboards", 24 * MIB);
  query map = submit("map", "dashboards", 16 * MIB);
  take(&month);
  take(&tiles); // behind `year end` in the queue, which waits for its own group alone and so blocks nobody
  ask(&year, BERTH_WHY_GROUP);
  ask(&map, BERTH_WHY_GROUP);

  printf("-- reports may run two at a time now\n");
  set_limits(REPORTS, 2, 0);
  take(&year);

  printf("-- dashboards may hold everything now, but the device is full\n");
  set_limits(DASHBOARDS, 0, 0);
  berth_why why = ask(&map, BERTH_WHY_BYTES);
  EXPECT((why.mask & BERTH_WHY_GROUP) == 0 && why.holders_total == 3);

  printf("-- a query without a group comes later and is as large\n");
  query other = submit("other", NULL, 16 * MIB);
  why = ask(&other, BERTH_WHY_BYTES);
  EXPECT(why.ahead == 1);

  finish(&month, 0);
  take(&map); // first in, first out
  ask(&other, BERTH_WHY_BYTES);
  finish(&tiles, 0);
  take(&other);
  finish(&year, BERTH_WHY_GROUP);
  finish(&map, BERTH_WHY_GROUP);
  finish(&other, BERTH_WHY_BYTES);
  expect_idle("reports");
  expect_idle("dashboards");
  berth_metrics m = example_idle_metrics(session);
  EXPECT(m.granted == 5 && m.delivered == 5 && m.overtakes == 0);
  printf("5 queries of two tenants and nobody's, none overtaken\n");
  example_close(backend, session);
  return 0;
}
