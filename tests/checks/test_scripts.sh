#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every script parses, is executable, has a help that ends with 0, refuses an unknown option with 2, and passes shellcheck where that is here.
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

for script in scripts/* .ci/run tests/*/*.sh; do
  bash -n "$script" || problem "$script does not parse"
  [[ $script == *.sh ]] || [ -x "$script" ] || problem "$script is not executable"
  if command -v shellcheck >/dev/null; then
    shellcheck -S warning -e SC1091,SC2034,SC2154 "$script" || problem "$script: shellcheck"
  fi
done
for script in scripts/{setup,demo,test,sanitize,format}; do
  bash "$script" --help | grep -q "Usage: $script" || problem "$script --help does not say how to use it"
  status=0
  bash "$script" --no-such-option >/dev/null 2>&1 || status=$?
  [ $status -eq 2 ] || problem "$script --no-such-option ends with $status, not 2"
done
for script in scripts/{analyze,models,bench}; do
  bash "$script" --help | grep -q "Usage: $script" || problem "$script --help does not say how to use it"
done
bash scripts/demo --dry-run >/dev/null || problem "scripts/demo --dry-run fails"
finish "scripts"
