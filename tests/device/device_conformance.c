// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "device/device_conformance.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/kinds.h"

#define MIB ((uint64_t)1 << 20)

typedef struct fixture {
  const conformance_target *target;
  const berthi_device_kind *kind;
  uint32_t ordinal;
  berthi_device *device;
  berthi_device_limits limits;
  char identity[BERTH_DEVICE_IDENTITY];
  berthi_startup startup;
  berthi_lanemask all_lanes;
  berthi_domain domain; ///< of the case; reset behind it
} fixture;

// A case returns NULL, or what went wrong.
#define EXPECT(cond) \
  do { \
    if (!(cond)) return #cond; \
  } while (0)

static bool host_memory(const fixture *f) { return (f->limits.capabilities & BERTH_CAP_HOST_MEMORY) != 0; }

static const char *case_limits_are_sane(fixture *f) {
  EXPECT(f->limits.limit_bytes > 0 && f->limits.limit_bytes < UINT64_MAX);
  EXPECT(f->limits.default_capacity_bytes > 0 && f->limits.default_capacity_bytes <= f->limits.limit_bytes);
  EXPECT(f->limits.lanes >= 1 && f->limits.lanes <= BERTHI_LANES_MAX);
  EXPECT(f->limits.slots >= 1);
  EXPECT(f->limits.limit_source[0] != '\0');
  return NULL;
}

// BCK-3
static const char *case_startup_matches_profile(fixture *f) {
  EXPECT(strcmp(f->startup.identity, f->identity) == 0);
  EXPECT(f->startup.lanes >= 1);
  EXPECT(f->startup.capabilities == f->limits.capabilities);
  EXPECT(f->startup.model[0] != '\0');
  EXPECT(f->startup.open_nanoseconds >= 0);
  return NULL;
}

static const char *case_reread_agrees(fixture *f) {
  berthi_device_limits again;
  EXPECT(f->kind->reread(f->device, &again, NULL) == BERTH_OK);
  EXPECT(again.limit_bytes == f->limits.limit_bytes);
  EXPECT(again.lanes == f->limits.lanes);
  return NULL;
}

static const char *case_blocks_are_aligned_and_charged(fixture *f) {
  static const uint64_t sizes[] = {0, 1, 32, 64, 65, 4096, 4097, 100000, 3 * MIB};
  berthi_domain *domain = &f->domain;
  void *blocks[BERTHI_COUNTOF(sizes)];
  uint64_t charged = 0;
  berthi_domain_init(domain, f->device, 16 * MIB);
  for (size_t i = 0; i < BERTHI_COUNTOF(sizes); i++) {
    EXPECT(f->kind->alloc(domain, sizes[i], &blocks[i], NULL) == BERTH_OK);
    EXPECT(blocks[i] != NULL && (uintptr_t)blocks[i] % BERTHI_BLOCK_ALIGN == 0);
    if (host_memory(f)) memset(blocks[i], 0xa5, sizes[i]);
    charged += berthi_block_bytes(sizes[i]);
    EXPECT(berthi_stat_load(&domain->used) == charged);
  }
  EXPECT(berthi_stat_load(&domain->blocks) == BERTHI_COUNTOF(sizes));
  for (size_t i = 0; i < BERTHI_COUNTOF(sizes); i++) f->kind->free(domain, blocks[i]);
  f->kind->free(domain, NULL);
  EXPECT(berthi_stat_load(&domain->used) == 0 && berthi_stat_load(&domain->blocks) == 0);
  EXPECT(berthi_stat_load(&domain->peak) == charged);
  f->kind->reset(domain);
  return NULL;
}

// LED-2
static const char *case_grant_is_enforced(fixture *f) {
  berthi_domain *domain = &f->domain;
  berth_error err = BERTH_ERROR_INIT;
  void *first, *second = NULL;
  berthi_domain_init(domain, f->device, MIB);
  EXPECT(f->kind->alloc(domain, MIB / 2, &first, &err) == BERTH_OK);
  EXPECT(f->kind->alloc(domain, MIB, &second, &err) == BERTH_RESOURCE_EXHAUSTED);
  EXPECT(strcmp(err.reason, "grant_exhausted") == 0 && second == NULL);
  EXPECT(err.facts[0].value == (int64_t)MIB && err.facts[1].value == (int64_t)MIB / 2 && err.facts[2].value == (int64_t)MIB);
  EXPECT(f->kind->alloc(domain, UINT64_MAX, &second, &err) == BERTH_RESOURCE_EXHAUSTED);
  EXPECT(f->kind->alloc(domain, MIB / 2, &second, &err) == BERTH_OK);
  f->kind->reset(domain);
  EXPECT(berthi_stat_load(&domain->used) == 0 && berthi_stat_load(&domain->blocks) == 0);
  return NULL;
}

