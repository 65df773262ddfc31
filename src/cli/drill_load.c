// SPDX-License-Identifier: Apache-2.0
// One worker of a drill: job after job through either door, some of them cancelled, expired, dropped, too large or growing.
#include <string.h>
#include <time.h>

#include "drill.h"

/// What one job is going to do, decided before it begins.
typedef struct plan {
  drill_worker *worker;
  uint64_t bytes, work, extra;
  uint32_t lanes;
  int32_t priority;
  const char *group;
  int64_t queue_deadline; ///< 0: the backend's
  bool cancel, drop, drop_queued, grow;
  berth_cancel *token; ///< of an attempt, or of an entry that is to be cancelled
  int64_t called_at, entered_at;
} plan;

static bool stopped(const drill *d) { return atomic_load_explicit(&d->stop, memory_order_relaxed); }

static void decide(drill_worker *w, plan *p) {
  const drill_options *o = &w->drill->options;
  uint64_t *r = &w->random;
  memset(p, 0, sizeof *p);
  p->worker = w;
  p->bytes = drill_dice(r, o->oversize) ? w->drill->query_limit + 1 : drill_random(r, o->bytes);
  p->lanes = (uint32_t)drill_random(r, o->lanes);
  p->work = drill_random(r, o->work);
  p->priority = (int32_t)drill_random(r, o->priority);
  if (o->groups > 0) p->group = w->groups[drill_random(r, (drill_range){0, o->groups - 1})];
  p->cancel = drill_dice(r, o->cancel);
  p->drop = drill_dice(r, o->drop);
  p->drop_queued = p->drop && drill_dice(r, 50);
  p->grow = drill_dice(r, o->grow);
  p->extra = drill_random(r, o->bytes);
  if (drill_dice(r, o->expire)) {
    p->queue_deadline = berth_now() + (int64_t)drill_random(r, (drill_range){0, o->work.most});
  } else if (o->queue_deadline != 0) {
    p->queue_deadline = berth_now() + o->queue_deadline;
  }
}

static int64_t fire_time(drill_worker *w) {
  return berth_now() + (int64_t)drill_random(&w->random, (drill_range){0, 2 * w->drill->options.work.most});
}

// ---- the work --------------------------------------------------------------------------------------------------------------------------------

void drill_worker_wake(drill_worker *w) {
  pthread_mutex_lock(&w->lock);
  w->cancelled = true;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
}

static void token_fired(void *arg, berth_cancel_cause cause) {
  (void)cause;
  drill_worker_wake(arg);
}

// Waits on the clock; a cancel ends it.
static void pause_until(drill_worker *w, berth_cancel *token, int64_t until) {
  struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
  pthread_mutex_lock(&w->lock);
  w->cancelled = false;
  pthread_mutex_unlock(&w->lock);
  if (token != NULL) berth_cancel_hook(token, token_fired, w, NULL);
  pthread_mutex_lock(&w->lock);
  while (!w->cancelled && !stopped(w->drill) && pthread_cond_timedwait(&w->wake, &w->lock, &at) == 0) continue;
  pthread_mutex_unlock(&w->lock);
  if (token != NULL) berth_cancel_hook(token, NULL, NULL, NULL); // after this it is not running any more
}

static void spin_until(drill_worker *w, berth_exec *exec, int64_t until) {
  while (berth_now() < until && !stopped(w->drill) && berth_exec_check(exec, NULL) == BERTH_OK) continue;
}

static void grow_or_shrink(plan *p, berth_exec *exec) {
  drill_counts *counts = &p->worker->counts;
  berth_error err = BERTH_ERROR_INIT;
  if (drill_dice(&p->worker->random, 50)) {
    if (berth_exec_shrink(exec, p->bytes / 2, NULL, NULL) == BERTH_OK) counts->shrunk++;
    return;
  }
  if (berth_exec_grow(exec, p->extra, berth_now() + (int64_t)p->worker->drill->options.work.most, &err) == BERTH_OK) {
    counts->grown++;
  } else {
    drill_count_reason(counts, err.reason);
  }
}

