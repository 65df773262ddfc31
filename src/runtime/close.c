// SPDX-License-Identifier: Apache-2.0
/// Close: OPEN -> CLOSING -> DEVICES_QUIESCENT -> CLOSED, and LEAKED per device (CLS-1 to CLS-4).
///
/// The signal is one fetch-or on the gate and a wake of the keeper; everything else is the keeper's. After the signal each permit that goes back wakes the
/// keeper (berthi_close_nudge), so it never misses the last one: it looks at the gate after clearing its event.
#include "runtime/close.h"

#include <string.h>

void berthi_close_nudge(berthi_core *core) { berthi_event_set(&core->keeper_wake); }

void berthi_close_signal(berthi_core *core) {
  if (!berthi_gate_close(&core->gate)) return;
  berthi_or(&core->slow, BERTHI_SLOW_CLOSING, seq_cst);  // nothing parks any more: pairs with the second look of stripe.c
  berthi_close_nudge(core);
}

static void to_state(berthi_core *core, uint32_t to) {
  berthi_edge(BERTHI_BACKEND, (uint32_t)berthi_load(&core->state, acquire), to);
  berthi_store(&core->state, to, seq_cst);
}

static void berthi_close_begin(berthi_core *core) {
  to_state(core, BERTHI_BACKEND_CLOSING);
  for (uint32_t i = 0; i < core->device_count; i++) berthi_lease_state(core->devices[i].identity, core->id, 1);
}

static void cleanup_over_locked(berthi_core *core, berthi_timer *timer, int64_t now) {
  berthi_device_slot *slot = BERTHI_CONTAINER(timer, berthi_device_slot, cleanup_timer);
  (void)now;
  if (slot->closing != BERTHI_SLOT_CLEANING) return;
  slot->closing = BERTHI_SLOT_LEAKED;  // until its clean-up ends after all
  berthi_put(&slot->ledger.leaked, berthi_get(&slot->ledger.resident) + berthi_get(&slot->ledger.withheld));
  berthi_put(&slot->ledger.resident, 0);
  berthi_put(&slot->ledger.withheld, 0);
  berthi_up(&core->deadlines_elapsed, 1);
  berthi_lease_state(slot->identity, core->id, 2);
}

// Telemetry holds no permit. It is stopped first, and a device that it is inside is not closed under it: that device's clean-up waits, and hangs with it.
static void begin_cleanup_locked(berthi_core *core) BERTHI_REQUIRES(core->lock) {
  berthi_store(&core->telemetry_stop, 1, seq_cst);  // pairs with telemetry.c
  berthi_event_set(&core->telemetry_wake);
  for (uint32_t i = 0; i < core->device_count; i++) {
    berthi_device_slot *slot = &core->devices[i];
    if (slot->closing == BERTHI_SLOT_LIVE && !slot->thread_started) slot->closing = BERTHI_SLOT_RELEASED;
    if (slot->closing == BERTHI_SLOT_LIVE) {
      slot->closing = BERTHI_SLOT_CLEANING;
      slot->cleanup_timer.fire = cleanup_over_locked;
      berthi_timer_arm_locked(core, &slot->cleanup_timer, berthi_time_add(berthi_now(), core->options.cleanup_limit));
    }
    bool begun = slot->cleanup_begun || !slot->thread_started || slot->closing == BERTHI_SLOT_RELEASED;
    if (begun || berthi_load(&core->telemetry_device, seq_cst) == i + 1) continue;
    slot->cleanup_begun = slot->cleanup_wanted = true;
    berthi_event_set(&slot->wake);
  }
}

static bool devices_done(const berthi_core *core) {
  for (uint32_t i = 0; i < core->device_count; i++) {
    if (core->devices[i].closing != BERTHI_SLOT_RELEASED && core->devices[i].closing != BERTHI_SLOT_LEAKED) return false;
  }
  return true;
}

