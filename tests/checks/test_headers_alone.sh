#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11, C17 and C++17, without a warning, with each compiler that is here.
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

flags=(-Iinclude -Wall -Wextra -Werror -pedantic -Wshadow -fsyntax-only)
mapfile -t headers < <(find include/berth -name '*.h' | sort)
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
compilers=()
for compiler in gcc clang; do if command -v $compiler >/dev/null; then compilers+=("$compiler"); fi; done
[ ${#headers[@]} -gt 0 ] || problem "no header found: this check has gone blind"
[ ${#compilers[@]} -gt 0 ] || skip "neither gcc nor clang is here"

# Every initializer macro that the header defines, used once: it must be silent in a user's build too.
initializers() { # initializers HEADER
  sed -n 's/^#define \(BERTH_[A-Z_]*\)_INIT\b.*/\1/p' "$1" | sort -u | while read -r name; do
    type=$(printf '%s' "$name" | tr '[:upper:]' '[:lower:]')
    printf 'void use_%s(void);\nvoid use_%s(void) { %s value = %s_INIT; (void)value; }\n' "$type" "$type" "$type" "$name"
  done
}

# compile LANGUAGE STANDARD COMPILER HEADER
compile() {
  local include=${4#include/}
  { printf '#include "%s"\n#include "%s"\n' "$include" "$include"; initializers "$4"; } | "$3" -x "$1" -std="$2" "${flags[@]}" - 2>"$errors" || problem "$4 does not compile as $2 with $3: $(grep -m 1 error: "$errors")"
}
for header in "${headers[@]}"; do
  for compiler in "${compilers[@]}"; do
    compile c c11 "$compiler" "$header"
    compile c c17 "$compiler" "$header"
    if command -v g++ >/dev/null; then compile c++ c++17 "$compiler" "$header"; fi
  done
done
if [ -e include/berth/berth.h ]; then
  for header in "${headers[@]}"; do
    name=${header#include/}
    [ "$name" = berth/berth.h ] || grep -q "#include \"$name\"" include/berth/*.h include/berth/*/*.h || problem "berth.h reaches no $name"
  done
fi
finish "${#headers[@]} headers with ${compilers[*]}"
