// SPDX-License-Identifier: Apache-2.0
/// Order: bounded bypass and barriers, lanes first in first out, priorities that age, caps of groups, bounds of the queue (ADM-4, ADM-6, ADM-7, ADM-12).
#include "base/annotate.h"
#include "sched/sched_fixture.h"
#include "sched/sched_suite.h"

typedef struct line {
  scene scene;
  scene_held held[4];
  uint32_t now, most; // executions at once, of the group
  uint32_t refused;
} line;

typedef struct client {
  line *line;
  berth_request request;
  berth_attempt_options options;
  scene_end end;
} client;

// A whole attempt that notes when it was granted and how many of its kind run.
static void goes(void *arg) {
  client *c = arg;
  line *l = c->line;
  berth_error err = BERTH_ERROR_INIT;
  berth_attempt *attempt = scene_begin(&l->scene, c->options.struct_size != 0 ? &c->options : NULL);
  berth_completion *completion = berth_attempt_completion(attempt);
  berth_admission *admission = NULL;
  c->end.status = berth_session_admit(l->scene.session, attempt, &c->request, &admission, &err);
  if (c->end.status == BERTH_OK) {
    berth_exec *exec = scene_take(admission);
    c->end.taken = true;
    if (++l->now > l->most) l->most = l->now;
    berthi_sched_point();
    l->now--;
    (void)berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, NULL);
  } else {
    berthi_sched_check(scene_reason_is(&err, "admission_queue_full"));
    l->refused++;
  }
  scene_report(&l->scene, completion, &c->end.report);
  berth_admission_release(admission);
  berth_attempt_release(attempt);
  berth_completion_release(completion);
}

typedef struct queued {
  client client;
  berth_attempt *attempt;
  berth_completion *completion;
  berth_admission *admission;
} queued;

static void enqueue(line *l, queued *q, const berth_request *request, const berth_attempt_options *options) {
  *q = (queued){.client = {.line = l, .request = *request}};
  q->attempt = scene_begin(&l->scene, options);
  q->completion = berth_attempt_completion(q->attempt);
  q->admission = scene_admit(&l->scene, q->attempt, request);
}

// Executions are numbered as they are granted, so the report tells the order.
static void serve(line *l, queued *q) {
  (void)berth_exec_finish(scene_take(q->admission), BERTH_SUCCEEDED, NULL, NULL);
  scene_report(&l->scene, q->completion, &q->client.end.report);
}

static void leave(queued *q) {
  berth_admission_release(q->admission);
  berth_attempt_release(q->attempt);
  berth_completion_release(q->completion);
}

static void serve_thread(void *arg) {
  queued *q = arg;
  serve(q->client.line, q);
}

static void finisher(void *arg) {
  line *l = arg;
  for (int i = 0; i < 4; i++) {
    if (l->held[i].exec != NULL) scene_finish(&l->scene, &l->held[i], BERTH_SUCCEEDED, NULL);
  }
}

// ---- bounded bypass --------------------------------------------------------------------------------------------------------------------------------------

static void small_ones(void *arg) {
  client *c = arg;
  for (int i = 0; i < 3; i++) goes(c);
}

// A request for everything among many small ones: overtaken at most max_bypass times, then it is next.
static void bypass_bound(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  berthi_thread threads[4];
  uint32_t bound = 1 + (uint32_t)berthi_sched_random(3);
  scene_open(&l.scene,
             &(scene_setup){.units = 3, .slots = 8, .lanes = 8, .parameters = "lanes=8", .options = {.max_bypass = bound, .bypass_after = 1}});
  berth_request one = scene_units(1);
  scene_hold(&l.scene, &one, &l.held[0]);
  client large = {.line = &l, .request = scene_units(3)};
  client small[3];
  scene_start(&threads[0], "big", goes, &large);
  scene_await_queued(&l.scene, 1);
  berthi_sched_advance(1); // bypass_after of waiting
  for (int i = 0; i < 2; i++) {
    small[i] = (client){.line = &l, .request = scene_units(1)};
    scene_start(&threads[1 + i], "small", small_ones, &small[i]);
  }
  scene_start(&threads[3], "finish", finisher, &l);
  (void)scene_laws(&l.scene);
  scene_join(threads, 4);
  berthi_sched_check(large.end.report.overtakes <= bound);
  berthi_sched_check(scene_laws(&l.scene).overtakes_max <= bound);
  scene_close(&l.scene);
}

