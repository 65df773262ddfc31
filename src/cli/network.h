// SPDX-License-Identifier: Apache-2.0
/// A tensor-network instance: the file's contents, its labels as numbers, and operands made from a seed.
#ifndef CLI_NETWORK_H
#define CLI_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "berth/tensor.h"

enum { CLI_MAX_PATHS = 4 };

/// A contraction order in the shrinking-list form, two positions an entry.
typedef struct cli_path {
  char name[32];
  uint32_t entries;
  uint32_t *positions;
} cli_path;

typedef struct cli_operand {
  uint32_t rank;
  int64_t *shape;
  uint32_t *labels;
  int64_t elements;
  double scale; // of the generated values
} cli_operand;

typedef struct cli_network {
  char *name;
  char *spec;
  berth_dtype dtype;
  uint32_t operand_count;
  cli_operand *operands;
  uint32_t label_count;
  int64_t *extents; // of labels
  uint32_t out_rank;
  uint32_t *out_labels;
  uint32_t path_count;
  cli_path paths[CLI_MAX_PATHS];
} cli_network;

/// Reads an instance file: a JSON object with name, format_string, shapes, dtype, num_tensors and paths. Every figure is checked; other keys
/// (the same network in other orders) are ignored. Prints what is wrong and returns false.
bool cli_network_load(const char *file, cli_network *network);
void cli_network_free(cli_network *network);
const cli_path *cli_network_path(const cli_network *network, const char *name);
/// Multiply-adds of the network along a path; -1 when the path does not fit.
double cli_network_work(const cli_network *network, const cli_path *path);

/// Fills operand `number` from the seed.
///
/// Element e of operand t is u x scale(t), with u uniform in [-1, 1): the 53 high bits of splitmix64 at position e of the stream that starts at
/// splitmix64(seed x 2^32 + t). scale(t) = sqrt(3) x the product over the operand's summed labels of extent^(-1 / (2 x uses)), uses being the
/// number of operands that have the label. Then every element of every result has variance near 1, and every intermediate at most that: no
/// path overflows or underflows.
void cli_network_fill(const cli_network *network, uint32_t number, uint64_t seed, double *out);

#endif
