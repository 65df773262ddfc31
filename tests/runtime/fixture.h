// SPDX-License-Identifier: Apache-2.0
/// The fixture of the contract tests: a backend on simulated devices whose sizes are counted in units, threads, and bounded waits for what can be
/// observed. What it opened it closes with evidence: CLOSED, a zero ledger, no block left.
#ifndef BERTH_TESTS_RUNTIME_FIXTURE_H
#define BERTH_TESTS_RUNTIME_FIXTURE_H

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/runtime.h"

#define FX_UNIT ((uint64_t)1 << 20)
#define FX_MILLISECOND ((int64_t)1000000)
#define FX_SECOND ((int64_t)1000000000)
#define FX_PATIENCE (20 * FX_SECOND) ///< after which what was waited for will not come

/// Devices sim:0 ... alike. A field that is 0 means the figure in its comment.
typedef struct fx_spec {
  uint32_t devices;      ///< 1
  uint32_t q;            ///< units that can be granted: 100
  uint32_t lanes;        ///< 8
  uint32_t slots;        ///< 32
  uint32_t grant;        ///< units of the default grant: 1
  const char *parameters;     ///< more parameters of every device, such as "fail_alloc=1"
  const char *parameters_of1; ///< those of device 1, instead
} fx_spec;

typedef struct fx {
  berth_backend *backend;
  berth_session *session;
  uint64_t blocks; ///< live when it was opened
  uint32_t devices;
} fx;

/// Opens; `options` NULL: defaults without telemetry. The devices are filled in.
void fx_open(fx *f, const fx_spec *spec, const berth_backend_options *options);
berth_status fx_try_open(fx *f, const fx_spec *spec, const berth_backend_options *options, berth_error *err);
berth_backend_options fx_options(void); ///< defaults, telemetry off
/// Closes with a deadline, checks the evidence and the final ledger, releases, and waits until no block is left.
void fx_close(fx *f);
/// The same for a backend whose close was waited for: checks the ledger, releases.
void fx_release(fx *f);
/// A snapshot with every law checked; the devices' array is the calling thread's.
berth_metrics fx_metrics(const fx *f);
uint64_t fx_blocks(void); ///< live blocks without what the calling thread keeps for reuse

berth_attempt *fx_begin(const fx *f);
/// A request of so many units and lanes.
berth_request fx_request(uint32_t units, uint32_t lanes);
berth_admission *fx_admit(const fx *f, berth_attempt *attempt, const berth_request *request);
berth_exec *fx_take(berth_admission *admission);
/// An attempt with everything that belongs to it.
typedef struct fx_job {
  berth_attempt *attempt;
  berth_completion *completion;
  berth_admission *admission;
  berth_exec *exec;
  berth_status status;
  berth_error error;
} fx_job;
/// Begins and submits; `status` and `error` tell a refusal.
void fx_submit(const fx *f, fx_job *job, const berth_request *request, const berth_attempt_options *options);
void fx_submit_units(const fx *f, fx_job *job, uint32_t units);
/// Submits, waits and takes.
void fx_start(const fx *f, fx_job *job, uint32_t units, uint32_t lanes);
void fx_wait_take(fx_job *job);
void fx_finish(fx_job *job, int outcome);
/// The sealed report's numbers, after a bounded wait.
berth_report_info fx_report(fx_job *job);
/// Releases what is left of the job.
void fx_drop(fx_job *job);
berth_admission_state fx_state(const fx_job *job);

void fx_expect(berth_status status, const berth_error *err, berth_status code, const char *reason);
void fx_ok(berth_status status, const berth_error *err);
/// A plain scoped run whose fn gives 42; ends the test when it does not.
void fx_run_plain(const fx *f);
intptr_t fx_fn_42(berth_exec *exec, void *arg);

/// Threads of the test. Checks inside them use fx_check, which ends the process.
typedef struct fx_thread {
  pthread_t thread;
  void (*fn)(void *arg);
  void *arg;
} fx_thread;
void fx_thread_start(fx_thread *t, void (*fn)(void *), void *arg);
void fx_thread_join(fx_thread *t);
uint32_t fx_task_count(void); ///< threads of this process

void fx_check_failed(const char *file, int line, const char *what) __attribute__((noreturn));
#define fx_check(cond) ((cond) ? (void)0 : fx_check_failed(__FILE__, __LINE__, #cond))

/// Waits, yielding, until the condition holds; ends the process when it does not come in time.
#define fx_until(cond) \
  do { \
    int64_t fx_late = berth_now() + FX_PATIENCE; \
    while (!(cond)) { \
      if (berth_now() > fx_late) fx_check_failed(__FILE__, __LINE__, "never: " #cond); \
      sched_yield(); \
    } \
  } while (0)

/// A flag between threads.
typedef _Atomic int fx_flag;

#endif
