// SPDX-License-Identifier: Apache-2.0
/// Coherent snapshots without a lock (MET-1).
///
/// Guarantees.
///  * What changes under the admission lock is seen whole or not at all: the sequence is odd while it changes, and a reader that saw an odd number, or
///    not the same one before and after, reads again. Counters are stored with release after the odd number and loaded with acquire before the second
///    look, so a reader that sees a new counter sees the new sequence.
///  * Each stripe's word is read once, and everything that it stands for is derived from that one value; every law is a sum of terms that hold for each
///    word alone, so the laws hold whatever the words' holders do between two reads.
///  * A quiet snapshot is one instant: the words are read twice, and while no writer is faster than the reader the two collects agree.
///  * Progress: after RETRIES the reader takes the lock. Writers wait for no reader before that.
#include "runtime/metrics.h"

#include <string.h>

#include "runtime/states.h"

#define RETRIES 1000
#define RETRIES_UNTIL_YIELD 16
#define EXACT_RETRIES 8
#define DURATION_RETRIES 4

typedef struct collect {
  uint64_t words[BERTHI_STRIPES][2]; ///< grant, observation
  bool exact;                        ///< no stripe moved while it was read
} collect;

static uint64_t taken(uint64_t word) { return word >> 2; }
static uint64_t busy(uint64_t word) { return (word & 3u) == BERTHI_STRIPE_BUSY ? 1 : 0; }

// ---- what the admission lock guards ----------------------------------------------------------------------------------------------------------------

static void read_distribution(const berthi_stat_histogram *from, berth_distribution *to) {
  for (uint32_t i = 0; i < BERTHI_HISTOGRAM_BUCKETS; i++) to->buckets[i] = berthi_get(&from->buckets[i]);
  to->count = berthi_get(&from->count);
  to->sum = berthi_get(&from->sum);
  to->max = berthi_get(&from->max);
}

static void read_arrays(const berthi_counters *c, berth_metrics *m) {
  for (size_t i = 0; i < BERTHI_COUNTOF(m->outcomes); i++) m->outcomes[i] = berthi_get(&c->outcomes[i]);
  for (size_t i = 0; i < BERTHI_COUNTOF(m->dispositions); i++) m->dispositions[i] = berthi_get(&c->dispositions[i]);
  for (size_t i = 0; i < BERTHI_COUNTOF(m->refusals); i++) m->refusals[i] = berthi_get(&c->refusals[i]);
}

static void read_counters(const berthi_counters *c, berth_metrics *m) {
  m->begun = berthi_get(&c->begun);
  m->sealed = berthi_get(&c->sealed);
  m->open = berthi_get(&c->open);
  m->submitted = berthi_get(&c->submitted);
  m->granted = berthi_get(&c->granted);
  m->expired = berthi_get(&c->expired);
  m->cancelled = berthi_get(&c->cancelled);
  m->refused = berthi_get(&c->refused);
  m->closed = berthi_get(&c->closed);
  m->queued = berthi_get(&c->queued);
  m->live_grants = berthi_get(&c->live_grants);
  m->delivered = berthi_get(&c->delivered);
  m->taken = berthi_get(&c->taken);
  m->held = berthi_get(&c->held);
  m->overflowed = berthi_get(&c->overflowed);
  m->queue_high_watermark = berthi_get(&c->queue_high);
  m->overtakes = berthi_get(&c->overtakes);
  m->overtakes_max = berthi_get(&c->overtakes_max);
  m->grows = berthi_get(&c->grows);
  m->grows_refused = berthi_get(&c->grows_refused);
  m->shrinks = berthi_get(&c->shrinks);
  m->cancels = berthi_get(&c->cancels);
  m->quarantines = berthi_get(&c->quarantines);
  m->crashes_healed = berthi_get(&c->healed);
  read_arrays(c, m);
  read_distribution(&c->wait, &m->wait);
  read_distribution(&c->cancel_latency, &m->cancel_latency);
  read_distribution(&c->duration, &m->duration);
}

