// SPDX-License-Identifier: Apache-2.0
/// What the scenarios under the deterministic scheduler share: a backend on simulated devices, clients of it, and the laws that hold at every step.
/// Everything here runs inside a schedule; what is wrong fails it, with its seed.
#ifndef BERTH_TESTS_SCHED_FIXTURE_H
#define BERTH_TESTS_SCHED_FIXTURE_H

#include "base/clock.h"
#include "base/sched.h"
#include "base/thread.h"
#include "berth/runtime.h"
#include "device/sim/sim.h"

#define SCENE_UNIT ((uint64_t)1 << 20) ///< the default grant of every device here
#define SCENE_DEVICES 3
#define SCENE_SECOND INT64_C(1000000000)

typedef struct scene_setup {
  uint32_t devices; ///< default 1
  uint32_t units;   ///< Q of each device in units; default 2
  uint32_t lanes;   ///< default 2
  uint32_t slots;   ///< default 2
  uint32_t first;   ///< ordinal of the first device
  const char *parameters;
  const char *last_parameters;   ///< of the last device, where they differ
  berth_backend_options options; ///< its devices and struct_size are filled in
} scene_setup;

typedef struct scene {
  berth_backend *backend;
  berth_session *session;
  uint32_t first, devices;
  // What the clients saw; checked against the metrics at the end.
  uint32_t begun, lost, reports;
  uint64_t device_count, block_count; // of the simulated devices, before the open
} scene;

/// Opens the backend, as one step for the exhaustive mode; the schedule fails when that does.
void scene_open(scene *s, const scene_setup *setup);
berth_status scene_try_open(scene *s, const scene_setup *setup, berth_error *err);
/// Takes a snapshot and checks every law in it (MET-1, LED-1, LED-4, ATT-6).
berth_metrics scene_laws(const scene *s);
/// One device of such a snapshot.
berth_device_metrics scene_device(const scene *s, uint32_t device);
/// Closes, waits for CLOSED (as one step for the exhaustive mode), checks that every ledger is empty and everything is accounted for; gives the handles up.
void scene_close(scene *s);
/// The same without giving the handles up, and without a signal of its own where it came from elsewhere.
berth_metrics scene_wait_closed(scene *s);
void scene_release(scene *s);

void scene_start(berthi_thread *thread, const char *name, berthi_thread_fn fn, void *arg);
void scene_join(berthi_thread *threads, uint32_t count);
/// Waits until `count` threads wait at the named place.
void scene_await(const char *place, uint32_t count);
/// Lets the others run until virtual time has come so far.
void scene_sleep(int64_t nanoseconds);
/// Waits until so many requests are queued.
void scene_await_queued(scene *s, uint64_t count);

bool scene_reason_is(const berth_error *err, const char *reason);
/// Fails unless the status is OK.
void scene_ok(berth_status status, const berth_error *err);

/// Begins an attempt. NULL: the close came first, and the error says so.
berth_attempt *scene_begin(scene *s, const berth_attempt_options *options);
berth_admission *scene_admit(scene *s, berth_attempt *attempt, const berth_request *request);
berth_exec *scene_take(berth_admission *admission);
/// Waits for the report, checks what every report must have, and gives it up; `out_info` may be NULL.
void scene_report(scene *s, berth_completion *completion, berth_report_info *out_info);

/// A whole attempt: begin, admit, wait, take, finish, report. Tells how the admission ended.
typedef struct scene_end {
  bool begun, granted, taken;
  berth_status status; ///< of the admission
  berth_error error;
  berth_report_info report;
} scene_end;
void scene_attempt(scene *s, const berth_attempt_options *options, const berth_request *request, scene_end *end);
/// An execution that is held: begun, admitted and taken, with what belongs to it.
typedef struct scene_held {
  berth_attempt *attempt;
  berth_completion *completion;
  berth_admission *admission;
  berth_exec *exec;
} scene_held;
void scene_hold(scene *s, const berth_request *request, scene_held *held);
void scene_finish(scene *s, scene_held *held, int outcome, berth_report_info *out_info);

/// A request for so many units on one lane.
berth_request scene_units(uint32_t units);
/// A scoped entry that does nothing but be there; true when it ran.
bool scene_run(scene *s, const berth_run_options *options, berth_error *err);

#endif
