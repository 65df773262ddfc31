// SPDX-License-Identifier: Apache-2.0
// The instance file. Parsing is jansson's; what the file says is checked here.
#include "network_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<jansson.h>)
#include <jansson.h>

enum { MAX_OPERANDS = 65536 };

typedef struct source {
  const char *file;
  json_t *root;
} source;

static bool wrong(const source *from, const char *where, const char *what) {
  fprintf(stderr, "berth: %s: %s: %s\n", from->file, where, what);
  return false;
}

static bool copy_text(const source *from, const char *key, char **out) {
  const char *text = json_string_value(json_object_get(from->root, key));
  if (text == NULL || strlen(text) != json_string_length(json_object_get(from->root, key))) return wrong(from, key, "a string is expected");
  *out = strdup(text);
  return *out != NULL || wrong(from, key, "no memory");
}

static bool read_shape(const source *from, const json_t *shape, cli_operand *operand) {
  size_t rank = json_array_size(shape);
  if (!json_is_array(shape) || rank > BERTH_MAX_RANK) return wrong(from, "shapes", "an array of at most 64 extents is expected");
  operand->rank = (uint32_t)rank;
  operand->shape = calloc(rank + 1, sizeof *operand->shape);
  operand->labels = calloc(rank + 1, sizeof *operand->labels);
  if (operand->shape == NULL || operand->labels == NULL) return wrong(from, "shapes", "no memory");
  operand->elements = 1;
  for (size_t i = 0; i < rank; i++) {
    const json_t *extent = json_array_get(shape, i);
    operand->shape[i] = json_integer_value(extent);
    if (!json_is_integer(extent) || operand->shape[i] < 0) return wrong(from, "shapes", "an extent of at least 0 is expected");
    if (__builtin_mul_overflow(operand->elements, operand->shape[i], &operand->elements) || operand->elements > INT64_MAX / 16) {
      return wrong(from, "shapes", "an operand is too large");
    }
  }
  return true;
}

static bool read_shapes(const source *from, cli_network *network) {
  const json_t *shapes = json_object_get(from->root, "shapes");
  const json_t *count = json_object_get(from->root, "num_tensors");
  size_t operands = json_array_size(shapes);
  if (!json_is_array(shapes) || operands == 0 || operands > MAX_OPERANDS) return wrong(from, "shapes", "an array of shapes is expected");
  if (count != NULL && json_integer_value(count) != (json_int_t)operands) return wrong(from, "num_tensors", "is not the number of shapes");
  network->operands = calloc(operands, sizeof *network->operands);
  if (network->operands == NULL) return wrong(from, "shapes", "no memory");
  network->operand_count = (uint32_t)operands;
  for (size_t i = 0; i < operands; i++) {
    if (!read_shape(from, json_array_get(shapes, i), &network->operands[i])) return false;
  }
  return true;
}

static bool read_path(const source *from, const char *name, const json_t *value, cli_network *network) {
  const json_t *entries = json_object_get(value, "path");
  cli_path *path = &network->paths[network->path_count];
  size_t count = json_array_size(entries);
  if (!json_is_array(entries) || count > MAX_OPERANDS) return wrong(from, name, "an array of pairs is expected");
  if (strlen(name) >= sizeof path->name) return wrong(from, name, "the name of a path is too long");
  memcpy(path->name, name, strlen(name) + 1);
  path->positions = calloc(2 * count + 1, sizeof *path->positions);
  if (path->positions == NULL) return wrong(from, name, "no memory");
  path->entries = (uint32_t)count;
  network->path_count++;
  for (size_t e = 0; e < count; e++) {
    const json_t *pair = json_array_get(entries, e);
    for (size_t i = 0; i < 2; i++) {
      const json_t *position = json_array_get(pair, i);
      json_int_t number = json_integer_value(position);
      if (json_array_size(pair) != 2 || !json_is_integer(position) || number < 0 || number > MAX_OPERANDS) {
        return wrong(from, name, "an entry is no pair of positions");
      }
      path->positions[2 * e + i] = (uint32_t)number;
    }
  }
  return true;
}

static bool read_paths(const source *from, cli_network *network) {
  const char *name;
  json_t *value;
  json_object_foreach(json_object_get(from->root, "paths"), name, value) {
    if (network->path_count == CLI_MAX_PATHS) return wrong(from, "paths", "too many");
    if (!read_path(from, name, value, network)) return false;
  }
  return true;
}

static bool read_network(const source *from, cli_network *network) {
  if (!json_is_object(from->root) || json_object_get(from->root, "format_string") == NULL) {
    return wrong(from, "format_string", "missing: this is no instance of a tensor network");
  }
  if (!copy_text(from, "name", &network->name) || !copy_text(from, "format_string", &network->spec)) return false;
  const char *dtype = json_string_value(json_object_get(from->root, "dtype"));
  network->dtype = berth_dtype_parse(dtype);
  if (network->dtype != BERTH_F64) return wrong(from, dtype == NULL ? "dtype" : dtype, "the dtype of instances is float64");
  return read_shapes(from, network) && cli_network_label(network) && read_paths(from, network);
}

bool cli_network_load(const char *file, cli_network *network) {
  json_error_t error;
  memset(network, 0, sizeof *network);
  source from = {file, json_load_file(file, JSON_REJECT_DUPLICATES, &error)};
  if (from.root == NULL) {
    fprintf(stderr, "berth: %s:%d: %s\n", file, error.line, error.text);
    return false;
  }
  bool done = read_network(&from, network);
  json_decref(from.root);
  if (!done) cli_network_free(network);
  return done;
}

#else

bool cli_network_load(const char *file, cli_network *network) {
  (void)cli_network_label;
  memset(network, 0, sizeof *network);
  fprintf(stderr, "berth: %s: this command was built without jansson (libjansson-dev) and cannot read instances\n", file);
  return false;
}

#endif
