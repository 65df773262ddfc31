// SPDX-License-Identifier: Apache-2.0
// The smallest user of an installed Berth: header and library must be of one version.
#include <stdio.h>
#include <string.h>

#include <berth/berth.h>

int main(void) {
  char expected[32];
  berth_reason reason;
  berth_error error = BERTH_ERROR_INIT;
  snprintf(expected, sizeof expected, "%d.%d.%d", BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR, BERTH_VERSION_PATCH);
  if (strcmp(berth_version(), expected) != 0) {
    printf("header %s, library %s\n", expected, berth_version());
    return 1;
  }
  if (berth_reason_info("backend_closing", 0, &reason, &error) != BERTH_OK) {
    printf("%s: %s\n", error.reason, error.message);
    return 1;
  }
  printf("berth %s: %s is %s\n", berth_version(), reason.name, berth_status_name(reason.code));
  return 0;
}
