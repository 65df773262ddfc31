// SPDX-License-Identifier: Apache-2.0
// One thread that fires the tokens of jobs which are to be cancelled, from outside, at a time that the job does not know.
#include "drill.h"

void drill_fire_at(drill_worker *worker, berth_cancel *token, int64_t at) {
  drill *d = worker->drill;
  pthread_mutex_lock(&d->cancel_lock);
  berth_cancel *old = worker->fire;
  worker->fire = berth_cancel_retain(token);
  worker->fire_at = at;
  pthread_cond_signal(&d->cancel_wake);
  pthread_mutex_unlock(&d->cancel_lock);
  berth_cancel_release(old);
}

/// Takes the earliest token out when it is due; else says until when to wait.
static berth_cancel *take_due(drill *d, int64_t now, int64_t *out_next) {
  drill_worker *first = NULL;
  for (uint64_t i = 0; i < d->options.threads; i++) {
    drill_worker *w = &d->workers[i];
    if (w->fire != NULL && (first == NULL || w->fire_at < first->fire_at)) first = w;
  }
  *out_next = first == NULL ? BERTH_NO_DEADLINE : first->fire_at;
  if (first == NULL || (first->fire_at > now && !d->cancel_stop)) return NULL;
  berth_cancel *token = first->fire;
  first->fire = NULL;
  return token;
}

static void wait_until(drill *d, int64_t at) {
  if (at == BERTH_NO_DEADLINE) {
    pthread_cond_wait(&d->cancel_wake, &d->cancel_lock);
    return;
  }
  struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
  pthread_cond_timedwait(&d->cancel_wake, &d->cancel_lock, &until);
}

void *drill_canceller_main(void *arg) {
  drill *d = arg;
  pthread_mutex_lock(&d->cancel_lock);
  for (;;) {
    int64_t next;
    berth_cancel *token = take_due(d, berth_now(), &next);
    if (token == NULL && d->cancel_stop) break;
    if (token == NULL) {
      wait_until(d, next);
      continue;
    }
    pthread_mutex_unlock(&d->cancel_lock);
    berth_cancel_result result = berth_cancel_fire(token);
    if ((uint32_t)result < 3) d->fired[result]++;
    berth_cancel_release(token);
    pthread_mutex_lock(&d->cancel_lock);
  }
  pthread_mutex_unlock(&d->cancel_lock);
  return NULL;
}

void drill_canceller_stop(drill *d) {
  pthread_mutex_lock(&d->cancel_lock);
  d->cancel_stop = true;
  pthread_cond_signal(&d->cancel_wake);
  pthread_mutex_unlock(&d->cancel_lock);
  pthread_join(d->canceller, NULL);
}
