// SPDX-License-Identifier: Apache-2.0
/// The subcommands of `berth`. A new one is a file cmd_<name>.c and a line in the table of main.c. The command uses include/berth only.
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "berth/base.h"

/// Exit codes of the command.
enum {
  CLI_DONE = 0,
  CLI_FAILED = 1,
  CLI_USAGE = 2,
  CLI_OVERLOADED = 75, ///< Refused for now: back off and try again.
  CLI_INTERRUPTED = 130
};

typedef struct cli_command {
  const char *name;
  const char *summary;
  int (*run)(int argc, char **argv); ///< argv[0] is the subcommand's name. Returns the exit code.
} cli_command;

int cli_bench(int argc, char **argv);
int cli_devices(int argc, char **argv);
int cli_drill(int argc, char **argv);
int cli_einsum(int argc, char **argv);

/// Prints "berth: <message>" to stderr and returns the exit code that belongs to the error.
int cli_error(const berth_error *error);

#endif