/// Everything but `external_bytes` and `free_bytes`, which need the stripes' share.
static void read_device(const berthi_device_slot *slot, berth_device_metrics *d) {
  const berthi_ledger *ledger = &slot->ledger;
  d->total_bytes = ledger->capacity + ledger->reserve + ledger->library;
  d->grant_bytes = berthi_get(&ledger->grants);
  d->resident_bytes = berthi_get(&ledger->resident);
  d->cache_bytes = berthi_get(&ledger->cache);
  d->library_bytes = ledger->library;
  d->reserve_bytes = ledger->reserve;
  d->leaked_bytes = berthi_get(&ledger->leaked);
  d->withheld_bytes = berthi_get(&ledger->withheld);
  d->external_bytes = berthi_get(&ledger->external_charged) + berthi_get(&ledger->external_measured);
  d->query_limit_bytes = berthi_get(&ledger->query_limit);
  d->cache_limit_bytes = ledger->cache_limit;
  d->active = (uint32_t)berthi_get(&ledger->active);
  d->slots = ledger->slots;
  d->lanes_promised = (uint32_t)berthi_get(&ledger->promised_lanes);
  d->lanes = ledger->lanes;
  d->health = (berth_health)berthi_get(&slot->health);
  d->grants = berthi_get(&slot->granted);
  d->quarantines = berthi_get(&slot->quarantines);
  d->faults = berthi_get(&slot->faults);
}

/// LED-4: the classes sum to the total. What a lowered limit took out of the capacity is external, too, and external is shown capped: more than is
/// left cannot be taken from promises that were made before.
static void close_ledger(const berthi_ledger *ledger, berth_device_metrics *d) {
  uint64_t held = d->grant_bytes + d->resident_bytes + d->cache_bytes + d->leaked_bytes + d->withheld_bytes;
  uint64_t room = held < ledger->capacity ? ledger->capacity - held : 0;
  uint64_t full = ledger->capacity - ledger->cache_limit;
  uint64_t lowered = d->query_limit_bytes < full ? full - d->query_limit_bytes : 0;
  uint64_t external = 0;
  if (!berthi_size_add(d->external_bytes, lowered, &external) || external > room) external = room;
  d->external_bytes = external;
  d->free_bytes = room - external;
}

// ---- stripes ---------------------------------------------------------------------------------------------------------------------------------------

static void add_grant_word(const berthi_stripe *stripe, uint64_t word, berth_metrics *m, uint32_t filled) {
  uint64_t count = taken(word), held = busy(word);
  m->submitted += count;
  m->granted += count;
  m->wait.buckets[0] += count; // what a stripe grants has not waited
  m->wait.count += count;
  m->live_grants += held;
  uint64_t bytes = held ? berthi_get(&stripe->bytes) : 0;
  m->promised_bytes += bytes;
  uint32_t device = berthi_load(&stripe->device, relaxed); // constant between two equal sequences
  if (count == 0 || device >= filled) return;
  berth_device_metrics *d = &m->devices[device];
  d->grants += count;
  d->grant_bytes += bytes;
  d->active += (uint32_t)held;
  d->lanes_promised += (uint32_t)held;
}

static void add_observation_word(uint64_t word, berth_metrics *m) {
  uint64_t count = taken(word), ended = count - busy(word);
  m->begun += count;
  m->open += busy(word);
  m->sealed += ended;
  m->delivered += ended;
  m->outcomes[BERTH_SUCCEEDED] += ended;
  m->dispositions[BERTH_NATIVE] += ended;
}

static uint64_t read_durations_once(const berthi_stripe *stripe, uint64_t buckets[BERTHI_HISTOGRAM_BUCKETS]) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < BERTHI_HISTOGRAM_BUCKETS; i++) count += buckets[i] = berthi_get(&stripe->duration[i]);
  return count;
}

/// Adds the stripe's durations; false when they are not those of exactly `expected` attempts.
static bool add_durations(const berthi_stripe *stripe, uint64_t expected, berth_distribution *to) {
  uint64_t buckets[BERTHI_HISTOGRAM_BUCKETS];
  uint64_t count = 0, sum = 0, max = 0;
  bool exact = false;
  for (int i = 0; i < DURATION_RETRIES && !exact; i++) {
    uint32_t before = berthi_load(&stripe->sequence, acquire); // pairs with the holder's release of an even number
    count = read_durations_once(stripe, buckets);
    sum = berthi_get(&stripe->duration_sum);
    max = berthi_get(&stripe->duration_max);
    exact = !(before & 1u) && berthi_load(&stripe->sequence, acquire) == before && count == expected;
  }
  for (uint32_t i = 0; i < BERTHI_HISTOGRAM_BUCKETS; i++) to->buckets[i] += buckets[i];
  to->count += count;
  to->sum += sum;
  if (max > to->max) to->max = max;
  return exact;
}

static void add_stripes(const berthi_core *core, berth_metrics *m, uint32_t filled, collect *c) {
  for (uint32_t i = 0; i < core->stripe_count; i++) {
    const berthi_stripe *stripe = &core->stripes[i];
    uint64_t grant = c->words[i][0] = berthi_load(&stripe->grant, acquire);
    uint64_t observation = c->words[i][1] = berthi_load(&stripe->observation, acquire);
    m->sequence += 2 * (taken(grant) + taken(observation)) - busy(grant) - busy(observation);
    add_grant_word(stripe, grant, m, filled);
    if (taken(observation) == 0) continue;
    add_observation_word(observation, m);
    if (!add_durations(stripe, taken(observation) - busy(observation), &m->duration)) c->exact = false;
  }
}