// Uses the grant: memory of its own, the rest charged as a guest library would.
static void use_grant(plan *p, berth_exec *exec) {
  drill_worker *w = p->worker;
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  void *block = NULL;
  if (berth_exec_get_info(exec, &info, NULL) != BERTH_OK || info.grant_bytes != p->bytes || info.lanes != p->lanes) {
    drill_count_wrong(&w->counts, "a grant is not what was asked for");
  }
  uint64_t own = p->bytes / 2 < 65536 ? p->bytes / 2 : 65536;
  berth_error err = BERTH_ERROR_INIT;
  if (berth_exec_alloc(exec, own, &block, &err) == BERTH_OK) {
    memset(block, 1, own);
  } else {
    drill_count_reason(&w->counts, err.reason);
  }
  int64_t charge = (int64_t)(p->bytes - own);
  bool charged = berth_exec_charge(exec, charge, NULL) == BERTH_OK;
  if (!charged) drill_count_wrong(&w->counts, "a grant has less room than it promised");
  if (berth_exec_charge(exec, (int64_t)p->bytes, NULL) != BERTH_RESOURCE_EXHAUSTED)
    drill_count_wrong(&w->counts, "LED-2: more than the grant was charged");
  if (charged) berth_exec_charge(exec, -charge, NULL);
  berth_exec_free(exec, block);
}

static void work(plan *p, berth_exec *exec) {
  drill_worker *w = p->worker;
  drill *d = w->drill;
  w->counts.granted++;
  atomic_fetch_add_explicit(&d->working, 1, memory_order_relaxed);
  use_grant(p, exec);
  if (p->grow) grow_or_shrink(p, exec);
  int64_t until = berth_now() + (int64_t)p->work;
  if (d->options.spin) {
    spin_until(w, exec, until);
  } else {
    pause_until(w, p->token, until);
  }
  atomic_fetch_sub_explicit(&d->working, 1, memory_order_relaxed);
}

// ---- the two doors ---------------------------------------------------------------------------------------------------------------------------

// Overload is answered by backing off, for as long as the refusal advises.
static void back_off(drill_worker *w, const berth_error *refusal) {
  int64_t pause = 1000000;
  for (uint32_t i = 0; i < refusal->fact_count; i++) {
    if (strcmp(refusal->facts[i].key, "retry_after_ns") == 0) pause = refusal->facts[i].value;
  }
  pause_until(w, NULL, berth_now() + (int64_t)drill_random(&w->random, (drill_range){(uint64_t)pause / 2, (uint64_t)pause * 3 / 2}));
}

static intptr_t enter(berth_exec *exec, void *arg) {
  plan *p = arg;
  p->entered_at = berth_now();
  work(p, exec);
  return 7;
}

static void run_entry(drill_worker *w, plan *p) {
  drill *d = w->drill;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  options.bytes = p->bytes;
  options.lanes = p->lanes;
  options.priority = p->priority;
  options.group = p->group;
  options.deadline = p->queue_deadline;
  if (p->cancel && berth_cancel_create(d->session, &p->token, NULL) == BERTH_OK) {
    options.cancel = p->token;
    drill_fire_at(w, p->token, fire_time(w));
  }
  w->counts.entries++;
  w->counts.submitted++;
  p->called_at = berth_now();
  berth_status status = berth_run(d->session, &options, enter, p, &result, &err);
  if (status == BERTH_OK) {
    drill_count_wait(&w->counts, p->entered_at - p->called_at);
    if (!result.ran || result.value != 7) drill_count_wrong(&w->counts, "RUN-1: an entry lost its value");
    if (result.cleanup != BERTH_OK) drill_count_reason(&w->counts, result.cleanup_error.reason);
  } else {
    if (result.ran || p->entered_at != 0) drill_count_wrong(&w->counts, "RUN-1: fn ran after a failed admission");
    drill_count_reason(&w->counts, err.reason);
  }
  berth_cancel_release(p->token);
  if (status == BERTH_UNAVAILABLE) back_off(w, &err);
}