static const char *case_reset_frees_all_and_keeps_charges(fixture *f) {
  berthi_domain *domain = &f->domain;
  void *block;
  berthi_domain_init(domain, f->device, 8 * MIB);
  for (uint64_t i = 0; i < 200; i++) EXPECT(f->kind->alloc(domain, i * 97, &block, NULL) == BERTH_OK);
  EXPECT(berthi_domain_charge(domain, 1000, NULL) == BERTH_OK);
  f->kind->reset(domain);
  EXPECT(berthi_stat_load(&domain->used) == 1000); // what a guest library was charged for is not a block
  berthi_domain_credit(domain, 1000);
  f->kind->reset(domain);                                       // again: nothing to do
  EXPECT(f->kind->alloc(domain, 64, &block, NULL) == BERTH_OK); // and the domain works on
  f->kind->reset(domain);
  return NULL;
}

typedef struct asker {
  fixture *f;
  berthi_domain *domain;
  uint64_t bytes;
  uint64_t rounds;
  uint64_t failures;
} asker;

static void ask(void *arg) {
  asker *a = arg;
  for (uint64_t i = 0; i < a->rounds; i++) {
    void *block;
    if (a->f->kind->alloc(a->domain, a->bytes, &block, NULL) == BERTH_OK)
      a->f->kind->free(a->domain, block);
    else
      a->failures++;
  }
}

// ADM-1, LED-2: an allocator that adds before it tests lets the large request, which never fits, fail the small one, which always does.
static const char *case_large_refusals_never_disturb_small_ones(fixture *f) {
  berthi_domain *domain = &f->domain;
  berthi_thread threads[2] = {{0}};
  asker large = {f, domain, MIB + MIB / 2, 20000, 0}, small = {f, domain, MIB / 10, 2000, 0};
  berthi_domain_init(domain, f->device, MIB);
  EXPECT(berthi_thread_start(&threads[0], "large", ask, &large, NULL) == BERTH_OK);
  EXPECT(berthi_thread_start(&threads[1], "small", ask, &small, NULL) == BERTH_OK);
  berthi_thread_join(&threads[0]);
  berthi_thread_join(&threads[1]);
  EXPECT(large.failures == large.rounds);
  EXPECT(small.failures == 0);
  EXPECT(berthi_stat_load(&domain->used) == 0);
  f->kind->reset(domain);
  return NULL;
}

typedef struct churner {
  fixture *f;
  berthi_domain *domain;
  uint64_t seed;
  uint64_t corrupted, refused;
} churner;

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// Keeps some blocks, each filled with its owner's mark, and checks the mark when it frees one.
static void churn(void *arg) {
  churner *c = arg;
  bool fill = host_memory(c->f);
  unsigned char *blocks[16] = {0};
  uint64_t sizes[16] = {0};
  for (int i = 0; i < 3000; i++) {
    uint64_t slot = next_random(&c->seed) % 16;
    unsigned char mark = (unsigned char)(c->seed >> 56 | 1);
    if (blocks[slot] != NULL) {
      if (fill && sizes[slot] > 0 && blocks[slot][0] != blocks[slot][sizes[slot] - 1]) c->corrupted++;
      c->f->kind->free(c->domain, blocks[slot]);
      blocks[slot] = NULL;
    }
    void *block;
    sizes[slot] = next_random(&c->seed) % (i % 50 == 0 ? 100000 : 600);
    if (c->f->kind->alloc(c->domain, sizes[slot], &block, NULL) != BERTH_OK) {
      c->refused++;
      continue;
    }
    blocks[slot] = block;
    if (fill) memset(block, mark, sizes[slot]);
  }
}

