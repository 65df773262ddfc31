// SPDX-License-Identifier: Apache-2.0
/// Where the choices of a schedule come from: a generator, priorities with change points, or a path through the tree of all choices.
#include "base/sched_core.h"

#if defined(BERTHI_SCHED)

#include "base/memory.h"

#define CHANGE_POINTS 3
#define DEFAULT_PREEMPTIONS 2

typedef struct branch {
  uint32_t taken;
  uint32_t count;
} branch;

static struct {
  berthi_sched_mode mode;
  uint64_t random;
  // priority mode
  uint64_t change_at[CHANGE_POINTS];
  // exhaustive mode
  uint32_t preemptions_left;
  uint32_t preemption_bound;
  branch *path; // choices of this schedule; the first `replay` of them are given
  uint64_t capacity;
  uint64_t length;
  uint64_t replay;
} choice;

static uint64_t random_next(void) {
  uint64_t z = (choice.random += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

static uint64_t random_below(uint64_t bound) { return (uint64_t)(((unsigned __int128)random_next() * bound) >> 64); }

bool berthi_choice_open(const berthi_sched_options *options) {
  choice.mode = options->mode;
  choice.preemption_bound = options->preemptions != 0 ? options->preemptions : DEFAULT_PREEMPTIONS;
  choice.length = 0;
  choice.replay = 0;
  choice.path = NULL;
  if (options->mode != BERTHI_SCHED_EXHAUSTIVE) return true;
  choice.capacity = berthi_world.depth + BERTHI_SCHED_THREADS;
  choice.path = berthi_alloc(choice.capacity * sizeof *choice.path);
  return choice.path != NULL;
}

void berthi_choice_close(void) {
  berthi_free(choice.path);
  choice.path = NULL;
}

void berthi_choice_begin(uint64_t seed) {
  choice.random = seed * UINT64_C(0xD1342543DE82EF95) + 1;
  choice.length = 0;
  choice.preemptions_left = choice.preemption_bound;
  if (choice.mode != BERTHI_SCHED_PRIORITY) return;
  // The length of a schedule is not known and must not be learnt from others (a seed replays alone): its scale is drawn, too.
  uint64_t horizon = UINT64_C(8) << random_below(10);
  for (int i = 0; i < CHANGE_POINTS; i++) choice.change_at[i] = random_below(horizon);
}

bool berthi_choice_next_schedule(void) {
  if (choice.mode != BERTHI_SCHED_EXHAUSTIVE) return true;
  while (choice.length > 0 && choice.path[choice.length - 1].taken + 1 == choice.path[choice.length - 1].count) choice.length--;
  if (choice.length == 0) return false;
  choice.path[choice.length - 1].taken++;
  choice.replay = choice.length;
  return true;
}

/// The next branch on the path: as given, or its first side.
static uint32_t follow_path(uint32_t count) {
  if (choice.length == choice.capacity) berthi_sched_fail("livelock: more choices than the depth allows");
  branch *here = &choice.path[choice.length++];
  if (choice.length > choice.replay) {
    *here = (branch){.taken = 0, .count = count};
  } else if (here->count != count) {
    berthi_sched_fail("scenario is not deterministic: choice %llu had %u sides, now %u", (unsigned long long)choice.length, here->count, count);
  }
  return here->taken;
}

static uint32_t by_path(uint32_t count, bool runs_on) {
  if (runs_on && choice.preemptions_left == 0) return 0;
  uint32_t taken = follow_path(count);
  if (runs_on && taken != 0 && choice.preemption_bound != UINT32_MAX) choice.preemptions_left--;
  return taken;
}

static uint32_t by_priority(const uint8_t *candidates, uint32_t count) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < count; i++) {
    if (berthi_world.threads[candidates[i]].priority > berthi_world.threads[candidates[best]].priority) best = i;
  }
  return best;
}

uint32_t berthi_choice_thread(const uint8_t *candidates, uint32_t count, bool runs_on) {
  if (choice.mode == BERTHI_SCHED_PRIORITY) {
    for (uint32_t i = 0; i < CHANGE_POINTS; i++) {
      // Below every drawn priority, and each change below the last.
      if (choice.change_at[i] == berthi_world.points) berthi_sched_current()->priority = CHANGE_POINTS - i;
    }
    return by_priority(candidates, count);
  }
  if (count == 1) return 0;
  if (choice.mode == BERTHI_SCHED_EXHAUSTIVE) return berthi_world.calm ? 0 : by_path(count, runs_on);
  return (uint32_t)random_below(count);
}

uint64_t berthi_choice_value(uint64_t bound) {
  if (bound <= 1) return 0;
  if (choice.mode != BERTHI_SCHED_EXHAUSTIVE) return random_below(bound);
  return follow_path(bound > UINT32_MAX ? UINT32_MAX : (uint32_t)bound);
}

uint64_t berthi_choice_priority(void) { return choice.mode == BERTHI_SCHED_PRIORITY ? CHANGE_POINTS + 1 + (random_next() >> 8) : 0; }

#endif
