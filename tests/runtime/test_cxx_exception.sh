#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds cxx_exception.cpp with the C++ compiler of this build against the built library, and runs it (USR-1).
set -euo pipefail

: "${BERTH_SOURCE_DIR:?}" "${BERTH_BUILD_DIR:?}"
compiler=${CXX:-}
if [[ -z $compiler ]] || ! command -v "$compiler" >/dev/null; then
  echo "skip: no C++ compiler"
  exit 77
fi
sanitize=()
if [[ -n ${BERTH_SANITIZE:-} ]]; then sanitize=("-fsanitize=$BERTH_SANITIZE"); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$compiler" -std=c++17 -Wall -Wextra "${sanitize[@]}" -I"$BERTH_SOURCE_DIR/include" "$BERTH_SOURCE_DIR/tests/runtime/cxx_exception.cpp" \
  -L"$BERTH_BUILD_DIR" -lberth -Wl,-rpath,"$BERTH_BUILD_DIR" -o "$work/cxx_exception"
"$work/cxx_exception"
