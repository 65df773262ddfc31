#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The models can fail, and so can their runner. (That they hold is one test per model: scripts/models.)
. "$(dirname "${BASH_SOURCE[0]}")/../checks/checks.sh"
command -v spin >/dev/null || skip "spin is missing"

# Every model is checked and refuted; every mutant in its text is refuted once at least, and no refutation names one that is not there.
for model in models/*.pml; do
  grep -q '^// check: ' "$model" || problem "$model has no check"
  grep -q '^// refute: ' "$model" || problem "$model has no refutation: a model that cannot fail proves nothing"
  in_text=$(sed -n 's/^#if\(n\|\)def \(MUTANT_[A-Z_]*\)$/\2/p' "$model" | sort -u)
  in_lines=$(sed -n 's/^\/\/ refute: .*-D\(MUTANT_[A-Z_]*\).*/\1/p' "$model" | sort -u)
  [ "$in_text" = "$in_lines" ] || problem "$model: mutants in the text and in the refute lines differ: $(comm -3 <(echo "$in_text") <(echo "$in_lines") | tr -s '\n\t' ' ')"
  grep -q "$(basename "$model")" models/README.md || problem "models/README.md does not tell about $model"
done

# The runner fails for a broken model, for a deadlock, for a mutant that holds, for an edge that is never taken and for text that is no model.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/models"
ln -s "$PWD/src" "$work/src" # words.h reads the table of states beside it
cp models/words.h "$work/models/"
expect() { # expect STATUS NAME, model on standard input
  local status=0
  cat >"$work/models/$2.pml"
  bash scripts/models "$work/models/$2.pml" >"$work/log" 2>&1 || status=$?
  [ "$status" -eq "$1" ] || { problem "scripts/models answers $status, not $1, for $2"; cat "$work/log"; }
}
expect 0 good <<<'active proctype p() { assert(true) }'
expect 1 broken <<<'active proctype p() { assert(false) }'
expect 1 deadlock <<<'bool never; active proctype p() { never }'
expect 1 nonsense <<<'active proctype'
expect 1 mutant_that_holds <<'PML'
// check: as it is | | -DSAFETY |
// refute: broken | -DMUTANT | -DSAFETY |
active proctype p() { assert(true) }
PML
expect 1 edge_never_taken <<'PML'
// check: as it is | | -DSAFETY |
#include "words.h"
mtype word = STRIPE_EMPTY;
active proctype p() {
  if
  :: EDGE(STRIPE, word, PARKED, BUSY)
  :: else
  fi
}
PML
finish "$(ls models/*.pml | wc -l) models, $(cat models/*.pml | grep -c '^// check: ') checks, $(cat models/*.pml | grep -c '^// refute: ') refutations"
