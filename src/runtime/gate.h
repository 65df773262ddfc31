// SPDX-License-Identifier: Apache-2.0
/// The gate: one 64-bit word with the closed bit, the observation permits and the device permits (BCK-5).
///
/// Guarantees. Linearization: a permit is taken, or close is signalled, by one successful compare-and-swap or fetch-or on the word; a taker that
/// comes after the closed bit fails and leaves no trace (ATT-1). Progress: take is lock-free, give and close are wait-free.
/// Model: models/gate.pml.
#ifndef BERTHI_GATE_H
#define BERTHI_GATE_H

#include <stdbool.h>

#include "base/assert.h"
#include "base/atomic.h"

#define BERTHI_GATE_CLOSED ((uint64_t)1 << 63)
#define BERTHI_GATE_OBSERVATION ((uint64_t)1 << 32) ///< one observation permit
#define BERTHI_GATE_DEVICE ((uint64_t)1)            ///< one device permit

static inline uint64_t berthi_gate_observations(uint64_t word) { return (word & ~BERTHI_GATE_CLOSED) >> 32; }
static inline uint64_t berthi_gate_devices(uint64_t word) { return word & 0xffffffffu; }

/// Takes one permit of the given unit; false when closed.
static inline bool berthi_gate_take(berthi_atomic64 *gate, uint64_t unit) {
  uint64_t word = berthi_load(gate, relaxed);  // only the expected value of the CAS below
  while (!(word & BERTHI_GATE_CLOSED)) {
    if (berthi_cas(gate, &word, word + unit, seq_cst)) return true;  // pairs with berthi_gate_close
  }
  return false;
}

/// Takes one more permit where the caller holds one that covers it, so the closed bit does not matter.
static inline void berthi_gate_add(berthi_atomic64 *gate, uint64_t unit) { (void)berthi_add(gate, unit, seq_cst); }

/// Gives one permit back; returns the word after it.
static inline uint64_t berthi_gate_give(berthi_atomic64 *gate, uint64_t unit) {
  uint64_t before = berthi_sub(gate, unit, seq_cst);
  berthi_assert(unit == BERTHI_GATE_DEVICE ? berthi_gate_devices(before) > 0 : berthi_gate_observations(before) > 0, "BCK-5");
  return before - unit;
}

/// Sets the closed bit; true for the one call that set it.
static inline bool berthi_gate_close(berthi_atomic64 *gate) { return !(berthi_or(gate, BERTHI_GATE_CLOSED, seq_cst) & BERTHI_GATE_CLOSED); }

static inline bool berthi_gate_is_closed(berthi_atomic64 *gate) { return berthi_load(gate, seq_cst) & BERTHI_GATE_CLOSED; }

#endif
