// SPDX-License-Identifier: Apache-2.0
// The laws of a metrics snapshot (MET-1, LED-1, LED-4, ADM-1), checked from outside with nothing but the snapshot.
#include "measure.h"

static uint64_t sum(const uint64_t *values, uint32_t count) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) total += values[i];
  return total;
}

static const char *broken_count(const berth_metrics *m) {
  if (m->begun != m->sealed + m->open) return "begun = sealed + open";
  if (m->submitted != m->granted + m->expired + m->cancelled + m->refused + m->closed + m->queued) {
    return "submitted = granted + expired + cancelled + refused + closed + queued";
  }
  if (m->sealed != m->delivered + m->taken + m->held + m->overflowed) return "sealed = delivered + taken + held + overflowed";
  if (m->sealed != sum(m->outcomes, 5)) return "sealed = sum of outcomes";
  if (m->sealed != sum(m->dispositions, 4)) return "sealed = sum of dispositions";
  if (m->refused != sum(m->refusals, BERTH_REFUSAL_KINDS)) return "refused = sum of refusals";
  if (m->granted != m->wait.count) return "granted = waits recorded";
  if (m->wait.count != sum(m->wait.buckets, BERTH_WAIT_BUCKETS)) return "waits recorded = sum of their buckets";
  if (m->live_grants > m->granted) return "live grants <= granted";
  return NULL;
}

static const char *broken_ledger(const berth_device_metrics *d) {
  uint64_t classes = d->grant_bytes + d->resident_bytes + d->cache_bytes + d->library_bytes + d->reserve_bytes + d->leaked_bytes + d->withheld_bytes +
                     d->external_bytes + d->free_bytes;
  uint64_t capacity = d->total_bytes - d->library_bytes - d->reserve_bytes;
  if (classes != d->total_bytes) return "LED-4: the classes of bytes sum to the total";
  if (d->cache_bytes > d->cache_limit_bytes) return "LED-1: cache <= K";
  if (d->resident_bytes + d->grant_bytes + d->leaked_bytes + d->withheld_bytes > capacity - d->cache_limit_bytes) return "LED-1: promises <= Q";
  if (d->active > d->slots) return "LED-1: active <= slots";
  if (d->lanes_promised > d->lanes) return "LED-1: promised lanes <= lanes";
  return NULL;
}

static const char *broken_devices(const berth_metrics *m) {
  uint64_t promised = 0;
  uint64_t active = 0;
  for (uint32_t i = 0; i < m->device_count; i++) {
    const char *broken = broken_ledger(&m->devices[i]);
    if (broken != NULL) return broken;
    promised += m->devices[i].grant_bytes;
    active += m->devices[i].active;
  }
  if (promised != m->promised_bytes) return "promised bytes = sum of the devices' grants";
  if (active != m->live_grants) return "live grants = sum of the devices' active executions";
  return NULL;
}

static const char *broken_time(const berth_metrics *now, const berth_metrics *before) {
  if (now->sequence < before->sequence) return "the sequence number rises";
  if (now->begun < before->begun || now->sealed < before->sealed) return "begun and sealed rise";
  if (now->submitted < before->submitted || now->granted < before->granted || now->refused < before->refused || now->expired < before->expired ||
      now->cancelled < before->cancelled || now->closed < before->closed) {
    return "counters of admission rise";
  }
  return NULL;
}

const char *measure_broken_law(const berth_metrics *now, const berth_metrics *before) {
  const char *broken = broken_count(now);
  if (broken == NULL && now->devices != NULL && now->device_capacity >= now->device_count) broken = broken_devices(now);
  if (broken == NULL && before != NULL) broken = broken_time(now, before);
  return broken;
}
