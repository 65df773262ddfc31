// SPDX-License-Identifier: Apache-2.0
#include "runtime/states.h"

#include <string.h>

#include "base/annotate.h"
#include "base/assert.h"
#include "base/atomic.h"

static const struct {
  berthi_machine machine;
  const char *symbol, *name;
} states[] = {
#define STATE(machine, name, text) {BERTHI_##machine, #name, text},
#include "runtime/states.def"
};

static const berthi_edge_row edges[] = {
#define EDGE(machine, from, to, by) {BERTHI_##machine, #from, #to, by},
#include "runtime/states.def"
};

static berthi_state_row rows[BERTHI_COUNTOF(states)];
static berthi_atomic64 taken[BERTHI_COUNTOF(edges)];

static const char *symbol_of(berthi_machine machine, uint32_t state) {
  uint32_t position = 0;
  for (size_t i = 0; i < BERTHI_COUNTOF(states); i++) {
    if (states[i].machine != machine) continue;
    if (position++ == state) return states[i].symbol;
  }
  return NULL;
}

const berthi_state_row *berthi_state_rows(uint32_t *count) {
  uint32_t position[BERTHI_MACHINES] = {0};
  for (size_t i = 0; i < BERTHI_COUNTOF(states); i++) {
    rows[i] = (berthi_state_row){states[i].machine, position[states[i].machine]++, states[i].name};
  }
  *count = BERTHI_COUNTOF(states);
  return rows;
}

const berthi_edge_row *berthi_edge_rows(uint32_t *count) {
  *count = BERTHI_COUNTOF(edges);
  return edges;
}

const char *berthi_state_name(berthi_machine machine, uint32_t state) {
  uint32_t position = 0;
  for (size_t i = 0; i < BERTHI_COUNTOF(states); i++) {
    if (states[i].machine != machine) continue;
    if (position++ == state) return states[i].name;
  }
  return "?";
}

static int edge_row(berthi_machine machine, uint32_t from, uint32_t to) {
  const char *a = symbol_of(machine, from), *b = symbol_of(machine, to);
  if (!a || !b) return -1;
  for (size_t i = 0; i < BERTHI_COUNTOF(edges); i++) {
    if (edges[i].machine == machine && !strcmp(edges[i].from, a) && !strcmp(edges[i].to, b)) return (int)i;
  }
  return -1;
}

bool berthi_edge_allowed(berthi_machine machine, uint32_t from, uint32_t to) { return edge_row(machine, from, to) >= 0; }

#ifndef berthi_edge
void berthi_edge(berthi_machine machine, uint32_t from, uint32_t to) {
  int row = edge_row(machine, from, to);
  berthi_assert(row >= 0, "states.def");
  if (row >= 0) berthi_stat_add(&taken[row], 1);
}
#endif

uint64_t berthi_edge_taken(uint32_t row) { return row < BERTHI_COUNTOF(edges) ? berthi_stat_load(&taken[row]) : 0; }
