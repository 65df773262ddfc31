#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command against NumPy: random specifications on files of every type and order, and the smaller instances.
set -euo pipefail
berth=${BERTH_BUILD_DIR:?}/berth
python=${BERTH_PYTHON:-}
[ -n "$python" ] || { echo "skipped: no python with NumPy (python3-numpy)"; exit 77; }
[ -x "$berth" ] || { echo "skipped: the command is not built"; exit 77; }
data=${BERTH_SOURCE_DIR:?}/data/einsum
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
instances=()
for name in bin_matmul_256 bin_batched_matmul_b32_m64_n64_k64 lm_batch_likelihood_brackets_4_4d lm_batch_likelihood_sentence_4_4d \
  str_matrix_chain_multiplication_100; do
  [ ! -e "$data/$name.json" ] || instances+=("$data/$name.json")
done
"$python" "$BERTH_SOURCE_DIR/tests/tensor/oracle_einsum.py" "$berth" "$work" "${instances[@]}"
