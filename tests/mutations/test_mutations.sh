#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tests/mutations/test_mutations.sh [NAME...]
#
# Breaks the protocols on purpose, one patch of this folder at a time, and expects the scenario that the patch names to fail. A patch that does not
# apply, a mutant that does not compile and a mutant that survives are failures; see README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${BERTH_SOURCE_DIR:-$(cd "$here/../.." && pwd)}
cc=${CC:-cc}
if [ -n "${BERTH_SANITIZE:-}" ]; then
  echo "mutants are built without sanitizers: skipped"
  exit 77
fi
command -v patch >/dev/null || { echo "patch is missing: skipped"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Relative, so that one set of options serves the sources and their mutated copies.
cp -r "$root/src" "$root/include" "$work"
mkdir "$work/tests" "$work/objects" "$work/mutants"
cp -r "$root/tests/sched" "$work/tests"
export cc work
flags=(-std=gnu17 -O1 -w -D_GNU_SOURCE= -DBERTHI_SCHED=1 -Iinclude -Itests -fexceptions)
links=(-lm -lpthread -ldl)

cat >"$work/compile" <<EOF
#!/usr/bin/env bash
cd "\$work" && exec \$cc ${flags[*]} -Isrc -c "\$1" -o "objects/\$(tr / _ <<<"\${1%.*}").o"
EOF
chmod +x "$work/compile"

# The library and the runner, once.
cd "$work"
mapfile -t sources < <(find src/base src/device src/runtime \( -name '*.c' -o -name '*.S' \) -not -path '*/cpu/*' | sort)
mapfile -t runner < <(ls tests/sched/sched_*.c tests/sched/scenarios_*.c tests/sched/test_sched_edges.c)
printf '%s\0' "${sources[@]}" "${runner[@]}" | xargs -0 -n 1 -P 2 "$work/compile"
ar rc objects/library.a objects/src_*.o
ar rc objects/runner.a objects/tests_*.o

# mutate PATCH: prints one line, "caught", "SURVIVED" or why it could not be tried.
mutate() {
  local patch=$1 name scenario log status=0
  name=$(basename "$patch" .patch)
  local mutant=$work/mutants/$name
  log=$mutant.log
  scenario=$(sed -n 's/^scenario: *//p' "$patch")
  mkdir -p "$mutant"
  cp -r "$work/src" "$mutant"
  if ! patch -s -p1 -d "$mutant" <"$patch" >"$log" 2>&1; then
    printf '%-28s %-22s %s\n' "$name" "$scenario" "DOES NOT APPLY: $(head -n 1 "$log")"
    return 1
  fi
  local -a changed objects=()
  mapfile -t changed < <(sed -n 's|^+++ b/||p' "$patch" | awk '{print $1}')
  for file in "${changed[@]}"; do
    objects+=("$mutant/$(basename "$file").o")
    # The mutated object comes first, so the archive's own copy is not taken.
    if ! $cc "${flags[@]}" -I"$mutant/src" -c "$mutant/$file" -o "${objects[-1]}" >"$log" 2>&1; then
      printf '%-28s %-22s %s\n' "$name" "$scenario" "DOES NOT COMPILE: $(grep -m 1 error "$log")"
      return 1
    fi
  done
  if ! $cc -o "$mutant/explore" objects/tests_sched_test_sched_edges.o "${objects[@]}" objects/runner.a objects/library.a "${links[@]}" >"$log" 2>&1; then
    printf '%-28s %-22s %s\n' "$name" "$scenario" "DOES NOT LINK"
    return 1
  fi
  timeout 60 "$mutant/explore" --scenario "$scenario" --schedules 4000 >"$log" 2>&1 || status=$?
  rm -rf "$mutant"
  if [ "$status" -eq 1 ] && grep -q '^FAILED' "$log"; then
    printf '%-28s %-22s caught after %s schedules: %s\n' "$name" "$scenario" \
      "$(awk '/ schedules +[0-9]+ points/ {for (i = 2; i <= NF; i++) if ($i == "schedules") n += $(i - 1)} END {print n}' "$log")" \
      "$(grep -m 1 -A 1 '^FAILED' "$log" | tail -n 1 | cut -c 1-80)"
    return 0
  fi
  printf '%-28s %-22s %s\n' "$name" "$scenario" "SURVIVED (exit status $status)"
  return 1
}

caught=0 missed=0
if [ $# -gt 0 ]; then patches=("${@/%/.patch}"); patches=("${patches[@]/#/$here/}"); else patches=("$here"/*.patch); fi
for patch in "${patches[@]}"; do
  if mutate "$patch"; then caught=$((caught + 1)); else missed=$((missed + 1)); fi
done
echo "$caught mutants caught, $missed not, in $SECONDS s"
[ "$missed" -eq 0 ]
