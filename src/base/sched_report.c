// SPDX-License-Identifier: Apache-2.0
/// The message of a failed schedule: what, which seed, where every thread stands, the last steps.
#include "base/sched_core.h"

#if defined(BERTHI_SCHED)

#include "base/json.h"

static const char *mode_name(berthi_sched_mode mode) {
  switch (mode) {
  case BERTHI_SCHED_RANDOM:
    return "random";
  case BERTHI_SCHED_PRIORITY:
    return "priority";
  case BERTHI_SCHED_EXHAUSTIVE:
    return "exhaustive";
  }
  return "?";
}

static void write_stand(berthi_json *out, const berthi_sched_thread *thread) {
  switch (thread->wait) {
  case BERTHI_SCHED_READY:
    berthi_text(out, "can run");
    break;
  case BERTHI_SCHED_WAIT_MUTEX:
    berthi_text(out, "waits for lock rank %u held by %llu", thread->on.mutex->rank, (unsigned long long)thread->on.mutex->owner);
    break;
  case BERTHI_SCHED_WAIT_EVENT:
    berthi_text(out, "waits at '%s'", thread->place != NULL ? thread->place : "?");
    break;
  case BERTHI_SCHED_WAIT_JOIN:
    berthi_text(out, "joins %llu", (unsigned long long)(thread->on.handle >> 8));
    break;
  }
  if (thread->wait != BERTHI_SCHED_READY && thread->deadline != BERTH_NO_DEADLINE) berthi_text(out, " until %lld", (long long)thread->deadline);
}

static void write_threads(berthi_json *out) {
  berthi_text(out, "\nthreads:");
  for (uint32_t slot = 0; slot < BERTHI_SCHED_THREADS; slot++) {
    if ((berthi_world.live & (UINT64_C(1) << slot)) == 0) continue;
    const berthi_sched_thread *thread = &berthi_world.threads[slot];
    berthi_text(out, "\n  %llu %s: ", (unsigned long long)thread->id, thread->name);
    write_stand(out, thread);
    if (slot == berthi_world.current) berthi_text(out, " (ran last)");
  }
}

static void write_trace(berthi_json *out) {
  uint64_t first = berthi_world.traced > BERTHI_SCHED_TRACE ? berthi_world.traced - BERTHI_SCHED_TRACE : 0;
  berthi_text(out, "\nlast steps (thread:step):");
  for (uint64_t i = first; i < berthi_world.traced; i++) {
    const berthi_sched_step *step = &berthi_world.trace[i % BERTHI_SCHED_TRACE];
    berthi_text(out, " %llu:%s", (unsigned long long)step->id, step->what);
  }
}

void berthi_report_failure(const char *text) {
  if (berthi_world.failed) return; // the first one counts
  berthi_world.failed = true;
  berthi_sched_result *result = berthi_world.result;
  const berthi_sched_options *options = berthi_world.options;
  berthi_json out;
  berthi_json_init(&out, result->message, sizeof result->message);
  berthi_text(&out, "%s\nscenario %s, %s, seed %llu, point %llu, time %lld", text, options->name != NULL ? options->name : "?",
              mode_name(options->mode), (unsigned long long)berthi_world.seed, (unsigned long long)berthi_world.points, (long long)berthi_world.now);
  write_threads(&out);
  write_trace(&out);
  result->failed = true;
  result->failing_seed = berthi_world.seed;
}

#endif
