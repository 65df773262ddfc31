// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "kernels/kernels.h"

static int64_t magnitude(int64_t value) {
  return value < 0 ? -value : value;
}

/// True when `left` has to stand outside `right`.
static bool is_outer(const berthi_axis *left, const berthi_axis *right) {
  for (int i = 0; i < 3; i++) {
    int64_t l = magnitude(left->step[i]);
    int64_t r = magnitude(right->step[i]);
    if (l != r) return l > r;
  }
  return false;
}

static void sort_axes(berthi_axis *axes, uint32_t rank) {
  for (uint32_t i = 1; i < rank; i++) {
    berthi_axis moved = axes[i];
    uint32_t at = i;
    for (; at > 0 && is_outer(&moved, &axes[at - 1]); at--) axes[at] = axes[at - 1];
    axes[at] = moved;
  }
}

static bool joins(const berthi_axis *outer, const berthi_axis *inner, uint32_t arrays) {
  for (uint32_t i = 0; i < arrays; i++) {
    if (outer->step[i] != inner->step[i] * inner->extent) return false;
  }
  return true;
}

uint32_t berthi_axes_simplify(berthi_axis *axes, uint32_t rank, uint32_t arrays) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (axes[i].extent == 0) {
      axes[0] = (berthi_axis){0};
      return 1;
    }
    if (axes[i].extent != 1) axes[kept++] = axes[i];
  }
  sort_axes(axes, kept);
  uint32_t joined = 0;
  for (uint32_t i = 0; i < kept; i++) {
    if (joined > 0 && joins(&axes[joined - 1], &axes[i], arrays)) {
      int64_t outer = axes[joined - 1].extent;
      axes[joined - 1] = axes[i];
      axes[joined - 1].extent *= outer;
    } else {
      axes[joined++] = axes[i];
    }
  }
  return joined;
}

int64_t berthi_axes_count(const berthi_axis *axes, uint32_t rank) {
  int64_t count = 1;
  for (uint32_t i = 0; i < rank; i++) count *= axes[i].extent;
  return count;
}

bool berthi_cpu_supports(berth_dtype dtype) {
  return dtype == BERTH_F32 || dtype == BERTH_F64 || dtype == BERTH_C64 || dtype == BERTH_C128;
}
