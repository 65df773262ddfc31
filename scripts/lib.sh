# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts: source it, do not run it. Sets `root` and changes to it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Speaks as the script that sourced this file.
script=scripts/$(basename "$0")

say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$script" "$*" >&2
  exit 1
}

# Prints the header comment of the script as its help.
usage() { sed -n '/^# Usage:/,/^[^#]/{/^#/s/^# \{0,1\}//p;}' "$0"; }

in_ci() { [ "${CI:-}" = true ] || [ "${CI:-}" = 1 ]; }

# Two jobs at least, so that a machine that hides its processors still overlaps compile and link.
jobs() {
  local count
  count=$(nproc 2>/dev/null || echo 2)
  [ "$count" -ge 2 ] || count=2
  echo "$count"
}

# Runs a command with its output in a log; shows the end of the log when it fails.
logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "failed: $*  (whole log: ${log#"$root"/})"
  fi
}

# configure PRESET [cmake arguments]: warnings stop the build in CI only, because a newer compiler than ours may know more of them.
configure() {
  local preset=$1 werror=OFF
  shift
  in_ci && werror=ON
  logged "build/$preset/configure.log" cmake --preset "$preset" -DBERTH_WERROR=$werror "$@"
}

# build PRESET [target...]
build() {
  local preset=$1 targets=()
  shift
  [ $# -gt 0 ] && targets=(--target "$@")
  if [ -t 1 ]; then
    cmake --build "build/$preset" -j "$(jobs)" "${targets[@]}" || fail "the build of preset $preset failed"
  else
    logged "build/$preset/build.log" cmake --build "build/$preset" -j "$(jobs)" "${targets[@]}"
  fi
}

# Configures and builds, and says how long it took.
make_preset() {
  local preset=$1 start=$SECONDS
  say "build $preset ..."
  configure "$preset"
  build "$preset"
  say "build $preset: $((SECONDS - start)) s"
}

# run_ctest PRESET [ctest arguments]: sets `closing` to ctest's closing line.
run_ctest() {
  local preset=$1 status=0
  shift
  mkdir -p "build/$preset"
  ctest --test-dir "build/$preset" -j "$(jobs)" --output-on-failure --no-tests=error "$@" 2>&1 | tee "build/$preset/ctest.log" || status=$?
  closing=$(grep -E '^[0-9]+% tests passed' "build/$preset/ctest.log" || true)
  return "$status"
}
