// SPDX-License-Identifier: Apache-2.0
// CLS-1, CLS-5, CLS-6, LED-6: leaving main without a close, closing from everywhere, every handle after close and after fork, small machines.
//
// What must end by itself is run in a child process: this executable again, with the name of a mode.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/sim/sim.h"
#include "runtime/fixture.h"

// ---- modes of the child ------------------------------------------------------------------------------------------------------------------------------

static intptr_t leave_inside(berth_exec *exec, void *arg) {
  (void)exec;
  (void)arg;
  exit(0);
}

static void exit_while_others_run(void *arg) {
  fx *f = arg;
  for (;;) (void)berth_run(f->session, NULL, fx_fn_42, NULL, NULL, NULL);
}

static int mode(const char *name) {
  static fx f;
  static fx_job job, queued;
  fx_spec spec = {.parameters = strcmp(name, "hangs") == 0 ? "hang_close=1" : NULL};
  berth_error err = BERTH_ERROR_INIT;
  if (strcmp(name, "default") == 0) {
    berth_backend *backend = NULL;
    if (berth_backend_default(&backend, &err)) return 2;
    f.session = berth_backend_session(backend);
    return berth_run(f.session, NULL, fx_fn_42, NULL, NULL, NULL) ? 3 : 0;
  }
  if (fx_try_open(&f, &spec, NULL, &err)) return 2;
  if (strcmp(name, "open") == 0) return 0;
  if (strcmp(name, "inside") == 0) (void)berth_run(f.session, NULL, leave_inside, NULL, NULL, NULL);
  fx_start(&f, &job, 100, 1);
  fx_submit_units(&f, &queued, 1);
  if (strcmp(name, "queued") == 0) return 0;
  if (strcmp(name, "closing") == 0 || strcmp(name, "hangs") == 0) {
    if (strcmp(name, "hangs") == 0) fx_drop(&job);
    berth_backend_close(f.backend);
    return 0;
  }
  if (strcmp(name, "busy") == 0) {
    static fx_thread threads[3];
    fx_drop(&queued);
    fx_drop(&job);
    for (int i = 0; i < 3; i++) fx_thread_start(&threads[i], exit_while_others_run, &f);
    fx_until(fx_metrics(&f).granted > 100);
    return 0;
  }
  return 9;
}

static int run_mode(const char *name, bool one_cpu) {
  pid_t child = fork();
  if (child == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (one_cpu && sched_setaffinity(0, sizeof set, &set)) _exit(77);
    execl("/proc/self/exe", "test_lifecycle", name, (char *)NULL);
    _exit(8);
  }
  int status = 0;
  int64_t late = berth_now() + FX_PATIENCE;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (berth_now() > late) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, &status, 0);
      fail_msg("%s: it does not end", name);
    }
    sched_yield();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void cls_5_leaving_main_without_a_close(void **state) {
  static const char *const names[] = {"open", "queued", "closing", "hangs", "busy", "inside", "default"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int code = run_mode(names[i], false);
    if (code) fail_msg("%s: %d", names[i], code);
  }
}

static void cls_5_on_one_cpu(void **state) {
  (void)state;
  int code = run_mode("busy", true);
  if (code == 77) skip();
  assert_int_equal(code, 0);
  assert_int_equal(run_mode("default", true), 0);
}

// ---- fork ------------------------------------------------------------------------------------------------------------------------------------------

static void child_check(bool ok, int code) {
  if (!ok) _exit(code);
}

// All answers of inherited handles, and a fresh open (CLS-6). Runs in the child; exit code 0: all well, else the line.
#define CHECK(cond) child_check(cond, __LINE__ % 250 + 1)
#define FORKED(call) \
  do { \
    berth_error err = BERTH_ERROR_INIT; \
    CHECK((call) == BERTH_FAILED_PRECONDITION); \
    CHECK(strcmp(err.reason, "forked") == 0); \
  } while (0)

