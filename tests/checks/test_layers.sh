#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rules of the house that a compiler does not know: a room includes only what stands left of it; blocking, threads, time and memory go through
# src/base; file names are unique; no file is longer than 900 lines; no test sleeps.
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

order=(base device runtime kernels tensor table query server cli)
direct_calls=tests/checks/direct_calls.txt

rank() { # position of a room; 99 for what is no room
  local i
  for i in "${!order[@]}"; do
    if [ "${order[$i]}" = "$1" ]; then echo "$i"; return; fi
  done
  echo 99
}
room_of_public() { # berth/runtime/exec.h -> runtime, berth/tensor.h -> tensor
  local name=${1#berth/}
  [ "$name" != dtype.h ] || name=kernels # element types: what kernels and tensors have in common
  name=${name%%/*}
  echo "${name%.h}"
}
includes_of() { sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$1"; }

# Library rooms.
check_includes() { # check_includes FILE ROOM
  local include room
  for include in $(includes_of "$1"); do
    case $include in
      berth/berth.h) room=cli ;;
      berth/*) room=$(room_of_public "$include") ;;
      */*) room=${include%%/*} ;;
      *) continue ;; # beside the file
    esac
    [ "$(rank "$room")" -le "$(rank "$2")" ] || problem "$1: $2 may not include $include"
  done
}
for room in "${order[@]}"; do
  if [ "$room" = cli ] || [ ! -d "src/$room" ]; then continue; fi
  while read -r file; do check_includes "$file" "$room"; done < <(find "src/$room" -name '*.[chS]' -o -name '*.def' | sort)
done
while read -r file; do
  [ "$file" = include/berth/berth.h ] || check_includes "$file" "$(room_of_public "${file#include/}")"
done < <(find include/berth -name '*.h' | sort)

# Who may see the public headers only; benchmarks may use base as well.
check_outside() { # check_outside DIRECTORY ALLOWED-PREFIX-PATTERN
  local file include
  while read -r file; do
    for include in $(includes_of "$file"); do
      case $include in
        berth/*) ;;
        */*) [[ $include =~ $2 ]] || problem "$file may not include $include" ;;
        *) [ -e "$(dirname "$file")/$include" ] || problem "$file may not include $include" ;;
      esac
    done
  done < <(find "$1" \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) 2>/dev/null | sort)
}
check_outside src/cli '^(cli|bench)/' # the measurements, which use the public headers only
check_outside examples '^$'
check_outside bench '^base/'

# Direct calls that src/base is there for.
forbidden='(^|[^.>_[:alnum:]])(pthread_[a-z_]+|thrd_[a-z]+|mtx_[a-z]+|cnd_[a-z]+|sem_(wait|post|timedwait|init)|clock_gettime|clock_nanosleep|gettimeofday|nanosleep|usleep|sleep|sched_yield|malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|free|strdup|strndup|asprintf|dlopen|dlsym) *\(|(^|[^.>_[:alnum:]])(_Thread_local|__thread) '
while read -r file; do
  for call in $(without_comments "$file" | grep -v '^ *#' | grep -oE "$forbidden" | sed -E 's/^[^_[:alnum:]]+//; s/[^_[:alnum:]].*//' | sort -u); do
    allowed $direct_calls | grep -qx "$file:$call" || problem "$file uses $call directly; src/base has it, or $direct_calls gives the reason"
  done
done < <(find src -name '*.[ch]' ! -path 'src/base/*' ! -path 'src/cli/*' | sort)
for entry in $(allowed $direct_calls); do
  file=${entry%:*}
  { [ -e "$file" ] && without_comments "$file" | grep -qw "${entry##*:}"; } || problem "$direct_calls: $entry is out of date"
done

# Names and lengths.
for name in $(find src include tests bench examples -name '*.[ch]' -o -name '*.cpp' -o -name '*.S' | sed 's,.*/,,' | sort | uniq -d); do
  # A public header and the internal header of the same room may share the room's name.
  [ "$(find src tests bench examples -name "$name" | wc -l)" -le 1 ] || problem "several files are named $name"
done
while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 900 ] || problem "$file has $lines lines; above 900 it is two files"
done < <(find src include tests bench examples -name '*.[chS]' -o -name '*.cpp' | sort)
while read -r file; do
  without_comments "$file" | grep -nE '\b(sleep|usleep|nanosleep|clock_nanosleep) *\(' && problem "$file sleeps"
done < <(find tests -name '*.[ch]' | sort)
while read -r file; do
  head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || problem "$file has no licence line"
done < <(find src include tests bench examples models scripts cmake CMakeLists.txt -type f \( -name '*.[chS]' -o -name '*.cpp' -o -name '*.cmake' -o -name '*.sh' -o -name '*.def' \
  -o -name 'CMakeLists.txt' -o -path 'scripts/*' \) | sort)
count=$(find src include -name '*.[ch]' | wc -l)
[ "$count" -gt 20 ] || problem "only $count files found: this check has gone blind"
finish "layers, direct calls, names, lengths of $count files"
