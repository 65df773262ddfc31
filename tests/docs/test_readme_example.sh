#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's example is examples/scoped_entry.c to the letter, which is built and run as a test.
set -euo pipefail
cd "${BERTH_SOURCE_DIR:-$(dirname "$0")/../..}"
quoted=$(sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d')
built=$(sed -n '/^#include <stdio.h>$/,$p' examples/scoped_entry.c)
if [ "$quoted" != "$built" ]; then
  diff <(printf '%s\n' "$quoted") <(printf '%s\n' "$built") || true
  echo "README.md and examples/scoped_entry.c differ"
  exit 1
fi
echo "the README's example is the one that is built: $(printf '%s\n' "$built" | grep -c .) lines"
