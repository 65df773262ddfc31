// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated device: host memory, so that a host can use it, within the device's scripted size.
//
// Blocks above 1 MiB are address space only until they are touched, so a device of 1 TiB can be simulated. Under the deterministic
// scheduler a block has at most 4096 bytes behind it, whatever it claims to be; copies stop there.
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/pages.h"
#include "device/sim/sim_internal.h"

#define SIM_RESERVE_ABOVE ((uint64_t)1 << 20)
#define SIM_SCHED_BACKING ((uint64_t)4096)
#define SIM_BLOCK_LIVE 0x5349424cu
#define SIM_BLOCK_DEAD 0xdeadb10cu

typedef struct sim_block {
  struct sim_block *next, *previous;
  berthi_domain *domain;
  uint64_t charged;
  uint64_t backing; ///< bytes that exist behind the block
  uint32_t mark;
  bool mapped;
} sim_block;
#define SIM_HEADER ((uint64_t)64)
_Static_assert(sizeof(sim_block) <= 64, "the header stands in the 64 bytes before its block");

static uint64_t backing_of(uint64_t charged) {
#if defined(BERTHI_SCHED)
  return charged < SIM_SCHED_BACKING ? charged : SIM_SCHED_BACKING;
#else
  return charged;
#endif
}

static sim_block *host_block(uint64_t charged) {
  uint64_t backing = backing_of(charged), total;
  if (!berthi_size_add(backing, SIM_HEADER, &total)) return NULL;
  bool mapped = backing > SIM_RESERVE_ABOVE;
  sim_block *block = mapped ? berthi_pages_map(total, BERTHI_PAGES_RESERVE) : berthi_alloc_raw(total, BERTHI_BLOCK_ALIGN);
  if (block == NULL) return NULL;
  *block = (sim_block){.charged = charged, .backing = backing, .mark = SIM_BLOCK_LIVE, .mapped = mapped};
  return block;
}

static void host_free(sim_block *block) {
  block->mark = SIM_BLOCK_DEAD;
  if (block->mapped)
    berthi_pages_unmap(block, block->backing + SIM_HEADER);
  else
    berthi_free(block);
}

// Takes bytes of the device itself; false when it has not as many.
static bool take_device(sim_device *sim, uint64_t bytes) {
  uint64_t live = berthi_load(&sim->bytes, relaxed);
  do {
    if (live > sim->script.memory || bytes > sim->script.memory - live) return false;
  } while (!berthi_cas(&sim->bytes, &live, live + bytes, acq_rel));
  return true;
}

static void link_block(berthi_domain *domain, sim_block *block) {
  block->domain = domain;
  berthi_mutex_lock(&domain->lock);
  block->next = domain->list;
  if (block->next != NULL) block->next->previous = block;
  domain->list = block;
  berthi_mutex_unlock(&domain->lock);
}

static void count_block(berthi_domain *domain, int64_t blocks, int64_t bytes) {
  sim_device *sim = sim_of(domain->device);
  berthi_stat_add(&domain->blocks, (uint64_t)blocks);
  berthi_stat_add(&sim->blocks, (uint64_t)blocks);
  berthi_stat_add(&sim->control->live_blocks, (uint64_t)blocks);
  berthi_stat_add(&sim->control->live_bytes, (uint64_t)bytes);
}

static bool scripted_failure(sim_device *sim) {
  uint64_t n = berthi_add(&sim->allocs, 1, relaxed) + 1;
  return n == sim->script.fail_alloc || (sim->script.fail_alloc_from != 0 && n >= sim->script.fail_alloc_from);
}

static berth_status alloc_charged(berthi_domain *domain, uint64_t charged, void **out, berth_error *err) {
  sim_device *sim = sim_of(domain->device);
  char text[BERTHI_BYTES_TEXT];
  berthi_bytes_text(charged, text);
  if (scripted_failure(sim)) return berthi_fail(err, BERTHI_R_DEVICE_EXHAUSTED, "%s: %s refused by the script", sim->base.name, text);
  if (!take_device(sim, charged)) {
    char all[BERTHI_BYTES_TEXT];
    return berthi_fail(err, BERTHI_R_DEVICE_EXHAUSTED, "%s: %s asked, the device has %s in all", sim->base.name, text,
                       berthi_bytes_text(sim->script.memory, all));
  }
  sim_block *block = host_block(charged);
  if (block == NULL) {
    berthi_sub(&sim->bytes, charged, acq_rel);
    return berthi_fail(err, BERTHI_R_DEVICE_EXHAUSTED, "%s: the host has no %s behind the simulated device", sim->base.name, text);
  }
  link_block(domain, block);
  count_block(domain, 1, (int64_t)charged);
  *out = (char *)block + SIM_HEADER;
  return BERTH_OK;
}

