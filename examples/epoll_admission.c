// SPDX-License-Identifier: Apache-2.0
// Asynchronous admission in an event loop. One thread submits 64 queries to a device that has memory for 8 of them at a time. Each decision comes
// through the query's own eventfd, each report through an eventfd that all share, so the loop sleeps in epoll_wait alone and no thread waits in Berth.
//
// The work of a query is a timer, as a device would work behind the loop. One query changes its mind while it waits.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "example.h"

enum { QUERIES = 64, AT_ONCE = 8, CANCELLED_ONE = 63 };
enum { EVENT_DECISION, EVENT_WORK, EVENT_REPORT, EVENT_KINDS };

static const uint64_t query_bytes = 16 * MIB;

typedef struct query {
  berth_attempt *attempt;
  berth_completion *completion;
  berth_admission *admission;
  berth_exec *exec;
  int decision_fd, work_fd;
} query;

typedef struct loop {
  berth_session *session;
  int epoll_fd, report_fd;
  query queries[QUERIES];
  unsigned running, most_running, succeeded, cancelled, sealed;
} loop;

static void watch(loop *self, int fd, unsigned index, unsigned kind) {
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)index * EVENT_KINDS + kind};
  EXPECT(epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static uint64_t read_counter(int fd) {
  uint64_t value = 0;
  EXPECT(read(fd, &value, sizeof value) == (ssize_t)sizeof value);
  return value;
}

static void submit(loop *self, unsigned index) {
  query *q = &self->queries[index];
  berth_error err = BERTH_ERROR_INIT;
  berth_attempt_options begin = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_request request = BERTH_REQUEST_INIT;
  char id[16];
  snprintf(id, sizeof id, "query-%u", index);
  begin.query_id = id;
  request.bytes = query_bytes;
  EXPECT_OK(berth_session_begin_attempt(self->session, &begin, &q->attempt, &err), &err);
  q->completion = berth_attempt_completion(q->attempt);
  EXPECT_OK(berth_completion_notify(q->completion, self->report_fd, NULL, NULL, &err), &err);
  EXPECT_OK(berth_session_admit(self->session, q->attempt, &request, &q->admission, &err), &err);
  q->decision_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  q->work_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  EXPECT(q->decision_fd >= 0 && q->work_fd >= 0);
  watch(self, q->decision_fd, index, EVENT_DECISION);
  watch(self, q->work_fd, index, EVENT_WORK);
  // Asked after the submission: a grant that was made at once is told all the same (ADM-10).
  EXPECT_OK(berth_admission_notify(q->admission, q->decision_fd, NULL, NULL, &err), &err);
}

static void start_work(loop *self, query *q, unsigned index) {
  berth_error err = BERTH_ERROR_INIT;
  void *memory = NULL;
  EXPECT_OK(berth_admission_take(q->admission, &q->exec, &err), &err);
  EXPECT_OK(berth_exec_alloc(q->exec, query_bytes / 2, &memory, &err), &err);
  self->running++;
  if (self->running > self->most_running) self->most_running = self->running;
  struct itimerspec after = {.it_value.tv_nsec = 1000000 + (index % 4) * 500000};
  EXPECT(timerfd_settime(q->work_fd, 0, &after, NULL) == 0);
}

static void on_decision(loop *self, unsigned index) {
  query *q = &self->queries[index];
  berth_error err = BERTH_ERROR_INIT;
  EXPECT(read_counter(q->decision_fd) == 1);
  if (berth_admission_poll(q->admission, &err) == BERTH_ADMISSION_GRANTED) {
    start_work(self, q, index);
    return;
  }
  EXPECT(index == CANCELLED_ONE && err.code == BERTH_CANCELLED);
  printf("query-%u is not granted: %s\n", index, err.reason);
}

static void on_work_done(loop *self, unsigned index) {
  query *q = &self->queries[index];
  berth_error err = BERTH_ERROR_INIT;
  EXPECT(read_counter(q->work_fd) == 1);
  self->running--;
  // The memory goes back with the execution, and the next query's eventfd becomes readable.
  EXPECT_OK(berth_exec_finish(q->exec, BERTH_SUCCEEDED, NULL, &err), &err);
}

static void read_report(loop *self, query *q) {
  berth_report *report = NULL;
  berth_report_info info = BERTH_REPORT_INFO_INIT;
  berth_error err = BERTH_ERROR_INIT;
  EXPECT_OK(berth_completion_poll(q->completion, &report, &err), &err);
  EXPECT_OK(berth_report_get(report, &info, &err), &err);
  if (info.outcome == BERTH_SUCCEEDED) self->succeeded++;
  if (info.outcome == BERTH_OUTCOME_CANCELLED) self->cancelled++;
  EXPECT(info.bytes_granted <= query_bytes && info.bytes_peak <= info.bytes_granted);
  berth_report_release(report);
}

static void end_query(loop *self, query *q) {
  read_report(self, q);
  berth_admission_release(q->admission);
  berth_completion_release(q->completion);
  berth_attempt_release(q->attempt);
  close(q->decision_fd);
  close(q->work_fd);
}

static void serve(loop *self) {
  struct epoll_event events[16];
  while (self->sealed < QUERIES) {
    int count = epoll_wait(self->epoll_fd, events, 16, 20000);
    EXPECT(count > 0);
    for (int i = 0; i < count; i++) {
      unsigned index = (unsigned)(events[i].data.u64 / EVENT_KINDS), kind = (unsigned)(events[i].data.u64 % EVENT_KINDS);
      if (kind == EVENT_DECISION) on_decision(self, index);
      if (kind == EVENT_WORK) on_work_done(self, index);
      if (kind == EVENT_REPORT) self->sealed += (unsigned)read_counter(self->report_fd);
    }
  }
}

int main(void) {
  static loop self;
  berth_backend *backend = example_open("sim:0", "memory=1GiB,lanes=16", AT_ONCE * query_bytes);
  self.session = berth_backend_session(backend);
  self.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  self.report_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  EXPECT(self.epoll_fd >= 0 && self.report_fd >= 0);
  watch(&self, self.report_fd, 0, EVENT_REPORT);
  for (unsigned i = 0; i < QUERIES; i++) submit(&self, i);
  EXPECT(berth_admission_cancel(self.queries[CANCELLED_ONE].admission) == BERTH_CANCEL_FIRED);
  serve(&self);
  for (unsigned i = 0; i < QUERIES; i++) end_query(&self, &self.queries[i]);

  berth_metrics m = example_idle_metrics(self.session);
  printf("%u queries on one thread: %u succeeded, %u cancelled, at most %u at once\n", QUERIES, self.succeeded, self.cancelled, self.most_running);
  printf("longest queue %llu, longest wait %.1f ms, overtakes %llu\n", (unsigned long long)m.queue_high_watermark, (double)m.wait.max / 1e6,
         (unsigned long long)m.overtakes);
  EXPECT(self.succeeded == QUERIES - 1 && self.cancelled == 1);
  EXPECT(self.most_running > 1 && self.most_running <= AT_ONCE);
  EXPECT(m.granted == QUERIES - 1 && m.cancelled == 1);
  EXPECT(m.queue_high_watermark == QUERIES - AT_ONCE);
  close(self.report_fd);
  close(self.epoll_fd);
  example_close(backend, self.session);
  return 0;
}
