// SPDX-License-Identifier: Apache-2.0
/// Telling a caller's event loop.
#ifndef BERTHI_NOTIFY_FD_H
#define BERTHI_NOTIFY_FD_H

/// Adds 1 to an eventfd (or writes those 8 bytes). Not a cancellation point (USR-1). What the descriptor refuses is lost: it is the caller's.
/// A fault point (BERTHI_FAULT_NOTIFY_FD).
void berthi_notify_fd(int fd);

#endif
