// SPDX-License-Identifier: Apache-2.0
// Counts and waits of a drill's workers, and their random numbers.
#include <string.h>

#include "drill.h"

// splitmix64
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t drill_random(uint64_t *state, drill_range range) { return range.least + next_random(state) % (range.most - range.least + 1); }

bool drill_dice(uint64_t *state, uint64_t percent) { return next_random(state) % 100 < percent; }

void drill_count_reason(drill_counts *counts, const char *reason) {
  if (reason == NULL) reason = "none";
  for (int i = 0; i < DRILL_REASONS; i++) {
    drill_reason *r = &counts->reasons[i];
    if (r->name == NULL) r->name = reason;
    if (strcmp(r->name, reason) != 0) continue;
    r->count++;
    return;
  }
}

void drill_count_wrong(drill_counts *counts, const char *what) {
  counts->wrong++;
  if (counts->first_wrong == NULL) counts->first_wrong = what;
}

// 16 steps to each power of two.
static uint32_t wait_index(uint64_t value) {
  if (value < 16) return (uint32_t)value;
  uint32_t power = 63 - (uint32_t)__builtin_clzll(value);
  return (power - 3) * 16 + ((uint32_t)(value >> (power - 4)) & 15u);
}

static uint64_t wait_bound(uint32_t index) {
  if (index < 16) return index;
  uint32_t power = index / 16 + 3;
  return ((uint64_t)1 << power) + ((uint64_t)(index % 16 + 1) << (power - 4));
}

void drill_count_wait(drill_counts *counts, int64_t nanoseconds) {
  uint64_t value = nanoseconds < 0 ? 0 : (uint64_t)nanoseconds;
  counts->waits[wait_index(value)]++;
  if (value > counts->wait_max) counts->wait_max = value;
}

uint64_t drill_wait_quantile(const drill_counts *counts, double share) {
  uint64_t all = 0;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < DRILL_WAITS; i++) all += counts->waits[i];
  for (uint32_t i = 0; i < DRILL_WAITS; i++) {
    seen += counts->waits[i];
    if (all > 0 && (double)seen >= share * (double)all) return wait_bound(i) < counts->wait_max ? wait_bound(i) : counts->wait_max;
  }
  return 0;
}

void drill_count_report(drill_counts *counts, berth_report *report) {
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  if (berth_report_get(report, &info, NULL) != BERTH_OK) {
    drill_count_wrong(counts, "a sealed report cannot be read");
    return;
  }
  if ((uint32_t)info.outcome < 5) counts->outcomes[info.outcome]++;
  if (info.outcome != BERTH_SUCCEEDED && info.cause.code != BERTH_OK) drill_count_reason(counts, info.cause.reason);
  if (info.granted_at != BERTH_NO_TIME) drill_count_wait(counts, info.granted_at - info.submitted_at);
  counts->queued += info.why_queued != 0;
  for (uint32_t i = 0; i < 6; i++) counts->why[i] += (info.why_queued >> i) & 1u;
  if (info.overtakes > counts->overtakes) counts->overtakes = info.overtakes;
  if (info.granted_at != BERTH_NO_TIME && info.granted_at < info.submitted_at)
    drill_count_wrong(counts, "a report was granted before it was submitted");
  if (info.sealed_at == BERTH_NO_TIME || info.sealed_at < info.begun_at) drill_count_wrong(counts, "a report was sealed before it began");
}

void drill_count_add(drill_counts *to, const drill_counts *from) {
  to->attempts += from->attempts;
  to->entries += from->entries;
  to->submitted += from->submitted;
  to->granted += from->granted;
  to->grown += from->grown;
  to->shrunk += from->shrunk;
  to->queued += from->queued;
  to->wrong += from->wrong;
  if (to->first_wrong == NULL) to->first_wrong = from->first_wrong;
  if (from->overtakes > to->overtakes) to->overtakes = from->overtakes;
  if (from->wait_max > to->wait_max) to->wait_max = from->wait_max;
  for (int i = 0; i < 5; i++) to->outcomes[i] += from->outcomes[i];
  for (int i = 0; i < 6; i++) to->why[i] += from->why[i];
  for (int i = 0; i < DRILL_WAITS; i++) to->waits[i] += from->waits[i];
  for (int i = 0; i < DRILL_REASONS && from->reasons[i].name != NULL; i++) {
    drill_count_reason(to, from->reasons[i].name);
    for (int k = 0; k < DRILL_REASONS; k++) {
      if (to->reasons[k].name != NULL && strcmp(to->reasons[k].name, from->reasons[i].name) == 0) to->reasons[k].count += from->reasons[i].count - 1;
    }
  }
}
