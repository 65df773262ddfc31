// SPDX-License-Identifier: Apache-2.0
// What attempts and waiting requests cost in host memory, as the C library's allocator counts it, its own headers included.
#include <malloc.h>
#include <stdlib.h>

#include "measure.h"

#define ATTEMPTS 1000

typedef struct hoard {
  measure_world world;
  berth_exec *full; ///< holds the device, so that the others wait
  berth_attempt *attempts[ATTEMPTS];
  berth_admission *admissions[ATTEMPTS];
} hoard;

static double in_use(void) {
  struct mallinfo2 info = mallinfo2();
  return (double)info.uordblks + (double)info.hblkhd;
}

static bool fill(hoard *h, double *out_open, double *out_queued) {
  double empty = in_use();
  for (int i = 0; i < ATTEMPTS; i++) {
    if (berth_session_begin_attempt(h->world.session, NULL, &h->attempts[i], NULL) != BERTH_OK) return false;
  }
  double open = in_use();
  for (int i = 0; i < ATTEMPTS; i++) {
    if (berth_session_admit(h->world.session, h->attempts[i], NULL, &h->admissions[i], NULL) != BERTH_OK) return false;
  }
  *out_open = (open - empty) / ATTEMPTS;
  *out_queued = (in_use() - open) / ATTEMPTS;
  return true;
}

static void tell(measure *m, double open, double queued) {
  measure_tell(m, (measure_result){.name = "open_attempt",
                                   .value = open,
                                   .unit = "B",
                                   .bound = MEASURE_AT_MOST,
                                   .budget = 2048,
                                   .samples = ATTEMPTS,
                                   .note = "the block of an attempt, strings and events beside"});
  measure_tell(m, (measure_result){.name = "queued_request",
                                   .value = queued,
                                   .unit = "B",
                                   .bound = MEASURE_AT_MOST,
                                   .budget = 512,
                                   .samples = ATTEMPTS,
                                   .note = "what queueing adds: a request lies in its attempt's block"});
}

static void empty(hoard *h) {
  for (int i = 0; i < ATTEMPTS; i++) {
    berth_admission_release(h->admissions[i]);
    berth_attempt_release(h->attempts[i]);
  }
  berth_exec_release(h->full);
  measure_close(&h->world);
}

void measure_memory(measure *m) {
  hoard *h = calloc(1, sizeof *h);
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  double open = 0, queued = 0;
  device.name = "sim:0";
  device.parameters = "lanes=1,slots=1";
  if (h == NULL) {
    measure_fail(m, "memory", "no memory");
    return;
  }
  if (measure_open(m, &h->world, "memory", &device, 1, 2 * ATTEMPTS)) {
    if (berth_exec_hold(h->world.session, NULL, &h->full, NULL) == BERTH_OK && fill(h, &open, &queued)) {
      tell(m, open, queued);
    } else {
      measure_fail(m, "memory", "an attempt was refused");
    }
    empty(h);
  }
  free(h);
}
