// SPDX-License-Identifier: Apache-2.0
// The kinds of devices there are, by name. The deterministic scheduler's build leaves the cpu out: its workers are real threads.
#include <string.h>

#include "base/error.h"
#include "device/device.h"
#include "device/kinds.h"

typedef struct registry_row {
  const berthi_device_kind *kind;
  uint32_t ordinals; ///< names below this one exist
  uint32_t listed;   ///< how many berth_devices_list shows at most
} registry_row;

static const registry_row registry[] = {
#if !defined(BERTHI_SCHED)
    {&berthi_cpu_kind, 1, 1},
#endif
    {&berthi_sim_kind, BERTHI_SIM_ORDINALS, 1},
};

// Writes "cpu, sim" into out.
static void kind_names(char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < BERTHI_COUNTOF(registry); i++) {
    size_t length = strlen(registry[i].kind->name);
    if (used + length + 3 > size) return;
    if (used > 0) {
      memcpy(out + used, ", ", 2);
      used += 2;
    }
    memcpy(out + used, registry[i].kind->name, length + 1);
    used += length;
  }
}

// Parses a decimal number without sign or leading zeros, so that each device has one name.
static bool parse_ordinal(const char *text, uint32_t *out) {
  if (text[0] < '0' || text[0] > '9' || (text[0] == '0' && text[1] != '\0')) return false;
  uint32_t value = 0;
  for (; *text != '\0'; text++) {
    if (*text < '0' || *text > '9' || value > 99999) return false;
    value = value * 10 + (uint32_t)(*text - '0');
  }
  *out = value;
  return true;
}

static const registry_row *find_row(const char *name, size_t length) {
  for (size_t i = 0; i < BERTHI_COUNTOF(registry); i++) {
    const char *kind = registry[i].kind->name;
    if (strlen(kind) == length && memcmp(kind, name, length) == 0) return &registry[i];
  }
  return NULL;
}

berth_status berthi_device_find(const char *name, const berthi_device_kind **out_kind, uint32_t *out_ordinal, berth_error *err) {
  char kinds[64];
  kind_names(kinds, sizeof(kinds));
  if (name == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "a device needs a name such as cpu:0; kinds: %s", kinds);
  const char *colon = strchr(name, ':');
  uint32_t ordinal = 0;
  if (colon == NULL || !parse_ordinal(colon + 1, &ordinal))
    return berthi_fail(err, BERTHI_R_UNKNOWN_DEVICE, "'%.40s' is not of the form kind:number; kinds: %s", name, kinds);
  const registry_row *row = find_row(name, (size_t)(colon - name));
  if (row == NULL) return berthi_fail(err, BERTHI_R_UNKNOWN_DEVICE, "no kind of device in '%.40s'; kinds: %s", name, kinds);
  if (ordinal >= row->ordinals)
    return berthi_fail(err, BERTHI_R_UNKNOWN_DEVICE, "'%.40s' is beyond the last one, %s:%u", name, row->kind->name, row->ordinals - 1);
  *out_kind = row->kind;
  *out_ordinal = ordinal;
  return BERTH_OK;
}

// One element of the caller's array, whose stride is the struct size that the caller was built with.
static berth_status put_description(berth_device_description *out, size_t stride, uint32_t index, const berth_device_description *value,
                                    berth_error *err) {
  void *element = (char *)out + stride * index;
  memcpy(element, &stride, sizeof(stride));
  return berthi_output_copy(element, value, sizeof(*value), "berth_device_description", err);
}

berth_status berth_devices_list(berth_device_description *out, uint32_t capacity, uint32_t *out_count, berth_error *err) {
  if (out_count == NULL || (out == NULL && capacity > 0))
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_count is required, and out where capacity is above 0");
  size_t stride = capacity > 0 ? out->struct_size : 0;
  if (capacity > 0 && stride < sizeof(size_t))
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "struct_size of the first element is %zu; use BERTH_DEVICE_DESCRIPTION_INIT", stride);
  uint32_t count = 0;
  for (size_t i = 0; i < BERTHI_COUNTOF(registry); i++) {
    for (uint32_t ordinal = 0; ordinal < registry[i].listed; ordinal++) {
      berth_device_description description = BERTH_DEVICE_DESCRIPTION_INIT;
      berth_status status = registry[i].kind->describe(ordinal, &description, err);
      if (status == BERTH_NOT_FOUND) break;
      BERTHI_TRY(status);
      if (count < capacity) BERTHI_TRY(put_description(out, stride, count, &description, err));
      count++;
    }
  }
  *out_count = count;
  return BERTH_OK;
}