static void child_answers(fx *f, fx_job *job) {
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  berth_report *report = NULL;
  berth_why why = BERTH_WHY_INIT;
  berth_metrics m = BERTH_METRICS_INIT;
  berth_telemetry sample = BERTH_TELEMETRY_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_close_report close = BERTH_CLOSE_REPORT_INIT;
  berth_cancel *token = NULL;
  char text[64];
  CHECK(berth_session_is_closing(f->session));
  CHECK(berth_session_identity(f->session).process != getpid());
  CHECK(berth_session_same_backend(f->session, f->session));
  CHECK(berth_session_describe(f->session, text, sizeof text) > 0);
  FORKED(berth_session_begin_attempt(f->session, NULL, &attempt, &err));
  FORKED(berth_run(f->session, NULL, fx_fn_42, NULL, NULL, &err));
  FORKED(berth_exec_hold(f->session, NULL, &exec, &err));
  FORKED(berth_session_metrics(f->session, &m, &err));
  FORKED(berth_session_telemetry(f->session, 0, &sample, &err));
  FORKED(berth_session_startup_record(f->session, 0, &record, &err));
  FORKED(berth_diagnostics_json(f->session, text, sizeof text, NULL, &err));
  FORKED(berth_backend_close_wait(f->backend, BERTH_NO_DEADLINE, BERTH_NO_DEADLINE, &close, &err));
  FORKED(berth_backend_close_state(f->backend, &close, &err));
  FORKED(berth_backend_heal(f->backend, NULL, &err));
  FORKED(berth_device_quarantine(f->backend, 0, &err));
  FORKED(berth_group_set(f->backend, "g", NULL, &err));
  FORKED(berth_cancel_create(f->session, &token, &err));
  CHECK(berth_session_take_abandoned(f->session, &report, 1) == 0);
  CHECK(berth_session_attempt_counters(f->session).begun == 0);
  CHECK(berth_metrics_json(f->session, text, sizeof text) == 0);
  berth_session *clone = berth_session_retain(f->session);
  berth_session_release(clone);
  if (job->attempt) {
    FORKED(berth_attempt_finish(job->attempt, BERTH_FAILED, NULL, &err));
    FORKED(berth_attempt_plan_started(job->attempt, &err));
    FORKED(berth_session_admit(f->session, job->attempt, NULL, &admission, &err));
    FORKED(berth_completion_poll(job->completion, &report, &err));
    FORKED(berth_completion_wait(job->completion, BERTH_NO_DEADLINE, &report, &err));
    berth_attempt_record(job->attempt, "x", 1);
    token = berth_attempt_cancel_token(job->attempt);
    CHECK(berth_cancel_fire(token) == BERTH_CANCEL_ALREADY_FINISHED);
    FORKED(berth_cancel_hook(token, NULL, NULL, &err));
    berth_cancel_release(token);
  }
  if (job->admission) {
    FORKED(berth_admission_wait(job->admission, BERTH_NO_DEADLINE, &err));
    FORKED(berth_admission_take(job->admission, &exec, &err));
    FORKED(berth_admission_why(job->admission, &why, &err));
    FORKED(berth_admission_notify(job->admission, -1, NULL, NULL, &err));
    CHECK(berth_admission_cancel(job->admission) == BERTH_CANCEL_ALREADY_FINISHED);
    CHECK(berth_admission_poll(job->admission, NULL) == BERTH_ADMISSION_CLOSED);
  }
  if (job->exec) {
    void *memory = NULL;
    FORKED(berth_exec_check(job->exec, &err));
    FORKED(berth_exec_alloc(job->exec, 10, &memory, &err));
    FORKED(berth_exec_grow(job->exec, 10, BERTH_NO_DEADLINE, &err));
    FORKED(berth_exec_shrink(job->exec, 10, NULL, &err));
    FORKED(berth_exec_child(job->exec, &exec, &err));
    FORKED(berth_exec_run(job->exec, fx_fn_42, NULL, NULL, &err));
    FORKED(berth_exec_finish(job->exec, BERTH_SUCCEEDED, NULL, &err));
  }
  fx_drop(job);
  berth_backend_close(f->backend);
  berth_session_release(f->session);
  berth_backend_release(f->backend);
}

// ThreadSanitizer ends a process that starts threads after a fork of one that had several.
#if defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK true
#endif
#endif
#ifndef NO_THREADS_AFTER_FORK
#define NO_THREADS_AFTER_FORK false
#endif

static void child_opens_afresh(void) {
  fx g;
  if (NO_THREADS_AFTER_FORK) return;
  berth_error err = BERTH_ERROR_INIT;
  CHECK(fx_try_open(&g, NULL, NULL, &err) == BERTH_OK);
  for (int i = 0; i < 3; i++) CHECK(berth_run(g.session, NULL, fx_fn_42, NULL, NULL, &err) == BERTH_OK);
  CHECK(berth_backend_close_wait(g.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err) == BERTH_OK);
}

static void child_ended_well(pid_t child, const char *where) {
  int status = 0;
  int64_t late = berth_now() + FX_PATIENCE;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (berth_now() > late) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, &status, 0);
      fail_msg("forked while %s: the child does not end", where);
    }
    sched_yield();
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("forked while %s: status %#x, check at line %d mod 250", where, status, WEXITSTATUS(status) - 1);
}

