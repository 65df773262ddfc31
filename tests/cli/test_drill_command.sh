#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# berth devices, drill and bench as a user meets them: exit codes, laws, Ctrl-C.
set -euo pipefail
berth=$BERTH_BUILD_DIR/berth
[ -x "$berth" ] || { echo "skipped: the command is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect() { # expect CODE TEXT COMMAND...
  local code=$1 text=$2 got=0
  shift 2
  "$@" >"$work/out" 2>&1 || got=$?
  [ "$got" -eq "$code" ] || { echo "$*: exit code $got, not $code"; cat "$work/out"; exit 1; }
  grep -q -- "$text" "$work/out" || { echo "$*: no '$text'"; cat "$work/out"; exit 1; }
}

expect 0 'cpu:0 ' "$berth" devices
expect 0 '"schema":"berth.devices"' "$berth" devices --json
expect 0 '"available":true' "$berth" devices --no-open --json
expect 0 'laws hold' "$berth" drill --jobs 500 --threads 16
expect 0 '"laws_hold":true' "$berth" drill --jobs 500 --threads 16 --json
expect 0 'laws hold' "$berth" drill --jobs 300 --threads 8 --entries 100 --groups 0 --why
expect 0 'laws hold' "$berth" drill --jobs 500 --threads 16 --entries 0 --cancel 30 --drop 30 --grow 30 --expire 30
expect 0 'quarantines 1' "$berth" drill --jobs 1000 --threads 16 --faults sticky_after=500
expect 2 'from 1 to at most' "$berth" drill --lanes 0..2
expect 2 'no range' "$berth" drill --bytes many
expect 2 "no measurement is named" "$berth" bench --only nothing
expect 0 'scoped entry' "$berth" bench --list

# Ctrl-C: the first line shows that it runs.
mkfifo "$work/lines"
"$berth" drill --seconds 1h --threads 8 >"$work/lines" 2>&1 &
drill=$!
exec 3<"$work/lines"
read -r _ <&3
kill -INT "$drill"
totals=$(cat <&3)
code=0
wait "$drill" || code=$?
[ "$code" -eq 130 ] || { echo "interrupted: exit code $code"; exit 1; }
grep -q 'laws hold' <<<"$totals" || { echo "interrupted: $totals"; exit 1; }
echo ok
