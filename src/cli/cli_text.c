// SPDX-License-Identifier: Apache-2.0
#include "cli_text.h"

#include <math.h>

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};

const char *cli_time_text(int64_t nanoseconds, char out[CLI_WORD]) {
  double t = (double)nanoseconds;
  if (t < 1e3) {
    snprintf(out, CLI_WORD, "%.0f ns", t);
  } else if (t < 1e6) {
    snprintf(out, CLI_WORD, "%.0f us", t / 1e3);
  } else if (t < 5e8) {
    snprintf(out, CLI_WORD, "%.*f ms", t < 1e7 ? 1 : 0, t / 1e6);
  } else {
    snprintf(out, CLI_WORD, "%.1f s", t / 1e9);
  }
  return out;
}

static int unit_of(uint64_t bytes) {
  int unit = 0;
  while (unit < 4 && bytes >> (10 * (unit + 1)) != 0) unit++;
  return unit;
}

static void number(double value, char out[CLI_WORD]) {
  snprintf(out, CLI_WORD, "%.*f", value < 10 && value != floor(value) ? 1 : 0, value);
}

const char *cli_bytes_text(uint64_t bytes, char out[CLI_WORD]) {
  char value[CLI_WORD];
  int unit = unit_of(bytes);
  number((double)bytes / (double)(1ull << (10 * unit)), value);
  snprintf(out, CLI_WORD, "%.20s %s", value, units[unit]);
  return out;
}

const char *cli_share_text(uint64_t part, uint64_t whole, char out[2 * CLI_WORD]) {
  char left[CLI_WORD];
  char right[CLI_WORD];
  int unit = unit_of(whole);
  double scale = (double)(1ull << (10 * unit));
  number((double)part / scale, left);
  number((double)whole / scale, right);
  snprintf(out, 2 * CLI_WORD, "%.20s of %.20s %s", left, right, units[unit]);
  return out;
}

void cli_json_string(FILE *to, const char *text) {
  fputc('"', to);
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') {
      fprintf(to, "\\%c", *c);
    } else if (*c < 0x20) {
      fprintf(to, "\\u%04x", *c);
    } else {
      fputc(*c, to);
    }
  }
  fputc('"', to);
}
