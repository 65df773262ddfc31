// SPDX-License-Identifier: Apache-2.0
/// Accounting for a caller that holds the domain's lock already: a device's allocator charges and takes a block in one critical section.
/// Words are atomic because readers take no lock; their only writers hold it, so plain loads and stores do. `limit` alone can rise without it.
#ifndef BERTHI_DOMAIN_LOCKED_H
#define BERTHI_DOMAIN_LOCKED_H

#include "device/device.h"

/// Adds nothing when it does not fit.
static inline bool berthi_domain_charge_locked(berthi_domain *domain, uint64_t bytes) BERTHI_REQUIRES(domain->lock) {
  uint64_t used = berthi_stat_load(&domain->used), limit = berthi_stat_load(&domain->limit);
  if (BERTHI_UNLIKELY(used > limit || bytes > limit - used)) return false;
  used += bytes;
  berthi_stat_store(&domain->used, used);
  if (used > berthi_stat_load(&domain->peak)) berthi_stat_store(&domain->peak, used);
  return true;
}

static inline void berthi_domain_credit_locked(berthi_domain *domain, uint64_t bytes) BERTHI_REQUIRES(domain->lock) {
  berthi_stat_store(&domain->used, berthi_stat_load(&domain->used) - bytes);
}

/// Bytes that may be kept for reuse beside what is used, within the grant.
static inline uint64_t berthi_domain_room_locked(const berthi_domain *domain) BERTHI_REQUIRES(domain->lock) {
  uint64_t used = berthi_stat_load(&domain->used), limit = berthi_stat_load(&domain->limit);
  return limit > used ? limit - used : 0;
}

/// The refusal of a charge: grant_exhausted with facts asked, used, limit.
berth_status berthi_domain_refuse(berthi_domain *domain, uint64_t bytes, berth_error *err);

#endif
