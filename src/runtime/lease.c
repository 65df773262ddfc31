// SPDX-License-Identifier: Apache-2.0
/// Leases: who holds which device in this process (BCK-2).
///
/// One table per process, by the device's stable identity, under the registry lock, which is the lowest rank: no caller holds another lock. In a forked
/// child every inherited lease is void, and the lock itself may have been caught half-way, so the first user of a new fork epoch makes the table anew
/// (CLS-6). Each row has an event that is set while the row is free; it changes under the lock, so a waiter that re-checks the row misses nothing.
#include <stdio.h>
#include <string.h>

#include "runtime/core.h"

#define LEASES 256
#define WHO 64

enum { LEASE_LIVE = 0, LEASE_DRAINING = 1, LEASE_LEAKED = 2 };

typedef struct lease {
  bool held;
  int state;
  uint32_t waiters; ///< inside berth_lease_wait
  uint64_t holder, generation;
  char identity[BERTH_DEVICE_IDENTITY]; ///< empty: never used
  char name[BERTH_DEVICE_NAME];
  char forced_by[WHO]; ///< for the next holder's startup record
  berthi_event free;
} lease;

static struct {
  berthi_atomic64 ready; ///< 2 x fork epoch of the table, plus 1 while it is being made
  berthi_mutex lock;
  lease leases[LEASES];
} registry;

// ---- the table -------------------------------------------------------------------------------------------------------------------------------------

static void make_table(void) {
  memset(registry.leases, 0, sizeof(registry.leases));
  for (size_t i = 0; i < LEASES; i++) berthi_event_init(&registry.leases[i].free);
  berthi_mutex_init(&registry.lock, BERTHI_RANK_REGISTRY);
}

static void ensure_table(void) {
  uint64_t wanted = 2 * (uint64_t)berthi_fork_epoch();
  uint64_t seen = berthi_load(&registry.ready, acquire); // pairs with the release below
  while (BERTHI_UNLIKELY(seen != wanted)) {
    if (seen == wanted + 1) {
      berthi_thread_yield();
      seen = berthi_load(&registry.ready, acquire);
    } else if (berthi_cas(&registry.ready, &seen, wanted + 1, acq_rel)) {
      make_table();
      berthi_store(&registry.ready, wanted, release);
      return;
    }
  }
}

static lease *find_identity(const char *identity) {
  for (size_t i = 0; i < LEASES; i++) {
    if (strcmp(registry.leases[i].identity, identity) == 0 && identity[0] != '\0') return &registry.leases[i];
  }
  return NULL;
}

/// A row that nobody holds and nobody waits to be told about.
static lease *find_spare(void) {
  for (size_t i = 0; i < LEASES; i++) {
    if (registry.leases[i].identity[0] == '\0') return &registry.leases[i];
  }
  for (size_t i = 0; i < LEASES; i++) {
    if (!registry.leases[i].held && registry.leases[i].waiters == 0 && registry.leases[i].forced_by[0] == '\0') return &registry.leases[i];
  }
  return NULL;
}

static void free_row(lease *row) {
  row->held = false;
  berthi_event_set(&row->free);
}

// ---- messages --------------------------------------------------------------------------------------------------------------------------------------

static const char *state_text(int state) {
  switch (state) {
  case LEASE_DRAINING:
    return "draining; wait with berth_lease_wait";
  case LEASE_LEAKED:
    return "leaked: its clean-up could not be proved; when nothing uses the device any more, berth_lease_force frees it";
  default:
    return "live; share it with berth_backend_retain, or close it";
  }
}

static void add_facts(const lease *row, berth_error *err) {
  berthi_fact(err, "holder", (int64_t)row->holder);
  berthi_fact(err, "generation", (int64_t)row->generation);
  berthi_fact(err, "state", row->state);
}

static berth_status fail_live(const lease *row, berth_error *err) {
  berth_status status = berthi_fail(err, BERTHI_R_BACKEND_ALREADY_LIVE, "%s is held by backend %llu, generation %llu, which is %s", row->name,
                                    (unsigned long long)row->holder, (unsigned long long)row->generation, state_text(row->state));
  add_facts(row, err);
  return status;
}

static berth_status fail_timeout(const lease *row, berth_error *err) {
  berth_status status = berthi_fail(err, BERTHI_R_WAIT_TIMEOUT, "%s is still held by backend %llu, generation %llu, which is %s", row->name,
                                    (unsigned long long)row->holder, (unsigned long long)row->generation, state_text(row->state));
  add_facts(row, err);
  return status;
}

// ---- for backends ------------------------------------------------------------------------------------------------------------------------------------

static void hold(lease *row, const char *identity, const char *name, const berthi_core *core) {
  snprintf(row->identity, sizeof(row->identity), "%s", identity);
  snprintf(row->name, sizeof(row->name), "%s", name);
  row->held = true;
  row->state = LEASE_LIVE;
  row->holder = core->id;
  row->generation = core->generation;
  berthi_event_clear(&row->free);
}

