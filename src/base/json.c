// SPDX-License-Identifier: Apache-2.0
/// The JSON and text writers. The text in the buffer is terminated after every call, so a cut one can be printed as it is.
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void berthi_json_init(berthi_json *json, char *buffer, size_t capacity) {
  json->buffer = buffer;
  json->capacity = buffer != NULL ? capacity : 0;
  json->length = 0;
  json->comma = false;
  if (json->capacity > 0) json->buffer[0] = '\0';
}

static void put(berthi_json *json, const char *text, size_t length) {
  if (json->length + 1 < json->capacity) {
    size_t room = json->capacity - 1 - json->length;
    size_t part = length < room ? length : room;
    memcpy(json->buffer + json->length, text, part);
    json->buffer[json->length + part] = '\0';
  }
  json->length += length;
}

static void put_text(berthi_json *json, const char *text) { put(json, text, strlen(text)); }

static bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/// The number of bytes of the UTF-8 sequence at `text`, 0 when it is none (overlong forms, surrogates and values above U+10FFFF are none).
static size_t utf8_length(const unsigned char *text, size_t left) {
  unsigned char first = text[0];
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return left >= 2 && is_continuation(text[1]) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (left < 3 || !is_continuation(text[1]) || !is_continuation(text[2])) return 0;
    if (first == 0xE0 && text[1] < 0xA0) return 0;
    if (first == 0xED && text[1] > 0x9F) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (left < 4 || !is_continuation(text[1]) || !is_continuation(text[2]) || !is_continuation(text[3])) return 0;
    if (first == 0xF0 && text[1] < 0x90) return 0;
    if (first == 0xF4 && text[1] > 0x8F) return 0;
    return 4;
  }
  return 0;
}

/// The escape of one ASCII byte, or NULL when it stands for itself.
static const char *escape_of(unsigned char byte, char out[8]) {
  switch (byte) {
  case '"':
    return "\\\"";
  case '\\':
    return "\\\\";
  case '\n':
    return "\\n";
  case '\r':
    return "\\r";
  case '\t':
    return "\\t";
  default:
    break;
  }
  if (byte >= 0x20 && byte != 0x7F) return NULL;
  snprintf(out, 8, "\\u%04x", byte);
  return out;
}

static void put_quoted(berthi_json *json, const char *value, size_t length) {
  const unsigned char *bytes = (const unsigned char *)value;
  size_t plain = 0; // start of the run that needs no change
  size_t i = 0;
  put(json, "\"", 1);
  while (i < length) {
    char scratch[8];
    size_t step = utf8_length(bytes + i, length - i);
    const char *instead = step == 0 ? "\xEF\xBF\xBD" : step == 1 ? escape_of(bytes[i], scratch) : NULL;
    if (step == 0) step = 1;
    if (instead != NULL) {
      put(json, value + plain, i - plain);
      put_text(json, instead);
      plain = i + step;
    }
    i += step;
  }
  put(json, value + plain, length - plain);
  put(json, "\"", 1);
}

/// What stands before a value: the comma and the key.
static void before_value(berthi_json *json, const char *key) {
  if (json->comma) put(json, ",", 1);
  json->comma = true;
  if (key == NULL) return;
  put_quoted(json, key, strlen(key));
  put(json, ":", 1);
}

static void begin(berthi_json *json, const char *key, const char *bracket) {
  before_value(json, key);
  put(json, bracket, 1);
  json->comma = false;
}

static void end(berthi_json *json, const char *bracket) {
  put(json, bracket, 1);
  json->comma = true;
}

void berthi_json_object_begin(berthi_json *json, const char *key) { begin(json, key, "{"); }
void berthi_json_object_end(berthi_json *json) { end(json, "}"); }
void berthi_json_array_begin(berthi_json *json, const char *key) { begin(json, key, "["); }
void berthi_json_array_end(berthi_json *json) { end(json, "]"); }

void berthi_json_string_n(berthi_json *json, const char *key, const char *value, size_t length) {
  before_value(json, key);
  if (value == NULL) {
    put(json, "null", 4);
  } else {
    put_quoted(json, value, length);
  }
}

void berthi_json_string(berthi_json *json, const char *key, const char *value) {
  berthi_json_string_n(json, key, value, value != NULL ? strlen(value) : 0);
}

void berthi_json_i64(berthi_json *json, const char *key, int64_t value) {
  char text[24];
  before_value(json, key);
  put(json, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

void berthi_json_u64(berthi_json *json, const char *key, uint64_t value) {
  char text[24];
  before_value(json, key);
  put(json, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value));
}

/// The shortest of the usual precisions that reads back as the same number.
static size_t double_text(double value, char *text, size_t capacity) {
  int length = 0;
  for (int digits = 15; digits <= 17; digits++) {
    length = snprintf(text, capacity, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return (size_t)length;
}

void berthi_json_double(berthi_json *json, const char *key, double value) {
  char text[40];
  before_value(json, key);
  if (!isfinite(value)) {
    put(json, "null", 4);
    return;
  }
  size_t length = double_text(value, text, sizeof text);
  // The process's locale may write another decimal mark.
  for (size_t i = 0; i < length; i++) {
    if (strchr("+-0123456789eE", text[i]) == NULL) text[i] = '.';
  }
  put(json, text, length);
}

void berthi_json_bool(berthi_json *json, const char *key, bool value) {
  before_value(json, key);
  put_text(json, value ? "true" : "false");
}

size_t berthi_json_finish(berthi_json *json) {
  if (json->capacity > 0) {
    size_t last = json->length < json->capacity ? json->length : json->capacity - 1;
    json->buffer[last] = '\0';
  }
  return json->length;
}

void berthi_text(berthi_json *json, const char *format, ...) {
  size_t used = json->length < json->capacity ? json->length : json->capacity;
  size_t room = json->capacity - used;
  va_list args;
  va_start(args, format);
  int length = vsnprintf(room > 0 ? json->buffer + used : NULL, room, format, args);
  va_end(args);
  if (length > 0) json->length += (size_t)length;
}