// Many small ones are queued behind the big one, and one release makes room for them all at once.
static void bypass_burst(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued large, small[3];
  berthi_thread threads[4];
  uint32_t bound = 1 + (uint32_t)berthi_sched_random(2);
  scene_open(&l.scene,
             &(scene_setup){.units = 4, .slots = 8, .lanes = 8, .parameters = "lanes=8", .options = {.max_bypass = bound, .bypass_after = 1}});
  berth_request one = scene_units(1), three = scene_units(3), four = scene_units(4);
  scene_hold(&l.scene, &one, &l.held[0]);
  scene_hold(&l.scene, &three, &l.held[1]);
  enqueue(&l, &large, &four, NULL);
  for (int i = 0; i < 3; i++) enqueue(&l, &small[i], &one, NULL);
  berthi_sched_advance(1);
  scene_finish(&l.scene, &l.held[1], BERTH_SUCCEEDED, NULL);
  scene_start(&threads[0], "big", serve_thread, &large);
  for (int i = 0; i < 3; i++) scene_start(&threads[1 + i], "small", serve_thread, &small[i]);
  scene_finish(&l.scene, &l.held[0], BERTH_SUCCEEDED, NULL);
  scene_join(threads, 4);
  berthi_sched_check(large.client.end.report.overtakes <= bound);
  uint32_t before = 0; // as the numbers of the executions tell it, not the count
  for (int i = 0; i < 3; i++) before += small[i].client.end.report.execution_id < large.client.end.report.execution_id;
  berthi_sched_check(before <= bound);
  leave(&large);
  for (int i = 0; i < 3; i++) leave(&small[i]);
  scene_close(&l.scene);
}

// A barrier blocks one device only; the others go on.
static void barrier_two_devices(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued large, small;
  scene_open(&l.scene, &(scene_setup){.devices = 2, .units = 2, .slots = 4, .lanes = 4, .options = {.max_bypass = 1, .bypass_after = 1}});
  berth_request both = scene_units(2), one = scene_units(1);
  both.devices = 1;
  one.devices = 1;
  scene_hold(&l.scene, &one, &l.held[0]);
  enqueue(&l, &large, &both, NULL);
  berthi_sched_advance(1);
  scene_end end;
  scene_attempt(&l.scene, NULL, &one, &end); // overtakes once
  berthi_sched_check(end.taken);
  enqueue(&l, &small, &one, NULL); // fits, but the barrier holds its device
  berthi_sched_check(berth_admission_poll(small.admission, NULL) == BERTH_ADMISSION_QUEUED);
  berth_why why = BERTH_WHY_INIT;
  scene_ok(berth_admission_why(small.admission, &why, NULL), &(berth_error)BERTH_ERROR_INIT);
  berthi_sched_check((why.mask & BERTH_WHY_ORDER) != 0 && why.ahead == 1);
  one.devices = 2;
  scene_attempt(&l.scene, NULL, &one, &end);
  berthi_sched_check(end.taken && end.report.why_queued == 0);
  scene_finish(&l.scene, &l.held[0], BERTH_SUCCEEDED, NULL);
  serve(&l, &large);
  serve(&l, &small);
  berthi_sched_check(large.client.end.report.execution_id < small.client.end.report.execution_id && large.client.end.report.overtakes == 1);
  leave(&large);
  leave(&small);
  scene_close(&l.scene);
}

// A barrier that goes by cancel or expiry lets those behind it on (ADM-7); so does a claim of lanes.
static void gives_up(void *arg) { (void)berth_admission_cancel(((queued *)arg)->admission); }

static void blocked_behind(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued large, small;
  berthi_thread threads[2];
  bool lanes = berthi_sched_random(2) != 0;
  bool expires = berthi_sched_random(2) != 0;
  scene_open(&l.scene, &(scene_setup){.units = 4, .slots = 4, .lanes = 2, .options = {.max_bypass = 1, .bypass_after = 1}});
  berth_request first = scene_units(1), blocker = scene_units(lanes ? 1 : 4), one = scene_units(1);
  if (lanes) blocker.lanes = 2;
  if (expires) blocker.queue_deadline = berthi_now() + 50;
  scene_hold(&l.scene, &first, &l.held[0]);
  enqueue(&l, &large, &blocker, NULL);
  if (!lanes) { // make it a barrier
    scene_end end;
    berthi_sched_advance(1);
    scene_attempt(&l.scene, NULL, &one, &end);
  }
  enqueue(&l, &small, &one, NULL);
  berthi_sched_check(berth_admission_poll(small.admission, NULL) == BERTH_ADMISSION_QUEUED);
  scene_start(&threads[0], "small", serve_thread, &small);
  if (!expires) scene_start(&threads[1], "cancel", gives_up, &large);
  berthi_sched_check(berth_admission_wait(large.admission, BERTH_NO_DEADLINE, NULL) != BERTH_OK);
  berthi_thread_join(&threads[0]); // while the holder still holds
  if (!expires) berthi_thread_join(&threads[1]);
  scene_finish(&l.scene, &l.held[0], BERTH_SUCCEEDED, NULL);
  leave(&large);
  leave(&small);
  scene_close(&l.scene);
}

