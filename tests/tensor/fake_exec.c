// SPDX-License-Identifier: Apache-2.0
#include "tensor/fake_exec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/error.h"

// A block starts with its charge; 64 bytes keep the payload aligned.
enum { HEADER = 64, UNIT = 64 };

void fake_exec_init(berth_exec *exec, uint64_t limit) {
  memset(exec, 0, sizeof *exec);
  exec->limit = limit;
  exec->lanes = 1;
}

bool fake_exec_is_clean(const berth_exec *exec) {
  return exec->blocks == 0 && exec->used == 0 && exec->open_operations == 0;
}

berth_status berth_exec_get_info(const berth_exec *exec, berth_exec_info *out_info, berth_error *err) {
  berth_exec_info info = {.struct_size = sizeof info, .lanes = exec->lanes, .grant_bytes = exec->limit, .used_bytes = exec->used};
  info.peak_bytes = exec->peak;
  info.operations = exec->operations;
  info.bytes_moved = exec->bytes_moved;
  info.deadline = BERTH_NO_DEADLINE;
  return berthi_output_copy(out_info, &info, sizeof info, "berth_exec_info", err);
}

berth_status berth_exec_alloc(berth_exec *exec, uint64_t bytes, void **out_memory, berth_error *err) {
  uint64_t charge = bytes == 0 ? UNIT : (bytes + UNIT - 1) / UNIT * UNIT;
  exec->allocations++;
  if (exec->allocations == exec->fail_at || bytes > exec->limit || exec->used + charge > exec->limit) {
    berth_status status = berthi_fail(err, BERTHI_R_GRANT_EXHAUSTED, "%llu bytes asked", (unsigned long long)bytes);
    berthi_fact(err, "asked_bytes", (int64_t)bytes);
    berthi_fact(err, "left_bytes", (int64_t)(exec->limit - exec->used));
    return status;
  }
  char *block = aligned_alloc(UNIT, HEADER + charge);
  if (block == NULL) abort();
  memcpy(block, &charge, sizeof charge);
  memset(block + HEADER, 0xCB, charge); // nothing may rely on zeros
  exec->used += charge;
  exec->blocks++;
  if (exec->used > exec->peak) exec->peak = exec->used;
  *out_memory = block + HEADER;
  return BERTH_OK;
}

void berth_exec_free(berth_exec *exec, void *memory) {
  if (memory == NULL) return;
  char *block = (char *)memory - HEADER;
  uint64_t charge;
  memcpy(&charge, block, sizeof charge);
  exec->used -= charge;
  exec->blocks--;
  free(block);
}

berth_status berthi_exec_op_begin(berth_exec *exec, const char *name, berth_error *err) {
  (void)name;
  if (exec->cancelled) return berthi_fail(err, BERTHI_R_ATTEMPT_CANCELLED, "cancelled");
  exec->operations++;
  exec->open_operations++;
  return BERTH_OK;
}

void berthi_exec_op_end(berth_exec *exec, uint64_t bytes_read, uint64_t bytes_written) {
  exec->open_operations--;
  exec->bytes_moved += bytes_read + bytes_written;
}

bool berthi_exec_cancelled(const berth_exec *exec) {
  return exec->cancelled;
}

uint32_t berthi_exec_lanes(const berth_exec *exec) {
  return exec->lanes;
}

typedef struct team {
  uint64_t count;
  berthi_exec_body body;
  void *arg;
  berthi_atomic64 next;
} team;

static void *work(void *arg) {
  team *t = arg;
  for (;;) {
    uint64_t i = atomic_fetch_add(&t->next, 1);
    if (i >= t->count) return NULL;
    t->body(t->arg, i);
  }
}

static void run_threads(uint64_t count, berthi_exec_body body, void *arg) {
  team t = {.count = count, .body = body, .arg = arg};
  pthread_t other;
  if (pthread_create(&other, NULL, work, &t) != 0) abort();
  work(&t);
  pthread_join(other, NULL);
}

berth_status berthi_exec_parallel(berth_exec *exec, uint64_t count, berthi_exec_body body, void *arg, berth_error *err) {
  if (exec->order == FAKE_THREADS && exec->cancel_after == 0) {
    run_threads(count, body, arg);
    return BERTH_OK;
  }
  for (uint64_t i = 0; i < count; i++) {
    exec->tasks++;
    if (exec->cancel_after != 0 && exec->tasks > exec->cancel_after) exec->cancelled = true;
    if (exec->cancelled) return berthi_fail(err, BERTHI_R_ATTEMPT_CANCELLED, "cancelled");
    body(arg, exec->order == FAKE_BACKWARD ? count - 1 - i : i);
  }
  return BERTH_OK;
}
