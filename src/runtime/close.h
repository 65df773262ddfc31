// SPDX-License-Identifier: Apache-2.0
/// Close, as the keeper drives it (CLS-1).
#ifndef BERTHI_CLOSE_H
#define BERTHI_CLOSE_H

#include "runtime/core.h"

/// Moves the close on as far as it goes now; true once CLOSED. May disarm and arm timers.
bool berthi_close_advance_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
/// After CLOSED: lets the other threads of the backend end.
void berthi_close_finish(berthi_core *core);

#endif
