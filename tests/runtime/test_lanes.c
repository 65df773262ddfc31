// SPDX-License-Identifier: Apache-2.0
/// Lane sets (RUN-3): which lanes an entry may get, and the caller's own threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/exec_ops.h"
#include "runtime/lanes.h"
#include "runtime/runtime_support.h"

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

static world make_world(uint32_t devices) {
  world w = {.backend = support_open(devices, "memory=256MiB,lanes=4,slots=8")};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static int run_all(void *arg, uint64_t count, void (*body)(void *body_arg, uint64_t i), void *body_arg) {
  (*(int *)arg)++;
  for (uint64_t i = 0; i < count; i++) body(body_arg, i);
  return 0;
}

static berth_lanes *caller_managed(world *w, int *calls) {
  berth_lanes_options options = BERTH_LANES_OPTIONS_INIT;
  berth_lanes *lanes = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.executor = run_all;
  options.executor_arg = calls;
  options.executor_lanes = 3;
  support_ok(berth_lanes_create(w->session, &options, &lanes, &err), &err);
  return lanes;
}

/// A managed set of a simulated device, which has no CPUs to name it by: made by hand from the lanes.
static berth_lanes *managed(world *w, uint32_t device, const uint32_t *numbers, uint32_t count) {
  int calls = 0;
  berth_lanes *lanes = caller_managed(w, &calls);
  lanes->executor = NULL;
  lanes->device = device;
  for (uint32_t i = 0; i < count; i++) berthi_lanes_set(&lanes->mask, numbers[i]);
  return lanes;
}

static void assert_refused(world *w, const berth_lanes_options *options, berth_status code, const char *text) {
  berth_lanes *lanes = NULL;
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_lanes_create(w->session, options, &lanes, &err), code);
  if (strstr(err.message, text) == NULL) fail_msg("'%s' does not say '%s'", err.message, text);
}

static void options_are_checked(void **state) {
  (void)state;
  world w = make_world(1);
  const uint32_t cpus[] = {0, 1, 999};
  berth_lanes_options options = BERTH_LANES_OPTIONS_INIT;
  options.cpus = cpus;
  options.cpu_count = 3;
  assert_refused(&w, &options, BERTH_UNIMPLEMENTED, "sim:0 has no CPUs");
  options.device = 1;
  assert_refused(&w, &options, BERTH_INVALID_ARGUMENT, "device: 1, at most 0");
  options.device = 0;
  options.executor = run_all;
  assert_refused(&w, &options, BERTH_INVALID_ARGUMENT, "executor_lanes");
  berth_lanes_release(NULL);
  berth_backend_close(w.backend);
  assert_refused(&w, &options, BERTH_CANCELLED, "backend");
  end_world(&w);
}

/// The CPUs of cpu:0 by the numbers of the system. Which ones there are is the machine's business, so they are looked for.
static void cpus_are_named_by_the_systems_numbers(void **state) {
  (void)state;
  world w;
  berth_backend_options backend_options = BERTH_BACKEND_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  backend_options.telemetry_interval = -1;
  support_ok(berth_backend_open(&backend_options, &w.backend, &err), &err);
  w.session = berth_backend_session(w.backend);
  berth_lanes_options options = BERTH_LANES_OPTIONS_INIT;
  assert_refused(&w, &options, BERTH_INVALID_ARGUMENT, "cpus: none");
  assert_refused(&w, NULL, BERTH_INVALID_ARGUMENT, "cpus: none");
  uint32_t found = 0;
  for (uint32_t cpu = 0; cpu < 1024; cpu++) {
    berth_lanes *lanes = NULL;
    options.cpus = &cpu;
    options.cpu_count = 1;
    if (berth_lanes_create(w.session, &options, &lanes, NULL) != BERTH_OK) continue;
    assert_int_equal(berthi_lanes_count(&lanes->mask), 1);
    found++;
    berth_lanes_release(lanes);
  }
  assert_int_equal(found, support_metrics(w.session).devices[0].lanes);
  const uint32_t none = 99999;
  options.cpus = &none;
  assert_refused(&w, &options, BERTH_INVALID_ARGUMENT, "cpus[0]: CPU 99999");
  end_world(&w);
}