bool berthi_close_advance_locked(berthi_core *core) {
  uint32_t state = (uint32_t)berthi_load(&core->state, acquire);
  if (!berthi_gate_is_closed(&core->gate)) return false;
  if (state == BERTHI_BACKEND_OPEN) {
    berthi_close_begin(core);
    state = BERTHI_BACKEND_CLOSING;
  }
  berthi_end_queue_locked(core);
  (void)berthi_stripes_reclaim_locked(core);
  uint64_t gate = berthi_load(&core->gate, seq_cst);
  if (state == BERTHI_BACKEND_CLOSING) {
    if (berthi_gate_devices(gate) > 0) return false;
    begin_cleanup_locked(core);
    if (!devices_done(core)) return false;
    to_state(core, BERTHI_BACKEND_DEVICES_QUIESCENT);
  }
  if (state == BERTHI_BACKEND_CLOSED || berthi_gate_observations(gate) > 0) return state == BERTHI_BACKEND_CLOSED;
  berthi_timer_disarm_locked(core, &core->cancel_timer);
  berthi_assert(berthi_get(&core->counters.open) == 0, "ATT-1");
  to_state(core, BERTHI_BACKEND_CLOSED);
  berthi_event_set(&core->closed_event);
  return true;
}

void berthi_close_finish(berthi_core *core) {
  berthi_stripes_free_spares(core);
  berthi_store(&core->notifier_leave, 1, release);
  berthi_event_set(&core->notifier_wake);
  berthi_after after;
  berthi_lock(core, &after);
  for (uint32_t i = 0; i < core->device_count; i++) {
    core->devices[i].thread_leave = true;
    berthi_event_set(&core->devices[i].wake);
  }
  berthi_unlock(core, &after);
}

// ---- holders: who still has something ------------------------------------------------------------------------------------------------------------

typedef struct holder_list {
  berth_holder *out;
  uint32_t capacity, count, total;
  uint64_t bytes;
} holder_list;

static void add_holder(holder_list *list, const berth_holder *holder) {
  list->total++;
  list->bytes += holder->bytes;
  if (list->out && list->count < list->capacity) list->out[list->count++] = *holder;
}

static berth_phase phase_of(const berth_exec *exec) {
  const berthi_request *request = exec->request;
  berth_exec *root = (berth_exec *)(uintptr_t)exec;
  if (berthi_stat_load(&root->ended)) return BERTH_PHASE_RELEASING;
  uint32_t state = request ? berthi_stat_load(&((berthi_request *)(uintptr_t)request)->state) : BERTHI_ADMISSION_TAKEN;
  return state == BERTHI_ADMISSION_GRANTED ? BERTH_PHASE_GRANTED : BERTH_PHASE_RUNNING;
}