// Slots bound what runs at once, where bytes and lanes would do for more.
static void slots_bound(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  berthi_thread threads[4];
  client clients[4];
  scene_open(&l.scene, &(scene_setup){.units = 4, .slots = 2, .lanes = 4});
  for (int i = 0; i < 4; i++) {
    clients[i] = (client){.line = &l, .request = scene_units(1)};
    scene_start(&threads[i], "client", goes, &clients[i]);
  }
  (void)scene_laws(&l.scene);
  scene_join(threads, 4);
  berthi_sched_check(l.most <= 2);
  scene_close(&l.scene);
}

// ---- lanes -----------------------------------------------------------------------------------------------------------------------------------------------

// A request for both lanes waits for one that is busy; a later one for a single lane does not pass it, though a lane is free.
static void lanes_fifo(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued wide, narrow;
  berthi_thread threads[3];
  scene_open(&l.scene, &(scene_setup){.units = 4, .slots = 4, .lanes = 2});
  berth_request one = scene_units(1), two = scene_units(1);
  two.lanes = 2;
  scene_hold(&l.scene, &one, &l.held[0]);
  enqueue(&l, &wide, &two, NULL);
  enqueue(&l, &narrow, &one, NULL);
  scene_start(&threads[0], "narrow", serve_thread, &narrow);
  scene_start(&threads[1], "wide", serve_thread, &wide);
  scene_start(&threads[2], "finish", finisher, &l);
  (void)scene_laws(&l.scene);
  scene_join(threads, 3);
  berthi_sched_check(wide.client.end.report.execution_id < narrow.client.end.report.execution_id);
  berthi_sched_check(wide.client.end.report.overtakes == 0);
  leave(&wide);
  leave(&narrow);
  scene_close(&l.scene);
}

// ---- priority and ageing -----------------------------------------------------------------------------------------------------------------------------------

// One step of priority is worth one interval of waiting, no more and no less.
static void priority_ages(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued patient, urgent;
  berthi_thread threads[2];
  int64_t interval = 1000;
  int64_t waited = (int64_t)berthi_sched_random(3) * 500 + 500; // less than, as much as, more than one interval
  scene_open(&l.scene, &(scene_setup){.units = 1, .slots = 1, .options = {.aging_interval = interval}});
  berth_request request = scene_units(1);
  scene_hold(&l.scene, &request, &l.held[0]);
  enqueue(&l, &patient, &request, NULL);
  berthi_sched_advance(waited);
  request.priority = 1;
  enqueue(&l, &urgent, &request, NULL);
  scene_start(&threads[0], "patient", serve_thread, &patient);
  scene_start(&threads[1], "urgent", serve_thread, &urgent);
  scene_finish(&l.scene, &l.held[0], BERTH_SUCCEEDED, NULL);
  scene_join(threads, 2);
  bool urgent_first = urgent.client.end.report.execution_id < patient.client.end.report.execution_id;
  berthi_sched_check(urgent_first == (waited < interval));      // ties go to the one who came first
  berthi_sched_check(patient.client.end.report.overtakes == 0); // a difference of priority is no overtake
  leave(&patient);
  leave(&urgent);
  scene_close(&l.scene);
}

// ---- groups ------------------------------------------------------------------------------------------------------------------------------------------------

static void raises(void *arg) {
  line *l = arg;
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  limits.max_active = 2;
  scene_ok(berth_group_set(l->scene.backend, "tenant", &limits, &err), &err);
}

static void set_cap(line *l, uint32_t active) {
  berth_group_limits limits = BERTH_GROUP_LIMITS_INIT;
  berth_error err = BERTH_ERROR_INIT;
  limits.max_active = active;
  scene_ok(berth_group_set(l->scene.backend, "tenant", &limits, &err), &err);
}

// The cap holds at every moment; it is raised while they wait, and the waiters see it (ADM-7). Others are not held by it.
static void group_cap(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  berthi_thread threads[5];
  client members[3];
  scene_open(&l.scene, &(scene_setup){.units = 4, .slots = 4, .lanes = 4});
  set_cap(&l, 1);
  bool raise = berthi_sched_random(2) != 0;
  for (int i = 0; i < 3; i++) {
    members[i] = (client){.line = &l, .request = scene_units(1), .options = BERTH_ATTEMPT_OPTIONS_INIT};
    members[i].options.group = "tenant";
    scene_start(&threads[i], "member", goes, &members[i]);
  }
  if (raise) scene_start(&threads[3], "raise", raises, &l);
  scene_end other;
  scene_attempt(&l.scene, NULL, NULL, &other);
  berthi_sched_check(other.taken && (other.report.why_queued & BERTH_WHY_GROUP) == 0);
  scene_join(threads, raise ? 4 : 3);
  berthi_sched_check(l.most <= (raise ? 2u : 1u));
  for (int i = 0; i < 3; i++) berthi_sched_check(members[i].end.taken && members[i].end.report.overtakes == 0);
  berth_group_limits use = BERTH_GROUP_LIMITS_INIT;
  scene_ok(berth_group_get(l.scene.backend, "tenant", &use, NULL), &(berth_error)BERTH_ERROR_INIT);
  berthi_sched_check(use.active == 0 && use.bytes == 0 && use.lanes == 0 && use.queued == 0);
  scene_close(&l.scene);
}

