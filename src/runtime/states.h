// SPDX-License-Identifier: Apache-2.0
/// State machines as tables (states.def): enums, names, and the check of each transition.
#ifndef BERTHI_STATES_H
#define BERTHI_STATES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum berthi_machine { BERTHI_ADMISSION, BERTHI_ATTEMPT, BERTHI_BACKEND, BERTHI_HEALTH, BERTHI_STRIPE, BERTHI_MACHINES } berthi_machine;

enum {
  BERTHI_ADMISSION_NEW, BERTHI_ADMISSION_QUEUED, BERTHI_ADMISSION_GRANTED, BERTHI_ADMISSION_REFUSED, BERTHI_ADMISSION_CANCELLED,
  BERTHI_ADMISSION_EXPIRED, BERTHI_ADMISSION_CLOSED, BERTHI_ADMISSION_TAKEN, BERTHI_ADMISSION_RETURNED
};
enum { BERTHI_ATTEMPT_OPEN, BERTHI_ATTEMPT_SUBMITTED, BERTHI_ATTEMPT_DECIDED, BERTHI_ATTEMPT_SEALED };
enum { BERTHI_BACKEND_OPEN, BERTHI_BACKEND_CLOSING, BERTHI_BACKEND_DEVICES_QUIESCENT, BERTHI_BACKEND_CLOSED };
enum { BERTHI_STRIPE_EMPTY, BERTHI_STRIPE_PARKED, BERTHI_STRIPE_BUSY };

typedef struct berthi_state_row {
  berthi_machine machine;
  uint32_t value; ///< position within its machine
  const char *name;
} berthi_state_row;
typedef struct berthi_edge_row {
  berthi_machine machine;
  const char *from, *to; ///< upper-case names
  const char *made_by;
} berthi_edge_row;

const berthi_state_row *berthi_state_rows(uint32_t *count);
const berthi_edge_row *berthi_edge_rows(uint32_t *count);

/// Lower-case name of a state; "?" for none.
const char *berthi_state_name(berthi_machine machine, uint32_t state);
/// Whether the table has the edge.
bool berthi_edge_allowed(berthi_machine machine, uint32_t from, uint32_t to);
/// Marks the edge as taken, for the test that shows that every edge is; a no-op in release builds. Asserts that it is allowed.
#if defined(NDEBUG) && !defined(BERTHI_SCHED)
#define berthi_edge(machine, from, to) ((void)0)
#else
void berthi_edge(berthi_machine machine, uint32_t from, uint32_t to);
#endif
/// How often the edge row was taken in this process (0 in release builds).
uint64_t berthi_edge_taken(uint32_t row);

#endif
