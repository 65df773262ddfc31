# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by the checks of the tables in docs: source it. A row is a line that begins with "|"; the header row of each table begins with the word given.
. "$(dirname "${BASH_SOURCE[0]}")/../checks/checks.sh"

table_rows() { # table_rows FILE HEADER: the rows without headers and rules, cells separated by tabs, blanks around them removed
  awk -v header="$2" '
    /^\|/ {
      line = $0
      sub(/^\| */, "", line); sub(/ *\|[ \t]*$/, "", line)
      gsub(/ *\| */, "\t", line)
      split(line, cell, "\t")
      if (cell[1] != header && line !~ /^[-\t: ]*$/) print line
    }' "$1"
}

quoted() { grep -oE '`[^`]+`' <<<"$1" | tr -d '`' || true; } # what stands between backticks, one a line

check_cells() { # check_cells FILE HEADER COLUMNS: every row has so many cells and none is empty
  local row
  while IFS= read -r row; do
    [ "$(awk -F'\t' '{ print NF }' <<<"$row")" -eq "$3" ] || problem "$1: not $3 cells: ${row%%$'\t'*}"
    ! awk -F'\t' '{ for (i = 1; i <= NF; i++) if ($i == "") exit 0; exit 1 }' <<<"$row" || problem "$1: an empty cell: ${row%%$'\t'*}"
  done < <(table_rows "$1" "$2")
}

# Where tests may be, by the names of the files, which are unique.
declare -A test_files
while IFS= read -r path; do test_files[${path##*/}]=$path; done < <(find tests examples models -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.sh' -o -name '*.pml' -o -name '*.patch' \))

# A test is "FILE: NAME": the file exists and runs the test of that name, which is not only mentioned in a comment.
check_test() { # check_test WHERE TEXT
  local file=${2%%: *} name=${2#*: } path pattern
  path=${test_files[$file]:-}
  [ -n "$path" ] || { problem "$1: no test file $file"; return; }
  case $path in
    tests/sched/scenarios_*) pattern="\\{\"${name}\"," ;;
    tests/*/test_*.c) pattern="(cmocka_unit_test[a-z_]*|TEST)\\(${name}[,)]" ;;
    tests/mutations/*.patch) pattern="^scenario: $name\$" ;;
    tests/*/*.c | examples/*) pattern="[ *]$name\\(.*[{,]$" ;;
    *) pattern="(^|[^_[:alnum:]])$name([^_[:alnum:]]|$)" ;;
  esac
  grep -qE "$pattern" "$path" || problem "$1: $path runs no $name"
}

check_contract() { # check_contract WHERE TEXT: numbers only, such as ADM-4; at least one
  grep -qE '^[A-Z]{3}-[0-9]+([, ]+[A-Z]{3}-[0-9]+)*$' <<<"$2" || problem "$1: contracts are not written as numbers: $2"
}