// A raised cap alone must wake who waits for it.
static void group_raised(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  queued member;
  berthi_thread threads[2];
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  options.group = "tenant";
  scene_open(&l.scene, &(scene_setup){.units = 4, .slots = 4, .lanes = 4});
  set_cap(&l, 1);
  berth_request one = scene_units(1);
  queued first;
  enqueue(&l, &first, &one, &options);
  enqueue(&l, &member, &one, &options);
  scene_start(&threads[0], "member", serve_thread, &member);
  scene_start(&threads[1], "raise", raises, &l);
  scene_join(threads, 2);
  serve(&l, &first);
  leave(&first);
  leave(&member);
  scene_close(&l.scene);
}

// ---- bounds of the queue ---------------------------------------------------------------------------------------------------------------------------------

// Never more than max_queued wait, in all and of a group; who comes beyond is refused at once, with a report.
static void queue_full(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  berthi_thread threads[4];
  client clients[3];
  bool named = berthi_sched_random(2) != 0;
  scene_open(&l.scene, &(scene_setup){.units = 1, .slots = 1, .options = {.max_queued = named ? 3 : 1, .max_queued_per_group = 1}});
  berth_request one = scene_units(1);
  scene_hold(&l.scene, &one, &l.held[0]);
  for (int i = 0; i < 3; i++) {
    clients[i] = (client){.line = &l, .request = one, .options = BERTH_ATTEMPT_OPTIONS_INIT};
    if (named) clients[i].options.group = "tenant";
    scene_start(&threads[i], "client", goes, &clients[i]);
  }
  scene_start(&threads[3], "finish", finisher, &l);
  (void)scene_laws(&l.scene);
  scene_join(threads, 4);
  berth_metrics m = scene_laws(&l.scene);
  berthi_sched_check(m.queue_high_watermark <= 1 && m.refused == l.refused && m.refusals[BERTH_REFUSED_QUEUE_FULL] == l.refused);
  for (int i = 0; i < 3; i++) berthi_sched_check(clients[i].end.taken == (clients[i].end.report.outcome == BERTH_SUCCEEDED));
  scene_close(&l.scene);
}

// Any mix ends: every satisfiable request is served, whatever the order.
static void mixed_load(void *arg) {
  (void)arg;
  line l = {.refused = 0};
  berthi_thread threads[5];
  client clients[5];
  scene_open(&l.scene, &(scene_setup){.devices = 2, .units = 3, .slots = 3, .lanes = 3, .options = {.max_bypass = 1, .bypass_after = 1}});
  for (int i = 0; i < 5; i++) {
    clients[i] = (client){.line = &l, .request = scene_units(1 + (uint32_t)berthi_sched_random(3)), .options = BERTH_ATTEMPT_OPTIONS_INIT};
    clients[i].request.lanes = 1 + (uint32_t)berthi_sched_random(3);
    clients[i].request.devices = berthi_sched_random(4);
    clients[i].request.priority = (int32_t)berthi_sched_random(3) - 1;
    if (berthi_sched_random(3) == 0) clients[i].options.group = "tenant";
    scene_start(&threads[i], "client", goes, &clients[i]);
  }
  (void)scene_laws(&l.scene);
  scene_join(threads, 5);
  berthi_sched_check(l.refused == 0 && scene_laws(&l.scene).granted == 5);
  scene_close(&l.scene);
}

const sched_scenario scenarios_queue[] = {
    {"bypass_bound", bypass_bound, 2000, 0},     {"bypass_burst", bypass_burst, 1000, 0}, {"barrier_two_devices", barrier_two_devices, 300, 0},
    {"blocked_behind", blocked_behind, 1250, 0}, {"lanes_fifo", lanes_fifo, 1250, 0},     {"priority_ages", priority_ages, 1250, 0},
    {"group_cap", group_cap, 1500, 0},           {"group_raised", group_raised, 750, 0},  {"queue_full", queue_full, 1500, 0},
    {"slots_bound", slots_bound, 1000, 0},       {"mixed_load", mixed_load, 1500, 0},     {NULL, NULL, 0, 0},
};
