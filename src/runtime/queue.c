// SPDX-License-Identifier: Apache-2.0
/// The queue and its scan: who may be granted what, in which order (ADM-6, ADM-7, ADM-9, ADM-12).
///
/// One list by key (submission time - priority x aging_interval, then sequence). A scan walks it once and grants whatever may be granted:
///  * growing executions come first and block their device for admissions (LED-3);
///  * a waiter held by its own group's cap blocks nobody and is not overtaken;
///  * a waiter that lacks lanes on a device blocks later ones there that need any of the same lanes: first in, first out;
///  * a waiter with `max_bypass` overtakes and `bypass_after` of waiting is a barrier: it is bound to one device and blocks that one for later keys.
#include <string.h>

#include "runtime/core.h"

typedef struct scan_state {
  uint64_t blocked; ///< devices that an earlier barrier or a grow has claimed
  berthi_lanemask lanes_claimed[BERTH_DEVICES_MAX];
  int64_t now; ///< 0: not read yet
} scan_state;

static berthi_request *request_of(berthi_link *link) { return BERTHI_CONTAINER(link, berthi_request, link); }

static bool key_before(const berthi_request *a, const berthi_request *b) {
  return a->key != b->key ? a->key < b->key : a->sequence < b->sequence;
}

void berthi_queue_insert_locked(berthi_core *core, berthi_request *request) {
  berthi_link *at = core->queue.prev;
  while (at != &core->queue && key_before(request, request_of(at))) at = at->prev;
  berthi_list_insert_after(at, &request->link);
}

void berthi_queue_remove_locked(berthi_core *core, berthi_request *request) {
  (void)core;
  berthi_list_remove(&request->link);
}

static uint64_t bytes_on(const berthi_core *core, const berthi_request *request, uint32_t device) {
  return request->bytes ? request->bytes : core->devices[device].ledger.default_grant;
}

// The devices that the request could use one day: allowed, capable, in service or about to be.
static bool eligible(const berthi_core *core, const berthi_request *request, uint32_t device) {
  const berthi_device_slot *slot = &core->devices[device];
  return ((request->devices >> device) & 1u) && (slot->capabilities & request->capabilities) == request->capabilities && berthi_slot_may_serve(slot);
}

static bool group_holds(const berthi_request *request, uint64_t bytes) {
  const berthi_group *group = request->group;
  return group && (berthi_get(&group->active) >= group->max_active || berthi_get(&group->lanes) + request->lanes > group->max_lanes ||
                   bytes > group->max_bytes || berthi_get(&group->bytes) > group->max_bytes - bytes);
}

static uint32_t lanes_free_for(const berthi_core *core, const berthi_request *request, uint32_t device, berthi_lanemask *allowed) {
  berthi_lanemask usable = {{0}};
  if (!berthi_lanes_allowed(core, request, device, allowed)) return 0;
  for (uint32_t w = 0; w < BERTHI_LANE_WORDS; w++) usable.w[w] = allowed->w[w] & core->devices[device].ledger.lanes_free.w[w];
  return berthi_lanes_count(&usable);
}

// What stands between the request and a grant on this device now; 0: nothing.
static uint32_t obstacles(const berthi_core *core, const berthi_request *request, uint32_t device, const scan_state *scan) {
  const berthi_device_slot *slot = &core->devices[device];
  const berthi_ledger *ledger = &slot->ledger;
  uint64_t bytes = bytes_on(core, request, device);
  berthi_lanemask allowed = {{0}};
  uint32_t why = 0;
  if (!berthi_slot_serves(slot)) why |= BERTH_WHY_HEALTH;
  if (group_holds(request, bytes)) why |= BERTH_WHY_GROUP;
  if (!berthi_lanes_caller_managed(request->lane_set)) {
    if (lanes_free_for(core, request, device, &allowed) < request->lanes) why |= BERTH_WHY_LANES;
    if (berthi_lanes_overlap(&allowed, &scan->lanes_claimed[device])) why |= BERTH_WHY_ORDER;
  }
  if ((scan->blocked >> device) & 1u) why |= BERTH_WHY_ORDER;
  if (berthi_get(&ledger->active) + berthi_get(&ledger->striped_active) >= ledger->slots) why |= BERTH_WHY_SLOTS;
  if (bytes > berthi_ledger_free(ledger)) why |= BERTH_WHY_BYTES;
  return why;
}

// The allowed device with most free bytes that takes the request now (ties: lowest index), or -1; collects why not.
static int place(const berthi_core *core, const berthi_request *request, const scan_state *scan, uint32_t *why) {
  int best = -1;
  uint64_t best_free = 0;
  for (uint32_t d = 0; d < core->device_count; d++) {
    if (!eligible(core, request, d)) continue;
    uint32_t stands = obstacles(core, request, d, scan);
    *why |= stands;
    if (stands) continue;
    uint64_t free = berthi_ledger_free(&core->devices[d].ledger);
    if (best < 0 || free > best_free) {
      best = (int)d;
      best_free = free;
    }
  }
  return best;
}

