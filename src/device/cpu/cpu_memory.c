// SPDX-License-Identifier: Apache-2.0
// Memory of one execution on the cpu: 64-byte aligned blocks, charged to the grant in units of 64 bytes.
//
// A block has its header in the 64 bytes before it. An execution that allocates gets an arena from the device's store at its first block and
// gives it back when it is reset. What is freed can stay for reuse:
//   small blocks  in the arena, also from one execution to the next, so that the usual tiny operation touches no allocator. Bounded by
//                 SPARE_MAX an arena and not charged: see README, Known limits.
//   whole pages   (2 MiB and more) in the execution, as long as used + kept stays within its grant (`domain->kept`). New pages cost a fault
//                 each, which for a temporary array is more than the work on it.
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/cpu/cpu_internal.h"
#include "device/domain_locked.h"
#include "device/pages.h"

#define HEADER ((uint64_t)64)
#define SMALL_MAX ((uint64_t)4096)
#define SMALL_CLASSES (SMALL_MAX / BERTHI_BLOCK_ALIGN)
#define PAGES_FROM ((uint64_t)2 << 20)
#if defined(BERTHI_ASAN)
#define SPARE_MAX ((uint64_t)0) // every block comes from and returns to the allocator that checks it
#define KEPT_BLOCKS_MAX 0u
#else
#define SPARE_MAX ((uint64_t)128 << 10)
#define KEPT_BLOCKS_MAX 16u
#endif
#define KEPT_SLACK ((uint64_t)64 << 10)
#define IDLE_ARENAS_MAX 64u
#define LIVE 0x6c697665u
#define DEAD 0x64656164u

typedef struct cpu_block {
  struct cpu_block *next, *previous;
  const berthi_domain *domain;
  uint64_t charged;
  uint64_t mapped; ///< bytes of the mapping; 0: from the allocator
  uint32_t mark;
} cpu_block;
_Static_assert(sizeof(cpu_block) <= 64, "the header stands in the 64 bytes before its block");

// Under the lock of the domain that holds it; in the store, under the store's.
struct cpu_arena {
  cpu_arena *next;
  cpu_block *live;
  uint64_t spare_bytes;
  cpu_block *spare[SMALL_CLASSES]; ///< by size, linked by `next`
  cpu_block *kept;                 ///< whole pages, linked by `next`, the newest first; `domain->kept` is the sum of their mappings
  uint32_t kept_count;
};

static uint32_t class_of(uint64_t charged) { return (uint32_t)(charged / BERTHI_BLOCK_ALIGN - 1); }
static void *memory_of(cpu_block *block) { return (char *)block + HEADER; }

static cpu_block *host_block(uint64_t charged) {
  uint64_t total;
  if (!berthi_size_add(charged, HEADER, &total) || total > SIZE_MAX / 2) return NULL;
  bool pages = charged >= PAGES_FROM;
  cpu_block *block = pages ? berthi_pages_map(total, BERTHI_PAGES_HUGE) : berthi_alloc_raw(total, BERTHI_BLOCK_ALIGN);
  if (block == NULL) return NULL;
  block->mapped = pages ? total : 0;
  return block;
}

static void host_free(cpu_block *block) {
  if (block->mapped > 0)
    berthi_pages_unmap(block, block->mapped);
  else
    berthi_free(block);
}

// Frees a list that is linked by `next`.
static void host_free_list(cpu_block *block) {
  while (block != NULL) {
    cpu_block *next = block->next;
    host_free(block);
    block = next;
  }
}

// The store of arenas.

void berthi_store_init(cpu_store *store) {
  berthi_mutex_init(&store->lock, BERTHI_RANK_DEVICE);
  store->idle = NULL;
  store->idle_count = 0;
  store->used_count = 0;
}

static void free_arena(cpu_arena *arena) {
  for (uint32_t i = 0; i < SMALL_CLASSES && arena->spare_bytes > 0; i++) host_free_list(arena->spare[i]);
  berthi_free(arena);
}

void berthi_store_close(cpu_store *store) {
  while (store->idle != NULL) {
    cpu_arena *arena = store->idle;
    store->idle = arena->next;
    free_arena(arena);
  }
}

bool berthi_store_busy(cpu_store *store) {
  berthi_mutex_lock(&store->lock);
  bool busy = store->used_count > 0;
  berthi_mutex_unlock(&store->lock);
  return busy;
}

static cpu_arena *take_arena(cpu_store *store) {
  berthi_mutex_lock(&store->lock);
  cpu_arena *arena = store->idle;
  if (arena != NULL) {
    store->idle = arena->next;
    store->idle_count--;
  }
  store->used_count++;
  berthi_mutex_unlock(&store->lock);
  if (arena == NULL) arena = berthi_alloc(sizeof(*arena));
  if (arena != NULL) return arena;
  berthi_mutex_lock(&store->lock);
  store->used_count--;
  berthi_mutex_unlock(&store->lock);
  return NULL;
}

