// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network_read.h"

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

void cli_network_fill(const cli_network *network, uint32_t number, uint64_t seed, double *out) {
  static const uint64_t step = 0x9E3779B97F4A7C15ull;
  const cli_operand *operand = &network->operands[number];
  uint64_t state = mix((seed << 32) + number + step);
  for (int64_t e = 0; e < operand->elements; e++) {
    state += step;
    double unit = (double)(mix(state) >> 11) * 0x1p-53;
    out[e] = (2.0 * unit - 1.0) * operand->scale;
  }
}

const cli_path *cli_network_path(const cli_network *network, const char *name) {
  for (uint32_t i = 0; i < network->path_count; i++) {
    if (strcmp(network->paths[i].name, name) == 0) return &network->paths[i];
  }
  return NULL;
}

void cli_network_free(cli_network *network) {
  for (uint32_t i = 0; i < network->operand_count && network->operands != NULL; i++) {
    free(network->operands[i].shape);
    free(network->operands[i].labels);
  }
  for (uint32_t i = 0; i < network->path_count; i++) free(network->paths[i].positions);
  free(network->operands);
  free(network->extents);
  free(network->out_labels);
  free(network->name);
  free(network->spec);
  memset(network, 0, sizeof *network);
}

// ---- Labels ---------------------------------------------------------------------------------------------------------------------------------

/// One code point of well-formed UTF-8; 0 otherwise.
static uint32_t next_code(const char **at) {
  const unsigned char *t = (const unsigned char *)*at;
  uint32_t length = t[0] < 0x80 ? 1 : t[0] >= 0xF0 ? 4 : t[0] >= 0xE0 ? 3 : t[0] >= 0xC0 ? 2 : 0;
  if (length == 0) return 0;
  uint32_t code = length == 1 ? t[0] : t[0] & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; i++) {
    if ((t[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (t[i] & 63);
  }
  *at += length;
  return code;
}

static uint32_t number_of(cli_network *network, uint32_t *codes, uint32_t code) {
  for (uint32_t i = 0; i < network->label_count; i++) {
    if (codes[i] == code) return i;
  }
  codes[network->label_count] = code;
  network->extents[network->label_count] = -1;
  return network->label_count++;
}

static bool wrong(const cli_network *network, const char *what, uint32_t operand) {
  fprintf(stderr, "berth: %s: format_string and shapes disagree: %s, operand %u\n", network->name, what, operand);
  return false;
}

static bool read_operand_labels(cli_network *network, uint32_t *codes, const char **at, uint32_t number) {
  cli_operand *operand = &network->operands[number];
  for (uint32_t i = 0; i < operand->rank; i++) {
    uint32_t code = next_code(at);
    if (code == 0 || code == ',' || code == '-' || code == '.') return wrong(network, "too few labels", number);
    uint32_t label = number_of(network, codes, code);
    operand->labels[i] = label;
    if (network->extents[label] == -1) network->extents[label] = operand->shape[i];
    if (network->extents[label] != operand->shape[i]) return wrong(network, "a label with two extents", number);
  }
  return true;
}

static bool read_labels(cli_network *network, uint32_t *codes) {
  const char *at = network->spec;
  for (uint32_t i = 0; i < network->operand_count; i++) {
    if (!read_operand_labels(network, codes, &at, i)) return false;
    if (i + 1 < network->operand_count && *at++ != ',') return wrong(network, "more labels than axes", i);
  }
  if (strncmp(at, "->", 2) != 0) return wrong(network, "no output behind the operands", network->operand_count);
  at += 2;
  while (*at != '\0') {
    uint32_t known = network->label_count;
    uint32_t code = next_code(&at);
    uint32_t label = code == 0 ? known : number_of(network, codes, code);
    if (label >= known) return wrong(network, "an output label of no operand", 0);
    network->out_labels[network->out_rank++] = label;
  }
  return true;
}

static void set_scales(cli_network *network, double *uses) {
  for (uint32_t i = 0; i < network->operand_count; i++) {
    for (uint32_t a = 0; a < network->operands[i].rank; a++) uses[network->operands[i].labels[a]] += 1.0;
  }
  for (uint32_t o = 0; o < network->out_rank; o++) uses[network->out_labels[o]] = 0.0;
  for (uint32_t i = 0; i < network->operand_count; i++) {
    double scale = sqrt(3.0);
    for (uint32_t a = 0; a < network->operands[i].rank; a++) {
      uint32_t label = network->operands[i].labels[a];
      if (uses[label] > 0.0) scale *= pow((double)network->extents[label], -0.5 / uses[label]);
    }
    network->operands[i].scale = scale;
  }
}

bool cli_network_label(cli_network *network) {
  size_t most = strlen(network->spec) + 1;
  uint32_t *codes = calloc(most, sizeof *codes);
  double *uses = calloc(most, sizeof *uses);
  network->extents = calloc(most, sizeof *network->extents);
  network->out_labels = calloc(most, sizeof *network->out_labels);
  bool done = codes != NULL && uses != NULL && network->extents != NULL && network->out_labels != NULL;
  if (!done) fprintf(stderr, "berth: no memory\n");
  if (done) done = read_labels(network, codes);
  if (done) set_scales(network, uses);
  free(codes);
  free(uses);
  return done;
}

double cli_network_work(const cli_network *network, const cli_path *path) {
  uint32_t labels = network->label_count;
  uint32_t nodes = network->operand_count + path->entries;
  bool *has = calloc((size_t)nodes * labels + 1, sizeof *has);
  uint32_t *list = calloc((size_t)nodes + 1, sizeof *list);
  double work = -1.0;
  if (has == NULL || list == NULL || path->entries + 1 != network->operand_count) goto out;
  for (uint32_t i = 0; i < network->operand_count; i++) {
    list[i] = i;
    for (uint32_t a = 0; a < network->operands[i].rank; a++) has[(size_t)i * labels + network->operands[i].labels[a]] = true;
  }
  uint32_t left = network->operand_count;
  work = 0.0;
  for (uint32_t e = 0; e < path->entries; e++) {
    uint32_t p = path->positions[2 * e];
    uint32_t q = path->positions[2 * e + 1];
    if (p >= left || q >= left || p == q) {
      work = -1.0;
      goto out;
    }
    const bool *x = has + (size_t)list[p] * labels;
    const bool *y = has + (size_t)list[q] * labels;
    bool *z = has + (size_t)(network->operand_count + e) * labels;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < left; i++) {
      if (i != p && i != q) list[kept++] = list[i];
    }
    double step = 1.0;
    for (uint32_t l = 0; l < labels; l++) {
      if (!x[l] && !y[l]) continue;
      step *= (double)network->extents[l];
      for (uint32_t i = 0; i < kept && !z[l]; i++) z[l] = has[(size_t)list[i] * labels + l];
      for (uint32_t o = 0; o < network->out_rank && !z[l]; o++) z[l] = network->out_labels[o] == l;
    }
    work += step;
    list[kept] = network->operand_count + e;
    left = kept + 1;
  }
out:
  free(has);
  free(list);
  return work;
}
