#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks of the sources find what they are there for: a small tree full of mistakes, and each mistake must be named.
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{src/base,src/device,src/runtime,src/tensor,src/cli,include/berth,examples,bench,models,scripts,cmake,tests/checks,tests/tensor}
cp tests/checks/checks.sh tests/checks/test_layers.sh tests/checks/test_headers_alone.sh "$work/tests/checks"
touch "$work/CMakeLists.txt"

licence='// SPDX-License-Identifier: Apache-2.0'
put() { # put FILE LINE...
  local file=$work/$1
  shift
  printf '%s\n' "$licence" "$@" >"$file"
}
put src/base/low.c '#include "runtime/exec_ops.h"'
put src/device/clock.c '#include "base/clock.h"' 'int64_t f(void) { struct timespec t; clock_gettime(0, &t); return 0; }'
put src/runtime/heap.c '/* malloc(1) in a comment */ void *f(void) { return malloc(1); }' 'const char *g = "free(p)"; void h(void) { table->free(0); }'
put src/tensor/heap.c 'static __thread int x;'
put src/cli/main.c '#include "runtime/exec_ops.h"'
put examples/one.c '#include "base/lock.h"'
put bench/bench_one.c '#include "base/lock.h"'
put tests/tensor/test_x.c 'void f(void) { usleep(3); }'
put include/berth/base.h '#include "berth/runtime/exec.h"' '#define BERTH_PAIR_INIT { 1 }' 'typedef struct berth_pair { int a, b; } berth_pair;'
{ printf '%s\n' "$licence"; awk 'BEGIN { for (i = 0; i < 900; i++) print "//" }'; } >"$work/src/runtime/long.c"
echo 'int f(void);' >"$work/src/runtime/bare.h"
echo '# FILE:CALL and the reason' >"$work/tests/checks/direct_calls.txt"
echo 'src/device/clock.c:malloc was needed once' >>"$work/tests/checks/direct_calls.txt"
mkdir -p "$work/include/berth/runtime"
put include/berth/runtime/exec.h 'int unused;' 'static int never_used;'

expect() { # expect OUTPUT TEXT
  grep -qF -- "$2" "$1" || problem "not found: $2"
}
expect_not() { grep -qF -- "$2" "$1" && problem "found, though it is right: $2"; return 0; }

BERTH_SOURCE_DIR=$work bash "$work/tests/checks/test_layers.sh" >"$work/layers.log" 2>&1 && problem "test_layers passes a bad tree"
expect "$work/layers.log" 'src/base/low.c: base may not include runtime/exec_ops.h'
expect "$work/layers.log" 'include/berth/base.h: base may not include berth/runtime/exec.h'
expect "$work/layers.log" 'src/cli/main.c may not include runtime/exec_ops.h'
expect "$work/layers.log" 'examples/one.c may not include base/lock.h'
expect "$work/layers.log" 'src/device/clock.c uses clock_gettime directly'
expect "$work/layers.log" 'src/runtime/heap.c uses malloc directly'
expect "$work/layers.log" 'src/tensor/heap.c uses __thread directly'
expect "$work/layers.log" 'src/device/clock.c:malloc is out of date'
expect "$work/layers.log" 'several files are named heap.c'
expect "$work/layers.log" 'src/runtime/long.c has 901 lines'
expect "$work/layers.log" 'src/runtime/bare.h has no licence line'
expect "$work/layers.log" 'tests/tensor/test_x.c sleeps'
expect_not "$work/layers.log" 'heap.c uses free'
expect_not "$work/layers.log" 'bench_one.c'

BERTH_SOURCE_DIR=$work bash "$work/tests/checks/test_headers_alone.sh" >"$work/headers.log" 2>&1 && problem "test_headers_alone passes a bad tree"
expect "$work/headers.log" 'include/berth/base.h does not compile as c11'
expect "$work/headers.log" 'include/berth/runtime/exec.h does not compile as c++17'
if [ "$problems" -gt 0 ]; then cat "$work/layers.log" "$work/headers.log"; fi
finish "every planted mistake is found"
