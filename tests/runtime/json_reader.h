// SPDX-License-Identifier: Apache-2.0
/// A strict little JSON reader for tests: is it JSON, and what is at a path such as "devices/0/ledger/free".
#ifndef BERTH_TESTS_JSON_READER_H
#define BERTH_TESTS_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>

/// Whether the text is exactly one JSON value.
bool json_valid(const char *text);
/// Where the value at the path begins, or NULL. Array elements are named by their position. The text must be valid.
const char *json_at(const char *text, const char *path);
/// The number at the path; fails the test when there is none.
double json_number(const char *text, const char *path);
/// Whether the string (or null, true, false) at the path is this one; plain strings only.
bool json_is(const char *text, const char *path, const char *expected);
/// Elements of the array or members of the object at the path; fails the test when it is neither.
size_t json_length(const char *text, const char *path);

#endif
