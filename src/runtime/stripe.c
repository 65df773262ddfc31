// SPDX-License-Identifier: Apache-2.0
/// Stripes: permits and one default grant parked per group of threads, so that entries of different threads share no word while nobody waits.
///
/// A stripe's word goes EMPTY -> PARKED -> BUSY -> PARKED ... -> EMPTY. While it is not EMPTY, one permit of the gate and, for `grant`, one slot, one lane and
/// the default bytes of one device's ledger belong to it. A PARKED grant counts as free in every report.
///
/// Guarantees.
///  * Close: a taker loads the gate and finds it open, then swaps PARKED to BUSY. That load is where the taking linearizes: the permit was in the
///    gate's count all the time, so close cannot have completed. After the signal nothing is parked again for good: who parks looks at `slow` afterwards.
///  * No lost wake-up: a giver stores PARKED and then loads `slow`; a waiter (under the admission lock) sets `slow` and then looks for PARKED words.
///    All four are sequentially consistent, so at least one of them sees the other; whoever swaps PARKED to EMPTY returns the grant, once.
///  * No barging: while `slow` is set nobody takes from a stripe.
/// Model: models/stripe.pml.
#include "runtime/core.h"

#define STATE_OF(word) ((word)&3u)
#define WITH_STATE(word, state) (((word) & ~(uint64_t)3) | (state))

bool berthi_stripe_take(berthi_atomic64 *word) {
  uint64_t seen = berthi_load(word, relaxed);  // only the expected value of the CAS
  if (STATE_OF(seen) != BERTHI_STRIPE_PARKED) return false;
  if (!berthi_cas(word, &seen, WITH_STATE(seen, BERTHI_STRIPE_BUSY) + 4, seq_cst)) return false;
  berthi_edge(BERTHI_STRIPE, BERTHI_STRIPE_PARKED, BERTHI_STRIPE_BUSY);
  return true;
}

// BUSY -> PARKED or EMPTY, by the one holder.
static void leave(berthi_atomic64 *word, uint32_t to) {
  uint64_t seen = berthi_load(word, relaxed);  // nobody else writes a BUSY word
  berthi_assert(STATE_OF(seen) == BERTHI_STRIPE_BUSY || STATE_OF(seen) == BERTHI_STRIPE_COUNTED, "BCK-5");
  berthi_edge(BERTHI_STRIPE, BERTHI_STRIPE_BUSY, to);
  berthi_store(word, WITH_STATE(seen, to), seq_cst);
}

static bool reclaim(berthi_atomic64 *word) {
  uint64_t seen = berthi_load(word, seq_cst);
  while (STATE_OF(seen) == BERTHI_STRIPE_PARKED) {
    if (!berthi_cas(word, &seen, WITH_STATE(seen, BERTHI_STRIPE_EMPTY), seq_cst)) continue;
    berthi_edge(BERTHI_STRIPE, BERTHI_STRIPE_PARKED, BERTHI_STRIPE_EMPTY);
    return true;
  }
  return false;
}

// Takes the books of a stripe's grant out of the ledger's striped part.
static void unbook_locked(berthi_core *core, berthi_stripe *stripe) {
  berthi_ledger *ledger = &core->devices[stripe->device].ledger;
  berthi_assert(berthi_get(&ledger->striped_active) > 0, "LED-1");
  berthi_down(&ledger->striped_bytes, berthi_get(&stripe->bytes));
  berthi_down(&ledger->striped_active, 1);
  berthi_down(&ledger->striped_lanes, 1);
  berthi_lanes_set(&ledger->lanes_free, stripe->lane);
}

bool berthi_stripe_take_grant(berthi_core *core, berth_exec *exec) {
  if (berthi_load(&core->slow, seq_cst)) return false;
  uint32_t index = berthi_stripe_index(core);
  berthi_stripe *stripe = &core->stripes[index];
  if (!berthi_stripe_take(&stripe->grant)) return false;
  exec->grant = (berthi_grant){.device = stripe->device, .stripe = index, .bytes = berthi_get(&stripe->bytes), .lanes = 1};
  berthi_lanes_set(&exec->grant.mask, stripe->lane);
  uint64_t count = berthi_load(&stripe->grant, relaxed) >> 2;  // constant while BUSY
  exec->id = count * (BERTHI_STRIPES + 1) + index + 1;
  return true;
}

void berthi_stripe_give_grant(berthi_core *core, berth_exec *exec) {
  berthi_stripe *stripe = &core->stripes[exec->grant.stripe];
  bool mine = false;
  if (!berthi_load(&core->slow, seq_cst)) {
    leave(&stripe->grant, BERTHI_STRIPE_PARKED);
    if (BERTHI_LIKELY(!berthi_load(&core->slow, seq_cst))) return;
    mine = reclaim(&stripe->grant);  // somebody began to wait meanwhile: whoever reclaims it returns it
    if (!mine) return;
  }
  berthi_after after;
  berthi_lock(core, &after);
  if (!mine) leave(&stripe->grant, BERTHI_STRIPE_EMPTY);
  unbook_locked(core, stripe);
  berthi_scan_locked(core);
  berthi_unlock(core, &after);
  if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
}