berth_status berthi_lease_take(const char *identity, const char *name, berthi_core *core, char forced_by[WHO], berth_error *err) {
  berth_status status = BERTH_OK;
  ensure_table();
  berthi_mutex_lock(&registry.lock);
  lease *row = find_identity(identity);
  bool held = row != NULL && row->held;
  if (row == NULL) row = find_spare();
  if (held) {
    status = fail_live(row, err);
  } else if (row == NULL) {
    status = berthi_fail(err, BERTHI_R_LIMIT_EXCEEDED, "%s: %d devices are leased in this process, at most %d", name, LEASES, LEASES);
  } else {
    memcpy(forced_by, row->forced_by, WHO);
    memset(row->forced_by, 0, WHO);
    hold(row, identity, name, core);
  }
  berthi_mutex_unlock(&registry.lock);
  if (status == BERTH_OK && forced_by[0] != '\0')
    berthi_log(core, BERTH_LOG_WARNING, "%s: the lease of the holder before was forced by %s", name, forced_by);
  return status;
}

/// The row that the backend holds, or NULL: it was forced away.
static lease *find_held(const char *identity, uint64_t backend_id) {
  lease *row = find_identity(identity);
  return row != NULL && row->held && row->holder == backend_id ? row : NULL;
}

void berthi_lease_state(const char *identity, uint64_t backend_id, int state) {
  ensure_table();
  berthi_mutex_lock(&registry.lock);
  lease *row = find_held(identity, backend_id);
  if (row != NULL) row->state = state;
  berthi_mutex_unlock(&registry.lock);
}

void berthi_lease_give(const char *identity, uint64_t backend_id) {
  ensure_table();
  berthi_mutex_lock(&registry.lock);
  lease *row = find_held(identity, backend_id);
  if (row != NULL) free_row(row);
  berthi_mutex_unlock(&registry.lock);
}

// ---- for callers, by the device's name ---------------------------------------------------------------------------------------------------------------

/// Whether the name is one, and the device's identity where it can be told without options (else empty).
static berth_status resolve(const char *device, char identity[BERTH_DEVICE_IDENTITY], berth_error *err) {
  const berthi_device_kind *kind = NULL;
  uint32_t ordinal = 0;
  if (device == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "device is NULL; name one, such as cpu:0");
  BERTHI_TRY(berthi_device_find(device, &kind, &ordinal, err));
  berthi_device_limits limits;
  if (kind->limits(ordinal, NULL, identity, &limits, NULL) != BERTH_OK) identity[0] = '\0';
  return BERTH_OK;
}

static lease *find_lease(const char *device, const char *identity) {
  for (size_t i = 0; i < LEASES; i++) {
    if (registry.leases[i].held && strcmp(registry.leases[i].name, device) == 0) return &registry.leases[i];
  }
  lease *row = find_identity(identity);
  return row != NULL && row->held ? row : NULL;
}

/// Looks once. `*out` is the row to wait for, with this waiter counted, or NULL when there is an answer.
static berth_status look(const char *device, const char *identity, bool late, lease **out, berth_error *err) {
  bool notifier = berthi_thread_self()->flags & BERTHI_THREAD_NOTIFIER;
  berth_status status = BERTH_OK;
  berthi_mutex_lock(&registry.lock);
  if (*out != NULL) (*out)->waiters--;
  *out = find_lease(device, identity);
  if (*out != NULL && late)
    status = fail_timeout(*out, err);
  else if (*out != NULL && notifier)
    status = berthi_fail(err, BERTHI_R_CONTENDED, "%s is held, and the notifier thread may not wait for it", device);
  if (status != BERTH_OK) *out = NULL;
  if (*out != NULL) (*out)->waiters++;
  berthi_mutex_unlock(&registry.lock);
  return status;
}

berth_status berth_lease_wait(const char *device, int64_t deadline, berth_error *err) {
  char identity[BERTH_DEVICE_IDENTITY];
  lease *row = NULL;
  bool late = false;
  BERTHI_TRY(resolve(device, identity, err));
  ensure_table();
  for (;;) {
    berth_status status = look(device, identity, late, &row, err);
    if (row == NULL) return status;
    late = !berthi_event_wait(&row->free, deadline, "lease.wait"); // the row keeps its device while it has waiters
  }
}

static berth_status force_locked(const char *device, const char *identity, const char *who, berth_error *err) {
  lease *row = find_lease(device, identity);
  if (row == NULL) return berthi_fail(err, BERTHI_R_NOT_LEAKED, "%s: no backend of this process holds its lease", device);
  if (row->state != LEASE_LEAKED) {
    berth_status status = berthi_fail(err, BERTHI_R_NOT_LEAKED, "%s is held by backend %llu, which is %s", row->name, (unsigned long long)row->holder,
                                      state_text(row->state));
    add_facts(row, err);
    return status;
  }
  snprintf(row->forced_by, sizeof(row->forced_by), "%s", who);
  free_row(row);
  return BERTH_OK;
}

berth_status berth_lease_force(const char *device, const char *who, berth_error *err) {
  char identity[BERTH_DEVICE_IDENTITY];
  size_t length = who != NULL ? strlen(who) : 0;
  if (length == 0 || length >= WHO)
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "who: %zu bytes, at least 1 and at most %d: the record says who forced it", length, WHO - 1);
  BERTHI_TRY(resolve(device, identity, err));
  ensure_table();
  berthi_mutex_lock(&registry.lock);
  berth_status status = force_locked(device, identity, who, err);
  berthi_mutex_unlock(&registry.lock);
  return status;
}
