// SPDX-License-Identifier: Apache-2.0
// Fail the Nth call, once and from then on: allocation, thread start, the caller's descriptor, and the device's calls, over a whole life: open, begin,
// admit, run, grow, finish, close. After each: an error that says so, the laws hold, the ledger is zero, the backend works again, nothing is left.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "runtime/fixture.h"

typedef struct life {
  berth_status open, steps[16];
  char why[16][32];
  uint32_t count;
  bool opened;
} life;

static void note(life *l, berth_status status, const berth_error *err) {
  if (l->count == 16) return;
  l->steps[l->count] = status;
  snprintf(l->why[l->count++], sizeof l->why[0], "%s", status && err->reason ? err->reason : "");
}

static void one_attempt(fx *f, life *l) {
  berth_error err = BERTH_ERROR_INIT;
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  fx_job job = {0};
  berth_exec *child = NULL;
  void *memory = NULL;
  options.query_id = "a query";
  options.trace_context = "a trace";
  options.group = "g";
  options.max_events = 4;
  berth_status status = berth_session_begin_attempt(f->session, &options, &job.attempt, &err);
  note(l, status, &err);
  if (status) return;
  job.completion = berth_attempt_completion(job.attempt);
  note(l, status = berth_session_admit(f->session, job.attempt, NULL, &job.admission, &err), &err);
  if (!status) note(l, status = berth_admission_take(job.admission, &job.exec, &err), &err);
  if (!status) {
    note(l, berth_exec_alloc(job.exec, 5000, &memory, &err), &err);
    note(l, berth_exec_grow(job.exec, FX_UNIT, berth_now(), &err), &err);
    note(l, berth_exec_child(job.exec, &child, &err), &err);
    berth_exec_release(child);
    note(l, berth_exec_finish(job.exec, BERTH_FAILED, &(berth_error){.code = BERTH_DATA_LOSS, .reason = "mine", .message = "mine: x"}, &err), &err);
    job.exec = NULL;
  }
  berth_attempt_release(job.attempt);
  job.attempt = NULL;
  assert_int_equal(fx_report(&job).outcome, status ? BERTH_DROPPED : BERTH_FAILED);  // sealed whatever failed
  fx_drop(&job);
}

static void one_entry(fx *f, life *l, bool report) {
  berth_error err = BERTH_ERROR_INIT;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.report = report;
  options.query_id = "q";
  options.bytes = 2 * FX_UNIT;
  note(l, berth_run(f->session, &options, fx_fn_42, NULL, &result, &err), &err);
  berth_report_release(result.report);
}

static void one_hold(fx *f, life *l) {
  berth_error err = BERTH_ERROR_INIT;
  berth_exec *exec = NULL;
  note(l, berth_exec_hold(f->session, NULL, &exec, &err), &err);
  berth_exec_release(exec);
}

static void one_cache(fx *f, life *l) {
  berth_error err = BERTH_ERROR_INIT;
  berth_cache *cache = NULL;
  berth_cancel *token = NULL;
  note(l, berth_cache_create(f->session, NULL, &cache, &err), &err);
  note(l, berth_cancel_create(f->session, &token, &err), &err);
  berth_cache_release(cache);
  berth_cancel_release(token);
}

static bool live(fx *f, life *l, const fx_spec *spec) {
  berth_error err = BERTH_ERROR_INIT;
  berth_backend_options options = fx_options();
  options.telemetry_interval = FX_SECOND;
  l->open = fx_try_open(f, spec, &options, &err);
  if (l->open) {
    note(l, l->open, &err);
    return false;
  }
  one_attempt(f, l);
  one_entry(f, l, false);
  one_entry(f, l, true);
  one_hold(f, l);
  one_cache(f, l);
  return true;
}

