#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/field-cases.md: no cell is empty, every test named exists, every case is there, and only the cases listed here have no test.
. "$(dirname "${BASH_SOURCE[0]}")/tables.sh"

page=docs/field-cases.md
untested="C-67" # what it is about is not built yet, and the page says so
check_cells $page case 5
rows=0
while IFS=$'\t' read -r case _ _ why tests; do
  rows=$((rows + 1))
  if [ -z "$(quoted "$tests")" ]; then
    grep -qw -- "$case" <<<"$untested" || problem "$case: no test"
    grep -q 'not built yet' <<<"$why" || problem "$case: it has no test and does not say that it is not built yet"
  fi
  while IFS= read -r test; do [ -z "$test" ] || check_test "$case" "$test"; done < <(quoted "$tests")
done < <(table_rows $page case)

for number in 1 2 4 5 7 8 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34 35 37 38 40 41 43 44 46 47 49 50 51 52 53 55 56 58 59 61 62 64 65 67 68 70 71 73 74 \
  76 77 79 80 81 82 83; do
  table_rows $page case | cut -f1 | grep -qE "(^|[^0-9])C-$number([^0-9]|$)" || problem "$page has no C-$number"
done

# Every test of these files is in the table.
for name in $(grep -ohE 'cmocka_unit_test\(\w+' tests/runtime/test_field_cases_*.c | sed 's/.*(//'); do
  grep -q ": $name\`" $page || problem "$page does not name $name"
done
finish "$rows rows of $page"
