// SPDX-License-Identifier: Apache-2.0
/// Makes calls of the serial BLAS from several threads safe.
///
/// A serial OpenBLAS that was built without USE_LOCKING (Debian's 0.3.21 is one) hands its packing buffers out from a table that it reads and
/// marks without a lock: two products at the same time can get one buffer, and both results are garbage. The library is therefore linked with
/// `--wrap=blas_memory_alloc` and `--wrap=blas_memory_free`, and the wrappers here take a lock of a few nanoseconds. Where the BLAS is a shared
/// object the wrappers cannot get between; the first call finds that out, and then whole calls are serialized: right, if not fast.
#ifndef BERTHI_BLAS_GUARD_H
#define BERTHI_BLAS_GUARD_H

#include <stdbool.h>

/// Stand around each call of the BLAS.
void berthi_blas_begin(void);
void berthi_blas_end(void);
/// True when products run side by side; false when calls are serialized. For reports and tests.
bool berthi_blas_is_guarded(void);

#endif
