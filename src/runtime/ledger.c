// SPDX-License-Identifier: Apache-2.0
/// Ledgers: bytes, lanes and slots of each device, and who was promised what (LED-1, LED-4).
#include "runtime/core.h"

static uint64_t promised(const berthi_ledger *ledger) {
  return berthi_get(&ledger->resident) + berthi_get(&ledger->grants) + berthi_get(&ledger->striped_bytes) + berthi_get(&ledger->leaked) +
         berthi_get(&ledger->withheld);
}

uint64_t berthi_ledger_free(const berthi_ledger *ledger) {
  uint64_t used = promised(ledger) + berthi_get(&ledger->external_charged) + berthi_get(&ledger->external_measured);
  uint64_t limit = berthi_get(&ledger->query_limit);
  return used < limit ? limit - used : 0;
}

bool berthi_ledger_over(const berthi_ledger *ledger) {
  return promised(ledger) + berthi_get(&ledger->external_charged) + berthi_get(&ledger->external_measured) > berthi_get(&ledger->query_limit);
}

uint64_t berthi_ledger_most(const berthi_ledger *ledger) { return ledger->capacity - ledger->cache_limit; }

static void take_lanes(berthi_ledger *ledger, berthi_grant *grant, const berthi_lanemask *allowed) {
  uint32_t left = grant->lanes;
  for (uint32_t w = 0; w < BERTHI_LANE_WORDS && left; w++) {
    uint64_t bits = ledger->lanes_free.w[w] & allowed->w[w];
    while (bits && left) {
      uint64_t lowest = bits & (0 - bits);
      grant->mask.w[w] |= lowest;
      bits ^= lowest;
      left--;
    }
    ledger->lanes_free.w[w] &= ~grant->mask.w[w];
  }
  berthi_assert(left == 0, "LED-1");
}

void berthi_ledger_commit_locked(berthi_core *core, berthi_request *request, uint32_t device) {
  berthi_device_slot *slot = &core->devices[device];
  berthi_ledger *ledger = &slot->ledger;
  berth_exec *exec = request->exec;
  berthi_lanemask allowed = {{0}};
  exec->grant = (berthi_grant){
      .device = device,
      .stripe = BERTHI_NO_STRIPE,
      .bytes = request->bytes ? request->bytes : ledger->default_grant,
      .lanes = request->lanes,
      .group = request->group,
  };
  if (berthi_lanes_allowed(core, request, device, &allowed)) take_lanes(ledger, &exec->grant, &allowed);
  exec->id = ++core->execution_sequence * (BERTHI_STRIPES + 1);
  exec->since = request->submitted_at;
  berthi_up(&ledger->grants, exec->grant.bytes);
  berthi_up(&ledger->active, 1);
  berthi_up(&ledger->promised_lanes, berthi_lanes_count(&exec->grant.mask));
  if (request->group) {
    berthi_up(&request->group->active, 1);
    berthi_up(&request->group->bytes, exec->grant.bytes);
    berthi_up(&request->group->lanes, exec->grant.lanes);
  }
  berthi_up(&slot->granted, 1);
  berthi_up(&core->counters.live_grants, 1);
  berthi_list_append(&core->executions, &exec->link);
}

void berthi_ledger_return_locked(berthi_core *core, const berthi_grant *grant, berth_capacity to) {
  berthi_ledger *ledger = &core->devices[grant->device].ledger;
  berthi_assert(grant->stripe == BERTHI_NO_STRIPE, "LED-1");
  berthi_assert(berthi_get(&ledger->grants) >= grant->bytes && berthi_get(&ledger->active) > 0, "LED-1");
  berthi_down(&ledger->grants, grant->bytes);
  berthi_down(&ledger->active, 1);
  berthi_down(&ledger->promised_lanes, berthi_lanes_count(&grant->mask));
  for (uint32_t w = 0; w < BERTHI_LANE_WORDS; w++) {
    berthi_assert((ledger->lanes_free.w[w] & grant->mask.w[w]) == 0, "LED-1");
    ledger->lanes_free.w[w] |= grant->mask.w[w];
  }
  // The caller looked at the health without the lock; the device may have healed since, and only a heal frees what is withheld.
  bool withhold = to == BERTH_CAPACITY_WITHHELD && !berthi_slot_serves(&core->devices[grant->device]);
  if (withhold) berthi_up(&ledger->withheld, grant->bytes);
  if (to == BERTH_CAPACITY_LEAKED) berthi_up(&ledger->leaked, grant->bytes);
  if (grant->group) {
    berthi_down(&grant->group->active, 1);
    berthi_down(&grant->group->bytes, grant->bytes);
    berthi_down(&grant->group->lanes, grant->lanes);
  }
  berthi_down(&core->counters.live_grants, 1);
}

void berthi_ledger_check_locked(berthi_core *core) {
#if !defined(NDEBUG) || defined(BERTHI_SCHED)
  for (uint32_t i = 0; i < core->device_count; i++) {
    const berthi_ledger *ledger = &core->devices[i].ledger;
    berthi_assert(berthi_get(&ledger->cache) <= ledger->cache_limit, "LED-1");
    berthi_assert(promised(ledger) <= berthi_ledger_most(ledger), "LED-1");
    berthi_assert(berthi_get(&ledger->active) + berthi_get(&ledger->striped_active) <= ledger->slots, "LED-1");
    uint64_t lanes = berthi_get(&ledger->promised_lanes) + berthi_get(&ledger->striped_lanes);
    berthi_assert(lanes + berthi_lanes_count(&ledger->lanes_free) == ledger->lanes, "LED-1");
  }
  berthi_counters *c = &core->counters;
  berthi_assert(berthi_get(&c->submitted) == berthi_get(&c->granted) + berthi_get(&c->expired) + berthi_get(&c->cancelled) +
                                                berthi_get(&c->refused) + berthi_get(&c->closed) + berthi_get(&c->queued),
                "MET-1");
#else
  (void)core;
#endif
}
