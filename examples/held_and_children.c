// SPDX-License-Identifier: Apache-2.0
// One admission, many calls: an interactive session holds an execution and runs statement after statement in it, without queueing again. Threads that a
// statement starts work under the same grant through children. The grant shrinks while the session idles and grows when it needs more; two sessions
// that wait for each other's memory are told so instead of hanging.
#include <pthread.h>

#include "example.h"

enum { STATEMENTS = 100, HALF = 1 << 16 };

static berth_session *session;

static berth_exec *hold(uint64_t bytes, berth_error *err) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_exec *exec = NULL;
  options.bytes = bytes;
  EXPECT_OK(berth_exec_hold(session, &options, &exec, err), err);
  return exec;
}

static uint64_t granted(const berth_exec *exec) {
  berth_exec_info info = BERTH_EXEC_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_exec_get_info(exec, &info, &err), &err);
  return info.grant_bytes;
}

// ---- statements ----

static intptr_t add_one(berth_exec *exec, void *arg) {
  (void)exec;
  return ++*(int *)arg;
}

static intptr_t enter_again(berth_exec *exec, void *arg) {
  berth_error err = BERTH_ERROR_INIT;
  (void)arg;
  // Inside an entry the way down is the execution itself: asking for admission here could wait for itself.
  berth_status status = berth_exec_run(exec, add_one, arg, NULL, &err);
  return status == BERTH_FAILED_PRECONDITION && strcmp(err.reason, "reentered") == 0;
}

// ---- children ----

typedef struct part {
  berth_exec *child;
  const double *values;
  double sum;
  bool exhausted;
} part;

static void *sum_part(void *arg) {
  part *self = arg;
  berth_error err = BERTH_ERROR_INIT;
  double *copy = NULL;
  void *too_much = NULL;
  EXPECT_OK(berth_exec_alloc(self->child, HALF * sizeof *copy, (void **)&copy, &err), &err);
  memcpy(copy, self->values, HALF * sizeof *copy);
  for (int i = 0; i < HALF; i++) self->sum += copy[i];
  self->exhausted = berth_exec_alloc(self->child, 64 * MIB, &too_much, &err) == BERTH_RESOURCE_EXHAUSTED;
  berth_exec_free(self->child, copy);
  berth_exec_release(self->child);
  return NULL;
}

static intptr_t sum_with_two_threads(berth_exec *exec, void *arg) {
  berth_error err = BERTH_ERROR_INIT;
  double *values = NULL;
  part parts[2] = {{0}};
  pthread_t threads[2];
  EXPECT_OK(berth_exec_alloc(exec, 2 * HALF * sizeof *values, (void **)&values, &err), &err);
  for (int i = 0; i < 2 * HALF; i++) values[i] = i;
  for (int p = 0; p < 2; p++) {
    parts[p].values = values + p * HALF;
    EXPECT_OK(berth_exec_child(exec, &parts[p].child, &err), &err);
    EXPECT(pthread_create(&threads[p], NULL, sum_part, &parts[p]) == 0);
  }
  for (int p = 0; p < 2; p++) EXPECT(pthread_join(threads[p], NULL) == 0);
  *(double *)arg = parts[0].sum + parts[1].sum;
  return parts[0].exhausted && parts[1].exhausted;
}

// ---- two that grow ----

static void *grow_or_give_way(void *arg) {
  berth_exec *exec = arg;
  berth_error err = BERTH_ERROR_INIT;
  berth_status status = berth_exec_grow(exec, 24 * MIB, berth_now() + 20 * SECOND, &err);
  if (status == BERTH_ABORTED) {
    EXPECT(strcmp(err.reason, "would_deadlock") == 0);
    EXPECT(granted(exec) == 24 * MIB); // it keeps what it has
    printf("one gives way: %s\n", err.message);
  } else {
    EXPECT_OK(status, &err);
    EXPECT(granted(exec) == 48 * MIB);
  }
  EXPECT_OK(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, &err), &err);
  return (void *)(intptr_t)status;
}

static void grow_against_each_other(void) {
  berth_error err = BERTH_ERROR_INIT;
  pthread_t threads[2];
  void *statuses[2];
  berth_exec *execs[2];
  for (int i = 0; i < 2; i++) execs[i] = hold(24 * MIB, &err);
  for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, grow_or_give_way, execs[i]) == 0);
  for (int i = 0; i < 2; i++) EXPECT(pthread_join(threads[i], &statuses[i]) == 0);
  int gave_way = ((intptr_t)statuses[0] == BERTH_ABORTED) + ((intptr_t)statuses[1] == BERTH_ABORTED);
  EXPECT(gave_way == 1);
}

int main(void) {
  berth_backend *backend = example_open("sim:0", "memory=1GiB,lanes=8", 64 * MIB);
  berth_error err = BERTH_ERROR_INIT;
  session = berth_backend_session(backend);
  berth_exec *exec = hold(48 * MIB, &err);

  int statements = 0;
  intptr_t value = 0;
  for (int i = 0; i < STATEMENTS; i++) EXPECT_OK(berth_exec_run(exec, add_one, &statements, &value, &err), &err);
  EXPECT(value == STATEMENTS);
  EXPECT_OK(berth_exec_run(exec, enter_again, &statements, &value, &err), &err);
  EXPECT(value == 1 && statements == STATEMENTS);
  double sum = 0;
  EXPECT_OK(berth_exec_run(exec, sum_with_two_threads, &sum, &value, &err), &err);
  double n = 2 * HALF;
  EXPECT(value == 1 && sum == n * (n - 1) / 2);
  berth_metrics m = BERTH_METRICS_INIT;
  EXPECT_OK(berth_session_metrics(session, &m, &err), &err);
  printf("%d statements and two children under %llu admission; their sum is %.0f\n", statements + 2, (unsigned long long)m.submitted, sum);
  EXPECT(m.submitted == 1 && m.granted == 1 && m.promised_bytes == 48 * MIB);

  // Idle: what it gives back is another's at once. Busy again: it waits for that one, before all who are new.
  uint64_t left = 0;
  EXPECT_OK(berth_exec_shrink(exec, 8 * MIB, &left, &err), &err);
  EXPECT(left == 8 * MIB);
  berth_exec *other = hold(56 * MIB, &err);
  EXPECT_STATUS(BERTH_DEADLINE_EXCEEDED, berth_exec_grow(exec, 40 * MIB, berth_now() + MILLISECOND, &err), &err);
  EXPECT_OK(berth_exec_finish(other, BERTH_SUCCEEDED, NULL, &err), &err);
  EXPECT_OK(berth_exec_grow(exec, 40 * MIB, berth_now() + SECOND, &err), &err);
  EXPECT(granted(exec) == 48 * MIB);
  EXPECT_OK(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, &err), &err);

  grow_against_each_other();
  m = example_idle_metrics(session);
  printf("grows %llu, refused %llu, shrinks %llu; nothing is promised any more\n", (unsigned long long)m.grows, (unsigned long long)m.grows_refused,
         (unsigned long long)m.shrinks);
  EXPECT(m.grows == 2 && m.shrinks == 1);
  example_close(backend, session);
  return 0;
}
