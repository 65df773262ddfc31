// SPDX-License-Identifier: Apache-2.0
// A host with two backends that forks in the middle of its work. In the child every inherited handle answers `forked` and its releases do nothing; the
// child opens backends of its own on the same devices. The parent's work goes on as if nothing had happened.
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "example.h"

enum { FORKS = 3 };

typedef struct host {
  berth_backend *backends[2];
  berth_session *sessions[2];
  atomic_bool stop;
  atomic_ulong entries;
  sem_t started;
} host;

#if EXAMPLE_UNDER_TSAN
// The child of a process with threads starts threads of its own here; ThreadSanitizer asks to be told.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

static intptr_t touch_memory(berth_exec *exec, void *arg) {
  (void)arg;
  void *memory = NULL;
  if (berth_exec_alloc(exec, 64 * 1024, &memory, NULL)) return -1;
  memset(memory, 1, 64 * 1024);
  return 7;
}

static void *work(void *arg) {
  host *self = arg;
  bool told = false;
  while (!atomic_load(&self->stop)) {
    for (int b = 0; b < 2; b++) {
      berth_run_result result = BERTH_RUN_RESULT_INIT;
      berth_error err = BERTH_ERROR_INIT;
      EXPECT_OK(berth_run(self->sessions[b], NULL, touch_memory, NULL, &result, &err), &err);
      EXPECT(result.value == 7);
      atomic_fetch_add(&self->entries, 1);
    }
    if (!told) sem_post(&self->started);
    told = true;
  }
  return NULL;
}

// A failed claim ends the child with exit(1), which the parent sees.
static void be_the_child(const host *self, berth_exec *inherited) {
  berth_error err = BERTH_ERROR_INIT;
  for (int b = 0; b < 2; b++) {
    EXPECT(berth_session_is_closing(self->sessions[b]));
    EXPECT_STATUS(BERTH_FAILED_PRECONDITION, berth_run(self->sessions[b], NULL, touch_memory, NULL, NULL, &err), &err);
    EXPECT(strcmp(err.reason, "forked") == 0);
    EXPECT(berth_session_identity(self->sessions[b]).process != getpid());
  }
  EXPECT_STATUS(BERTH_FAILED_PRECONDITION, berth_exec_check(inherited, &err), &err);
  EXPECT(strcmp(err.reason, "forked") == 0);
  berth_exec_release(inherited); // all three do nothing here
  berth_session_release(self->sessions[0]);
  berth_backend_release(self->backends[0]);

  berth_backend *own = example_open("sim:0", "memory=64MiB", 32 * MIB);
  berth_session *session = berth_backend_session(own);
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  EXPECT(berth_session_identity(session).process == getpid());
  EXPECT_OK(berth_run(session, NULL, touch_memory, NULL, &result, &err), &err);
  EXPECT(result.ran && result.value == 7);
  example_close(own, session);
  _exit(0);
}

static void fork_one(const host *self, berth_exec *exec) {
  fflush(NULL);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) be_the_child(self, exec);
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  host self = {0};
  berth_error err = BERTH_ERROR_INIT;
  berth_exec *exec = NULL;
  pthread_t threads[2];
  self.backends[0] = example_open("sim:0", "memory=64MiB", 32 * MIB);
  self.backends[1] = example_open("sim:1", "memory=64MiB", 32 * MIB);
  for (int b = 0; b < 2; b++) self.sessions[b] = berth_backend_session(self.backends[b]);
  sem_init(&self.started, 0, 0);
  for (int t = 0; t < 2; t++) EXPECT(pthread_create(&threads[t], NULL, work, &self) == 0);
  for (int t = 0; t < 2; t++) {
    while (sem_wait(&self.started) != 0) {
    }
  }

  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  options.bytes = MIB;
  EXPECT_OK(berth_exec_hold(self.sessions[0], &options, &exec, &err), &err);
  for (int i = 0; i < FORKS; i++) fork_one(&self, exec);
  EXPECT_OK(berth_exec_check(exec, &err), &err);
  EXPECT_OK(berth_exec_finish(exec, BERTH_SUCCEEDED, NULL, &err), &err);

  atomic_store(&self.stop, true);
  for (int t = 0; t < 2; t++) EXPECT(pthread_join(threads[t], NULL) == 0);
  uint64_t granted = 0;
  for (int b = 0; b < 2; b++) granted += example_idle_metrics(self.sessions[b]).granted;
  printf("%d children opened backends of their own; the parent made %lu entries meanwhile\n", FORKS, atomic_load(&self.entries));
  EXPECT(granted == atomic_load(&self.entries) + 1);
  for (int b = 0; b < 2; b++) example_close(self.backends[b], self.sessions[b]);
  return 0;
}
