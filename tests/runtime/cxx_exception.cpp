// SPDX-License-Identifier: Apache-2.0
// USR-1: a C++ exception that leaves fn goes on through the entry; permits come back and the attempt seals as crashed. Built by test_cxx_exception.sh.
#include <cstdio>
#include <stdexcept>

#include "berth/runtime.h"

static intptr_t throws(berth_exec *exec, void *) {
  void *memory = nullptr;
  if (berth_exec_alloc(exec, 1000, &memory, nullptr)) return -1;
  throw std::runtime_error("from fn");
}

static intptr_t answers(berth_exec *, void *) { return 42; }

static bool thrown_through(berth_session *session, berth_exec *held, bool report) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  options.report = report;
  try {
    if (held) (void)berth_exec_run(held, throws, nullptr, nullptr, nullptr);
    else (void)berth_run(session, &options, throws, nullptr, &result, nullptr);
  } catch (const std::runtime_error &) {
    return true;
  }
  return false;
}

static bool runs(berth_session *session) {
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  return berth_run(session, nullptr, answers, nullptr, &result, nullptr) == BERTH_OK && result.value == 42;
}

#define CHECK(cond) \
  do { \
    if (!(cond)) { \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
      return 1; \
    } \
  } while (0)

int main() {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  device.name = "sim:0";
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  options.devices = &device;
  options.device_count = 1;
  berth_backend *backend = nullptr;
  berth_error err = BERTH_ERROR_INIT;
  CHECK(berth_backend_open(&options, &backend, &err) == BERTH_OK);
  berth_session *session = berth_backend_session(backend);
  berth_exec *held = nullptr;
  for (int i = 0; i < 20; i++) {
    CHECK(thrown_through(session, nullptr, i % 2 == 1));
    CHECK(runs(session));
  }
  CHECK(berth_exec_hold(session, nullptr, &held, &err) == BERTH_OK);
  CHECK(thrown_through(session, held, false));
  intptr_t value = 0;
  CHECK(berth_exec_run(held, answers, nullptr, &value, &err) == BERTH_OK && value == 42);
  berth_exec_release(held);
  berth_metrics metrics = BERTH_METRICS_INIT;
  CHECK(berth_session_metrics(session, &metrics, &err) == BERTH_OK);
  CHECK(metrics.outcomes[BERTH_CRASHED] == 10);
  CHECK(metrics.promised_bytes == 0 && metrics.live_grants == 0);
  CHECK(berth_backend_close_wait(backend, berth_now() + 20000000000, BERTH_NO_DEADLINE, nullptr, &err) == BERTH_OK);
  berth_session_release(session);
  berth_backend_release(backend);
  return 0;
}
