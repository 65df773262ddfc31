// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs, and narrowing a thread to the CPUs of its lanes. The kernel's set can be larger than glibc's cpu_set_t.
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "device/cpu/cpu_internal.h"

#define CPUS_MAX 65536u // far beyond any kernel; bounds what a file can make us allocate

uint32_t berthi_cpu_set_count(const cpu_set *set) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < set->words; i++) count += (uint32_t)__builtin_popcountll(set->w[i]);
  return count;
}

void berthi_cpu_set_free(cpu_set *set) {
  berthi_free(set->w);
  *set = (cpu_set){0};
}

static bool grow(cpu_set *set, uint32_t words) {
  if (words <= set->words) return true;
  uint64_t *w = berthi_alloc(words * sizeof(uint64_t));
  if (w == NULL) return false;
  if (set->words > 0) memcpy(w, set->w, set->words * sizeof(uint64_t));
  berthi_free(set->w);
  set->w = w;
  set->words = words;
  return true;
}

bool berthi_cpu_set_add(cpu_set *set, uint32_t cpu) {
  if (cpu >= CPUS_MAX || !grow(set, cpu / 64 + 1)) return false;
  set->w[cpu / 64] |= (uint64_t)1 << (cpu % 64);
  return true;
}

// The kernel refuses a buffer that is smaller than its own set: double until it fits.
static bool kernel_set(cpu_set *out) {
  for (uint32_t words = 16; words <= CPUS_MAX / 64; words *= 2) {
    if (!grow(out, words)) break;
    memset(out->w, 0, words * sizeof(uint64_t));
    if (sched_getaffinity(0, words * sizeof(uint64_t), (cpu_set_t *)(void *)out->w) == 0) return berthi_cpu_set_count(out) > 0;
    if (errno != EINVAL) break;
  }
  return false;
}

// "0-3,8,10-11"
static bool parse_list(const char *text, cpu_set *out) {
  for (;;) {
    uint64_t first, last;
    if (!berthi_sysfile_number(&text, &first)) return false;
    last = first;
    if (*text == '-') {
      text++;
      if (!berthi_sysfile_number(&text, &last)) return false;
    }
    if (last < first || last >= CPUS_MAX) return false;
    for (uint64_t cpu = first; cpu <= last; cpu++) {
      if (!berthi_cpu_set_add(out, (uint32_t)cpu)) return false;
    }
    if (*text != ',') return *text == '\n' || *text == '\0';
    text++;
  }
}

bool berthi_cpu_set_allowed(const char *sysroot, cpu_set *out) {
  static const char key[] = "Cpus_allowed_list:";
  char text[8192];
  *out = (cpu_set){0};
  bool ok;
  const char *line = NULL;
  if (sysroot[0] != '\0' && berthi_sysfile_read(sysroot, "/proc/self/status", text, sizeof(text))) line = strstr(text, key);
  if (line != NULL)
    ok = parse_list(line + sizeof(key) - 1, out);
  else
    ok = kernel_set(out);
  if (!ok) berthi_cpu_set_free(out);
  return ok;
}

static bool get_saved(uint64_t words[16]) {
  memset(words, 0, 16 * sizeof(uint64_t));
  if (sched_getaffinity(0, 16 * sizeof(uint64_t), (cpu_set_t *)(void *)words) == 0) return true;
  if (errno != EINVAL) return false;
  cpu_set large = {0};
  bool ok = kernel_set(&large);
  for (uint32_t i = 0; ok && i < large.words; i++) {
    if (i < 16)
      words[i] = large.w[i];
    else
      ok = large.w[i] == 0;
  }
  berthi_cpu_set_free(&large);
  return ok;
}

berth_status berthi_cpu_enter(berthi_device *device, const berthi_lanemask *lanes, berthi_affinity *saved, berth_error *err) {
  cpu_device *cpu = cpu_of(device);
  uint64_t wanted[16] = {0};
  saved->narrowed = false;
  for (uint32_t lane = 0; lane < cpu->lanes; lane++) {
    if (!berthi_lanes_test(lanes, lane)) continue;
    if (cpu->cpus[lane] < 0) return BERTH_OK; // a lane without a CPU of its own: nothing to narrow to
    if (cpu->cpus[lane] >= 1024) return berthi_fail(err, BERTHI_R_EXECUTOR, "%s: CPU %d is beyond 1023", device->name, cpu->cpus[lane]);
    wanted[cpu->cpus[lane] / 64] |= (uint64_t)1 << (cpu->cpus[lane] % 64);
  }
  if (!get_saved(saved->words)) return berthi_fail(err, BERTHI_R_EXECUTOR, "%s: the thread's CPU set cannot be saved", device->name);
  if (memcmp(wanted, saved->words, sizeof(wanted)) == 0) return BERTH_OK;
  if (sched_setaffinity(0, sizeof(wanted), (const cpu_set_t *)(const void *)wanted) != 0)
    return berthi_fail(err, BERTHI_R_EXECUTOR, "%s: the system refuses to narrow the thread to its lanes (errno %d)", device->name, errno);
  saved->narrowed = true;
  return BERTH_OK;
}

berth_status berthi_cpu_leave(berthi_device *device, const berthi_affinity *saved, berth_error *err) {
  if (!saved->narrowed) return BERTH_OK;
  if (sched_setaffinity(0, sizeof(saved->words), (const cpu_set_t *)(const void *)saved->words) == 0) return BERTH_OK;
  return berthi_fail(err, BERTHI_R_EXECUTOR, "%s: the thread's CPU set cannot be restored (errno %d)", device->name, errno);
}
