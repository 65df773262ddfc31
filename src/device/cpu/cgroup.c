// SPDX-License-Identifier: Apache-2.0
// The control groups of this process. A limit of any group on the way to the root binds, so each is read and the smallest wins.
//
// In a container the path in /proc/self/cgroup may be the host's while only the container's own group is mounted: what is not there is
// skipped, and the walk ends at the mount's root, which then is that group.
#include <stdio.h>
#include <string.h>

#include "device/cpu/cpu_internal.h"

#define NO_LIMIT UINT64_MAX
#define V1_NO_LIMIT ((uint64_t)1 << 62) // version 1 writes the largest multiple of a page for "none"

// Files of one version; NULL where the version has none.
typedef struct group_files {
  const char *memory_limit, *memory_current, *quota, *period, *cpu_stat;
} group_files;
static const group_files v2 = {"memory.max", "memory.current", "cpu.max", NULL, "cpu.stat"};
static const group_files v1_memory = {"memory.limit_in_bytes", "memory.usage_in_bytes", NULL, NULL, NULL};
static const group_files v1_cpu = {NULL, NULL, "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"};

static bool group_file(const char *directory, const char *file, char out[CPU_PATH_MAX]) {
  int length = snprintf(out, CPU_PATH_MAX, "%s/%s", directory, file);
  return length > 0 && length < CPU_PATH_MAX;
}

static void read_memory(const char *sysroot, const char *directory, const group_files *files, cpu_cgroup *out) {
  char path[CPU_PATH_MAX];
  uint64_t limit, current;
  if (!group_file(directory, files->memory_limit, path) || !berthi_sysfile_u64(sysroot, path, &limit)) return;
  if (limit == 0 || limit >= V1_NO_LIMIT || limit >= out->memory_limit) return;
  out->memory_limit = limit;
  out->memory_file = files->memory_limit;
  out->has_current = group_file(directory, files->memory_current, path) && berthi_sysfile_u64(sysroot, path, &current);
  if (out->has_current) out->memory_current = current;
}

static void lower_quota(uint64_t quota, uint64_t period, cpu_cgroup *out) {
  if (period == 0 || quota == 0 || quota > UINT64_MAX / 1000) return;
  uint64_t milli = quota * 1000 / period;
  if (milli < out->quota_milli) out->quota_milli = milli;
}

// Version 2 has "quota period" in one file, version 1 a file each; "max" and -1 are no limit and parse as no number.
static void read_quota(const char *sysroot, const char *directory, const group_files *files, cpu_cgroup *out) {
  char path[CPU_PATH_MAX], text[64];
  const char *at = text;
  uint64_t quota, period;
  if (!group_file(directory, files->quota, path) || !berthi_sysfile_read(sysroot, path, text, sizeof(text))) return;
  if (!berthi_sysfile_number(&at, &quota)) return;
  if (files->period == NULL) {
    if (berthi_sysfile_number(&at, &period)) lower_quota(quota, period, out);
  } else if (group_file(directory, files->period, path) && berthi_sysfile_u64(sysroot, path, &period)) {
    lower_quota(quota, period, out);
  }
}

static void read_throttled(const char *sysroot, const char *directory, const group_files *files, cpu_cgroup *out) {
  char path[CPU_PATH_MAX], text[1024];
  uint64_t count;
  if (!group_file(directory, files->cpu_stat, path) || !berthi_sysfile_read(sysroot, path, text, sizeof(text))) return;
  if (!berthi_sysfile_field(text, "nr_throttled ", &count)) return;
  out->throttled += count;
  out->has_throttled = true;
}

static void walk(const char *sysroot, const char *mount, const char *group, const group_files *files, cpu_cgroup *out) {
  char directory[CPU_PATH_MAX];
  // A path outside this namespace's root cannot be followed; the mount's root still can.
  if (strstr(group, "/..") != NULL) group = "";
  int length = snprintf(directory, sizeof(directory), "%s%s", mount, group);
  if (length < 0 || (size_t)length >= sizeof(directory)) return;
  size_t root = strlen(mount);
  for (;;) {
    if (files->memory_limit != NULL) read_memory(sysroot, directory, files, out);
    if (files->quota != NULL) read_quota(sysroot, directory, files, out);
    if (files->cpu_stat != NULL) read_throttled(sysroot, directory, files, out);
    char *slash = strrchr(directory + root, '/');
    if (slash == NULL) return;
    *slash = '\0';
  }
}

static bool names_controller(const char *list, const char *controller) {
  size_t length = strlen(controller);
  for (;;) {
    size_t item = strcspn(list, ",");
    if (item == length && memcmp(list, controller, length) == 0) return true;
    if (list[item] == '\0') return false;
    list += item + 1;
  }
}

static void walk_v1(const char *sysroot, const char *controllers, const char *controller, const char *group, const group_files *files,
                    cpu_cgroup *out) {
  char mount[CPU_PATH_MAX];
  if (!names_controller(controllers, controller)) return;
  // Mounted under its own name, under the whole list's name, or both; reading a group twice does no harm.
  snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
  walk(sysroot, mount, group, files, out);
  if (strcmp(controllers, controller) == 0) return;
  snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%.200s", controllers);
  walk(sysroot, mount, group, files, out);
}

// A line is "number:controllers:path"; version 2 has no controllers.
static void read_line(const char *sysroot, char *line, cpu_cgroup *out) {
  char *controllers = strchr(line, ':');
  if (controllers == NULL) return;
  controllers++;
  char *group = strchr(controllers, ':');
  if (group == NULL) return;
  *group++ = '\0';
  if (group[0] != '/') return;
  if (group[1] == '\0') group[0] = '\0';
  if (controllers[0] == '\0') {
    walk(sysroot, "/sys/fs/cgroup", group, &v2, out);
    walk(sysroot, "/sys/fs/cgroup/unified", group, &v2, out);
    return;
  }
  walk_v1(sysroot, controllers, "memory", group, &v1_memory, out);
  walk_v1(sysroot, controllers, "cpu", group, &v1_cpu, out);
}

void berthi_cgroup_read(const char *sysroot, cpu_cgroup *out) {
  char text[4096];
  *out = (cpu_cgroup){.memory_limit = NO_LIMIT, .quota_milli = NO_LIMIT};
  if (!berthi_sysfile_read(sysroot, "/proc/self/cgroup", text, sizeof(text))) return;
  for (char *line = text; line != NULL;) {
    char *next = strchr(line, '\n');
    if (next != NULL) *next++ = '\0';
    read_line(sysroot, line, out);
    line = next;
  }
}