static void a_set_bounds_what_a_request_may_get(void **state) {
  (void)state;
  world w = make_world(2);
  const uint32_t cpus[] = {1, 3, 1};
  berth_lanes *lanes = managed(&w, 1, cpus, 3);
  berthi_core *core = berthi_core_of_session(w.session);
  berthi_request request = {.lane_set = lanes};
  berthi_lanemask mask;
  assert_false(berthi_lanes_allowed(core, &request, 0, &mask)); // another device's set
  assert_true(berthi_lanes_allowed(core, &request, 1, &mask));
  assert_int_equal(mask.w[0], 0xa);
  assert_false(berthi_lanes_caller_managed(lanes));
  assert_true(berthi_lanes_try_enter(lanes) && berthi_lanes_try_enter(lanes)); // the ledger keeps its lanes
  request.lane_set = NULL;
  assert_true(berthi_lanes_allowed(core, &request, 0, &mask));
  assert_int_equal(mask.w[0], 0xf);
  assert_int_equal(mask.w[1], 0);
  assert_false(berthi_lanes_caller_managed(NULL));
  berth_lanes_release(lanes);
  end_world(&w);
}

/// The whole words of a large device, and the part of the last one.
static void every_lane_of_a_large_device(void **state) {
  (void)state;
  world w = {.backend = support_open(1, "lanes=130")};
  w.session = berth_backend_session(w.backend);
  berthi_request request = {.lane_set = NULL};
  berthi_lanemask mask;
  assert_true(berthi_lanes_allowed(berthi_core_of_session(w.session), &request, 0, &mask));
  assert_int_equal(berthi_lanes_count(&mask), 130);
  assert_int_equal(mask.w[2], 3);
  assert_int_equal(mask.w[3], 0);
  end_world(&w);
}

static intptr_t which_lanes(berth_exec *exec, void *arg) {
  (void)arg;
  return (intptr_t)berthi_exec_lanes(exec);
}

static void entries_of_one_set_share_its_lanes(void **state) {
  (void)state;
  world w = make_world(1);
  const uint32_t cpus[] = {2, 3};
  berth_lanes *lanes = managed(&w, 0, cpus, 2);
  berth_request request = BERTH_REQUEST_INIT;
  request.lane_set = lanes;
  request.lanes = 2;
  berth_attempt *first = support_begin(w.session), *second = support_begin(w.session), *other = support_begin(w.session);
  berth_admission *a = support_admit(w.session, first, &request);
  request.lanes = 1;
  berth_admission *b = support_admit(w.session, second, &request);
  assert_int_equal(berth_admission_poll(b, NULL), BERTH_ADMISSION_QUEUED);
  berth_why why = BERTH_WHY_INIT;
  assert_int_equal(berth_admission_why(b, &why, NULL), BERTH_OK);
  assert_int_equal(why.mask, BERTH_WHY_LANES);
  request.lane_set = NULL;
  request.lanes = 2; // the two that are not in the set: disjoint entries run at the same time
  berth_admission *c = support_admit(w.session, other, &request);
  assert_int_equal(berth_admission_poll(c, NULL), BERTH_ADMISSION_QUEUED); // it may use the set's lanes, which an earlier one waits for
  berth_exec_release(support_take(a));
  assert_int_equal(berth_admission_poll(b, NULL), BERTH_ADMISSION_GRANTED);
  assert_int_equal(berth_admission_poll(c, NULL), BERTH_ADMISSION_GRANTED);
  berth_admission *all[] = {a, b, c};
  berth_attempt *attempts[] = {first, second, other};
  for (int i = 0; i < 3; i++) {
    berth_admission_release(all[i]);
    berth_attempt_release(attempts[i]);
  }
  request.lane_set = lanes;
  request.lanes = 3; // more than the set has: never
  berth_attempt *never = support_begin(w.session);
  berth_error err = BERTH_ERROR_INIT;
  berth_admission *refused = NULL;
  assert_int_equal(berth_session_admit(w.session, never, &request, &refused, &err), BERTH_OUT_OF_RANGE);
  berth_attempt_release(never);
  berth_lanes_release(lanes);
  end_world(&w);
}

static void add_one(void *arg, uint64_t i) { ((uint64_t *)arg)[i]++; }

