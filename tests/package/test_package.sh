#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a fresh prefix, moves it, and builds a user with pkg-config (shared, static) and with find_package; all of them run.
set -euo pipefail
source_dir=${BERTH_SOURCE_DIR:?}
build_dir=${BERTH_BUILD_DIR:?}
cc=${CC:-cc}
if [ -n "${BERTH_SANITIZE:-}" ]; then
  echo "skipped: a sanitized build is not installed"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The suite runs tests at once; each of these installs by itself and leaves the build alone.
cmake --install "$build_dir" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix" # nothing in it may know where it was installed
prefix=$work/prefix
library_dir=$(dirname "$(find "$prefix" -name libberth.a)")
export PKG_CONFIG_PATH=$library_dir/pkgconfig
if grep -rIl -e "$build_dir" -e "$source_dir" "$prefix"/include "$library_dir"/pkgconfig "$library_dir"/cmake; then
  echo "an installed file names the build machine's directories"
  exit 1
fi

words() { read -r -a result <<<"$1"; }
words "$(pkg-config --cflags --libs berth)"
"$cc" -Wall -Wextra -Werror "$source_dir/tests/package/consumer.c" -o "$work/with_pkg_config" "${result[@]}"
LD_LIBRARY_PATH=$library_dir "$work/with_pkg_config"

words "$(pkg-config --static --cflags --libs berth | sed 's/ -lberth / -l:libberth.a /')"
"$cc" -Wall -Wextra -Werror "$source_dir/tests/package/consumer.c" -o "$work/with_pkg_config_static" "${result[@]}"
"$work/with_pkg_config_static"

cmake -G Ninja -S "$source_dir/tests/package" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/build/consumer_shared"
if [ -x "$work/build/consumer_static" ]; then "$work/build/consumer_static"; fi
if [ -x "$prefix/bin/berth" ]; then "$prefix/bin/berth" --version; fi
