// SPDX-License-Identifier: Apache-2.0
// "key=value,key=value": the options that only one kind of device has.
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "device/device.h"

typedef struct unit {
  const char *suffix;
  uint64_t factor;
} unit;

static const unit byte_units[] = {{"", 1}, {"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};
static const unit time_units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
static const unit plain_units[] = {{"", 1}};

typedef struct span {
  const char *text;
  size_t length;
} span;

static bool span_is(span s, const char *text) { return strlen(text) == s.length && memcmp(s.text, text, s.length) == 0; }

static bool parse_digits(span *s, uint64_t *out) {
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < s->length && s->text[digits] >= '0' && s->text[digits] <= '9'; digits++) {
    if (!berthi_size_mul(value, 10, &value) || !berthi_size_add(value, (uint64_t)(s->text[digits] - '0'), &value)) return false;
  }
  s->text += digits;
  s->length -= digits;
  *out = value;
  return digits > 0;
}

static bool parse_number(span s, const unit *units, size_t count, uint64_t *out) {
  uint64_t value;
  if (!parse_digits(&s, &value)) return false;
  if (value == 0 && s.length == 0) {
    *out = 0; // a duration of 0 needs no unit
    return true;
  }
  for (size_t i = 0; i < count; i++) {
    if (span_is(s, units[i].suffix)) return berthi_size_mul(value, units[i].factor, out);
  }
  return false;
}

static bool parse_bool(span s, uint64_t *out) {
  *out = span_is(s, "1") || span_is(s, "true");
  return *out || span_is(s, "0") || span_is(s, "false");
}

static berth_status fail_value(const berthi_parameter *p, span value, const char *expected, berth_error *err) {
  return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "parameter %s=%.*s: expected %s", p->key, (int)(value.length > 60 ? 60 : value.length),
                     value.text, expected);
}

static berth_status check_bounds(const berthi_parameter *p, span value, uint64_t number, berth_error *err) {
  if ((p->minimum == 0 && p->maximum == 0) || (number >= p->minimum && number <= p->maximum)) return BERTH_OK;
  berth_status status =
      berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "parameter %s=%.*s is outside %llu to %llu", p->key,
                  (int)(value.length > 60 ? 60 : value.length), value.text, (unsigned long long)p->minimum, (unsigned long long)p->maximum);
  berthi_fact(err, "value", (int64_t)number);
  berthi_fact(err, "minimum", (int64_t)p->minimum);
  berthi_fact(err, "maximum", (int64_t)p->maximum);
  return status;
}

static berth_status store_text(const berthi_parameter *p, span value, char *target, berth_error *err) {
  if (value.length >= p->text_size)
    return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "parameter %s has %zu bytes, at most %zu are possible", p->key, value.length,
                       p->text_size - 1);
  memcpy(target, value.text, value.length);
  target[value.length] = '\0';
  return BERTH_OK;
}

static berth_status store_value(const berthi_parameter *p, span value, void *target, berth_error *err) {
  char *place = (char *)target + p->offset;
  uint64_t number = 0;
  switch (p->type) {
  case BERTHI_PARAM_TEXT:
    return store_text(p, value, place, err);
  case BERTHI_PARAM_BOOL:
    if (!parse_bool(value, &number)) return fail_value(p, value, "0, 1, true or false", err);
    *(bool *)place = number != 0;
    return BERTH_OK;
  case BERTHI_PARAM_BYTES:
    if (!parse_number(value, byte_units, BERTHI_COUNTOF(byte_units), &number))
      return fail_value(p, value, "bytes: a whole number with B, KiB, MiB, GiB or TiB", err);
    break;
  case BERTHI_PARAM_NANOSECONDS:
    if (!parse_number(value, time_units, BERTHI_COUNTOF(time_units), &number) || number > INT64_MAX)
      return fail_value(p, value, "a time: a whole number with ns, us, ms or s", err);
    break;
  case BERTHI_PARAM_U64:
    if (!parse_number(value, plain_units, BERTHI_COUNTOF(plain_units), &number)) return fail_value(p, value, "a whole number", err);
    break;
  }
  BERTHI_TRY(check_bounds(p, value, number, err));
  memcpy(place, &number, sizeof(number)); // uint64_t and int64_t have one size
  return BERTH_OK;
}

static BERTHI_COLD berth_status fail_key(span key, const berthi_parameter *known, size_t count, berth_error *err) {
  char keys[160] = "";
  size_t used = 0;
  for (size_t i = 0; i < count && used < sizeof(keys); i++) {
    int n = snprintf(keys + used, sizeof(keys) - used, "%s%s", i > 0 ? ", " : "", known[i].key);
    used += n > 0 ? (size_t)n : 0;
  }
  return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "unknown parameter '%.*s'; there are: %s", (int)(key.length > 40 ? 40 : key.length),
                     key.text, keys);
}

static berth_status parse_item(span item, const berthi_parameter *known, size_t count, uint64_t *seen, void *target, berth_error *err) {
  const char *equals = memchr(item.text, '=', item.length);
  span key = {item.text, equals != NULL ? (size_t)(equals - item.text) : item.length};
  size_t i = 0;
  while (i < count && !span_is(key, known[i].key)) i++;
  if (i == count) return fail_key(key, known, count, err);
  if (equals == NULL)
    return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "parameter %s has no value; write %s=VALUE", known[i].key, known[i].key);
  uint64_t bit = (uint64_t)1 << (i % 64);
  if (seen[i / 64] & bit) return berthi_fail(err, BERTHI_R_INVALID_CONFIGURATION, "parameter %s is given twice", known[i].key);
  seen[i / 64] |= bit;
  span value = {equals + 1, item.length - key.length - 1};
  return store_value(&known[i], value, target, err);
}

berth_status berthi_parameters_parse(const char *text, const berthi_parameter *known, size_t count, void *target, berth_error *err) {
  uint64_t seen[2] = {0, 0}; // 128 keys are more than any kind has
  if (count > 128) return berthi_fail(err, BERTHI_R_INTERNAL, "%zu parameters", count);
  if (text == NULL || text[0] == '\0') return BERTH_OK;
  for (;;) {
    const char *comma = strchr(text, ',');
    span item = {text, comma != NULL ? (size_t)(comma - text) : strlen(text)};
    BERTHI_TRY(parse_item(item, known, count, seen, target, err));
    if (comma == NULL) return BERTH_OK;
    text = comma + 1;
  }
}
