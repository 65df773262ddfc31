// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(BERTHI_SCHED)
#include "base/sched.h"
#endif

void berthi_assert_failed(const char *expression, const char *rule, const char *file, int line) {
#if defined(BERTHI_SCHED)
  if (berthi_sched_active()) berthi_sched_fail("assert: %s:%d: %s (%s)", file, line, expression, rule);
#endif
  // The one place where the library prints: its own state can no longer be trusted.
  fprintf(stderr, "berth: %s:%d: broken invariant %s: %s\n", file, line, rule, expression);
  abort();
}
