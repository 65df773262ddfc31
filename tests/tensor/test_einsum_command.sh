#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a user of `berth einsum` sees: the line of a result, exit codes, and errors that name the value, the bound and the way out.
set -euo pipefail
berth=${BERTH_BUILD_DIR:?}/berth
[ -x "$berth" ] || { echo "skipped: the command is not built"; exit 77; }
data=${BERTH_SOURCE_DIR:?}/data/einsum
[ -e "$data/bin_matmul_256.json" ] || { echo "skipped: no instances"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
problems=0

expect() { # expect CODE PATTERN ARGUMENT...
  local code=0 output
  output=$("$berth" einsum "${@:3}" 2>&1) || code=$?
  if [ "$code" -ne "$1" ] || ! grep -qE -- "$2" <<<"$output"; then
    printf 'einsum %s\n  exit %d, not %d, or no match of: %s\n  %s\n' "${*:3}" "$code" "$1" "$2" "$output"
    problems=$((problems + 1))
  fi
}

if ! "$berth" einsum --instance "$data/bin_matmul_256.json" --plan >/dev/null 2>"$work/err" && grep -q jansson "$work/err"; then
  echo "skipped: built without jansson"
  exit 77
fi
expect 0 'bin_matmul_256: 2 tensors, cpu:0, 1 lane, peak 1.5 of 1.5 MiB, .*, ok' --instance "$data/bin_matmul_256.json" --lanes 1 --save-operands "$work" -o "$work/c.npy"
expect 0 '^.*/d.npy f64\[256,256\]  .* on cpu:0  peak 1.5 of 1.5 MiB  queued ' ij,jk-\>ik "$work/00000.npy" "$work/00001.npy" -o "$work/d.npy"
cmp "$work/c.npy" "$work/d.npy" || problems=$((problems + 1))
expect 0 'result f64\[\]  .*  = ' ij,ji-\> "$work/00000.npy" "$work/00001.npy"
expect 0 '"verified": true' --instance "$data/lm_batch_likelihood_sentence_4_4d.json" --verify --json
expect 0 'equal within .* to plain loops along opt_size' --instance "$data/lm_batch_likelihood_brackets_4_4d.json" --verify
expect 0 '100 operands, 99 steps by searched order' --instance "$data/str_matrix_chain_multiplication_100.json" --path search --plan
expect 0 '"schema":"berth.report"' --report ij-\>ji "$work/00000.npy"
expect 1 'grant_exhausted: step 1 of 1 needs 512 KiB, .* left; ask for ' --memory 1.25MiB ij,jk-\>ik "$work/00000.npy" "$work/00001.npy"
expect 1 'request_exceeds_device: ' --memory 100TiB ij-\>ji "$work/00000.npy"
expect 1 'shape_mismatch: operand 0 has 2 axes' i-\>i "$work/00000.npy"
expect 1 'file_not_found: ' i-\>i "$work/none.npy"
expect 1 'invalid_file: ' i-\>i "$data/bin_matmul_256.json"
expect 1 'is no instance of a tensor network' --instance "$data/permute_patterns.json"
expect 2 "has no path 'x'; it has opt_" --instance "$data/bin_matmul_256.json" --path x
expect 2 "--memory '3x' is no size such as" --memory 3x
expect 2 '--lanes 0: at least 1' --lanes 0
expect 2 "no option '--wrong'" --wrong
expect 2 'a specification and at least one operand' ij-\>ji
expect 0 '^usage: berth einsum' --help
[ "$problems" -eq 0 ]
