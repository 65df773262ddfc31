// SPDX-License-Identifier: Apache-2.0
// The weak capability (SES-1): a session is a reference to the core's memory and to nothing else.
#include <string.h>

#include "base/json.h"
#include "runtime/core.h"

berth_session *berth_session_retain(berth_session *session) {
  if (session == NULL || berthi_core_forked(berthi_core_of_session(session))) return session;
  berthi_ref_up(&berthi_core_of_session(session)->users);
  berthi_core_retain(berthi_core_of_session(session));
  return session;
}

void berth_session_release(berth_session *session) {
  if (session == NULL || berthi_core_forked(berthi_core_of_session(session))) return;
  berthi_core_leave(berthi_core_of_session(session));
  berthi_core_release(berthi_core_of_session(session));
}

berth_identity berth_session_identity(const berth_session *session) {
  if (session == NULL) return (berth_identity){0};
  const berthi_core *core = berthi_core_of_session(session);
  return (berth_identity){.backend_id = core->id, .generation = core->generation, .process = core->process};
}

bool berth_session_is_closing(const berth_session *session) {
  if (session == NULL) return true;
  berthi_core *core = berthi_core_of_session(session);
  return berthi_core_forked(core) || berthi_gate_is_closed(&core->gate);
}

bool berth_session_same_backend(const berth_session *a, const berth_session *b) {
  return a != NULL && b != NULL && berthi_core_of_session(a) == berthi_core_of_session(b);
}

static const char *state_text(berthi_core *core) {
  if (berthi_core_forked(core)) return "inherited through fork";
  uint32_t state = (uint32_t)berthi_load(&core->state, acquire); // pairs with the close protocol's transitions
  // The gate decides; the state follows.
  if (state == BERTHI_BACKEND_OPEN && berthi_gate_is_closed(&core->gate)) state = BERTHI_BACKEND_CLOSING;
  return berthi_state_name(BERTHI_BACKEND, state);
}

size_t berth_session_describe(const berth_session *session, char *buffer, size_t capacity) {
  berthi_json text;
  berthi_json_init(&text, buffer, capacity);
  if (session == NULL) {
    berthi_text(&text, "no session");
    return berthi_json_finish(&text);
  }
  berthi_core *core = berthi_core_of_session(session);
  berthi_text(&text, "session on backend %llu, generation %llu, process %d, %s:", (unsigned long long)core->id, (unsigned long long)core->generation,
              (int)core->process, state_text(core));
  for (uint32_t i = 0; i < core->device_count; i++) berthi_text(&text, " %s", core->devices[i].startup.name);
  return berthi_json_finish(&text);
}

berth_status berth_session_startup_record(const berth_session *session, uint32_t device, berth_startup_record *out_record, berth_error *err) {
  if (session == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session is NULL");
  const berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  if (device >= core->device_count) {
    berth_status status =
        berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device: %u, at most %u: the backend has %u", device, core->device_count - 1, core->device_count);
    berthi_fact(err, "value", device);
    berthi_fact(err, "devices", core->device_count);
    return status;
  }
  return berthi_output_copy(out_record, &core->devices[device].startup, sizeof(berth_startup_record), "berth_startup_record", err);
}