bool berthi_stripe_park_locked(berthi_core *core, const berthi_grant *grant) {
  berthi_device_slot *slot = &core->devices[grant->device];
  if (berthi_load(&core->slow, seq_cst) || berthi_gate_is_closed(&core->gate)) return false;
  if (grant->group || grant->lanes != 1 || grant->bytes != slot->ledger.default_grant || berthi_lanes_count(&grant->mask) != 1) return false;
  if (!berthi_list_empty(&core->queue) || !berthi_list_empty(&core->grows)) return false;
  berthi_stripe *stripe = &core->stripes[berthi_stripe_index(core)];
  uint64_t seen = berthi_load(&stripe->grant, seq_cst);
  if (STATE_OF(seen) != BERTHI_STRIPE_EMPTY) return false;
  stripe->device = grant->device;
  for (uint32_t lane = 0; lane < BERTHI_LANES_MAX; lane++) {
    if (berthi_lanes_test(&grant->mask, lane)) stripe->lane = lane;
  }
  berthi_put(&stripe->bytes, grant->bytes);
  berthi_ledger *ledger = &slot->ledger;
  berthi_lanes_clear(&ledger->lanes_free, stripe->lane);
  berthi_up(&ledger->striped_bytes, grant->bytes);
  berthi_up(&ledger->striped_active, 1);
  berthi_up(&ledger->striped_lanes, 1);
  berthi_edge(BERTHI_STRIPE, BERTHI_STRIPE_EMPTY, BERTHI_STRIPE_PARKED);
  berthi_store(&stripe->grant, WITH_STATE(seen, BERTHI_STRIPE_PARKED), seq_cst);  // publishes device, lane, bytes to berthi_stripe_take
  return true;
}

void berthi_stripe_move_locked(berthi_core *core, berth_exec *exec) {
  if (exec->grant.stripe == BERTHI_NO_STRIPE) return;
  berthi_stripe *stripe = &core->stripes[exec->grant.stripe];
  berthi_ledger *ledger = &core->devices[exec->grant.device].ledger;
  unbook_locked(core, stripe);
  berthi_lanes_clear(&ledger->lanes_free, stripe->lane);
  berthi_up(&ledger->grants, exec->grant.bytes);
  berthi_up(&ledger->active, 1);
  berthi_up(&ledger->promised_lanes, 1);
  berthi_up(&core->counters.live_grants, 1);
  exec->grant.stripe = BERTHI_NO_STRIPE;
  berthi_list_append(&core->executions, &exec->link);
  leave(&stripe->grant, BERTHI_STRIPE_EMPTY);
}

static void observation_to_gate(berthi_core *core) {
  if (berthi_gate_give(&core->gate, BERTHI_GATE_OBSERVATION) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
}

bool berthi_stripes_reclaim_locked(berthi_core *core) {
  bool any = false;
  bool closed = berthi_gate_is_closed(&core->gate);
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    berthi_stripe *stripe = &core->stripes[i];
    if (reclaim(&stripe->grant)) {
      unbook_locked(core, stripe);
      // Also by the keeper itself, whose unlock reclaims after its look at the gate: who parked and then finds the word gone tells nobody.
      if (berthi_gate_give(&core->gate, BERTHI_GATE_DEVICE) & BERTHI_GATE_CLOSED) berthi_close_nudge(core);
      any = true;
    }
    if (closed && reclaim(&stripe->observation)) observation_to_gate(core);
  }
  return any;
}

bool berthi_stripe_take_observation(berthi_core *core, uint32_t *out_stripe) {
  *out_stripe = berthi_stripe_index(core);
  return berthi_stripe_take(&core->stripes[*out_stripe].observation);
}

void berthi_observation_give(berthi_core *core, uint32_t index) {
  berthi_stripe *stripe = &core->stripes[index == BERTHI_NO_STRIPE ? berthi_stripe_index(core) : index];
  uint64_t seen = berthi_load(&stripe->observation, seq_cst);
  if (index != BERTHI_NO_STRIPE) {
    leave(&stripe->observation, BERTHI_STRIPE_PARKED);
  } else {
    if (STATE_OF(seen) != BERTHI_STRIPE_EMPTY || berthi_gate_is_closed(&core->gate) ||
        !berthi_cas(&stripe->observation, &seen, WITH_STATE(seen, BERTHI_STRIPE_PARKED), seq_cst)) {
      observation_to_gate(core);
      return;
    }
    berthi_edge(BERTHI_STRIPE, BERTHI_STRIPE_EMPTY, BERTHI_STRIPE_PARKED);
  }
  if (berthi_gate_is_closed(&core->gate) && reclaim(&stripe->observation)) observation_to_gate(core);
}

void berthi_stripes_free_spares(berthi_core *core) {
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    void *spare = atomic_exchange_explicit(&core->stripes[i].spare, NULL, memory_order_acq_rel);
    if (!spare) continue;
    berthi_free(spare);
    berthi_core_release(core);
  }
}