static const char *case_children_allocate_at_once(fixture *f) {
  berthi_domain *domain = &f->domain;
  berthi_thread threads[4] = {{0}};
  churner churners[4];
  berthi_domain_init(domain, f->device, 64 * MIB);
  for (uint64_t i = 0; i < 4; i++) {
    churners[i] = (churner){f, domain, 88172645463325252u + i * 977, 0, 0};
    EXPECT(berthi_thread_start(&threads[i], "churn", churn, &churners[i], NULL) == BERTH_OK);
  }
  for (int i = 0; i < 4; i++) berthi_thread_join(&threads[i]);
  for (int i = 0; i < 4; i++) EXPECT(churners[i].corrupted == 0 && churners[i].refused == 0);
  f->kind->reset(domain);
  EXPECT(berthi_stat_load(&domain->used) == 0 && berthi_stat_load(&domain->blocks) == 0);
  return NULL;
}

static const char *case_copies_arrive(fixture *f) {
  static unsigned char there[100000], back[100000];
  berthi_domain *domain = &f->domain;
  void *first, *second;
  berthi_domain_init(domain, f->device, MIB);
  for (size_t i = 0; i < sizeof(there); i++) there[i] = (unsigned char)(i * 31 + 7);
  EXPECT(f->kind->alloc(domain, sizeof(there), &first, NULL) == BERTH_OK);
  EXPECT(f->kind->alloc(domain, sizeof(there), &second, NULL) == BERTH_OK);
  EXPECT(f->kind->copy(domain, BERTHI_COPY_UPLOAD, first, there, sizeof(there), NULL) == BERTH_OK);
  EXPECT(f->kind->copy(domain, BERTHI_COPY_INSIDE, second, first, sizeof(there), NULL) == BERTH_OK);
  memset(back, 0, sizeof(back));
  EXPECT(f->kind->copy(domain, BERTHI_COPY_DOWNLOAD, back, second, sizeof(there), NULL) == BERTH_OK);
  EXPECT(f->kind->copy(domain, BERTHI_COPY_UPLOAD, first, there, 0, NULL) == BERTH_OK);
  if (f->kind->settle != NULL) EXPECT(f->kind->settle(domain, NULL) == BERTH_OK);
  EXPECT(memcmp(there, back, sizeof(there)) == 0);
  f->kind->reset(domain);
  return NULL;
}

typedef struct marks {
  berthi_atomic32 ran[5000];
  berthi_atomic32 cancel;
  uint64_t cancel_at;
} marks;

static void mark_task(void *arg, uint64_t i) {
  marks *m = arg;
  (void)berthi_add(&m->ran[i], 1, relaxed);
  if (i == m->cancel_at) berthi_store(&m->cancel, 1, release);
}

static const char *case_each_task_runs_once(fixture *f) {
  static const uint64_t counts[] = {0, 1, 2, 3, 17, 5000};
  static marks m;
  for (int round = 0; round < 50; round++) {
    for (size_t c = 0; c < BERTHI_COUNTOF(counts); c++) {
      memset(&m, 0, sizeof(m));
      m.cancel_at = UINT64_MAX;
      berthi_parallel work = {.count = counts[c], .body = mark_task, .arg = &m, .cancel = &m.cancel, .skipped = 99};
      f->kind->parallel(f->device, &f->all_lanes, &work);
      EXPECT(work.skipped == 0);
      for (uint64_t i = 0; i < counts[c]; i++) EXPECT(berthi_stat_load(&m.ran[i]) == 1);
    }
  }
  return NULL;
}

// EXE-3
static const char *case_cancel_skips_the_rest(fixture *f) {
  static marks m;
  for (int round = 0; round < 50; round++) {
    memset(&m, 0, sizeof(m));
    m.cancel_at = 10;
    berthi_parallel work = {.count = 5000, .body = mark_task, .arg = &m, .cancel = &m.cancel};
    f->kind->parallel(f->device, &f->all_lanes, &work);
    uint64_t ran = 0;
    for (uint64_t i = 0; i < 5000; i++) ran += berthi_stat_load(&m.ran[i]);
    EXPECT(ran >= 11 && ran + work.skipped == 5000);
    EXPECT(work.skipped > 0 || f->startup.lanes > 1); // with one lane the next task already sees it
  }
  return NULL;
}

typedef struct nest {
  fixture *f;
  berthi_atomic64 sum;
} nest;

static void inner_task(void *arg, uint64_t i) { (void)berthi_add(&((nest *)arg)->sum, i, relaxed); }

