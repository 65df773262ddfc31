// SPDX-License-Identifier: Apache-2.0
/// Assertions of the library's own invariants. Bad data from a caller is never an assert.
#ifndef BERTHI_ASSERT_H
#define BERTHI_ASSERT_H

/// Reports a broken invariant and does not return: aborts; under the deterministic scheduler it fails the schedule with its seed.
void berthi_assert_failed(const char *expression, const char *rule, const char *file, int line) __attribute__((noreturn, cold));

/// `rule` is the contract number that the assert guards, such as "ADM-1". On in every build but release (NDEBUG).
#if defined(NDEBUG) && !defined(BERTHI_SCHED)
#define berthi_assert(cond, rule) ((void)sizeof(!(cond)))
#else
#define berthi_assert(cond, rule) ((cond) ? (void)0 : berthi_assert_failed(#cond, rule, __FILE__, __LINE__))
#endif

#endif