static void give_arena(cpu_store *store, cpu_arena *arena) {
  berthi_mutex_lock(&store->lock);
  store->used_count--;
  bool keep = store->idle_count < IDLE_ARENAS_MAX;
  if (keep) {
    arena->next = store->idle;
    store->idle = arena;
    store->idle_count++;
  }
  berthi_mutex_unlock(&store->lock);
  if (!keep) free_arena(arena);
}

// Blocks of a domain.

static void link_live(berthi_domain *domain, cpu_arena *arena, cpu_block *block, uint64_t charged) BERTHI_REQUIRES(domain->lock) {
  block->domain = domain;
  block->charged = charged;
  block->mark = LIVE;
  block->previous = NULL;
  block->next = arena->live;
  if (block->next != NULL) block->next->previous = block;
  arena->live = block;
  berthi_stat_store(&domain->blocks, berthi_stat_load(&domain->blocks) + 1);
}

static void unlink_live(berthi_domain *domain, cpu_arena *arena, cpu_block *block) BERTHI_REQUIRES(domain->lock) {
  if (block->previous != NULL)
    block->previous->next = block->next;
  else
    arena->live = block->next;
  if (block->next != NULL) block->next->previous = block->previous;
  block->mark = DEAD;
  berthi_stat_store(&domain->blocks, berthi_stat_load(&domain->blocks) - 1);
}

static cpu_block *pop_spare(cpu_arena *arena, uint64_t charged) {
  cpu_block *block = arena->spare[class_of(charged)];
  if (block == NULL) return NULL;
  arena->spare[class_of(charged)] = block->next;
  arena->spare_bytes -= charged + HEADER;
  return block;
}

// A mapping that is a little longer will do; what is beyond the block is not charged, so it stays little.
static cpu_block *pop_kept(berthi_domain *domain, cpu_arena *arena, uint64_t charged) BERTHI_REQUIRES(domain->lock) {
  uint64_t least = charged + HEADER, most = least + KEPT_SLACK;
  for (cpu_block **at = &arena->kept; *at != NULL; at = &(*at)->next) {
    cpu_block *block = *at;
    if (block->mapped < least || block->mapped > most) continue;
    *at = block->next;
    arena->kept_count--;
    domain->kept -= block->mapped;
    return block;
  }
  return NULL;
}

static bool push_spare(cpu_arena *arena, cpu_block *block) {
  if (block->charged > SMALL_MAX || arena->spare_bytes + block->charged + HEADER > SPARE_MAX) return false;
  cpu_block **head = &arena->spare[class_of(block->charged)];
  block->next = *head;
  *head = block;
  arena->spare_bytes += block->charged + HEADER;
  return true;
}

static bool push_kept(berthi_domain *domain, cpu_arena *arena, cpu_block *block) BERTHI_REQUIRES(domain->lock) {
  if (block->mapped == 0 || arena->kept_count + 1 > KEPT_BLOCKS_MAX) return false;
  uint64_t room = berthi_domain_room_locked(domain);
  if (domain->kept > room || block->mapped > room - domain->kept) return false;
  block->next = arena->kept;
  arena->kept = block;
  arena->kept_count++;
  domain->kept += block->mapped;
  return true;
}

// Takes the oldest kept blocks out until what stays fits in the grant; they are freed without the lock.
static cpu_block *detach_kept(berthi_domain *domain) BERTHI_REQUIRES(domain->lock) {
  cpu_arena *arena = domain->list;
  uint64_t room = berthi_domain_room_locked(domain), stays = 0;
  if (arena == NULL || domain->kept <= room) return NULL;
  cpu_block **at = &arena->kept;
  uint32_t count = 0;
  for (; *at != NULL && (*at)->mapped <= room - stays; at = &(*at)->next) {
    stays += (*at)->mapped;
    count++;
  }
  cpu_block *gone = *at;
  *at = NULL;
  arena->kept_count = count;
  domain->kept = stays;
  return gone;
}

void berthi_cpu_trim(berthi_domain *domain) {
  berthi_mutex_lock(&domain->lock);
  cpu_block *gone = detach_kept(domain);
  berthi_mutex_unlock(&domain->lock);
  host_free_list(gone);
}

