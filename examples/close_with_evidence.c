// SPDX-License-Identifier: Apache-2.0
// Close tells what it waited for. A backend owns two devices; one query runs and does not stop by itself, another waits behind it, and the second
// device hangs in its clean-up.
//
//   1  a wait with a short deadline fails and names the holder
//   2  a second wait cancels the holder, and the backend closes; the device that hangs is named as leaked, the other one is free
//   3  the free device is opened anew; the leaked one is refused with evidence until an operator frees it by name
#include <pthread.h>
#include <semaphore.h>

#include "example.h"

typedef struct stubborn {
  berth_session *session;
  sem_t running, cancelled;
  berth_outcome outcome;
} stubborn;

static void wake(void *arg, berth_cancel_cause cause) {
  if (cause == BERTH_CANCEL_BY_CLOSE) sem_post(arg);
}

// A query that ends when it is cancelled, and not before.
static void *run_stubborn(void *arg) {
  stubborn *self = arg;
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_exec *exec = NULL;
  berth_error err = BERTH_ERROR_INIT, cause = BERTH_ERROR_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = 48 * MIB;
  request.devices = 1;
  EXPECT_OK(berth_session_begin_attempt(self->session, NULL, &attempt, &err), &err);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_cancel *token = berth_attempt_cancel_token(attempt);
  EXPECT_OK(berth_cancel_hook(token, wake, &self->cancelled, &err), &err);
  EXPECT_OK(berth_session_admit(self->session, attempt, &request, &admission, &err), &err);
  EXPECT_OK(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  EXPECT_OK(berth_admission_take(admission, &exec, &err), &err);
  sem_post(&self->running);
  while (sem_wait(&self->cancelled) != 0) {
  }
  EXPECT_STATUS(BERTH_CANCELLED, berth_exec_check(exec, &cause), &cause);
  EXPECT(strcmp(cause.reason, "backend_closing") == 0);
  EXPECT_OK(berth_exec_finish(exec, BERTH_OUTCOME_CANCELLED, &cause, &err), &err);
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  EXPECT_OK(berth_completion_wait(completion, berth_now() + 10 * SECOND, &report, &err), &err);
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  self->outcome = info.outcome;
  berth_report_release(report);
  berth_cancel_release(token);
  berth_completion_release(completion);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  return NULL;
}

static berth_backend *open_two(void) {
  berth_device_options devices[2] = {BERTH_DEVICE_OPTIONS_INIT, BERTH_DEVICE_OPTIONS_INIT};
  devices[0].name = "sim:0";
  devices[0].parameters = "memory=64MiB";
  devices[1].name = "sim:1";
  devices[1].parameters = "memory=64MiB,hang_close=1";
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = devices;
  options.device_count = 2;
  options.cleanup_limit = 100 * MILLISECOND;
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_backend_open(&options, &backend, &err), &err);
  return backend;
}

static void first_wait(berth_backend *backend) {
  berth_holder holders[4];
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  report.holders = holders;
  report.holder_capacity = 4;
  EXPECT_STATUS(BERTH_DEADLINE_EXCEEDED, berth_backend_close_wait(backend, berth_now() + 50 * MILLISECOND, BERTH_NO_DEADLINE, &report, &err), &err);
  EXPECT(report.state == BERTH_STATE_CLOSING && report.queued_ended == 1);
  bool found = false;
  for (uint32_t i = 0; i < report.holder_count; i++) {
    if (holders[i].phase != BERTH_PHASE_RUNNING) continue;
    printf("1  still closing: attempt %llu holds %llu MiB of sim:%u for %.0f ms\n", (unsigned long long)holders[i].attempt_id,
           (unsigned long long)(holders[i].bytes / MIB), holders[i].device, (double)holders[i].age / 1e6);
    found = holders[i].bytes == 48 * MIB && holders[i].device == 0;
  }
  EXPECT(found && report.bytes_held == 48 * MIB);
}

static void second_wait(berth_backend *backend) {
  berth_close_report report = BERTH_CLOSE_REPORT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  int64_t now = berth_now();
  EXPECT_OK(berth_backend_close_wait(backend, now + 20 * SECOND, now, &report, &err), &err);
  printf("2  closed: devices released %#llx, leaked %#llx (%llu MiB), %llu deadlines elapsed\n", (unsigned long long)report.devices_released,
         (unsigned long long)report.devices_leaked, (unsigned long long)(report.bytes_leaked / MIB), (unsigned long long)report.deadlines_elapsed);
  EXPECT(report.state == BERTH_STATE_CLOSED && report.holders_total == 0 && report.bytes_held == 0);
  EXPECT(report.devices_released == 1 && report.devices_leaked == 2);
  EXPECT(report.active_device_permits == 0 && report.active_observation_permits == 0);
}

static void open_again(void) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  berth_startup_record record = BERTH_STARTUP_RECORD_INIT;
  berth_backend *other = example_open("sim:0", "memory=64MiB", 32 * MIB);
  example_close(other, berth_backend_session(other));

  device.name = "sim:1";
  options.devices = &device;
  options.device_count = 1;
  EXPECT_STATUS(BERTH_ALREADY_EXISTS, berth_backend_open(&options, &backend, &err), &err);
  printf("3  sim:0 is free; sim:1: %s\n", err.message);
  EXPECT_STATUS(BERTH_DEADLINE_EXCEEDED, berth_lease_wait("sim:1", berth_now() + MILLISECOND, &err), &err);
  EXPECT_OK(berth_lease_force("sim:1", "operator: board replaced", &err), &err);
  EXPECT_OK(berth_backend_open(&options, &backend, &err), &err);
  berth_session *session = berth_backend_session(backend);
  EXPECT_OK(berth_session_startup_record(session, 0, &record, &err), &err);
  printf("   opened after force by \"%s\"\n", record.forced_by);
  EXPECT(strstr(record.forced_by, "operator") != NULL);
  example_close(backend, session);
}

int main(void) {
  stubborn holder = {0};
  berth_backend *backend = open_two();
  berth_error err = BERTH_ERROR_INIT;
  holder.session = berth_backend_session(backend);
  sem_init(&holder.running, 0, 0);
  sem_init(&holder.cancelled, 0, 0);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, run_stubborn, &holder) == 0);
  while (sem_wait(&holder.running) != 0) {
  }

  berth_attempt *waiting = NULL;
  berth_admission *queued = NULL;
  berth_request request = BERTH_REQUEST_INIT;
  request.bytes = 48 * MIB;
  request.devices = 1;
  EXPECT_OK(berth_session_begin_attempt(holder.session, NULL, &waiting, &err), &err);
  EXPECT_OK(berth_session_admit(holder.session, waiting, &request, &queued, &err), &err);
  EXPECT(berth_admission_poll(queued, NULL) == BERTH_ADMISSION_QUEUED);

  first_wait(backend);
  EXPECT(berth_session_is_closing(holder.session));
  EXPECT(berth_admission_poll(queued, &err) == BERTH_ADMISSION_CLOSED);
  berth_admission_release(queued);
  berth_attempt_release(waiting);

  second_wait(backend);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(holder.outcome == BERTH_OUTCOME_CANCELLED);
  example_idle_metrics(holder.session); // still answers, with final values
  EXPECT_STATUS(BERTH_CANCELLED, berth_session_begin_attempt(holder.session, NULL, &waiting, &err), &err);
  berth_session_release(holder.session);
  berth_backend_release(backend);

  open_again();
  return 0;
}
