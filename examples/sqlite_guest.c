// SPDX-License-Identifier: Apache-2.0
// SQLite as a guest. Berth did not write this engine, yet each of its queries runs inside an execution: with a promise of bytes that SQLite cannot
// exceed, a lane, a queue in front, a cancel that interrupts it, and a report. Eight threads ask for four times the memory that the device has; one
// query needs more than its promise and fails alone; another one never ends and is cancelled.
//
// The pattern, for any guest engine whose allocator can be replaced:
//
//   1  An account stands between the engine's allocator and an execution. A thread that works for an execution has the account in a thread-local
//      variable; each block remembers its account, because a block may be freed by another thread, or later.
//   2  Allocation charges the execution first (berth_exec_charge). A refused charge is the engine's out-of-memory, here SQLITE_NOMEM; the account keeps
//      the first refusal, which becomes the cause in the report when the query fails of it. An engine may survive a refusal: SQLite drops cached pages.
//   3  What must outlive the query must not be charged to it. Here a query opens its connection inside its execution and closes it there, so page
//      cache, lookaside and schema are the query's. A host that keeps connections opens them under an account of an execution that it holds as long
//      (berth_exec_hold). What the engine allocates for the whole process belongs to nobody: declare it at open (library_bytes), and watch it.
//   4  The cancel token's hook interrupts the engine. An interrupt may find no statement running yet, so the engine's own progress callback asks
//      berth_exec_check, too; that one also sees deadlines. Unhook before the connection closes: afterwards the hook is not running.
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <unistd.h>

#include "example.h"

enum { THREADS = 8, QUERIES = 6, EACH = 2 }; // each thread asks two of the six
enum { ROWS = EXAMPLE_UNDER_TSAN ? 20000 : 100000 };

static const uint64_t grant_bytes = 12 * MIB;
static const uint64_t library_bytes = MIB; // SQLite's own, for the whole process

// ---- the account between SQLite's allocator and an execution ----

typedef struct account {
  pthread_mutex_t lock;
  berth_exec *exec; // NULL once the query has ended
  uint64_t blocks, bytes;
  berth_error refusal; // the first charge that was refused
} account;

typedef struct header {
  account *owner; // NULL: the process
  uint64_t size;
} header;

static _Thread_local account *current;
static uint64_t process_bytes; // charged to no query; atomic

static account *account_open(berth_exec *exec) {
  account *self = calloc(1, sizeof *self);
  EXPECT(self != NULL);
  pthread_mutex_init(&self->lock, NULL);
  self->exec = exec;
  return self;
}

static void account_free(account *self) {
  pthread_mutex_destroy(&self->lock);
  free(self);
}

static void count_for_process(int64_t bytes) { (void)__atomic_fetch_add(&process_bytes, (uint64_t)bytes, __ATOMIC_RELAXED); } // a figure

// Before the execution ends. What the engine keeps (SQLite: a record that all connections to a file share) was allocated on this account by chance: it
// passes to the process, and keeps the account alive until it is freed.
static void account_close(account *self) {
  pthread_mutex_lock(&self->lock);
  if (self->bytes > 0) {
    (void)berth_exec_charge(self->exec, -(int64_t)self->bytes, NULL);
    count_for_process((int64_t)self->bytes);
  }
  self->exec = NULL;
  bool over = self->blocks == 0;
  pthread_mutex_unlock(&self->lock);
  if (over) account_free(self);
}

// Under the account's lock.
static berth_status charge_exec(account *self, int64_t bytes, berth_error *err) {
  if (self->exec != NULL) return berth_exec_charge(self->exec, bytes, err);
  count_for_process(bytes);
  return BERTH_OK;
}