// A waiter that lacks lanes claims them: nobody later gets any of them on that device.
static void claim_lanes(const berthi_core *core, const berthi_request *request, scan_state *scan) {
  if (berthi_lanes_caller_managed(request->lane_set)) return;
  for (uint32_t d = 0; d < core->device_count; d++) {
    berthi_lanemask allowed = {{0}};
    if (!eligible(core, request, d) || lanes_free_for(core, request, d, &allowed) >= request->lanes) continue;
    for (uint32_t w = 0; w < BERTHI_LANE_WORDS; w++) scan->lanes_claimed[d].w[w] |= allowed.w[w];
  }
}

static uint32_t device_with_most_free(const berthi_core *core, const berthi_request *request) {
  uint32_t best = BERTHI_NO_BARRIER;
  for (uint32_t d = 0; d < core->device_count; d++) {
    if (!eligible(core, request, d)) continue;
    if (best == BERTHI_NO_BARRIER || berthi_ledger_free(&core->devices[d].ledger) > berthi_ledger_free(&core->devices[best].ledger)) best = d;
  }
  return best;
}

static bool is_barrier(const berthi_core *core, berthi_request *request, scan_state *scan) {
  if (request->overtakes < core->options.max_bypass) return false;
  if (!scan->now) scan->now = berthi_now();
  return scan->now - request->submitted_at >= core->options.bypass_after;
}

// A barrier keeps the device it was bound to while that one can serve it.
static void raise_barrier(const berthi_core *core, berthi_request *request, scan_state *scan) {
  if (!is_barrier(core, request, scan)) return;
  if (request->barrier == BERTHI_NO_BARRIER || !eligible(core, request, request->barrier)) request->barrier = device_with_most_free(core, request);
  if (request->barrier != BERTHI_NO_BARRIER) scan->blocked |= (uint64_t)1 << request->barrier;
}

static bool could_serve_anybody(const berthi_core *core, const scan_state *scan) {
  for (uint32_t d = 0; d < core->device_count; d++) {
    const berthi_ledger *ledger = &core->devices[d].ledger;
    if ((scan->blocked >> d) & 1u || !berthi_slot_serves(&core->devices[d])) continue;
    if (berthi_get(&ledger->active) + berthi_get(&ledger->striped_active) < ledger->slots && berthi_ledger_free(ledger)) return true;
  }
  return false;
}

// Each earlier waiter that could use the device is overtaken once. One that becomes a barrier by it blocks its device for the rest of this scan, too.
static void count_overtakes(berthi_core *core, const berthi_request *granted, uint32_t device, scan_state *scan) {
  for (berthi_link *at = core->queue.next; at != &core->queue; at = at->next) {
    berthi_request *earlier = request_of(at);
    if (earlier == granted || !key_before(earlier, granted)) break;
    if (earlier->held_by_group == core->scan || !eligible(core, earlier, device)) continue;
    earlier->overtakes++;
    berthi_up(&core->counters.overtakes, 1);
    if (earlier->overtakes > berthi_get(&core->counters.overtakes_max)) berthi_put(&core->counters.overtakes_max, earlier->overtakes);
    raise_barrier(core, earlier, scan);
  }
}

static void scan_begin(berthi_core *core, scan_state *scan) BERTHI_REQUIRES(core->lock) {
  scan->blocked = 0;
  scan->now = 0;
  memset(scan->lanes_claimed, 0, core->device_count * sizeof scan->lanes_claimed[0]);
  for (uint32_t d = 0; d < core->device_count; d++) {
    if (berthi_grow_blocks_locked(core, d)) scan->blocked |= (uint64_t)1 << d;
  }
}

static void grant(berthi_core *core, berthi_request *request, uint32_t device, scan_state *scan) BERTHI_REQUIRES(core->lock) {
  count_overtakes(core, request, device, scan);
  berthi_ledger_commit_locked(core, request, device);
  bool decided = berthi_request_decide_locked(core, request, BERTHI_ADMISSION_GRANTED, BERTHI_R_NONE);
  berthi_assert(decided, "ADM-1");
  (void)decided;
}

