// SPDX-License-Identifier: Apache-2.0
/// A JSON writer into a caller's buffer: counts what it would need, never allocates, always NUL-terminates.
#ifndef BERTHI_JSON_H
#define BERTHI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct berthi_json {
  char *buffer;
  size_t capacity;
  size_t length; ///< needed so far, may exceed capacity
  bool comma;    ///< the next value needs a comma first
} berthi_json;

void berthi_json_init(berthi_json *json, char *buffer, size_t capacity);
void berthi_json_object_begin(berthi_json *json, const char *key); ///< key NULL: as array element or top value
void berthi_json_object_end(berthi_json *json);
void berthi_json_array_begin(berthi_json *json, const char *key);
void berthi_json_array_end(berthi_json *json);
void berthi_json_string(berthi_json *json, const char *key, const char *value); ///< value NULL: null; invalid UTF-8 is replaced
void berthi_json_string_n(berthi_json *json, const char *key, const char *value, size_t length);
void berthi_json_i64(berthi_json *json, const char *key, int64_t value);
void berthi_json_u64(berthi_json *json, const char *key, uint64_t value);
void berthi_json_double(berthi_json *json, const char *key, double value); ///< not finite: null
void berthi_json_bool(berthi_json *json, const char *key, bool value);
size_t berthi_json_finish(berthi_json *json); ///< terminates, returns length

/// A plain text writer with the same buffer rules (Prometheus text, describe).
void berthi_text(berthi_json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