static void fork_and_check(fx *f, fx_job *job, const char *where) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    child_answers(f, job);
    child_opens_afresh();
    _exit(0);
  }
  child_ended_well(child, where);
}

static void cls_6_fork_in_every_state(void **state) {
  (void)state;
  fx f;
  fx_job job = {0}, holder;
  fx_open(&f, NULL, NULL);
  fx_run_plain(&f);
  fork_and_check(&f, &job, "open");
  job.attempt = fx_begin(&f);
  job.completion = berth_attempt_completion(job.attempt);
  fork_and_check(&f, &job, "an attempt has begun");
  fx_drop(&job);
  fx_start(&f, &holder, 100, 1);
  fx_submit_units(&f, &job, 10);
  fork_and_check(&f, &job, "queued");
  fx_drop(&holder);
  fork_and_check(&f, &job, "granted");
  fx_wait_take(&job);
  fork_and_check(&f, &job, "running");
  berth_backend_close(f.backend);
  fork_and_check(&f, &job, "closing");
  fx_ok(berth_exec_check(job.exec, NULL), NULL);  // the parent is not touched
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_int_equal(fx_report(&job).outcome, BERTH_SUCCEEDED);
  fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL), NULL);
  fork_and_check(&f, &job, "closed");
  fx_drop(&job);
  fx_close(&f);
}

static intptr_t fork_inside(berth_exec *exec, void *arg) {
  (void)exec;
  fflush(NULL);
  *(pid_t *)arg = fork();
  return 5;
}

// The child returns out of the entry that its parent is in, and is well.
static void cls_6_fork_inside_an_entry(void **state) {
  (void)state;
  for (int reported = 0; reported < 2; reported++) {
    fx f;
    pid_t child = -1;
    berth_error err = BERTH_ERROR_INIT;
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    berth_run_result result = BERTH_RUN_RESULT_INIT;
    options.report = reported;
    fx_open(&f, NULL, NULL);
    berth_status status = berth_run(f.session, &options, fork_inside, &child, &result, &err);
    if (child == 0) {
      CHECK(result.value == 5);
      child_opens_afresh();
      _exit(0);
    }
    fx_ok(status, &err);
    child_ended_well(child, "inside an entry");
    berth_report_release(result.report);
    fx_close(&f);
  }
}

static void fork_storm(void *arg) {
  fx *f = arg;
  while (!berth_session_is_closing(f->session)) (void)berth_run(f->session, NULL, fx_fn_42, NULL, NULL, NULL);
}

// Other threads are anywhere, also inside a lock, when the fork comes.
static void cls_6_fork_while_others_run(void **state) {
  (void)state;
  fx f;
  fx_job none = {0};
  fx_thread threads[3];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 3; i++) fx_thread_start(&threads[i], fork_storm, &f);
  for (int i = 0; i < 10; i++) fork_and_check(&f, &none, "others run");
  berth_backend_close(f.backend);
  for (int i = 0; i < 3; i++) fx_thread_join(&threads[i]);
  fx_close(&f);
}

// ---- close -----------------------------------------------------------------------------------------------------------------------------------------

static void close_in_completion(void *arg, berth_report *report) {
  (void)report;
  berth_backend_close(arg);
}

static void cls_1_close_from_a_callback(void **state) {
  (void)state;
  fx f;
  fx_job job;
  fx_open(&f, NULL, NULL);
  fx_start(&f, &job, 1, 1);
  fx_ok(berth_completion_notify(job.completion, -1, close_in_completion, f.backend, NULL), NULL);
  fx_finish(&job, BERTH_SUCCEEDED);
  assert_true(berth_session_is_closing(f.session));
  fx_drop(&job);
  fx_close(&f);
}

static void closer(void *arg) {
  fx *f = arg;
  berth_backend_close(f->backend);
  fx_check(berth_backend_close_wait(f->backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, NULL) == BERTH_OK);
}

static void cls_1_close_from_many_threads(void **state) {
  (void)state;
  fx f;
  fx_thread threads[4];
  fx_open(&f, NULL, NULL);
  for (int i = 0; i < 4; i++) fx_thread_start(&threads[i], closer, &f);
  for (int i = 0; i < 4; i++) fx_thread_join(&threads[i]);
  fx_close(&f);
}