static cpu_block *reuse(berthi_domain *domain, uint64_t charged) BERTHI_REQUIRES(domain->lock) {
  cpu_arena *arena = domain->list;
  if (arena == NULL) return NULL;
  cpu_block *block = NULL;
  if (charged <= SMALL_MAX)
    block = pop_spare(arena, charged);
  else if (charged >= PAGES_FROM && arena->kept != NULL)
    block = pop_kept(domain, arena, charged);
  if (block != NULL) link_live(domain, arena, block, charged);
  return block;
}

// Gives the domain an arena, unless another thread of the execution was faster, and looks into it. False: no memory for one.
static bool bring_arena(berthi_domain *domain, uint64_t charged, cpu_block **out) {
  cpu_store *store = &cpu_of(domain->device)->store;
  cpu_arena *arena = take_arena(store);
  if (arena == NULL) return false;
  berthi_mutex_lock(&domain->lock);
  bool late = domain->list != NULL;
  if (!late) domain->list = arena;
  *out = reuse(domain, charged);
  berthi_mutex_unlock(&domain->lock);
  if (late) give_arena(store, arena);
  return true;
}

// The bytes are charged, and the arena, if there was one, had no block.
static cpu_block *new_block(berthi_domain *domain, uint64_t charged, bool has_arena) {
  cpu_block *block = NULL;
  if (!has_arena && !bring_arena(domain, charged, &block)) return NULL;
  if (block != NULL) return block;
  block = host_block(charged);
  if (block == NULL) return NULL;
  berthi_mutex_lock(&domain->lock);
  link_live(domain, domain->list, block, charged);
  berthi_mutex_unlock(&domain->lock);
  return block;
}

static BERTHI_COLD berth_status fail_host(berthi_domain *domain, uint64_t charged, berth_error *err) {
  char text[BERTHI_BYTES_TEXT];
  berthi_domain_credit(domain, charged);
  return berthi_fail(err, BERTHI_R_DEVICE_EXHAUSTED, "%s: the system has no %s for a block inside the grant", domain->device->name,
                     berthi_bytes_text(charged, text));
}

berth_status berthi_cpu_alloc(berthi_domain *domain, uint64_t bytes, void **out, berth_error *err) {
  uint64_t charged = berthi_block_bytes(bytes);
  berthi_mutex_lock(&domain->lock);
  bool fits = berthi_domain_charge_locked(domain, charged);
  bool has_arena = domain->list != NULL;
  cpu_block *block = fits ? reuse(domain, charged) : NULL;
  cpu_block *gone = BERTHI_UNLIKELY(domain->kept > 0) ? detach_kept(domain) : NULL;
  berthi_mutex_unlock(&domain->lock);
  if (BERTHI_UNLIKELY(gone != NULL)) host_free_list(gone);
  if (BERTHI_UNLIKELY(!fits)) return berthi_domain_refuse(domain, charged, err);
  if (BERTHI_UNLIKELY(block == NULL)) {
    block = new_block(domain, charged, has_arena);
    if (block == NULL) return fail_host(domain, charged, err);
  }
  *out = memory_of(block);
  return BERTH_OK;
}

void berthi_cpu_free(berthi_domain *domain, void *memory) {
  if (memory == NULL) return;
  cpu_block *block = (cpu_block *)(void *)((char *)memory - HEADER);
  berthi_assert(((uintptr_t)memory & (BERTHI_BLOCK_ALIGN - 1)) == 0 && block->mark == LIVE, "LED-2: not a live block");
  berthi_assert(block->domain == domain, "LED-2: a block of another execution");
  berthi_mutex_lock(&domain->lock);
  cpu_arena *arena = domain->list;
  unlink_live(domain, arena, block);
  berthi_domain_credit_locked(domain, block->charged);
  bool stays = push_spare(arena, block) || push_kept(domain, arena, block);
  berthi_mutex_unlock(&domain->lock);
  if (!stays) host_free(block);
}

void berthi_cpu_reset(berthi_domain *domain) {
  if (domain->list == NULL) return; // never allocated; children have ended, so nobody is about to
  berthi_mutex_lock(&domain->lock);
  cpu_arena *arena = domain->list;
  domain->list = NULL;
  domain->kept = 0;
  berthi_stat_store(&domain->blocks, 0);
  berthi_mutex_unlock(&domain->lock);
  uint64_t credited = 0;
  for (cpu_block *block = arena->live; block != NULL;) {
    cpu_block *next = block->next;
    credited += block->charged;
    block->mark = DEAD;
    if (!push_spare(arena, block)) host_free(block);
    block = next;
  }
  host_free_list(arena->kept);
  arena->kept = NULL;
  arena->kept_count = 0;
  arena->live = NULL;
  give_arena(&cpu_of(domain->device)->store, arena);
  if (credited > 0) berthi_domain_credit(domain, credited);
}
