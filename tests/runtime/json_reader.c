// SPDX-License-Identifier: Apache-2.0
#include "runtime/json_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *skip_value(const char *at);

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/// Past a string, or NULL.
static const char *skip_string(const char *at) {
  if (*at != '"') return NULL;
  for (at++; *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) return NULL;
    if (*at != '\\') continue;
    at++;
    if (*at == 'u') {
      if (strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
      at += 4;
    } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
      return NULL;
    }
  }
  return at + 1;
}

static const char *skip_digits(const char *at) {
  size_t count = strspn(at, "0123456789");
  return count > 0 ? at + count : NULL;
}

static const char *skip_number(const char *at) {
  if (*at == '-') at++;
  if (at[0] == '0' && at[1] >= '0' && at[1] <= '9') return NULL;
  at = skip_digits(at);
  if (at != NULL && *at == '.') at = skip_digits(at + 1);
  if (at != NULL && (*at == 'e' || *at == 'E')) at = skip_digits(at + 1 + (at[1] == '-' || at[1] == '+'));
  return at;
}

static const char *skip_member(const char *at, bool keyed) {
  if (!keyed) return skip_value(at);
  at = skip_string(skip_space(at));
  if (at == NULL) return NULL;
  at = skip_space(at);
  return *at == ':' ? skip_value(at + 1) : NULL;
}

static const char *skip_list(const char *at, char end, bool keyed) {
  at = skip_space(at + 1);
  if (*at == end) return at + 1;
  for (;;) {
    at = skip_member(at, keyed);
    if (at == NULL) return NULL;
    at = skip_space(at);
    if (*at == end) return at + 1;
    if (*at++ != ',') return NULL;
  }
}

static const char *skip_value(const char *at) {
  static const char *const words[] = {"null", "true", "false"};
  at = skip_space(at);
  if (*at == '{') return skip_list(at, '}', true);
  if (*at == '[') return skip_list(at, ']', false);
  if (*at == '"') return skip_string(at);
  for (size_t i = 0; i < 3; i++) {
    if (strncmp(at, words[i], strlen(words[i])) == 0) return at + strlen(words[i]);
  }
  return skip_number(at);
}

bool json_valid(const char *text) {
  const char *end = skip_value(text);
  return end != NULL && *skip_space(end) == '\0';
}

/// The member of the value at `at` that the step names, or NULL.
static const char *descend(const char *at, const char *step, size_t length) {
  at = skip_space(at);
  if (*at != '{' && *at != '[') return NULL;
  bool keyed = *at == '{';
  unsigned long index = keyed ? 0 : strtoul(step, NULL, 10);
  at = skip_space(at + 1);
  for (unsigned long i = 0; *at != '}' && *at != ']'; i++) {
    const char *value = at;
    bool found = !keyed && i == index;
    if (keyed) {
      const char *after = skip_string(at);
      found = (size_t)(after - at) == length + 2 && memcmp(at + 1, step, length) == 0;
      value = skip_space(after) + 1;
    }
    if (found) return skip_space(value);
    at = skip_space(skip_value(value));
    if (*at == ',') at = skip_space(at + 1);
  }
  return NULL;
}

const char *json_at(const char *text, const char *path) {
  const char *at = skip_space(text);
  while (at != NULL && *path != '\0') {
    size_t length = strcspn(path, "/");
    at = descend(at, path, length);
    path += length + (path[length] == '/');
  }
  return at;
}

double json_number(const char *text, const char *path) {
  const char *at = json_at(text, path);
  if (at == NULL || skip_number(at) == NULL || strchr("-0123456789", *at) == NULL) fail_msg("no number at %s", path);
  return strtod(at, NULL);
}

bool json_is(const char *text, const char *path, const char *expected) {
  const char *at = json_at(text, path);
  if (at == NULL) fail_msg("nothing at %s", path);
  const char *end = skip_value(at);
  if (*at == '"') {
    at++;
    end--;
  }
  return (size_t)(end - at) == strlen(expected) && memcmp(at, expected, strlen(expected)) == 0;
}

size_t json_length(const char *text, const char *path) {
  const char *at = json_at(text, path);
  size_t count = 0;
  if (at == NULL || (*at != '{' && *at != '[')) fail_msg("no list at %s", path);
  bool keyed = *at == '{';
  for (at = skip_space(at + 1); *at != '}' && *at != ']'; count++) {
    at = skip_space(skip_member(at, keyed));
    if (*at == ',') at = skip_space(at + 1);
  }
  return count;
}