static bool charge(account *self, int64_t bytes, int blocks) {
  if (self == NULL) {
    count_for_process(bytes);
    return true;
  }
  berth_error err = BERTH_ERROR_INIT;
  pthread_mutex_lock(&self->lock);
  berth_status status = charge_exec(self, bytes, &err);
  if (status == BERTH_OK) {
    self->blocks += (uint64_t)(int64_t)blocks;
    self->bytes += (uint64_t)bytes;
  } else if (self->refusal.code == BERTH_OK) {
    self->refusal = err;
  }
  bool over = status == BERTH_OK && self->exec == NULL && self->blocks == 0;
  pthread_mutex_unlock(&self->lock);
  if (over) account_free(self);
  return status == BERTH_OK;
}

static header *header_of(void *memory) { return (header *)memory - 1; }

static void *guest_malloc(int bytes) {
  account *owner = current;
  int64_t size = (int64_t)bytes + (int64_t)sizeof(header);
  if (!charge(owner, size, 1)) return NULL;
  header *block = malloc((size_t)size);
  if (block == NULL) {
    (void)charge(owner, -size, -1);
    return NULL;
  }
  *block = (header){owner, (uint64_t)bytes};
  return block + 1;
}

static void guest_free(void *memory) {
  if (memory == NULL) return;
  header block = *header_of(memory);
  free(header_of(memory));
  (void)charge(block.owner, -(int64_t)(block.size + sizeof block), -1);
}

static void *guest_realloc(void *memory, int bytes) {
  header old = *header_of(memory);
  int64_t more = (int64_t)bytes - (int64_t)old.size;
  if (more > 0 && !charge(old.owner, more, 0)) return NULL;
  header *block = realloc(header_of(memory), (size_t)bytes + sizeof *block);
  if (block == NULL) {
    if (more > 0) (void)charge(old.owner, -more, 0);
    return NULL;
  }
  block->size = (uint64_t)bytes;
  if (more < 0) (void)charge(old.owner, more, 0);
  return block + 1;
}

static int guest_size(void *memory) { return memory == NULL ? 0 : (int)header_of(memory)->size; }
static int guest_roundup(int bytes) { return (bytes + 7) & ~7; }
static int guest_init(void *unused) {
  (void)unused;
  return SQLITE_OK;
}
static void guest_shutdown(void *unused) { (void)unused; }

