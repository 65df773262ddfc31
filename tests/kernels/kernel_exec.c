// SPDX-License-Identifier: Apache-2.0
// The tensor room's execution without a runtime and its plain evaluation serve the kernels' tests too.
#include "tensor/fake_exec.c"
#include "tensor/naive_einsum.c"
