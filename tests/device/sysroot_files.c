// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "device/sysroot_files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

void berth_test_sysroot_create(sysroot *root) {
  snprintf(root->path, sizeof(root->path), "/tmp/berth-sysroot-XXXXXX");
  check(mkdtemp(root->path) != NULL, "mkdtemp");
}

void berth_test_sysroot_put(const sysroot *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof(full), "%s%s", root->path, path);
  for (char *slash = strchr(full + strlen(root->path) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    (void)mkdir(full, 0700);
    *slash = '/';
  }
  FILE *file = fopen(full, "w");
  check(file != NULL, full);
  fputs(text, file);
  check(fclose(file) == 0, full);
}

void berth_test_sysroot_remove(const sysroot *root, const char *path) {
  char full[512];
  snprintf(full, sizeof(full), "%s%s", root->path, path);
  check(unlink(full) == 0, full);
}

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *walk) {
  (void)status;
  (void)flag;
  (void)walk;
  return remove(path);
}

void berth_test_sysroot_destroy(sysroot *root) { check(nftw(root->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0, root->path); }