static void outer_task(void *arg, uint64_t i) {
  (void)i;
  nest *n = arg;
  berthi_parallel work = {.count = 10, .body = inner_task, .arg = n};
  n->f->kind->parallel(n->f->device, &n->f->all_lanes, &work);
}

static const char *case_nested_work_runs_inline(fixture *f) {
  nest n = {.f = f};
  berthi_parallel work = {.count = 100, .body = outer_task, .arg = &n};
  f->kind->parallel(f->device, &f->all_lanes, &work);
  EXPECT(berthi_stat_load(&n.sum) == 4500 && work.skipped == 0);
  return NULL;
}

static void run_nest(void *arg) {
  nest *n = arg;
  for (int i = 0; i < 300; i++) {
    berthi_parallel work = {.count = 10, .body = inner_task, .arg = n};
    n->f->kind->parallel(n->f->device, &n->f->all_lanes, &work);
  }
}

// Children of one execution have the same lanes.
static const char *case_two_threads_on_the_same_lanes(fixture *f) {
  nest n = {.f = f};
  berthi_thread threads[3] = {{0}};
  for (int i = 0; i < 3; i++) EXPECT(berthi_thread_start(&threads[i], "nest", run_nest, &n, NULL) == BERTH_OK);
  for (int i = 0; i < 3; i++) berthi_thread_join(&threads[i]);
  EXPECT(berthi_stat_load(&n.sum) == (uint64_t)3 * 300 * 45);
  return NULL;
}

static const char *case_leave_restores_affinity(fixture *f) {
  cpu_set_t before, inside, after;
  berthi_affinity saved;
  berthi_lanemask one = {{0}};
  EXPECT(f->kind->enter != NULL && f->kind->leave != NULL);
  berthi_lanes_set(&one, 0);
  EXPECT(sched_getaffinity(0, sizeof(before), &before) == 0);
  EXPECT(f->kind->enter(f->device, &one, &saved, NULL) == BERTH_OK);
  EXPECT(sched_getaffinity(0, sizeof(inside), &inside) == 0);
  EXPECT(f->kind->leave(f->device, &saved, NULL) == BERTH_OK);
  EXPECT(sched_getaffinity(0, sizeof(after), &after) == 0);
  EXPECT(CPU_EQUAL(&before, &after));
  if (f->kind->lane_of_cpu == NULL) return NULL;
  EXPECT(CPU_COUNT(&inside) == 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &inside)) EXPECT(f->kind->lane_of_cpu(f->device, (uint32_t)cpu) == 0);
  }
  return NULL;
}

// HLT-1: a device that is fine stays so.
static const char *case_probe_of_a_fine_device(fixture *f) {
  EXPECT(f->kind->fault == NULL || f->kind->fault(f->device) == BERTHI_DEVICE_FINE);
  EXPECT(f->kind->probe(f->device, NULL) == BERTH_OK);
  EXPECT(f->kind->fault == NULL || f->kind->fault(f->device) == BERTHI_DEVICE_FINE);
  return NULL;
}

// TEL-1
static const char *case_telemetry_has_a_field(fixture *f) {
  berthi_telemetry sample;
  for (int i = 0; i < 3; i++) {
    EXPECT(f->kind->telemetry(f->device, &sample, NULL) == BERTH_OK);
    EXPECT(sample.valid != 0);
    if (sample.valid & BERTHI_TELEMETRY_UTILIZATION) EXPECT(sample.utilization_percent >= 0 && sample.utilization_percent <= 100);
    if (sample.valid & BERTHI_TELEMETRY_MEMORY) EXPECT(sample.memory_total_bytes > 0);
  }
  return NULL;
}

static bool fail_nth_alloc(void *arg, berthi_fault kind, const char *where) {
  (void)where;
  return kind == BERTHI_FAULT_ALLOC && (*(int *)arg)-- == 0;
}

// LED-2: the host out of memory at any of its allocations refuses the block, charges nothing, and the next try works.
static const char *case_host_out_of_memory(fixture *f) {
  for (int nth = 0; nth < 3; nth++) {
    berthi_domain *domain = &f->domain;
    berth_error err = BERTH_ERROR_INIT;
    void *block = NULL;
    int countdown = nth;
    berthi_domain_init(domain, f->device, 16 * MIB);
    berthi_fault_set_hook(fail_nth_alloc, &countdown);
    berth_status status = f->kind->alloc(domain, 5 * MIB, &block, &err);
    berthi_fault_set_hook(NULL, NULL);
    EXPECT(status == BERTH_OK || (strcmp(err.reason, "device_exhausted") == 0 && berthi_stat_load(&domain->used) == 0));
    EXPECT(f->kind->alloc(domain, 5 * MIB, &block, &err) == BERTH_OK);
    f->kind->reset(domain);
    EXPECT(berthi_stat_load(&domain->used) == 0);
  }
  return NULL;
}

