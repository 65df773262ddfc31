// SPDX-License-Identifier: Apache-2.0
// berth bench: the measurements of bench/, on the library as it is installed.
#include "args.h"
#include "bench/measure.h"
#include "commands.h"

static const char synopsis[] = "berth bench [--list] [--only NAME] [--seconds TIME] [--json]";
static const char details[] = "Each figure is a median of samples that are interleaved with those of its peer, on this machine and in this run. A "
                              "figure outside its budget is a\n"
                              "result, not a failure: budgets were set on a quiet machine. Run it twice before you believe it.\n";

int cli_bench(int argc, char **argv) {
  measure_options options = {.json = false};
  int64_t span = 1000000000;
  int count = 0;
  const cli_option table[] = {
      {"list", CLI_FLAG, &options.list, NULL, "name the measurements", 0, 0},
      {"only", CLI_TEXT, &options.only, "NAME", "take those whose name begins so", 0, 0},
      {"seconds", CLI_SPAN, &span, "TIME", "time to spend on each, about (default 1s)", 0, 0},
      {"json", CLI_FLAG, &options.json, NULL, "print one JSON object", 0, 0},
  };
  const cli_usage usage = {synopsis, details, table, sizeof table / sizeof *table, 0, 0};
  int code = cli_parse(&usage, argc, argv, &count);
  if (code >= 0) return code;
  if (span < 10000000) return cli_usage_error("--seconds: at least 10ms");
  options.seconds = (double)span / 1e9;
  return measure_main(&options, measure_items, measure_item_count);
}
