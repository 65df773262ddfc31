// SPDX-License-Identifier: Apache-2.0
/// A directory of files that stand in for /proc and /sys.
#ifndef BERTH_TEST_SYSROOT_FILES_H
#define BERTH_TEST_SYSROOT_FILES_H

typedef struct sysroot {
  char path[64];
} sysroot;

void berth_test_sysroot_create(sysroot *root);
/// Writes a file, `path` as in "/proc/meminfo"; directories are made.
void berth_test_sysroot_put(const sysroot *root, const char *path, const char *text);
void berth_test_sysroot_remove(const sysroot *root, const char *path);
void berth_test_sysroot_destroy(sysroot *root);

#endif