static intptr_t use_executor(berth_exec *exec, void *arg) {
  uint64_t counts[10] = {0};
  if (berthi_exec_op_begin(exec, "count", NULL) != BERTH_OK) return -1;
  berth_status status = berthi_exec_parallel(exec, 10, add_one, counts, NULL);
  berthi_exec_op_end(exec, 0, 0);
  for (int i = 0; i < 10; i++) {
    if (counts[i] != 1) return -2;
  }
  (void)arg;
  return status == BERTH_OK ? (intptr_t)berthi_exec_lanes(exec) : -3;
}

static void the_callers_threads_do_the_work(void **state) {
  (void)state;
  world w = make_world(1);
  int calls = 0;
  berth_lanes *lanes = caller_managed(&w, &calls);
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.lane_set = lanes;
  options.lanes = 3;
  for (int i = 1; i <= 3; i++) {
    support_ok(berth_run(w.session, &options, use_executor, NULL, &result, &err), &err);
    assert_int_equal(result.value, 3);
    assert_int_equal(calls, i);
  }
  assert_int_equal(support_metrics(w.session).devices[0].lanes_promised, 0);
  berth_lanes_release(lanes);
  end_world(&w);
}

/// RUN-2: a caller-managed set takes one entry at a time; every way out leaves it free again.
static void a_caller_managed_set_in_use_is_contended(void **state) {
  (void)state;
  world w = make_world(1);
  int calls = 0;
  berth_lanes *lanes = caller_managed(&w, &calls);
  berth_request request = BERTH_REQUEST_INIT;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  request.lane_set = options.lane_set = lanes;
  berth_attempt *attempt = support_begin(w.session);
  berth_admission *admission = support_admit(w.session, attempt, &request);
  assert_int_equal(support_metrics(w.session).devices[0].lanes_promised, 0); // it takes no lanes of the device
  assert_int_equal(berth_run(w.session, &options, which_lanes, NULL, NULL, &err), BERTH_ABORTED);
  assert_string_equal(err.reason, "contended");
  berth_admission_release(admission); // untaken
  support_ok(berth_run(w.session, &options, which_lanes, NULL, NULL, &err), &err);
  berth_attempt_release(attempt);
  attempt = support_begin(w.session);
  request.bytes = (uint64_t)1 << 50;
  assert_int_equal(berth_session_admit(w.session, attempt, &request, &admission, &err), BERTH_OUT_OF_RANGE);
  berth_attempt_release(attempt);
  support_ok(berth_run(w.session, &options, which_lanes, NULL, NULL, &err), &err);
  berth_lanes_release(lanes);
  end_world(&w);
}

static void another_backends_set_is_refused(void **state) {
  (void)state;
  world w = make_world(1);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options backend_options = BERTH_BACKEND_OPTIONS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  world other;
  device.name = "sim:7";
  backend_options.devices = &device;
  backend_options.device_count = 1;
  backend_options.telemetry_interval = -1;
  support_ok(berth_backend_open(&backend_options, &other.backend, &err), &err);
  other.session = berth_backend_session(other.backend);
  const uint32_t cpus[] = {0};
  berth_lanes *lanes = managed(&other, 0, cpus, 1);
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.lane_set = lanes;
  assert_int_equal(berth_run(w.session, &options, which_lanes, NULL, NULL, &err), BERTH_FAILED_PRECONDITION);
  assert_string_equal(err.reason, "incompatible_context");
  berth_lanes_release(lanes);
  end_world(&other);
  end_world(&w);
}

static void a_set_outlives_the_close(void **state) {
  (void)state;
  world w = make_world(1);
  const uint32_t cpus[] = {0};
  berth_lanes *lanes = managed(&w, 0, cpus, 1);
  end_world(&w);
  berth_lanes_release(lanes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(cpus_are_named_by_the_systems_numbers),
      cmocka_unit_test(a_set_bounds_what_a_request_may_get),
      cmocka_unit_test(every_lane_of_a_large_device),
      cmocka_unit_test(entries_of_one_set_share_its_lanes),
      cmocka_unit_test(the_callers_threads_do_the_work),
      cmocka_unit_test(a_caller_managed_set_in_use_is_contended),
      cmocka_unit_test(another_backends_set_is_refused),
      cmocka_unit_test(a_set_outlives_the_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
