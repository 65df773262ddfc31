// SPDX-License-Identifier: Apache-2.0
#include "args.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

typedef struct unit {
  const char *name;
  double scale;
} unit;

/// A decimal number of at least 0 and a unit of the table.
static bool parse_scaled(const char *text, const unit *units, size_t count, double limit, double *out) {
  char *end;
  if (text[0] < '0' || text[0] > '9') return false;
  if (strspn(text, "0123456789.") != strcspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \t+-")) return false;
  double value = strtod(text, &end);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(end, units[i].name) != 0) continue;
    *out = floor(value * units[i].scale);
    return *out >= 0 && *out < limit;
  }
  return false;
}

bool cli_parse_bytes(const char *text, uint64_t *out) {
  static const unit units[] = {{"", 1},     {"B", 1},       {"KiB", 1024},       {"MiB", 1048576}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                               {"K", 1024}, {"M", 1048576}, {"G", 1073741824.0}, {"kB", 1e3},      {"MB", 1e6},           {"GB", 1e9},
                               {"TB", 1e12}};
  double value;
  if (text[0] != '\0' && strspn(text, "0123456789") == strlen(text) && strlen(text) < 19) { // exact
    *out = strtoull(text, NULL, 10);
    return true;
  }
  if (!parse_scaled(text, units, sizeof units / sizeof *units, 9.2e18, &value)) return false;
  *out = (uint64_t)value;
  return true;
}

bool cli_parse_span(const char *text, int64_t *out) {
  static const unit units[] = {{"", 1e9}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
  double value;
  if (!parse_scaled(text, units, sizeof units / sizeof *units, 9.2e18, &value)) return false;
  *out = (int64_t)value;
  return true;
}

int cli_usage_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "berth: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  return CLI_USAGE;
}

static void help(const cli_usage *usage) {
  printf("usage: %s\n", usage->synopsis);
  if (usage->option_count > 0) printf("\noptions:\n");
  for (size_t i = 0; i < usage->option_count; i++) {
    const cli_option *option = &usage->options[i];
    char left[64];
    snprintf(left, sizeof left, "%s%s%s%s", strlen(option->name) == 1 ? "-" : "--", option->name, option->argument == NULL ? "" : " ",
             option->argument == NULL ? "" : option->argument);
    printf("  %-22s %s\n", left, option->help);
  }
  if (usage->details != NULL) printf("\n%s", usage->details);
}

static const cli_option *find(const cli_usage *usage, const char *name, size_t length) {
  for (size_t i = 0; i < usage->option_count; i++) {
    if (strlen(usage->options[i].name) == length && strncmp(usage->options[i].name, name, length) == 0) return &usage->options[i];
  }
  return NULL;
}

static bool parse_number(const char *text, uint64_t *out) {
  if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 19) return false;
  *out = strtoull(text, NULL, 10);
  return true;
}

static int check_bounds(const cli_option *option, const char *text, uint64_t value) {
  if (value < option->least) {
    return cli_usage_error("--%s %s: at least %llu", option->name, text, (unsigned long long)option->least);
  }
  if (option->most != 0 && value > option->most) {
    return cli_usage_error("--%s %s: at most %llu", option->name, text, (unsigned long long)option->most);
  }
  return -1;
}

static int set_value(const cli_option *option, const char *text) {
  switch (option->kind) {
    case CLI_FLAG: *(bool *)option->value = true; return -1;
    case CLI_TEXT: *(const char **)option->value = text; return -1;
    case CLI_NUMBER:
      if (!parse_number(text, option->value)) return cli_usage_error("--%s '%s' is no whole number", option->name, text);
      return check_bounds(option, text, *(uint64_t *)option->value);
    case CLI_BYTES:
      if (!cli_parse_bytes(text, option->value)) return cli_usage_error("--%s '%s' is no size such as 4096, 512MiB or 1.5GiB", option->name, text);
      return check_bounds(option, text, *(uint64_t *)option->value);
    case CLI_SPAN:
      if (!cli_parse_span(text, option->value)) return cli_usage_error("--%s '%s' is no time such as 20ms, 1.5s or 2m", option->name, text);
      return -1;
  }
  return cli_usage_error("--%s", option->name);
}

/// Reads one option at argv[*at]; moves *at to its last word.
static int read_option(const cli_usage *usage, int argc, char **argv, int *at) {
  const char *word = argv[*at];
  bool is_long = word[1] == '-';
  const char *name = word + (is_long ? 2 : 1);
  size_t length = is_long ? strcspn(name, "=") : 1;
  const cli_option *option = find(usage, name, length);
  if (option == NULL) return cli_usage_error("no option '%.*s'; --help lists them", (int)(length + (is_long ? 2 : 1)), word);
  const char *value = NULL;
  if (is_long && name[length] == '=') value = name + length + 1;
  if (!is_long && name[1] != '\0') value = name + 1;
  if (option->kind == CLI_FLAG) {
    if (value != NULL) return cli_usage_error("%s takes no value", word);
    return set_value(option, NULL);
  }
  if (value == NULL) {
    if (*at + 1 >= argc) return cli_usage_error("%s needs %s", word, option->argument);
    value = argv[++*at];
  }
  return set_value(option, value);
}

int cli_parse(const cli_usage *usage, int argc, char **argv, int *out_count) {
  int count = 0;
  bool options = true;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (!options || word[0] != '-' || (word[1] == '\0') || (word[1] == '>')) { // "->" begins a specification
      argv[++count] = argv[i];
      continue;
    }
    if (strcmp(word, "--") == 0) {
      options = false;
      continue;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
      help(usage);
      return CLI_DONE;
    }
    int code = read_option(usage, argc, argv, &i);
    if (code >= 0) return code;
  }
  if (count < usage->least || (usage->most >= 0 && count > usage->most)) {
    return cli_usage_error("%d arguments given\nusage: %s", count, usage->synopsis);
  }
  *out_count = count;
  return -1;
}
