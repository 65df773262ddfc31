// SPDX-License-Identifier: Apache-2.0
/// Numbers and JSON for people and programs.
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_WORD 32
/// "12 ms", "0.8 s", "340 us".
const char *cli_time_text(int64_t nanoseconds, char out[CLI_WORD]);
/// "171 MiB", "512 B".
const char *cli_bytes_text(uint64_t bytes, char out[CLI_WORD]);
/// "171 of 180 MiB": both in the unit of the second.
const char *cli_share_text(uint64_t part, uint64_t whole, char out[2 * CLI_WORD]);
/// Writes a JSON string with its quotes.
void cli_json_string(FILE *to, const char *text);

#endif