// CLS-4: closing must prove that nothing uses the device.
static const char *case_close_refuses_while_memory_is_out(fixture *f) {
  berthi_domain *domain = &f->domain;
  void *block;
  berthi_domain_init(domain, f->device, MIB);
  EXPECT(f->kind->alloc(domain, 64, &block, NULL) == BERTH_OK);
  EXPECT(f->kind->close(f->device, false, NULL) != BERTH_OK);
  f->kind->free(domain, block);
  f->kind->reset(domain);
  return NULL;
}

static const struct {
  const char *name;
  const char *(*run)(fixture *f);
} cases[] = {
#define CASE(name) \
  { #name, case_##name }
    CASE(limits_are_sane),
    CASE(startup_matches_profile),
    CASE(reread_agrees),
    CASE(blocks_are_aligned_and_charged),
    CASE(grant_is_enforced),
    CASE(reset_frees_all_and_keeps_charges),
    CASE(large_refusals_never_disturb_small_ones),
    CASE(children_allocate_at_once),
    CASE(copies_arrive),
    CASE(each_task_runs_once),
    CASE(cancel_skips_the_rest),
    CASE(nested_work_runs_inline),
    CASE(two_threads_on_the_same_lanes),
    CASE(leave_restores_affinity),
    CASE(probe_of_a_fine_device),
    CASE(telemetry_has_a_field),
    CASE(host_out_of_memory),
    CASE(close_refuses_while_memory_is_out),
};

static bool listed(const char *const *list, const char *name) {
  for (; list != NULL && *list != NULL; list++) {
    if (strcmp(*list, name) == 0) return true;
  }
  return false;
}

static bool open_target(fixture *f, const conformance_target *target, berth_error *err) {
  berth_device_options options = BERTH_DEVICE_OPTIONS_INIT;
  options.name = target->device;
  options.parameters = target->parameters;
  memset(f, 0, sizeof(*f));
  f->target = target;
  if (berthi_device_find(target->device, &f->kind, &f->ordinal, err) != BERTH_OK) return false;
  if (f->kind->limits(f->ordinal, &options, f->identity, &f->limits, err) != BERTH_OK) return false;
  uint32_t lanes = target->lanes != 0 ? target->lanes : f->limits.lanes;
  if (f->kind->open(f->ordinal, &options, lanes, &f->device, &f->startup, err) != BERTH_OK) return false;
  for (uint32_t lane = 0; lane < lanes; lane++) berthi_lanes_set(&f->all_lanes, lane);
  return true;
}

// Each case gets a device of its own: 1 when the result surprises.
static int run_case(size_t index, const conformance_target *target) {
  fixture f;
  berth_error err = BERTH_ERROR_INIT;
  const char *name = cases[index].name;
  uint64_t live = berthi_alloc_live();
  if (!open_target(&f, target, &err)) {
    printf("%s %s: cannot be opened: %s\n", target->device, name, err.message);
    return 1;
  }
  berthi_domain_init(&f.domain, f.device, 0);
  const char *problem = cases[index].run(&f);
  if (problem != NULL) f.kind->reset(&f.domain);
  if (f.kind->close(f.device, false, &err) != BERTH_OK && problem == NULL) problem = "close";
  if (problem == NULL && berthi_alloc_live() != live) problem = "memory is left behind";
  bool expected = listed(target->unsupported, name) || listed(target->expected_failures, name);
  bool surprise = (problem != NULL) != expected;
  const char *verdict = problem == NULL ? (expected ? "passes unexpectedly" : "ok") : (expected ? "fails as expected" : "FAILS");
  printf("%s %s: %s%s%s\n", target->device, name, verdict, problem != NULL ? ": " : "", problem != NULL ? problem : "");
  return surprise ? 1 : 0;
}

int berth_test_conformance(const conformance_target *target) {
  int surprises = 0;
  for (size_t i = 0; i < BERTHI_COUNTOF(cases); i++) surprises += run_case(i, target);
  return surprises;
}
