// SPDX-License-Identifier: Apache-2.0
// The laws: a reader that checks each snapshot while the drill runs, and what must be true in the end.
#include <string.h>
#include <time.h>

#include "bench/measure.h"
#include "drill.h"

static const int64_t READ_EVERY = 1000000;

void drill_broken(drill *d, const char *law) {
  for (uint32_t i = 0; i < d->broken_count; i++) {
    if (strcmp(d->broken[i], law) == 0) return;
  }
  if (d->broken_count < DRILL_BROKEN) d->broken[d->broken_count++] = law;
}

void *drill_reader_main(void *arg) {
  drill *d = arg;
  berth_device_metrics figures[2];
  berth_metrics snapshots[2];
  memset(snapshots, 0, sizeof snapshots);
  for (int i = 0; i < 2; i++) {
    snapshots[i].struct_size = sizeof snapshots[i];
    snapshots[i].devices = &figures[i];
    snapshots[i].device_capacity = 1;
  }
  for (uint64_t turn = 0; !atomic_load_explicit(&d->reader_stop, memory_order_relaxed); turn++) {
    berth_metrics *now = &snapshots[turn % 2];
    const berth_metrics *before = turn == 0 ? NULL : &snapshots[(turn + 1) % 2];
    if (berth_session_metrics(d->session, now, NULL) != BERTH_OK) {
      drill_broken(d, "a snapshot can always be read");
      break;
    }
    const char *law = measure_broken_law(now, before);
    if (law != NULL) drill_broken(d, law);
    d->snapshots++;
    measure_sleep_until(berth_now() + READ_EVERY);
  }
  return NULL;
}

static void must(drill *d, bool holds, const char *law) {
  if (!holds) drill_broken(d, law);
}

// Everybody has ended, so nothing is held.
static void check_rest(drill *d) {
  const berth_metrics *m = &d->metrics;
  must(d, m->open == 0, "no attempt is open in the end");
  must(d, m->queued == 0, "nobody waits in the end");
  must(d, m->live_grants == 0 && m->promised_bytes == 0, "nothing is promised in the end");
  must(d, d->figures.active == 0 && d->figures.lanes_promised == 0, "no slot and no lane is taken in the end");
  must(d, d->figures.leaked_bytes == 0, "nothing is leaked in the end");
}

// What the library counted is what the workers did.
static void check_books(drill *d) {
  const berth_metrics *m = &d->metrics;
  const drill_counts *t = &d->total;
  must(d, m->begun == t->attempts, "begun = attempts that the workers began");
  must(d, m->submitted == t->submitted, "submitted = requests that the workers submitted");
  must(d, m->granted >= t->granted, "granted >= executions that the workers used");
  if (m->overflowed > 0 || m->held > 0) return; // reports that nobody can read any more
  for (int i = 0; i < 5; i++) must(d, m->outcomes[i] == t->outcomes[i] + d->abandoned_outcomes[i], "outcomes = what the reports say");
}

void drill_check_end(drill *d) {
  const char *law = measure_broken_law(&d->metrics, NULL);
  if (law != NULL) drill_broken(d, law);
  check_rest(d);
  check_books(d);
  if (d->total.wrong > 0) drill_broken(d, d->total.first_wrong);
  // A waiter becomes a barrier after max_bypass overtakes and bypass_after of waiting; only without the second is the first a bound.
  if (d->options.bypass_after <= 1)
    must(d, d->metrics.overtakes_max <= d->options.max_bypass, "ADM-6: nobody is overtaken more often than max_bypass");
  must(d, d->close_status == BERTH_OK && d->closed.state == BERTH_STATE_CLOSED, "the backend closes");
  must(d, d->closed.active_device_permits == 0 && d->closed.active_observation_permits == 0, "no permit is left after the close");
  must(d, d->closed.bytes_leaked == 0 && d->closed.devices_leaked == 0, "no device is leaked by the close");
}
