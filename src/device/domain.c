// SPDX-License-Identifier: Apache-2.0
// Accounting of one execution's memory, common to all kinds (LED-2).
//
// Guarantees: `used` never exceeds `limit`; a refused charge adds nothing, so a large request that does not fit never makes a small one fail
// (ADM-1); what a shrink gave back can be promised to others when it returns. Any thread of the execution may charge and credit at once.
#include "base/assert.h"
#include "base/error.h"
#include "device/domain_locked.h"

void berthi_domain_init(berthi_domain *domain, berthi_device *device, uint64_t limit) {
  domain->device = device;
  atomic_init(&domain->limit, limit);
  atomic_init(&domain->used, 0);
  atomic_init(&domain->peak, 0);
  atomic_init(&domain->blocks, 0);
  berthi_mutex_init(&domain->lock, BERTHI_RANK_LEAF);
  domain->kept = 0;
  domain->list = NULL;
  domain->queue = NULL;
}

static BERTHI_COLD berth_status refuse_charge(uint64_t bytes, uint64_t used, uint64_t limit, berth_error *err) {
  char asked_text[BERTHI_BYTES_TEXT], left_text[BERTHI_BYTES_TEXT], limit_text[BERTHI_BYTES_TEXT];
  uint64_t left = limit > used ? limit - used : 0;
  berth_status status = berthi_fail(err, BERTHI_R_GRANT_EXHAUSTED, "%s asked, %s of %s left; ask for a larger grant",
                                    berthi_bytes_text(bytes, asked_text), berthi_bytes_text(left, left_text), berthi_bytes_text(limit, limit_text));
  berthi_fact(err, "asked", bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes);
  berthi_fact(err, "used", (int64_t)used);
  berthi_fact(err, "limit", limit > INT64_MAX ? INT64_MAX : (int64_t)limit);
  return status;
}

berth_status berthi_domain_refuse(berthi_domain *domain, uint64_t bytes, berth_error *err) {
  return refuse_charge(bytes, berthi_stat_load(&domain->used), berthi_stat_load(&domain->limit), err);
}

berth_status berthi_domain_charge(berthi_domain *domain, uint64_t bytes, berth_error *err) {
  berthi_mutex_lock(&domain->lock);
  uint64_t used = berthi_stat_load(&domain->used), limit = berthi_stat_load(&domain->limit);
  bool fits = berthi_domain_charge_locked(domain, bytes);
  bool over = domain->kept > berthi_domain_room_locked(domain);
  berthi_mutex_unlock(&domain->lock);
  if (over) domain->device->kind->trim(domain);
  return BERTHI_LIKELY(fits) ? BERTH_OK : refuse_charge(bytes, used, limit, err);
}

void berthi_domain_credit(berthi_domain *domain, uint64_t bytes) {
  berthi_mutex_lock(&domain->lock);
  berthi_assert(berthi_stat_load(&domain->used) >= bytes, "LED-2");
  berthi_domain_credit_locked(domain, bytes);
  berthi_mutex_unlock(&domain->lock);
}

uint64_t berthi_domain_shrink(berthi_domain *domain, uint64_t to_bytes) {
  berthi_mutex_lock(&domain->lock);
  uint64_t used = berthi_stat_load(&domain->used), limit = berthi_stat_load(&domain->limit);
  uint64_t target = to_bytes > used ? to_bytes : used;
  uint64_t back = limit > target ? limit - target : 0;
  (void)berthi_sub(&domain->limit, back, acq_rel); // a raise at the same time is not lost
  bool over = domain->kept > berthi_domain_room_locked(domain);
  berthi_mutex_unlock(&domain->lock);
  if (over) domain->device->kind->trim(domain);
  return back;
}

uint64_t berthi_block_bytes(uint64_t bytes) {
  if (bytes == 0) return BERTHI_BLOCK_ALIGN;
  if (bytes > UINT64_MAX - (BERTHI_BLOCK_ALIGN - 1)) return UINT64_MAX;
  return (bytes + (BERTHI_BLOCK_ALIGN - 1)) & ~(uint64_t)(BERTHI_BLOCK_ALIGN - 1);
}