static void cls_1_every_handle_after_close(void **state) {
  (void)state;
  fx f;
  fx_job job;
  berth_error err = BERTH_ERROR_INIT;
  berth_report *report = NULL;
  berth_exec *exec = NULL;
  berth_why why = BERTH_WHY_INIT;
  fx_open(&f, NULL, NULL);
  berth_cache *cache = NULL;
  berth_cancel *token = NULL;
  fx_ok(berth_cache_create(f.session, NULL, &cache, &err), &err);
  fx_ok(berth_cancel_create(f.session, &token, &err), &err);
  fx_start(&f, &job, 1, 1);
  fx_finish(&job, BERTH_SUCCEEDED);
  fx_ok(berth_backend_close_wait(f.backend, berth_now() + FX_PATIENCE, BERTH_NO_DEADLINE, NULL, &err), &err);
  fx_expect(berth_attempt_finish(job.attempt, BERTH_FAILED, NULL, &err), &err, BERTH_FAILED_PRECONDITION, "already_terminal");
  fx_expect(berth_attempt_plan_started(job.attempt, &err), &err, BERTH_FAILED_PRECONDITION, "already_terminal");
  fx_expect(berth_admission_take(job.admission, &exec, &err), &err, BERTH_FAILED_PRECONDITION, "already_taken");
  fx_ok(berth_admission_wait(job.admission, 0, &err), &err);
  fx_ok(berth_admission_why(job.admission, &why, &err), &err);
  assert_int_equal(why.mask, 0);
  assert_int_equal(berth_admission_cancel(job.admission), BERTH_CANCEL_ALREADY_FINISHED);
  fx_ok(berth_completion_poll(job.completion, &report, &err), &err);
  berth_report_release(report);
  assert_int_equal(berth_cancel_fire(token), BERTH_CANCEL_FIRED);
  fx_expect(berth_device_quarantine(f.backend, 0, &err), &err, BERTH_CANCELLED, "backend_closed");
  fx_expect(berth_device_charge(f.backend, 0, 1, &err), &err, BERTH_CANCELLED, "backend_closed");
  fx_expect(berth_group_set(f.backend, "g", NULL, &err), &err, BERTH_CANCELLED, "backend_closed");
  berth_cache_clear(cache);
  berth_cache_release(cache);
  berth_cancel_release(token);
  fx_drop(&job);
  fx_close(&f);
}

// ---- small machines --------------------------------------------------------------------------------------------------------------------------------

static void put(const char *root, const char *path, const char *text) {
  char full[300];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(full, 0700);
    *slash = '/';
  }
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void led_6_small_limits(void **state) {
  (void)state;
  char root[] = "/tmp/berth-lifecycle-XXXXXX", parameters[100], command[100];
  assert_non_null(mkdtemp(root));
  put(root, "/proc/meminfo", "MemTotal:       16777216 kB\n");
  put(root, "/proc/self/cgroup", "0::/small\n");
  put(root, "/proc/self/statm", "2560 2560 0 0 0 0 0\n");
  put(root, "/sys/fs/cgroup/small/memory.max", "268435456\n");
  put(root, "/sys/fs/cgroup/small/memory.current", "10485760\n");
  put(root, "/sys/fs/cgroup/small/cpu.max", "50000 100000\n");  // half a CPU
  snprintf(parameters, sizeof parameters, "sysroot=%s", root);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "cpu:0";
  device.parameters = parameters;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = &device;
  options.device_count = 1;
  fx f = {.devices = 1, .blocks = fx_blocks()};
  berth_error err = BERTH_ERROR_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  fx_ok(berth_backend_open(&options, &f.backend, &err), &err);
  f.session = berth_backend_session(f.backend);
  fx_ok(berth_session_startup_record(f.session, 0, &record, &err), &err);
  assert_int_equal(record.lanes, 1);
  assert_true(record.capacity_bytes <= 128 * FX_UNIT && record.capacity_bytes >= 64 * FX_UNIT);
  assert_non_null(strstr(record.limit_source, "cgroup"));
  for (int i = 0; i < 5; i++) fx_run_plain(&f);
  berth_run_options large = BERTH_RUN_OPTIONS_INIT;
  large.bytes = 256 * FX_UNIT;
  fx_expect(berth_run(f.session, &large, fx_fn_42, NULL, NULL, &err), &err, BERTH_OUT_OF_RANGE, "request_exceeds_device");
  fx_close(&f);
  snprintf(command, sizeof command, "rm -r %s", root);
  assert_int_equal(system(command), 0);
}

int main(int argc, char **argv) {
  if (argc > 1) return mode(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cls_5_leaving_main_without_a_close), cmocka_unit_test(cls_5_on_one_cpu),
      cmocka_unit_test(cls_6_fork_in_every_state),          cmocka_unit_test(cls_6_fork_inside_an_entry),
      cmocka_unit_test(cls_6_fork_while_others_run),        cmocka_unit_test(cls_1_close_from_a_callback),
      cmocka_unit_test(cls_1_close_from_many_threads),      cmocka_unit_test(cls_1_every_handle_after_close),
      cmocka_unit_test(led_6_small_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