berth_status berthi_sim_alloc(berthi_domain *domain, uint64_t bytes, void **out, berth_error *err) {
  sim_device *sim = sim_of(domain->device);
  berthi_stat_add(&sim->control->allocs, 1);
  uint64_t charged = berthi_block_bytes(bytes);
  berth_status status = berthi_sim_begin(sim, "alloc", err);
  if (status == BERTH_OK) {
    berthi_sim_delay(sim->script.alloc_latency);
    status = berthi_domain_charge(domain, charged, err);
    if (status == BERTH_OK) {
      status = alloc_charged(domain, charged, out, err);
      if (status != BERTH_OK) berthi_domain_credit(domain, charged);
    }
  }
  if (status != BERTH_OK) berthi_stat_add(&sim->control->alloc_failures, 1);
  return status;
}

// The block is out of the list.
static void release_block(berthi_domain *domain, sim_block *block) {
  sim_device *sim = sim_of(domain->device);
  uint64_t charged = block->charged;
  host_free(block);
  berthi_sub(&sim->bytes, charged, acq_rel);
  count_block(domain, -1, -(int64_t)charged);
  berthi_domain_credit(domain, charged);
}

void berthi_sim_free(berthi_domain *domain, void *memory) {
  if (memory == NULL) return;
  sim_block *block = (sim_block *)(void *)((char *)memory - SIM_HEADER);
  berthi_assert(block->mark == SIM_BLOCK_LIVE, "LED-2: not a live block");
  berthi_assert(block->domain == domain, "LED-2: a block of another execution");
  berthi_stat_add(&sim_of(domain->device)->control->frees, 1);
  berthi_mutex_lock(&domain->lock);
  if (block->previous != NULL)
    block->previous->next = block->next;
  else
    domain->list = block->next;
  if (block->next != NULL) block->next->previous = block->previous;
  berthi_mutex_unlock(&domain->lock);
  release_block(domain, block);
}

void berthi_sim_reset_domain(berthi_domain *domain) {
  berthi_stat_add(&sim_of(domain->device)->control->resets, 1);
  berthi_mutex_lock(&domain->lock);
  sim_block *block = domain->list;
  domain->list = NULL;
  berthi_mutex_unlock(&domain->lock);
  while (block != NULL) {
    sim_block *next = block->next;
    release_block(domain, block);
    block = next;
  }
}

#if defined(BERTHI_SCHED)
// Bytes that may be touched from `at` on: up to the end of the backing of the block that `at` points into.
static uint64_t touchable(berthi_domain *domain, const void *at, uint64_t bytes) {
  berthi_mutex_lock(&domain->lock);
  for (sim_block *block = domain->list; block != NULL; block = block->next) {
    uint64_t offset = (uint64_t)((const char *)at - ((const char *)block + SIM_HEADER));
    if ((const char *)at < (const char *)block + SIM_HEADER || offset >= block->backing) continue;
    if (bytes > block->backing - offset) bytes = block->backing - offset;
    break;
  }
  berthi_mutex_unlock(&domain->lock);
  return bytes;
}
#endif

berth_status berthi_sim_copy(berthi_domain *domain, berthi_copy direction, void *to, const void *from, uint64_t bytes, berth_error *err) {
  sim_device *sim = sim_of(domain->device);
  berthi_stat_add(&sim->control->copies, 1);
  BERTHI_TRY(berthi_sim_begin(sim, "copy", err));
  berthi_sim_delay(sim->script.copy_latency);
  if (berthi_add(&sim->copies, 1, relaxed) + 1 == sim->script.fail_copy)
    return berthi_fail(err, BERTHI_R_DEVICE_FAULT, "%s: copy refused by the script", sim->base.name);
#if defined(BERTHI_SCHED)
  if (direction != BERTHI_COPY_DOWNLOAD) bytes = touchable(domain, to, bytes);
  if (direction != BERTHI_COPY_UPLOAD) bytes = touchable(domain, from, bytes);
#else
  (void)direction;
#endif
  if (bytes > 0) memmove(to, from, bytes);
  return BERTH_OK;
}
