// SPDX-License-Identifier: Apache-2.0
/// The fork epoch (CLS-6): through the C library's fork, through the bare system call, and in a grandchild.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"

static int child_fork(void) { return (int)fork(); }

#if defined(SYS_fork)
static int child_syscall(void) { return (int)syscall(SYS_fork); }
#else
static int child_syscall(void) { return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
#endif

static int wait_status(int pid) {
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// Exit code of a child that checks itself; a grandchild does the same.
static int child_result(uint32_t parent_epoch, int32_t parent_pid, int depth) {
  uint32_t epoch = berthi_fork_epoch();
  if (epoch == 0 || epoch <= parent_epoch || epoch != berthi_fork_epoch()) return 1;
  if (berthi_process_id() == parent_pid || berthi_process_id() != (int32_t)getpid()) return 2;
  if (depth == 0) return 0;
  int32_t own_pid = berthi_process_id();
  int pid = (int)fork();
  if (pid == 0) _exit(child_result(epoch, own_pid, depth - 1));
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static void check_child(int (*make)(void)) {
  uint32_t epoch = berthi_fork_epoch();
  int32_t pid = berthi_process_id();
  assert_int_not_equal(epoch, 0);
  assert_int_equal(pid, getpid());
  int child = make();
  assert_true(child >= 0);
  if (child == 0) _exit(child_result(epoch, pid, 2));
  assert_int_equal(wait_status(child), 0);
  assert_int_equal(berthi_fork_epoch(), epoch);
  assert_int_equal(berthi_process_id(), pid);
}

static void test_fork(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) check_child(child_fork);
}

/// No handler runs here: only the page that the kernel wipes tells.
static void test_bare_system_call(void **state) {
  (void)state;
  check_child(child_syscall);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fork), cmocka_unit_test(test_bare_system_call)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