void berthi_holders_locked(berthi_core *core, uint64_t devices, bool permits, berth_holder *out, uint32_t capacity, uint32_t *count, uint32_t *total,
                           uint64_t *bytes) {
  holder_list list = {.out = out, .capacity = capacity};
  int64_t now = berthi_now();
  for (berthi_link *at = core->executions.next; at != &core->executions; at = at->next) {
    const berth_exec *exec = BERTHI_CONTAINER(at, berth_exec, link);
    if (!((devices >> exec->grant.device) & 1u)) continue;
    berth_holder holder = {.attempt_id = exec->attempt ? exec->attempt->id : 0, .execution_id = exec->id, .phase = phase_of(exec),
                           .device = exec->grant.device, .lanes = exec->grant.lanes, .bytes = exec->grant.bytes, .age = now - exec->since};
    add_holder(&list, &holder);
  }
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    berthi_stripe *stripe = &core->stripes[i];
    uint64_t word = berthi_load(&stripe->grant, seq_cst);
    if ((word & 3) == BERTHI_STRIPE_BUSY && ((devices >> stripe->device) & 1u)) {
      berth_holder holder = {.execution_id = (word >> 2) * (BERTHI_STRIPES + 1) + i + 1, .phase = BERTH_PHASE_RUNNING, .device = stripe->device,
                             .lanes = 1, .bytes = berthi_get(&stripe->bytes)};
      add_holder(&list, &holder);
    }
    if (permits && (berthi_load(&stripe->observation, seq_cst) & 3) == BERTHI_STRIPE_BUSY) {
      berth_holder holder = {.attempt_id = berthi_get(&stripe->holder_attempt), .phase = BERTH_PHASE_OPEN, .device = BERTH_NO_DEVICE,
                             .age = now - (int64_t)berthi_get(&stripe->holder_since)};
      add_holder(&list, &holder);
    }
  }
  for (berthi_link *at = core->attempts.next; permits && at != &core->attempts; at = at->next) {
    const berth_attempt *attempt = BERTHI_CONTAINER(at, berth_attempt, link);
    uint32_t state = berthi_stat_load(&((berth_attempt *)(uintptr_t)attempt)->admission.request.state);
    if (state == BERTHI_ADMISSION_GRANTED || state == BERTHI_ADMISSION_TAKEN) continue;  // listed with its execution
    berth_holder holder = {.attempt_id = attempt->id, .phase = state == BERTHI_ADMISSION_QUEUED ? BERTH_PHASE_QUEUED : BERTH_PHASE_OPEN,
                           .device = BERTH_NO_DEVICE, .age = now - attempt->report.begun_at};
    add_holder(&list, &holder);
  }
  *count = list.count;
  *total = list.total;
  if (bytes) *bytes = list.bytes;
}

// ---- public --------------------------------------------------------------------------------------------------------------------------------------

static void note_attempts_locked(berthi_core *core, berthi_link *attempts) {
  for (berthi_link *at = attempts->next; at != attempts; at = at->next) {
    berth_attempt *attempt = BERTHI_CONTAINER(at, berth_attempt, link);
    if (attempt->close_note.link.next) continue;
    berthi_attempt_retain(attempt);
    attempt->close_note.run = berthi_attempt_close_note;
    berthi_list_append(&core->keeper_notes, &attempt->close_note.link);
  }
}

// An attempt's own hook must fire, too; the word `cancel_all` alone reaches those on stripes without one.
static void cancel_running_locked(berthi_core *core, berthi_timer *timer, int64_t now) BERTHI_REQUIRES(core->lock) {
  (void)timer;
  (void)now;
  berthi_store(&core->cancel_all, 1, seq_cst);
  note_attempts_locked(core, &core->attempts);
  note_attempts_locked(core, &core->hooked);
  for (berthi_link *at = core->grows.next, *next; at != &core->grows; at = next) {
    berth_exec *exec = BERTHI_CONTAINER(at, berth_exec, grow_link);
    next = at->next;
    berthi_grow_end_locked(core, exec, 3 + BERTHI_R_BACKEND_CLOSING);
  }
}

void berthi_attempt_close_note(berthi_note *note) {
  berth_attempt *attempt = BERTHI_CONTAINER(note, berth_attempt, close_note);
  berthi_attempt_cancel(attempt, BERTH_CANCEL_BY_CLOSE);
  berthi_attempt_unref(attempt);
}

// The gate decides; the keeper's state follows.
static uint32_t state_seen(berthi_core *core) {
  uint32_t state = (uint32_t)berthi_load(&core->state, acquire);
  return state == BERTHI_BACKEND_OPEN && berthi_gate_is_closed(&core->gate) ? BERTHI_BACKEND_CLOSING : state;
}

