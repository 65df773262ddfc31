// SPDX-License-Identifier: Apache-2.0
// A C++ host whose callback throws. The exception passes through berth_run to the caller that can handle it; on its way the grant, the lane and the
// permits come back, the attempt is sealed as crashed, and the backend works on.
#include <stdexcept>
#include <string>

#include "example.h"

namespace {

struct query {
  bool bad_row;
  std::string result;
};

intptr_t run_query(berth_exec *exec, void *arg) {
  query *self = static_cast<query *>(arg);
  std::string working_set(4096, 'x'); // its destructor runs, too
  void *memory = nullptr;
  berth_error err = BERTH_ERROR_INIT;
  if (berth_exec_alloc(exec, 4 * MIB, &memory, &err)) throw std::bad_alloc();
  if (self->bad_row) throw std::runtime_error("row 17 is malformed");
  self->result = "17 rows";
  return 17;
}

// Returns what the exception said; empty when there was none.
std::string run_guarded(berth_session *session, query &work, bool with_report) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.bytes = 16 * MIB;
  options.report = with_report;
  options.query_id = with_report ? "throwing" : nullptr;
  try {
    EXPECT_OK(berth_run(session, &options, run_query, &work, &result, &err), &err);
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  EXPECT(result.ran && result.value == 17 && result.cleanup == BERTH_OK);
  berth_report_release(result.report);
  return "";
}

} // namespace

int main() {
  berth_backend *backend = example_open("sim:0", "memory=64MiB,lanes=2", 32 * MIB);
  berth_session *session = berth_backend_session(backend);
  query bad = {true, ""}, good = {false, ""};

  // More often than the device has bytes or slots: anything that stayed would show.
  for (int i = 0; i < 20; i++) EXPECT(run_guarded(session, bad, false) == "row 17 is malformed");
  EXPECT(run_guarded(session, bad, true) == "row 17 is malformed");
  example_idle_metrics(session);

  // The caller never got a result, so the report of the crashed attempt waits for whoever looks after the backend.
  berth_report *report = nullptr;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT(berth_session_take_abandoned(session, &report, 1) == 1);
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  std::printf("attempt %s: %s, peak %llu MiB, capacity returned: %s\n", info.query_id, example_outcome(info.outcome),
              static_cast<unsigned long long>(info.bytes_peak / MIB), info.capacity == BERTH_CAPACITY_RETURNED ? "yes" : "no");
  EXPECT(info.outcome == BERTH_CRASHED && info.capacity == BERTH_CAPACITY_RETURNED);
  berth_report_release(report);

  EXPECT(run_guarded(session, good, true) == "");
  std::printf("21 exceptions passed; the next query returned %s\n", good.result.c_str());
  example_idle_metrics(session);
  example_close(backend, session);
  return 0;
}
