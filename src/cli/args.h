// SPDX-License-Identifier: Apache-2.0
/// Options of subcommands: a table in, values out. Errors name the option, the value and the bound, and are usage errors.
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
  CLI_FLAG,   ///< bool; takes no value
  CLI_TEXT,   ///< const char *
  CLI_NUMBER, ///< uint64_t, between least and most
  CLI_BYTES,  ///< uint64_t; 4096, 512KiB, 1.5GiB, 2GB
  CLI_SPAN    ///< int64_t nanoseconds; 20ms, 1.5s, 2m, 1h
} cli_kind;

typedef struct cli_option {
  const char *name; ///< "memory" for --memory; "o" for -o
  cli_kind kind;
  void *value;
  const char *argument; ///< for the help: "BYTES"
  const char *help;
  uint64_t least, most; ///< of CLI_NUMBER and CLI_BYTES; most 0: no bound
} cli_option;

typedef struct cli_usage {
  const char *synopsis; ///< lines, without "usage: "
  const char *details;  ///< below the options; may be NULL
  const cli_option *options;
  size_t option_count;
  int least, most; ///< positional arguments; most -1: any number
} cli_usage;

/// Reads argv[1] and later. Positional arguments are moved to the front of argv (from argv[1]); `out_count` of them.
/// Returns -1 to go on, else the exit code: 0 after --help, 2 after an error.
int cli_parse(const cli_usage *usage, int argc, char **argv, int *out_count);
/// Prints an error of usage and returns 2.
int cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/// True when the text is a size or a span (a bare number counts bytes, or seconds); the value is exact or rounded down.
bool cli_parse_bytes(const char *text, uint64_t *out);
bool cli_parse_span(const char *text, int64_t *out);

#endif
