#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly what the public headers declare, and what computes takes an execution (EXE-0).
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

library=$build_dir/libberth.so.0
[ -e "$library" ] || skip "$library is not built"
exceptions=tests/checks/computes_without_exec.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

public_declarations >"$work/declarations"
declared_names <"$work/declarations" | sort >"$work/declared"
nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | sort -u >"$work/exported"
# A sanitized library carries the sanitizer's own symbols.
if [ -n "${BERTH_SANITIZE:-}" ]; then grep -vE '^(__|_fini$|_init$)' "$work/exported" >"$work/plain" || true; mv "$work/plain" "$work/exported"; fi

[ "$(wc -l <"$work/declarations")" -eq "$(wc -l <"$work/declared")" ] || problem "a BERTH_API declaration has no name that this check can read"
for name in $(uniq -d "$work/declared"); do problem "$name is declared twice in include/berth"; done
for name in $(grep -v '^berth_' "$work/exported" || true); do problem "$name is exported and does not begin with berth_"; done
sort -u "$work/declared" >"$work/declared_once"
comm -13 "$work/declared_once" "$work/exported" >"$work/not_declared"
comm -23 "$work/declared_once" "$work/exported" >"$work/not_exported"
for name in $(grep '^berth_' "$work/not_declared" || true); do problem "$name is exported but not declared in include/berth"; done
for name in $(cat "$work/not_exported"); do problem "$name is declared in include/berth but not exported"; done
[ -s "$work/declared" ] && [ -s "$work/exported" ] || problem "nothing is declared or exported: this check has gone blind"

# EXE-0: an operation takes the execution.
while read -r declaration; do
  name=$(printf '%s\n' "$declaration" | declared_names)
  case $name in berth_tensor_* | berth_einsum* | berth_npy_*) ;; *) continue ;; esac
  case $declaration in *"berth_exec *"*) continue ;; esac
  allowed $exceptions | grep -qx "$name" || problem "$name takes no berth_exec and is not in $exceptions (EXE-0)"
done <"$work/declarations"
for name in $(allowed $exceptions); do
  line=$(grep -E "[ *]$name *\(" "$work/declarations" || true)
  case $line in
    '') problem "$exceptions names $name, which is not declared" ;;
    *"berth_exec *"*) problem "$exceptions names $name, which takes a berth_exec" ;;
  esac
done
finish "$(wc -l <"$work/exported") exported functions, all declared"
