// SPDX-License-Identifier: Apache-2.0
/// Counts of threads that wait, by the name of the place. Touched only on the way into and out of a real sleep.
#ifndef BERTHI_WAIT_PLACE_H
#define BERTHI_WAIT_PLACE_H

#include <stdint.h>

#include "base/atomic.h"

/// One more waiter at `place` (a static string, or NULL: not counted). Returns the counter to hand back to leave.
berthi_atomic32 *berthi_wait_place_enter(const char *place);
void berthi_wait_place_leave(berthi_atomic32 *counter);

#endif