static void check_reasons(const life *l, const char *const *allowed) {
  for (uint32_t i = 0; i < l->count; i++) {
    if (!l->steps[i]) continue;
    bool known = false;
    for (size_t k = 0; allowed[k]; k++) known |= strcmp(l->why[i], allowed[k]) == 0;
    if (!known) fail_msg("step %u: %s %s", i, berth_status_name(l->steps[i]), l->why[i]);
  }
}

// Returns whether any call was failed.
static bool once_through(berthi_fault kind, uint64_t nth, bool sticky, const char *const *allowed) {
  fx f;
  life l = {0};
  uint64_t blocks = fx_blocks();
  berthi_fault_plan(kind, nth, sticky);
  bool opened = live(&f, &l, NULL);
  uint64_t calls = berthi_fault_plan_end();
  check_reasons(&l, allowed);
  if (opened) {
    (void)fx_metrics(&f);
    fx_run_plain(&f);  // works when the fault is gone
    fx_close(&f);
  }
  fx_until(fx_blocks() <= blocks);
  return calls >= nth;
}

static void loop(berthi_fault kind, const char *const *allowed) {
  fx warm;
  fx_open(&warm, NULL, NULL);
  fx_run_plain(&warm);
  fx_close(&warm);
  for (int sticky = 0; sticky < 2; sticky++) {
    uint64_t nth = 1;
    while (once_through(kind, nth, sticky, allowed)) {
      assert_true(++nth < 500);
    }
    assert_true(nth > 1);
  }
}

static void allocation(void **state) {
  static const char *const allowed[] = {"host_exhausted", "thread_unavailable", "device_exhausted", "group_limit", NULL};
  (void)state;
  loop(BERTHI_FAULT_ALLOC, allowed);
}

static void threads(void **state) {
  static const char *const allowed[] = {"thread_unavailable", NULL};
  (void)state;
  loop(BERTHI_FAULT_THREAD, allowed);
}

static void be_told(void *arg, berth_admission_state decision) {
  (void)decision;
  (*(fx_flag *)arg)++;
}

// A descriptor that cannot be written: the callback and poll still tell.
static void descriptor(void **state) {
  (void)state;
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t nth = 1; nth <= 3; nth++) {
      fx f;
      fx_job job;
      fx_flag told = 0;
      int fd = eventfd(0, EFD_NONBLOCK);
      fx_open(&f, NULL, NULL);
      berthi_fault_plan(BERTHI_FAULT_NOTIFY_FD, nth, sticky);
      for (int i = 0; i < 3; i++) {
        fx_submit_units(&f, &job, 1);
        fx_ok(berth_admission_notify(job.admission, fd, be_told, &told, NULL), NULL);
        fx_until(told == i + 1);
        fx_wait_take(&job);
        fx_drop(&job);
      }
      (void)berthi_fault_plan_end();
      uint64_t value = 0;
      ssize_t got = read(fd, &value, sizeof value);
      assert_int_equal(got > 0 ? value : 0, sticky ? nth - 1 : 2);
      fx_close(&f);
      close(fd);
    }
  }
}

// Device calls, by the script of the simulated device.
static void device_calls(void **state) {
  static const char *const allowed[] = {"device_exhausted", "device_fault", "device_unavailable", "executor", NULL};
  static const char *const scripts[] = {"fail_alloc=1", "fail_alloc_from=1", "fail_settle=1", "fail_settle=2", "fail_settle=3", "fail_settle=4", "fail_open=1"};
  (void)state;
  for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
    fx f;
    life l = {0};
    uint64_t blocks = fx_blocks();
    fx_spec spec = {.parameters = scripts[i]};
    bool opened = live(&f, &l, &spec);
    check_reasons(&l, allowed);
    assert_int_equal(opened, i != 6);
    if (opened) {
      fx_run_plain(&f);
      fx_close(&f);
    }
    fx_until(fx_blocks() <= blocks);
    fx_open(&f, NULL, NULL);
    fx_close(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(allocation), cmocka_unit_test(threads), cmocka_unit_test(descriptor), cmocka_unit_test(device_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
