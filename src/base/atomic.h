// SPDX-License-Identifier: Apache-2.0
/// Atomics of the protocols. Under the deterministic scheduler each is a scheduling point; statistics that no protocol reads use the
/// `_relaxed_stat` forms, which are not.
#ifndef BERTHI_ATOMIC_H
#define BERTHI_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(BERTHI_SCHED)
void berthi_sched_point(void);
#define BERTHI_POINT() berthi_sched_point()
#else
#define BERTHI_POINT() ((void)0)
#endif

typedef _Atomic uint32_t berthi_atomic32;
typedef _Atomic uint64_t berthi_atomic64;

// Each macro: scheduling point, then the operation. `order` is relaxed, acquire, release, acq_rel or seq_cst.
#define berthi_load(p, order) (BERTHI_POINT(), atomic_load_explicit((p), memory_order_##order))
#define berthi_store(p, v, order) (BERTHI_POINT(), atomic_store_explicit((p), (v), memory_order_##order))
#define berthi_exchange(p, v, order) (BERTHI_POINT(), atomic_exchange_explicit((p), (v), memory_order_##order))
#define berthi_add(p, v, order) (BERTHI_POINT(), atomic_fetch_add_explicit((p), (v), memory_order_##order))
#define berthi_sub(p, v, order) (BERTHI_POINT(), atomic_fetch_sub_explicit((p), (v), memory_order_##order))
#define berthi_or(p, v, order) (BERTHI_POINT(), atomic_fetch_or_explicit((p), (v), memory_order_##order))
#define berthi_and(p, v, order) (BERTHI_POINT(), atomic_fetch_and_explicit((p), (v), memory_order_##order))
/// Strong compare-and-swap: `*expected` is updated on failure. Failure order is acquire.
#define berthi_cas(p, expected, desired, order) \
  (BERTHI_POINT(), atomic_compare_exchange_strong_explicit((p), (expected), (desired), memory_order_##order, memory_order_acquire))

#define berthi_stat_load(p) atomic_load_explicit((p), memory_order_relaxed)
#define berthi_stat_store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define berthi_stat_add(p, v) ((void)atomic_fetch_add_explicit((p), (v), memory_order_relaxed))

/// Reference counts: relaxed up (a holder exists), acq_rel down (pairs with the other releases before destruction).
static inline void berthi_ref_up(berthi_atomic32 *refs) { atomic_fetch_add_explicit(refs, 1, memory_order_relaxed); }
static inline bool berthi_ref_down(berthi_atomic32 *refs) { return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1; }

#endif
