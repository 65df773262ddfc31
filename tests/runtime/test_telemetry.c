// SPDX-License-Identifier: Apache-2.0
/// Telemetry is for people (TEL-1); limits that are read again lower what can be promised (LED-5, LED-6).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "device/sim/sim.h"
#include "runtime/runtime_support.h"

#define MS ((int64_t)1000000)
#define MIB ((uint64_t)1 << 20)

typedef struct world {
  berth_backend *backend;
  berth_session *session;
} world;

static world make_world(int64_t interval, const char *parameters) {
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berthi_sim_reset(0);
  options.telemetry_interval = interval;
  world w = {.backend = support_open_with(&options, 1, parameters)};
  w.session = berth_backend_session(w.backend);
  return w;
}

static void end_world(world *w) {
  support_close(w->backend);
  berth_session_release(w->session);
}

static berth_telemetry sample_of(world *w) {
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_error err = BERTH_ERROR_INIT;
  support_ok(berth_session_telemetry(w->session, 0, &sample, &err), &err);
  return sample;
}

/// Lets `more` whole rounds of the thread pass.
static void wait_rounds(uint64_t more) {
  berthi_sim_counters counters;
  berthi_sim_read_counters(0, &counters);
  uint64_t until = counters.rereads + more + 1; // the first may have begun before
  do {
    berthi_thread_yield();
    berthi_sim_read_counters(0, &counters);
  } while (counters.rereads < until);
}

static void a_sample_has_an_age_and_a_status(void **state) {
  (void)state;
  world w = make_world(MS, NULL);
  wait_rounds(1);
  berth_telemetry sample = sample_of(&w);
  assert_int_equal(sample.status, BERTH_OK);
  assert_true(sample.age >= 0 && sample.age < 60000 * MS);
  assert_true(sample.valid & 2);
  assert_true(sample.memory_total_bytes > 0);
  end_world(&w);
}

static void telemetry_can_be_left_out(void **state) {
  (void)state;
  world w = make_world(-1, NULL);
  berth_telemetry sample = sample_of(&w);
  assert_int_equal(sample.status, BERTH_UNAVAILABLE);
  assert_true(sample.age == BERTH_NO_DEADLINE); // never read
  assert_int_equal(sample.valid, 0);
  end_world(&w);
}

static void a_sample_goes_stale(void **state) {
  (void)state;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berthi_sim_reset(0);
  options.telemetry_interval = 3600000 * MS;
  options.telemetry_stale = 1;
  world w = {.backend = support_open_with(&options, 1, NULL)};
  w.session = berth_backend_session(w.backend);
  while (sample_of(&w).age == BERTH_NO_DEADLINE) berthi_thread_yield();
  while (sample_of(&w).status == BERTH_OK) berthi_thread_yield(); // one nanosecond
  assert_int_equal(sample_of(&w).status, BERTH_DEADLINE_EXCEEDED);
  assert_true(sample_of(&w).valid & 2); // what was last known stays readable
  end_world(&w);
}

static void a_failing_sensor_says_so(void **state) {
  (void)state;
  world w = make_world(MS, "telemetry_fails=1000000");
  wait_rounds(1);
  assert_int_equal(sample_of(&w).status, BERTH_UNAVAILABLE);
  end_world(&w);
}

static void arguments_and_close(void **state) {
  (void)state;
  world w = make_world(-1, NULL);
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_error err = BERTH_ERROR_INIT;
  assert_int_equal(berth_session_telemetry(w.session, 1, &sample, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_session_telemetry(w.session, 0, NULL, &err), BERTH_INVALID_ARGUMENT);
  berth_backend_close(w.backend);
  assert_int_equal(berth_session_telemetry(w.session, 0, &sample, &err), BERTH_CANCELLED); // SES-3
  end_world(&w);
}

/// LED-5: what others use beyond what the limit leaves beside the capacity is external.
static void others_use_is_external(void **state) {
  (void)state;
  world w = make_world(MS, "memory=1GiB");
  wait_rounds(1);
  assert_int_equal(support_metrics(w.session).devices[0].external_bytes, 0);
  berthi_sim_set_limits(0, 1024 * MIB, 100 * MIB);
  wait_rounds(1);
  assert_int_equal(support_metrics(w.session).devices[0].external_bytes, 100 * MIB);
  berthi_sim_set_limits(0, 2048 * MIB, 100 * MIB);
  wait_rounds(1);
  assert_int_equal(support_metrics(w.session).devices[0].external_bytes, 0);
  end_world(&w);
}

/// LED-6: a lowered limit lowers Q, stops new grants before it breaks old ones, and one that rises again grants what waits (ADM-7).
static void a_limit_falls_and_rises(void **state) {
  (void)state;
  world w = make_world(MS, "memory=1GiB,lanes=4");
  berth_error err = BERTH_ERROR_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  berth_attempt *first = support_begin(w.session), *second = support_begin(w.session);
  request.bytes = 600 * MIB;
  berth_admission *a = support_admit(w.session, first, &request);
  berthi_sim_set_limits(0, 512 * MIB, 1);
  wait_rounds(1);
  berth_metrics m = support_metrics(w.session);
  assert_int_equal(m.devices[0].query_limit_bytes, (512 - 64) * MIB);
  assert_int_equal(m.devices[0].grant_bytes, 600 * MIB);
  assert_int_equal(m.devices[0].external_bytes, 424 * MIB); // capped: the promise stands
  request.bytes = 100 * MIB;
  berth_admission *b = support_admit(w.session, second, &request);
  assert_int_equal(berth_admission_poll(b, NULL), BERTH_ADMISSION_QUEUED);
  berthi_sim_set_limits(0, 1024 * MIB, 1);
  support_ok(berth_admission_wait(b, BERTH_NO_DEADLINE, &err), &err);
  berth_admission_release(a);
  berth_admission_release(b);
  berth_attempt_release(first);
  berth_attempt_release(second);
  end_world(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sample_has_an_age_and_a_status), cmocka_unit_test(telemetry_can_be_left_out), cmocka_unit_test(a_sample_goes_stale),
      cmocka_unit_test(a_failing_sensor_says_so),         cmocka_unit_test(arguments_and_close),       cmocka_unit_test(others_use_is_external),
      cmocka_unit_test(a_limit_falls_and_rises),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