void berthi_scan_locked(berthi_core *core) {
  scan_state scan;
  berthi_grow_scan_locked(core);
  if (berthi_list_empty(&core->queue)) return;
  if (berthi_gate_is_closed(&core->gate)) return;  // ADM-1: the closed bit is rechecked before each grant; the keeper ends the queue
  core->scan++;
  scan_begin(core, &scan);
  for (berthi_link *at = core->queue.next, *next; at != &core->queue; at = next) {
    berthi_request *request = request_of(at);
    next = at->next;
    if (!could_serve_anybody(core, &scan)) break;
    uint32_t why = 0;
    int device = place(core, request, &scan, &why);
    if (device >= 0) {
      grant(core, request, (uint32_t)device, &scan);
      continue;
    }
    request->why |= why;
    if (why & BERTH_WHY_GROUP) {
      request->held_by_group = core->scan;
      continue;
    }
    claim_lanes(core, request, &scan);
    raise_barrier(core, request, &scan);
  }
}

uint32_t berthi_request_obstacles_locked(berthi_core *core, const berthi_request *request) {
  scan_state scan;
  uint32_t why = 0;
  scan_begin(core, &scan);
  (void)place(core, request, &scan, &why);
  return why ? why : BERTH_WHY_ORDER;  // by itself it would fit
}

bool berthi_grant_at_once_locked(berthi_core *core, berthi_request *request) {
  if (!berthi_list_empty(&core->queue)) return false;
  for (int pass = 0; pass < 2; pass++) {
    scan_state scan;
    uint32_t why = 0;
    scan_begin(core, &scan);
    int device = place(core, request, &scan, &why);
    if (device >= 0) {
      grant(core, request, (uint32_t)device, &scan);
      return true;
    }
    // What is parked counts as free: take it back before anybody waits.
    berthi_or(&core->slow, BERTHI_SLOW_WAITERS, seq_cst);
    if (!berthi_stripes_reclaim_locked(core)) break;
  }
  return false;
}

berthi_reason berthi_request_servable_locked(berthi_core *core, const berthi_request *request, uint64_t *out_most) {
  bool capable = false, large = false, served = false, healthy = false;
  *out_most = 0;
  for (uint32_t d = 0; d < core->device_count; d++) {
    const berthi_device_slot *slot = &core->devices[d];
    if (berthi_slot_may_serve(slot)) healthy = true;
    if (!((request->devices >> d) & 1u)) continue;
    if ((slot->capabilities & request->capabilities) != request->capabilities) continue;
    capable = true;
    berthi_lanemask allowed = {{0}};
    bool lanes = berthi_lanes_caller_managed(request->lane_set) ||
                 (berthi_lanes_allowed(core, request, d, &allowed) && berthi_lanes_count(&allowed) >= request->lanes);
    uint64_t most = berthi_ledger_most(&slot->ledger);
    if (most > *out_most) *out_most = most;
    if (!lanes || bytes_on(core, request, d) > most) continue;
    large = true;
    if (berthi_slot_may_serve(slot)) served = true;
  }
  if (berthi_load(&core->unhealthy, acquire) || !healthy) return BERTHI_R_BACKEND_UNHEALTHY;
  if (!capable) return BERTHI_R_CAPABILITY_UNSUPPORTED;
  const berthi_group *group = request->group;
  if (group && large && (request->lanes > group->max_lanes || group->max_active == 0 || request->bytes > group->max_bytes)) large = false;
  if (!large) return BERTHI_R_REQUEST_EXCEEDS_DEVICE;
  return served ? BERTHI_R_NONE : BERTHI_R_DEVICE_QUARANTINED;
}

void berthi_refuse_unserved_locked(berthi_core *core) {
  for (berthi_link *at = core->queue.next, *next; at != &core->queue; at = next) {
    berthi_request *request = request_of(at);
    next = at->next;
    uint64_t most;
    berthi_reason reason = berthi_request_servable_locked(core, request, &most);
    if (reason == BERTHI_R_DEVICE_QUARANTINED || reason == BERTHI_R_BACKEND_UNHEALTHY) {
      (void)berthi_request_decide_locked(core, request, BERTHI_ADMISSION_REFUSED, reason);
    }
  }
}

uint32_t berthi_request_why_locked(berthi_core *core, const berthi_request *request, uint64_t *out_devices, uint32_t *out_ahead) {
  scan_state scan;
  uint32_t why = 0;
  *out_devices = 0;
  *out_ahead = 0;
  scan_begin(core, &scan);
  for (berthi_link *at = core->queue.next; at != &core->queue && request_of(at) != request; at = at->next) {
    berthi_request *earlier = request_of(at);
    uint32_t theirs = 0;
    (*out_ahead)++;
    if (place(core, earlier, &scan, &theirs) >= 0 || (theirs & BERTH_WHY_GROUP)) continue;
    claim_lanes(core, earlier, &scan);
    raise_barrier(core, earlier, &scan);
  }
  for (uint32_t d = 0; d < core->device_count; d++) {
    if (!eligible(core, request, d)) continue;
    uint32_t stands = obstacles(core, request, d, &scan);
    why |= stands;
    if (stands) *out_devices |= (uint64_t)1 << d;
  }
  return why;
}
