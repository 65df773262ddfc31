// SPDX-License-Identifier: Apache-2.0
/// Ctrl-C: fires a cancel token. A second one ends the process.
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

#include "berth/runtime/cancel.h"

/// Blocks SIGINT and SIGTERM in this and all later threads; they are taken by the watcher alone. Called before any thread exists.
void cli_block_interrupts(void);
/// Starts the watcher: the first signal fires `cancel`. Borrows it until cli_forget_interrupts.
void cli_watch_interrupts(berth_cancel *cancel);
/// The token is not fired any more after this returned.
void cli_forget_interrupts(void);
bool cli_interrupted(void);

#endif
