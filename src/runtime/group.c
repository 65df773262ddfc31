// SPDX-License-Identifier: Apache-2.0
// Groups (ADM-12). They live in one array that is made with the first of them and never moves, so requests may point into it. The default group is
// no row: NULL, without limits. In a row every limit is a number; "unlimited" is the largest.
#include <stdio.h>
#include <string.h>

#include "runtime/core.h"

static void set_limits(const berthi_core *core, berthi_group *group, const berth_group_limits *limits) {
  group->max_queued = limits->max_queued != 0 ? limits->max_queued : core->options.max_queued_per_group;
  group->max_active = limits->max_active != 0 ? limits->max_active : UINT32_MAX;
  group->max_lanes = limits->max_lanes != 0 ? limits->max_lanes : UINT32_MAX;
  group->max_bytes = limits->max_bytes != 0 ? limits->max_bytes : BERTH_UNLIMITED_U64;
}

static berthi_group *make_group(berthi_core *core, const char *name) {
  if (core->group_count >= core->options.max_groups) return NULL;
  if (core->groups == NULL) core->groups = berthi_alloc(core->options.max_groups * sizeof(*core->groups));
  if (core->groups == NULL) return NULL;
  berthi_group *group = &core->groups[core->group_count];
  berth_group_limits standard = BERTH_GROUP_LIMITS_INIT;
  snprintf(group->name, sizeof(group->name), "%s", name);
  set_limits(core, group, &standard);
  core->group_count++;
  return group;
}

berthi_group *berthi_group_find_locked(berthi_core *core, const char *name, bool make) {
  if (name == NULL || name[0] == '\0') return NULL;
  for (uint32_t i = 0; i < core->group_count; i++) {
    if (strcmp(core->groups[i].name, name) == 0) return &core->groups[i];
  }
  return make ? make_group(core, name) : NULL;
}

static berth_status check_name(const char *name, berth_error *err) {
  size_t length = name != NULL ? strnlen(name, BERTH_GROUP_NAME) : 0;
  if (length > 0 && length < BERTH_GROUP_NAME) return BERTH_OK;
  berth_status status = berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "name: %s, at least 1 and at most %d bytes",
                                    name == NULL  ? "NULL"
                                    : length == 0 ? "empty"
                                                  : "too long",
                                    BERTH_GROUP_NAME - 1);
  berthi_fact(err, "bound", BERTH_GROUP_NAME - 1);
  return status;
}

berth_status berth_group_set(berth_backend *backend, const char *name, const berth_group_limits *limits, berth_error *err) {
  if (backend == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend is NULL");
  berthi_core *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  BERTHI_TRY(check_name(name, err));
  berth_group_limits known;
  BERTHI_TRY(berthi_options_copy(limits, &known, sizeof(known), "berth_group_limits", err));
  if (berthi_gate_is_closed(&core->gate)) return berthi_core_fail_closing(core, err);
  berthi_after after;
  berthi_lock(core, &after);
  berthi_group *group = berthi_group_find_locked(core, name, true);
  if (group != NULL) {
    set_limits(core, group, &known);
    berthi_scan_locked(core); // a raised limit can make a waiter grantable (ADM-7)
  }
  berthi_unlock(core, &after);
  if (group != NULL) return BERTH_OK;
  berth_status status = berthi_fail(err, BERTHI_R_GROUP_LIMIT, "%s: no more than %u groups can be named", name, core->options.max_groups);
  berthi_fact(err, "bound", core->options.max_groups);
  return status;
}

static void read_group(const berthi_group *group, berth_group_limits *out) {
  out->max_queued = group->max_queued;
  out->max_active = group->max_active;
  out->max_lanes = group->max_lanes;
  out->max_bytes = group->max_bytes;
  out->queued = (uint32_t)berthi_get(&group->queued);
  out->active = (uint32_t)berthi_get(&group->active);
  out->lanes = (uint32_t)berthi_get(&group->lanes);
  out->bytes = berthi_get(&group->bytes);
}

berth_status berth_group_get(berth_backend *backend, const char *name, berth_group_limits *out_limits, berth_error *err) {
  if (backend == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "backend is NULL");
  berthi_core *core = berthi_core_of_backend(backend);
  BERTHI_TRY(berthi_core_check_fork(core, err));
  BERTHI_TRY(check_name(name, err));
  berth_group_limits known = BERTH_GROUP_LIMITS_INIT;
  berthi_mutex_lock(&core->lock); // reads only: the sequence stays as it is
  const berthi_group *group = berthi_group_find_locked(core, name, false);
  if (group != NULL) read_group(group, &known);
  berthi_mutex_unlock(&core->lock);
  if (group == NULL) return berthi_fail(err, BERTHI_R_UNKNOWN_GROUP, "%s: name it with berth_group_set or in an attempt first", name);
  return berthi_output_copy(out_limits, &known, sizeof(known), "berth_group_limits", err);
}

berth_status berthi_group_named(berthi_core *core, const char *name, berthi_group **out, berth_error *err) {
  *out = NULL;
  if (name == NULL) return BERTH_OK;
  BERTHI_TRY(check_name(name, err));
  berthi_after after;
  berthi_lock(core, &after);
  *out = berthi_group_find_locked(core, name, true);
  uint32_t count = core->group_count;
  berthi_unlock(core, &after);
  if (*out != NULL) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_GROUP_LIMIT, "group \"%s\": %u groups are named, at most %u may be", name, count, core->options.max_groups);
}
