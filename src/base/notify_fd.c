// SPDX-License-Identifier: Apache-2.0
#include "base/notify_fd.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"

void berthi_notify_fd(int fd) {
  uint64_t one = 1;
  if (berthi_fault_fires(BERTHI_FAULT_NOTIFY_FD, "notify_fd")) return;
  (void)syscall(SYS_write, fd, &one, sizeof one); // the wrapper `write` would be a cancellation point
}
