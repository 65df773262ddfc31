#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The edges that the models take are the edges of the code's table (src/runtime/states.def), for every machine: neither side has one that the other
# lacks. Models write a state with EDGE(...) only, so the list cannot drift from the model; that each is really taken is checked by scripts/models.
. "$(dirname "${BASH_SOURCE[0]}")/../checks/checks.sh"

# edges_of_table FILE, edges_of_models FILE...: MACHINE FROM TO, one a line
edges_of_table() { without_comments "$1" | sed -n 's/^ *EDGE(\([A-Z_]*\), *\([A-Z_]*\), *\([A-Z_]*\),.*/\1 \2 \3/p' | sort -u; }
edges_of_models() { for file in "$@"; do without_comments "$file"; done | sed -n 's/.*\<EDGE(\([A-Z_]*\), *[^,]*, *\([A-Z_]*\), *\([A-Z_]*\)).*/\1 \2 \3/p' | sort -u; }

# compare TABLE MODELS: says which edges one side lacks
compare() {
  comm -23 "$1" "$2" | sed 's/^/in states.def only: /'
  comm -13 "$1" "$2" | sed 's/^/in the models only: /'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
edges_of_table src/runtime/states.def >"$work/table"
edges_of_models models/*.pml >"$work/models"
[ "$(wc -l <"$work/table")" -gt 20 ] || problem "only $(wc -l <"$work/table") edges in the table: this check has gone blind"
# A line that writes EDGE( in a way that the pattern misses would go unseen.
for file in models/*.pml; do
  [ "$(without_comments "$file" | grep -o '\<EDGE(' | wc -l)" -eq "$(without_comments "$file" | grep -c '\<EDGE([A-Z_]*, *[^,]*, *[A-Z_]*, *[A-Z_]*)')" ] ||
    problem "$file: two EDGE(...) on a line, or one that is not EDGE(MACHINE, word, FROM, TO)"
done
while read -r line; do problem "$line"; done < <(compare "$work/table" "$work/models")

# States are written with EDGE alone; what a mutant breaks stands between #ifdef MUTANT and #else or #endif, and initial values stand in declarations.
for file in models/*.pml; do
  while read -r line; do problem "$file writes a state without EDGE: $line"; done < <(without_comments "$file" |
    awk '/#ifdef MUTANT/ { mutant = 1 } /#else|#endif/ { mutant = 0 } !mutant && !/^ *mtype/' |
    grep -E '[^=!<>]=[^=>]* *(ADMISSION|ATTEMPT|BACKEND|HEALTH|STRIPE)_[A-Z]+' || true)
done

# The comparison itself notices a lost and a gained edge.
sed 1d "$work/table" >"$work/fewer"
{ cat "$work/table"; echo 'STRIPE BUSY GONE'; } | sort >"$work/more"
[ -n "$(compare "$work/table" "$work/fewer")" ] || problem "the comparison overlooks an edge that the models lack"
[ -n "$(compare "$work/more" "$work/table")" ] || problem "the comparison overlooks an edge that only the table has"
[ -n "$(compare "$work/table" "$work/more")" ] || problem "the comparison overlooks an edge that only the models have"
finish "$(wc -l <"$work/table") edges, the same in the table and in the models"
