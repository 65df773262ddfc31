// SPDX-License-Identifier: Apache-2.0
/// Stackful coroutines for the deterministic scheduler. One operating system thread runs them all.
#ifndef BERTHI_COROUTINE_H
#define BERTHI_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct berthi_coroutine berthi_coroutine;
typedef void (*berthi_coroutine_fn)(void *arg);

/// The coroutine that stands for the caller's own stack.
berthi_coroutine *berthi_coroutine_root(void);
/// A coroutine that will run `fn(arg)` when first switched to, or NULL. `fn` must not return.
berthi_coroutine *berthi_coroutine_create(berthi_coroutine_fn fn, void *arg);
/// Gives the stack back for the next create. Also for the running one, if it switches away for good before anything is created.
void berthi_coroutine_release(berthi_coroutine *coroutine);
/// Goes on in `to`. With `from_ends`, `from` is never switched to again.
void berthi_coroutine_switch(berthi_coroutine *from, berthi_coroutine *to, bool from_ends);

#endif
