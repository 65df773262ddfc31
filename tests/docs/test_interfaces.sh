#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/interfaces.md: no cell is empty, every function named is declared in include/berth, every test named exists. And there are no more ways to an
# execution than those that admit (EXE-0).
. "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

page=docs/interfaces.md
declared=$(public_declarations | declared_names)
check_cells $page item 4
rows=0
while IFS=$'\t' read -r item functions contracts tests; do
  rows=$((rows + 1))
  [ -n "$(quoted "$functions")" ] || problem "$item: no function"
  for name in $(quoted "$functions"); do
    grep -qx "$name" <<<"$declared" || grep -qE "(^|[^_[:alnum:]])$name([^_[:alnum:]]|$)" -r include/berth || problem "$item: include/berth has no $name"
  done
  check_contract "$item" "$contracts"
  [ -n "$(quoted "$tests")" ] || problem "$item: no test"
  while IFS= read -r test; do check_test "$item" "$test"; done < <(quoted "$tests")
done < <(table_rows $page item)
[ $rows -ge 60 ] || problem "$page has $rows rows: this check has gone blind"

# What gives an execution: the two doors, what holds one that was admitted, and a child of one.
doors=$(public_declarations | grep 'berth_exec \*\*' | declared_names | sort | tr '\n' ' ')
[ "$doors" = "berth_admission_take berth_exec_child berth_exec_hold " ] || problem "these give an execution: $doors(EXE-0)"
finish "$rows rows of $page"