static berth_status use_admission(plan *p, berth_admission *admission, berth_error *err) {
  berth_exec *exec = NULL;
  if (p->drop_queued) return BERTH_OK; // the releases end it
  berth_status status = berth_admission_wait(admission, BERTH_NO_DEADLINE, err);
  if (status == BERTH_OK) status = berth_admission_take(admission, &exec, err);
  if (status != BERTH_OK) return status;
  work(p, exec);
  if (p->drop) {
    berth_exec_release(exec);
    return BERTH_OK;
  }
  berth_error cause = BERTH_ERROR_INIT;
  bool cancelled = berth_exec_check(exec, &cause) != BERTH_OK;
  berth_error ending = BERTH_ERROR_INIT;
  if (berth_exec_finish(exec, cancelled ? BERTH_OUTCOME_CANCELLED : BERTH_SUCCEEDED, cancelled ? &cause : NULL, &ending) != BERTH_OK) {
    drill_count_reason(&p->worker->counts, ending.reason);
  }
  return BERTH_OK;
}

// Waits for the report, or drops its receiver, so that it is abandoned.
static void read_report(plan *p, berth_completion *completion) {
  berth_report *report = NULL;
  if (!p->drop) {
    if (berth_completion_wait(completion, BERTH_NO_DEADLINE, &report, NULL) == BERTH_OK) {
      drill_count_report(&p->worker->counts, report);
    } else {
      drill_count_wrong(&p->worker->counts, "ATT-5: an attempt has no report");
    }
    berth_report_release(report);
  }
  berth_completion_release(completion);
}

static void run_attempt(drill_worker *w, plan *p) {
  drill *d = w->drill;
  berth_attempt_options begin = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  berth_attempt *attempt = NULL;
  berth_admission *admission = NULL;
  berth_error err = BERTH_ERROR_INIT;
  begin.group = p->group;
  if (berth_session_begin_attempt(d->session, &begin, &attempt, &err) != BERTH_OK) {
    drill_count_reason(&w->counts, err.reason);
    return;
  }
  w->counts.attempts++;
  berth_completion *completion = p->drop ? NULL : berth_attempt_completion(attempt);
  p->token = berth_attempt_cancel_token(attempt);
  if (p->cancel) drill_fire_at(w, p->token, fire_time(w));
  request.bytes = p->bytes;
  request.lanes = p->lanes;
  request.priority = p->priority;
  request.queue_deadline = p->queue_deadline;
  w->counts.submitted++;
  berth_status status = berth_session_admit(d->session, attempt, &request, &admission, &err);
  bool admitted = status == BERTH_OK;
  if (admitted) status = use_admission(p, admission, &err);
  berth_admission_release(admission);
  if (p->drop) berth_attempt_release(attempt);
  read_report(p, completion);
  if (!p->drop) berth_attempt_release(attempt);
  berth_cancel_release(p->token);
  if (!admitted && status == BERTH_UNAVAILABLE) back_off(w, &err);
}

void *drill_worker_main(void *arg) {
  drill_worker *w = arg;
  drill *d = w->drill;
  for (uint64_t i = 0; i < d->options.groups; i++) snprintf(w->groups[i], sizeof w->groups[i], "tenant%u", (unsigned)(i % DRILL_GROUPS));
  while (!stopped(d)) {
    if (d->options.jobs > 0 && atomic_fetch_add_explicit(&d->jobs, 1, memory_order_relaxed) >= d->options.jobs) break;
    plan p;
    decide(w, &p);
    if (drill_dice(&w->random, d->options.entries)) {
      run_entry(w, &p);
    } else {
      run_attempt(w, &p);
    }
  }
  return NULL;
}
