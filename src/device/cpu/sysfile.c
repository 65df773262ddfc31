// SPDX-License-Identifier: Apache-2.0
// The only reader of /proc and /sys, so that tests can put files of their own in their place (parameter sysroot).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "device/cpu/cpu_internal.h"

static bool read_all(int fd, char *out, size_t size) {
  size_t used = 0;
  while (used + 1 < size) {
    ssize_t n = read(fd, out + used, size - 1 - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    used += (size_t)n;
  }
  out[used] = '\0';
  return true;
}

bool berthi_sysfile_read(const char *sysroot, const char *path, char *out, size_t size) {
  char full[CPU_PATH_MAX];
  out[0] = '\0';
  int length = snprintf(full, sizeof(full), "%s%s", sysroot, path);
  if (length < 0 || (size_t)length >= sizeof(full)) return false;
  if (berthi_fault_fires(BERTHI_FAULT_FILE, path)) return false;
  int fd = open(full, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = read_all(fd, out, size);
  close(fd);
  if (!ok) out[0] = '\0';
  return ok;
}

bool berthi_sysfile_number(const char **text, uint64_t *out) {
  const char *at = *text;
  while (*at == ' ' || *at == '\t') at++;
  if (*at < '0' || *at > '9') return false;
  uint64_t value = 0;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (!berthi_size_mul(value, 10, &value) || !berthi_size_add(value, (uint64_t)(*at - '0'), &value)) return false;
  }
  *text = at;
  *out = value;
  return true;
}

bool berthi_sysfile_u64(const char *sysroot, const char *path, uint64_t *out) {
  char text[64];
  const char *at = text;
  if (!berthi_sysfile_read(sysroot, path, text, sizeof(text)) || !berthi_sysfile_number(&at, out)) return false;
  return at[strspn(at, " \t\n")] == '\0';
}

bool berthi_sysfile_field(const char *text, const char *key, uint64_t *out) {
  size_t length = strlen(key);
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) == 0) {
      line += length;
      return berthi_sysfile_number(&line, out);
    }
  }
  return false;
}