static void fill_report_locked(berthi_core *core, berth_close_report *report) BERTHI_REQUIRES(core->lock) {
  uint64_t gate = berthi_load(&core->gate, seq_cst);
  uint64_t parked_grants = 0, parked_observations = 0;
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    parked_grants += (berthi_load(&core->stripes[i].grant, seq_cst) & 3) == BERTHI_STRIPE_PARKED;
    parked_observations += (berthi_load(&core->stripes[i].observation, seq_cst) & 3) == BERTHI_STRIPE_PARKED;
  }
  report->state = (berth_close_state)state_seen(core);
  report->active_observation_permits = berthi_gate_observations(gate) - parked_observations;
  report->active_device_permits = berthi_gate_devices(gate) - parked_grants;
  report->queued_ended = berthi_get(&core->queued_ended);
  report->late_successes = berthi_get(&core->late_successes);
  report->deadlines_elapsed = berthi_get(&core->deadlines_elapsed);
  report->activity_leases_pending = berthi_load(&core->activities_pending, relaxed);  // a figure
  for (uint32_t i = 0; i < core->device_count; i++) {
    const berthi_device_slot *slot = &core->devices[i];
    if (slot->closing == BERTHI_SLOT_LEAKED) {
      report->devices_leaked |= (uint64_t)1 << i;
      report->bytes_leaked += slot->ledger.capacity;
    }
    if (slot->closing == BERTHI_SLOT_RELEASED) report->devices_released |= (uint64_t)1 << i;
  }
  berthi_holders_locked(core, UINT64_MAX, true, report->holders, report->holder_capacity, &report->holder_count, &report->holders_total, &report->bytes_held);
}

static berth_status give_report(berthi_core *core, berth_close_report *out, berth_error *err) {
  if (!out) return BERTH_OK;
  berth_close_report report = {.struct_size = sizeof report};
  if (out->struct_size >= sizeof report) {
    report.holders = out->holders;
    report.holder_capacity = out->holder_capacity;
  }
  berthi_after after;
  berthi_lock(core, &after);
  fill_report_locked(core, &report);
  berthi_unlock(core, &after);
  return berthi_output_copy(out, &report, sizeof report, "berth_close_report", err);
}

void berth_backend_close(berth_backend *backend) {
  if (!backend) return;
  berthi_core *core = berthi_core_of_backend(backend);
  if (!berthi_core_forked(core)) berthi_close_signal(core);
}

berth_status berth_backend_close_state(berth_backend *backend, berth_close_report *out_report, berth_error *err) {
  if (!backend || !out_report) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend and out_report must not be NULL");
  berthi_core *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  return give_report(core, out_report, err);
}

static void arm_cancel(berthi_core *core, int64_t cancel_at) {
  if (cancel_at == BERTH_NO_DEADLINE) return;
  berthi_after after;
  berthi_lock(core, &after);
  core->cancel_timer.fire = cancel_running_locked;
  if (!core->cancel_timer.armed || cancel_at < core->cancel_timer.at) berthi_timer_arm_locked(core, &core->cancel_timer, cancel_at);
  berthi_unlock(core, &after);
}

berth_status berth_backend_close_wait(berth_backend *backend, int64_t deadline, int64_t cancel_at, berth_close_report *out_report, berth_error *err) {
  if (!backend) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend must not be NULL");
  berthi_core *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berthi_close_signal(core);
  if (berthi_entry_inside(core) || (berthi_thread_self()->flags & BERTHI_THREAD_INTERNAL)) {
    (void)give_report(core, out_report, NULL);
    return berthi_fail(err, BERTHI_R_WOULD_DEADLOCK, "this thread is inside a callback, an entry or a lane of the backend; the signal is given");
  }
  arm_cancel(core, cancel_at);
  bool closed = berthi_event_wait(&core->closed_event, deadline, "close.wait");
  if (!closed) {
    berthi_after after;
    berthi_lock(core, &after);
    berthi_up(&core->deadlines_elapsed, 1);
    core->timed_out_waits++;
    berthi_unlock(core, &after);
  }
  BERTHI_TRY(give_report(core, out_report, err));
  if (closed) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_WAIT_TIMEOUT, "the backend is %s", berthi_state_name(BERTHI_BACKEND, state_seen(core)));
}
