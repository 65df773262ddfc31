# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by the check scripts: source it. Sets `source_dir`, `build_dir`, `problems`.
set -euo pipefail
source_dir=${BERTH_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
build_dir=${BERTH_BUILD_DIR:-$source_dir/build/release}
cd "$source_dir"

problems=0
problem() {
  printf '%s\n' "$*"
  problems=$((problems + 1))
}
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}
finish() {
  [ "$problems" -eq 0 ] || {
    printf '%d problems\n' "$problems"
    exit 1
  }
  printf 'ok: %s\n' "$*"
}

# Prints a C file without comments and without the contents of strings and character constants; lines keep their numbers.
without_comments() {
  awk '
    {
      line = $0; out = ""; i = 1; n = length(line)
      while (i <= n) {
        two = substr(line, i, 2); one = substr(line, i, 1)
        if (block) { if (two == "*/") { block = 0; i += 2 } else i++; continue }
        if (two == "//") break
        if (two == "/*") { block = 1; i += 2; continue }
        if (one == "\"" || one == "\047") {
          out = out one; quote = one; i++
          while (i <= n && substr(line, i, 1) != quote) i += (substr(line, i, 1) == "\\") ? 2 : 1
          out = out quote; i++; continue
        }
        out = out one; i++
      }
      print out
    }' "$1"
}

# Prints the entries of an allow list: the first word of each line; the rest of the line is the reason.
allowed() { sed -n 's/^\([^# ][^ ]*\) .*/\1/p' "$1"; }

# Prints the public function declarations, one a line with single spaces.
public_declarations() {
  local header
  find include/berth -name '*.h' | sort | while read -r header; do
    without_comments "$header" | grep -v '^ *#' | tr '\n' ' ' | tr -s ' ' | sed 's/[;{}]/\n/g' | grep -w BERTH_API || true
  done | sed 's/^ *//; s/ *$//'
}

# Prints the name in each declaration read.
declared_names() { sed -n 's/^.*BERTH_API[^(]*[ *]\([a-z_0-9]*\) *(.*$/\1/p'; }