static void look_again(const berthi_core *core, collect *c) {
  for (uint32_t i = 0; i < core->stripe_count && c->exact; i++) {
    const berthi_stripe *stripe = &core->stripes[i];
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): add_stripes filled the words of every stripe
    if (berthi_load(&stripe->grant, acquire) != c->words[i][0] || berthi_load(&stripe->observation, acquire) != c->words[i][1]) c->exact = false;
  }
}

// ---- the snapshot ----------------------------------------------------------------------------------------------------------------------------------

/// Reads all of it once. The number rises with each change: with the lock's sequence (as it will be after the change in progress), and with each taking
/// and giving of a stripe's word.
static void read_once(const berthi_core *core, uint64_t sequence, berth_metrics *m, collect *c) {
  uint32_t filled = m->devices == NULL ? 0 : m->device_capacity < core->device_count ? m->device_capacity : core->device_count;
  c->exact = true;
  m->sequence = (sequence + 1) / 2 * 4; // more than a sealing in the core takes off a word's count
  m->promised_bytes = 0;
  read_counters(&core->counters, m);
  for (uint32_t i = 0; i < core->device_count; i++) m->promised_bytes += berthi_get(&core->devices[i].ledger.grants);
  for (uint32_t i = 0; i < filled; i++) read_device(&core->devices[i], &m->devices[i]);
  add_stripes(core, m, filled, c);
  for (uint32_t i = 0; i < filled; i++) close_ledger(&core->devices[i].ledger, &m->devices[i]);
  look_again(core, c);
}

static void fill_constants(const berthi_core *core, berth_metrics *m) {
  m->struct_size = sizeof(*m);
  m->backend_id = core->id;
  m->generation = core->generation;
  m->device_count = core->device_count;
}

void berthi_metrics_read_locked(berthi_core *core, berth_metrics *out) {
  collect c;
  fill_constants(core, out);
  for (int i = 0; i < EXACT_RETRIES; i++) {
    read_once(core, berthi_load(&core->sequence, relaxed), out, &c); // the lock's holder is the sequence's only writer
    if (c.exact) break;
  }
}

static bool try_read(const berthi_core *core, berth_metrics *out, bool want_exact) {
  collect c;
  uint64_t before = berthi_load(&core->sequence, acquire); // pairs with berthi_unlock
  if (before & 1u) return false;
  read_once(core, before, out, &c);
  return berthi_load(&core->sequence, acquire) == before && (c.exact || !want_exact);
}

void berthi_metrics_read(const berthi_core *core, berth_metrics *out) {
  fill_constants(core, out);
  for (int i = 0; i < RETRIES; i++) {
    if (try_read(core, out, i < EXACT_RETRIES)) return;
    if (i % RETRIES_UNTIL_YIELD == RETRIES_UNTIL_YIELD - 1) berthi_thread_yield();
  }
  berthi_core *writable = (berthi_core *)(uintptr_t)core; // for its lock alone
  berthi_mutex_lock(&writable->lock);
  berthi_metrics_read_locked(writable, out);
  berthi_mutex_unlock(&writable->lock);
}

berth_status berth_session_metrics(const berth_session *session, berth_metrics *out_metrics, berth_error *err) {
  if (session == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "session is NULL");
  if (out_metrics == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_metrics is NULL");
  const berthi_core *core = berthi_core_of_session(session);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  berth_metrics known;
  memset(&known, 0, sizeof(known));
  if (out_metrics->struct_size >= offsetof(berth_metrics, devices) + sizeof(known.devices)) {
    known.device_capacity = out_metrics->device_capacity;
    known.devices = out_metrics->devices;
  }
  berthi_metrics_read(core, &known);
  return berthi_output_copy(out_metrics, &known, sizeof(known), "berth_metrics", err);
}

berth_attempt_counters berth_session_attempt_counters(const berth_session *session) {
  berth_attempt_counters counters = {0};
  if (session == NULL) return counters;
  const berthi_core *core = berthi_core_of_session(session);
  if (berthi_core_forked(core)) return counters; // the lock and the sequence may have been caught half-way
  berth_metrics metrics;
  memset(&metrics, 0, sizeof(metrics));
  berthi_metrics_read(core, &metrics);
  counters.begun = metrics.begun;
  counters.sealed = metrics.sealed;
  counters.abandoned = metrics.taken + metrics.held + metrics.overflowed;
  counters.overflowed = metrics.overflowed;
  return counters;
}
