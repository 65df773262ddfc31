// SPDX-License-Identifier: Apache-2.0
/// Groups: named limits that are set and changed at run time (ADM-12).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/runtime_support.h"

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

static world make_world(uint32_t max_groups) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.telemetry_interval = -1;
  options.max_groups = max_groups;
  options.max_queued_per_group = 5;
  world w = {.backend = support_open_with(&options, 1, "memory=256MiB,lanes=4,slots=8")};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static berth_attempt *begin(world *w, const char *group) {
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.group = group;
  support_ok(berth_session_begin_attempt(w->session, &options, &attempt, &err), &err);
  return attempt;
}

static berth_group_limits get(world *w, const char *name) {
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_group_get(w->backend, name, &limits, &err), &err);
  return limits;
}

static void a_group_begins_with_defaults(void **state) {
  (void)state;
  world w = make_world(0);
  assert_int_equal(berth_group_set(w.backend, "day", NULL, NULL), BERTH_OK);
  berth_group_limits limits = get(&w, "day");
  assert_int_equal(limits.max_queued, 5);
  assert_int_equal(limits.max_active, UINT32_MAX);
  assert_int_equal(limits.max_lanes, UINT32_MAX);
  assert_int_equal(limits.max_bytes, BERTH_UNLIMITED_U64);
  end_world(&w);
}

static void limits_are_set_and_changed(void **state) {
  (void)state;
  world w = make_world(0);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_active = 2;
  limits.max_bytes = 1 << 20;
  limits.active = 77; // use is ignored
  assert_int_equal(berth_group_set(w.backend, "day", &limits, NULL), BERTH_OK);
  assert_int_equal(get(&w, "day").max_active, 2);
  assert_int_equal(get(&w, "day").active, 0);
  limits.max_active = 3;
  limits.max_bytes = 0;
  assert_int_equal(berth_group_set(w.backend, "day", &limits, NULL), BERTH_OK);
  assert_int_equal(get(&w, "day").max_active, 3);
  assert_int_equal(get(&w, "day").max_bytes, BERTH_UNLIMITED_U64);
  end_world(&w);
}

static void an_attempt_makes_its_group(void **state) {
  (void)state;
  world w = make_world(0);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  assert_int_equal(berth_group_get(w.backend, "new", &limits, NULL), BERTH_NOT_FOUND);
  berth_attempt_release(begin(&w, "new"));
  assert_int_equal(get(&w, "new").max_queued, 5);
  end_world(&w);
}

static void use_is_counted(void **state) {
  (void)state;
  world w = make_world(0);
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = 10 << 20;
  request.lanes = 2;
  berth_attempt *attempt = begin(&w, "day");
  berth_admission *admission = support_admit(w.session, attempt, &request);
  berth_group_limits use = get(&w, "day");
  assert_int_equal(use.active, 1);
  assert_int_equal(use.lanes, 2);
  assert_int_equal(use.bytes, 10 << 20);
  assert_int_equal(use.queued, 0);
  berth_exec_release(support_take(admission));
  use = get(&w, "day");
  assert_int_equal(use.active + use.lanes + use.bytes, 0);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  end_world(&w);
}

/// ADM-7: a raised limit reruns the scan. ADM-12: who is held by its own group waits for `group` and blocks nobody.
static void a_raised_limit_grants(void **state) {
  (void)state;
  world w = make_world(0);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  limits.max_active = 1;
  assert_int_equal(berth_group_set(w.backend, "day", &limits, NULL), BERTH_OK);
  berth_attempt *first = begin(&w, "day"), *second = begin(&w, "day"), *stranger = begin(&w, NULL);
  berth_admission *a = support_admit(w.session, first, NULL);
  berth_admission *b = support_admit(w.session, second, NULL);
  assert_int_equal(berth_admission_poll(a, NULL), BERTH_ADMISSION_GRANTED);
  assert_int_equal(berth_admission_poll(b, NULL), BERTH_ADMISSION_QUEUED);
  berth_why why = BERTH_WHY_INIT;
  assert_int_equal(berth_admission_why(b, &why, NULL), BERTH_OK);
  assert_int_equal(why.mask, BERTH_WHY_GROUP);
  assert_int_equal(get(&w, "day").queued, 1);
  berth_admission *c = support_admit(w.session, stranger, NULL);
  assert_int_equal(berth_admission_poll(c, NULL), BERTH_ADMISSION_GRANTED);
  assert_int_equal(berth_admission_why(b, &why, NULL), BERTH_OK);
  assert_int_equal(why.overtakes, 0);
  limits.max_active = 2;
  assert_int_equal(berth_group_set(w.backend, "day", &limits, NULL), BERTH_OK);
  assert_int_equal(berth_admission_poll(b, NULL), BERTH_ADMISSION_GRANTED);
  berth_admission *all[] = {a, b, c};
  berth_attempt *attempts[] = {first, second, stranger};
  for (int i = 0; i < 3; i++) {
    berth_admission_release(all[i]);
    berth_attempt_release(attempts[i]);
  }
  assert_int_equal(get(&w, "day").active, 0);
  end_world(&w);
}

static void names_are_checked(void **state) {
  (void)state;
  world w = make_world(0);
  char longest[BERTH_GROUP_NAME + 1];
  memset(longest, 'g', sizeof(longest));
  longest[BERTH_GROUP_NAME] = '\0';
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_group_set(w.backend, longest, NULL, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_group_set(w.backend, "", NULL, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_group_set(w.backend, NULL, NULL, &err), BERTH_INVALID_ARGUMENT);
  longest[BERTH_GROUP_NAME - 1] = '\0';
  assert_int_equal(berth_group_set(w.backend, longest, NULL, &err), BERTH_OK);
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  assert_int_equal(berth_group_get(w.backend, "nobody", &limits, &err), BERTH_NOT_FOUND);
  assert_string_equal(err.reason, "unknown_group");
  end_world(&w);
}

static void groups_are_bounded(void **state) {
  (void)state;
  world w = make_world(2);
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_group_set(w.backend, "a", NULL, &err), BERTH_OK);
  assert_int_equal(berth_group_set(w.backend, "b", NULL, &err), BERTH_OK);
  assert_int_equal(berth_group_set(w.backend, "c", NULL, &err), BERTH_RESOURCE_EXHAUSTED);
  assert_string_equal(err.reason, "group_limit");
  assert_int_equal(berth_group_set(w.backend, "a", NULL, &err), BERTH_OK);
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  options.group = "c";
  assert_int_equal(berth_session_begin_attempt(w.session, &options, &attempt, &err), BERTH_RESOURCE_EXHAUSTED);
  end_world(&w);
}

static void setting_ends_with_the_close(void **state) {
  (void)state;
  world w = make_world(0);
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_group_set(w.backend, "a", NULL, &err), BERTH_OK);
  berth_backend_close(w.backend);
  assert_int_equal(berth_group_set(w.backend, "a", NULL, &err), BERTH_CANCELLED);
  assert_int_equal(get(&w, "a").max_queued, 5);
  end_world(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_group_begins_with_defaults), cmocka_unit_test(limits_are_set_and_changed),
      cmocka_unit_test(an_attempt_makes_its_group),   cmocka_unit_test(use_is_counted),
      cmocka_unit_test(a_raised_limit_grants),        cmocka_unit_test(names_are_checked),
      cmocka_unit_test(groups_are_bounded),           cmocka_unit_test(setting_ends_with_the_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