static void install_allocator(void) {
  static const sqlite3_mem_methods methods = {guest_malloc, guest_free, guest_realloc, guest_size, guest_roundup, guest_init, guest_shutdown, NULL};
  EXPECT(sqlite3_config(SQLITE_CONFIG_MULTITHREAD) == SQLITE_OK);
  EXPECT(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK); // Berth counts, without a lock that all threads share
  EXPECT(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
  EXPECT(sqlite3_initialize() == SQLITE_OK);
}

// ---- one query, one attempt ----

typedef struct answer {
  int code; // SQLite's
  uint64_t rows, digest;
  berth_report_info report;
} answer;

typedef struct work {
  const char *sql;
  berth_exec *exec;
  sem_t *running; // told once when the statement runs; NULL: nobody asks
  answer *out;
} work;

static berth_session *session;
static char database_path[64];

static int ask_berth(void *arg) {
  work *self = arg;
  if (self->running != NULL) sem_post(self->running);
  self->running = NULL;
  return berth_exec_check(self->exec, NULL) != BERTH_OK;
}

static void interrupt(void *database, berth_cancel_cause cause) {
  (void)cause;
  sqlite3_interrupt(database);
}

static uint64_t digest_text(uint64_t digest, const unsigned char *text) {
  for (; text != NULL && *text != 0; text++) digest = (digest ^ *text) * 1099511628211u;
  return (digest ^ 0xff) * 1099511628211u; // the end of a column
}

static int read_rows(sqlite3_stmt *statement, answer *out) {
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    out->rows++;
    for (int c = 0; c < sqlite3_column_count(statement); c++) out->digest = digest_text(out->digest, sqlite3_column_text(statement, c));
  }
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int query_database(work *self, sqlite3 *database) {
  sqlite3_stmt *statement = NULL;
  sqlite3_progress_handler(database, 1000, ask_berth, self);
  int code = sqlite3_exec(database, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL); // sorts and temporary tables count as memory
  if (code == SQLITE_OK) code = sqlite3_prepare_v2(database, self->sql, -1, &statement, NULL);
  if (code == SQLITE_OK) code = read_rows(statement, self->out);
  sqlite3_finalize(statement);
  return code;
}

// Everything that the query needs is opened and closed in here, on its account.
static int guest_session(work *self, berth_cancel *token) {
  sqlite3 *database = NULL;
  berth_error err = BERTH_ERROR_INIT;
  int code = sqlite3_open_v2(database_path, &database, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
  if (code == SQLITE_OK) {
    EXPECT_OK(berth_cancel_hook(token, interrupt, database, &err), &err);
    code = query_database(self, database);
    EXPECT_OK(berth_cancel_hook(token, NULL, NULL, &err), &err);
  }
  EXPECT(sqlite3_close(database) == SQLITE_OK);
  return code;
}

static void run_in_execution(work *self, berth_cancel *token) {
  berth_error cause = BERTH_ERROR_INIT, err = BERTH_ERROR_INIT;
  current = account_open(self->exec);
  self->out->code = guest_session(self, token);
  if (self->out->code == SQLITE_NOMEM) cause = current->refusal;
  account_close(current);
  current = NULL;
  berth_outcome outcome = self->out->code == SQLITE_OK ? BERTH_SUCCEEDED : BERTH_FAILED;
  if (self->out->code == SQLITE_INTERRUPT && berth_exec_check(self->exec, &cause) != BERTH_OK) outcome = BERTH_OUTCOME_CANCELLED;
  EXPECT_OK(berth_exec_finish(self->exec, outcome, &cause, &err), &err);
}

/// Begins an attempt; the token cancels it (may be NULL).
static berth_attempt *begin(const char *name, berth_cancel **token) {
  berth_attempt_options options = BERTH_ATTEMPT_OPTIONS_INIT;
  berth_attempt *attempt = NULL;
  berth_error err = BERTH_ERROR_INIT;
  options.query_id = name;
  EXPECT_OK(berth_session_begin_attempt(session, &options, &attempt, &err), &err);
  *token = berth_attempt_cancel_token(attempt);
  return attempt;
}

/// Runs the query to its report. Takes the attempt and the token.
static answer finish_query(berth_attempt *attempt, berth_cancel *token, const char *sql, sem_t *running) {
  answer out = {.digest = 14695981039346656037u, .report = BERTH_REPORT_INFO_INIT};
  work self = {.sql = sql, .running = running, .out = &out};
  berth_admission *admission = NULL;
  berth_report *report = NULL;
  berth_request request = BERTH_REQUEST_INIT;
  berth_error err = BERTH_ERROR_INIT;
  request.bytes = grant_bytes;
  request.queue_deadline = BERTH_NO_DEADLINE;
  berth_completion *completion = berth_attempt_completion(attempt);
  EXPECT_OK(berth_session_admit(session, attempt, &request, &admission, &err), &err);
  EXPECT_OK(berth_admission_wait(admission, BERTH_NO_DEADLINE, &err), &err);
  EXPECT_OK(berth_admission_take(admission, &self.exec, &err), &err);
  run_in_execution(&self, token);
  EXPECT_OK(berth_completion_poll(completion, &report, &err), &err);
  EXPECT_OK(berth_report_get(report, &out.report, &err), &err);
  EXPECT(out.report.bytes_granted == grant_bytes && out.report.bytes_peak <= grant_bytes && out.report.bytes_held == 0);
  berth_report_release(report);
  berth_admission_release(admission);
  berth_completion_release(completion);
  berth_cancel_release(token);
  berth_attempt_release(attempt);
  return out;
}

static answer run_query(const char *name, const char *sql) {
  berth_cancel *token = NULL;
  berth_attempt *attempt = begin(name, &token);
  return finish_query(attempt, token, sql, NULL);
}

// ---- the data and the questions ----

static const char *const schema =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
    "CREATE TABLE customer(id INTEGER PRIMARY KEY, region INTEGER, name TEXT);"
    "CREATE TABLE sale(id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, amount INTEGER, note TEXT);"
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
    " INSERT INTO customer SELECT i, i * 7919 %% 12, 'customer ' || (i * 104729 %% 5003) FROM n;"
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
    " INSERT INTO sale SELECT i, 1 + i * 48271 %% 5000, i * 16807 %% 365, i * 69621 %% 9973, 'note ' || (i %% 97) FROM n;";

static const char *const queries[QUERIES] = {
    "SELECT region, count(*), sum(amount), min(day), max(day) FROM sale JOIN customer ON customer.id = sale.customer GROUP BY region ORDER BY region",
    "SELECT customer, day, amount FROM sale WHERE amount > 3000 ORDER BY amount DESC, day, id LIMIT 5000",
    "SELECT day, sum(amount) OVER (ORDER BY day), rank() OVER (ORDER BY amount DESC) FROM (SELECT day, sum(amount) AS amount FROM sale GROUP BY day)",
    "SELECT name, sum(amount) AS total FROM customer JOIN sale ON sale.customer = customer.id GROUP BY customer.id HAVING total > 10000"
    " ORDER BY total DESC, name",
    "SELECT * FROM (SELECT customer, day, amount, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS place FROM sale"
    " WHERE customer % 4 = 1) WHERE place <= 3",
    "SELECT note, count(DISTINCT customer), avg(amount) FROM sale GROUP BY note ORDER BY note",
};

// Sorts the whole table with long rows: tens of MiB.
static const char *const too_large = "SELECT s.*, hex(zeroblob(1000)) AS filler FROM sale AS s ORDER BY filler, amount, note";
static const char *const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0";

static intptr_t load(berth_exec *exec, void *arg) {
  char *sql = sqlite3_mprintf(schema, ROWS);
  sqlite3 *database = NULL;
  (void)arg;
  EXPECT(sql != NULL);
  current = account_open(exec);
  int code = sqlite3_open(database_path, &database);
  if (code == SQLITE_OK) code = sqlite3_exec(database, sql, NULL, NULL, NULL);
  EXPECT(sqlite3_close(database) == SQLITE_OK);
  account_close(current);
  current = NULL;
  sqlite3_free(sql);
  return code;
}

static void load_database(void) {
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  snprintf(database_path, sizeof database_path, "berth-guest-XXXXXX");
  int fd = mkstemp(database_path);
  EXPECT(fd >= 0);
  close(fd);
  options.bytes = grant_bytes;
  EXPECT_OK(berth_run(session, &options, load, NULL, &result, &err), &err);
  EXPECT(result.value == SQLITE_OK);
}

// ---- the crowd ----

static answer alone[QUERIES];
static answer cancelled_one;
static sem_t endless_runs;
static berth_attempt *endless_attempt;
static berth_cancel *endless_token;

static void *crowd(void *arg) {
  int first = *(int *)arg;
  for (int i = 0; i < EACH; i++) {
    int q = (first + i) % QUERIES;
    answer got = run_query("crowd", queries[q]);
    EXPECT(got.code == SQLITE_OK && got.report.outcome == BERTH_SUCCEEDED);
    EXPECT(got.rows == alone[q].rows && got.digest == alone[q].digest);
  }
  return NULL;
}

static void *run_endless(void *arg) {
  (void)arg;
  cancelled_one = finish_query(endless_attempt, endless_token, endless, &endless_runs);
  return NULL;
}

static void expect_too_large(void) {
  answer got = run_query("too large", too_large);
  printf("too large: SQLite says %d; the report: %s\n", got.code, got.report.cause.message);
  EXPECT(got.code == SQLITE_NOMEM && got.report.outcome == BERTH_FAILED);
  EXPECT(got.report.cause.reason != NULL && strcmp(got.report.cause.reason, "grant_exhausted") == 0);
}

// Fires the token once SQLite is inside the statement.
static void cancel_endless(void) {
  pthread_t thread;
  berth_cancel *token = berth_cancel_retain(endless_token);
  EXPECT(pthread_create(&thread, NULL, run_endless, NULL) == 0);
  while (sem_wait(&endless_runs) != 0) {
  }
  EXPECT(berth_cancel_fire(token) == BERTH_CANCEL_FIRED);
  EXPECT(pthread_join(thread, NULL) == 0);
  berth_cancel_release(token);
  printf("endless: SQLite says %d, %.2f ms from cancel to free memory\n", cancelled_one.code, (double)cancelled_one.report.cancel_latency / 1e6);
  EXPECT(cancelled_one.code == SQLITE_INTERRUPT && cancelled_one.report.outcome == BERTH_OUTCOME_CANCELLED);
  EXPECT(cancelled_one.report.cancel_cause == BERTH_CANCEL_BY_CALLER);
  // A millisecond where a CPU is free; the bound leaves room for a machine that is full.
  EXPECT(cancelled_one.report.cancel_latency >= 0 && cancelled_one.report.cancel_latency < 500 * MILLISECOND);
}

static berth_backend *open_backend(void) {
  berth_device_options device = BERTH_DEVICE_OPTIONS_INIT;
  berth_backend_options options = BERTH_BACKEND_OPTIONS_INIT;
  berth_backend *backend = NULL;
  berth_error err = BERTH_ERROR_INIT;
  device.name = "cpu:0";
  device.capacity_bytes = THREADS * grant_bytes / 4 + 1;
  device.cache_bytes = 1;
  device.library_bytes = library_bytes;
  options.devices = &device;
  options.device_count = 1;
  EXPECT_OK(berth_backend_open(&options, &backend, &err), &err);
  return backend;
}

int main(void) {
  install_allocator();
  berth_backend *backend = open_backend();
  session = berth_backend_session(backend);
  load_database();
  uint64_t peak = 0;
  for (int q = 0; q < QUERIES; q++) {
    alone[q] = run_query("alone", queries[q]);
    EXPECT(alone[q].code == SQLITE_OK && alone[q].rows > 0);
    if (alone[q].report.bytes_peak > peak) peak = alone[q].report.bytes_peak;
  }

  pthread_t threads[THREADS];
  int firsts[THREADS];
  sem_init(&endless_runs, 0, 0);
  int64_t begun = berth_now();
  for (int t = 0; t < THREADS; t++) {
    firsts[t] = t;
    EXPECT(pthread_create(&threads[t], NULL, crowd, &firsts[t]) == 0);
  }
  endless_attempt = begin("endless", &endless_token);
  cancel_endless();
  expect_too_large();
  for (int t = 0; t < THREADS; t++) EXPECT(pthread_join(threads[t], NULL) == 0);
  double seconds = (double)(berth_now() - begun) / 1e9;
  EXPECT(unlink(database_path) == 0);

  berth_metrics m = example_idle_metrics(session);
  printf("%d queries of %d threads in %.2f s, all as alone: %" PRIu64 " MiB wanted, %" PRIu64 " MiB there, largest peak %.1f MiB\n", THREADS * EACH,
         THREADS, seconds, THREADS * grant_bytes / MIB, THREADS * grant_bytes / 4 / MIB, (double)peak / MIB);
  printf("longest queue %" PRIu64 ", longest wait %.0f ms; %" PRIu64 " B belong to the process\n", m.queue_high_watermark, (double)m.wait.max / 1e6,
         process_bytes);
  EXPECT(m.outcomes[BERTH_SUCCEEDED] == THREADS * EACH + QUERIES);
  EXPECT(m.outcomes[BERTH_FAILED] == 1 && m.outcomes[BERTH_OUTCOME_CANCELLED] == 1);
  EXPECT(m.expired == 0 && m.refused == 0 && m.queue_high_watermark > 0);
  EXPECT(process_bytes <= library_bytes);
  EXPECT(sqlite3_shutdown() == SQLITE_OK);
  example_close(backend, session);
  return 0;
}
