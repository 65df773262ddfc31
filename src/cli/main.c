// SPDX-License-Identifier: Apache-2.0
// berth: one command, one subcommand for each job.
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "interrupt.h"

static const cli_command commands[] = {
    {"devices", "list devices: health, lanes, memory and where the limits come from", cli_devices},
    {"drill", "many threads on an over-subscribed device, every law checked", cli_drill},
    {"einsum", "contract .npy files or a whole tensor network under a grant", cli_einsum},
    {"bench", "measure what the runtime costs, beside its peers", cli_bench},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to) {
  fprintf(to, "usage: berth COMMAND [ARGUMENT]...\n\ncommands:\n");
  for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
  fprintf(to, "\nberth COMMAND --help tells more; berth --version tells the version.\n");
  fprintf(to, "exit codes: 0 done, 1 failed, 2 usage, 75 overloaded (try again later), 130 interrupted\n");
}

int cli_error(const berth_error *error) {
  berth_reason reason;
  fprintf(stderr, "berth: %s\n", error->message);
  if (error->code == BERTH_CANCELLED && cli_interrupted()) return CLI_INTERRUPTED;
  if (error->code == BERTH_UNAVAILABLE && berth_reason_info(error->reason, 0, &reason, NULL) == BERTH_OK && reason.retry == BERTH_RETRY_BACKOFF) {
    return CLI_OVERLOADED;
  }
  return CLI_FAILED;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    usage(stderr);
    return CLI_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    usage(stdout);
    return CLI_DONE;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("berth %s\n", berth_version());
    return CLI_DONE;
  }
  cli_block_interrupts();
  for (int i = 0; i < COMMANDS; i++) {
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  }
  fprintf(stderr, "berth: no command '%s'\n", argv[1]);
  usage(stderr);
  return CLI_USAGE;
}
