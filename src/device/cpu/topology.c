// SPDX-License-Identifier: Apache-2.0
// The order in which lanes take CPUs: the first hardware thread of every core, then the second of every core, and so on, so that few lanes
// get whole cores. What hwloc says is checked against the kernel's mask: files of its own or of a container can make it wrong.
#include <hwloc.h>

#include "device/cpu/cpu_internal.h"

typedef struct order {
  const cpu_set *allowed;
  cpu_set taken;
  int *out;
  uint32_t count, capacity;
} order;

static void take(order *o, uint32_t cpu) {
  if (o->count >= o->capacity || !cpu_set_test(o->allowed, cpu) || cpu_set_test(&o->taken, cpu)) return;
  if (!berthi_cpu_set_add(&o->taken, cpu)) return;
  o->out[o->count++] = (int)cpu;
}

// The allowed CPU that is the nth (from 0) of those of the core, or -1.
static int nth_of_core(const order *o, hwloc_obj_t core, uint32_t nth) {
  int cpu = -1;
  while ((cpu = hwloc_bitmap_next(core->cpuset, cpu)) >= 0) {
    if (cpu_set_test(o->allowed, (uint32_t)cpu) && nth-- == 0) return cpu;
  }
  return -1;
}

static void take_by_core(order *o, hwloc_topology_t topology) {
  bool more = true;
  for (uint32_t nth = 0; more; nth++) {
    more = false;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
      int cpu = core->cpuset != NULL ? nth_of_core(o, core, nth) : -1;
      if (cpu < 0) continue;
      take(o, (uint32_t)cpu);
      more = true;
    }
  }
}

static void ask_hwloc(order *o, const char *synthetic) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return;
  bool ok = synthetic == NULL || hwloc_topology_set_synthetic(topology, synthetic) == 0;
  // Caches, devices and memory are of no use here and cost most of the load.
  if (ok)
    ok = hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0;
  if (ok && hwloc_topology_load(topology) == 0) take_by_core(o, topology);
  hwloc_topology_destroy(topology);
}

uint32_t berthi_topology_order(const cpu_set *allowed, const char *synthetic, int *out, uint32_t capacity) {
  order o = {.allowed = allowed, .out = out, .capacity = capacity};
  ask_hwloc(&o, synthetic);
  for (uint32_t cpu = 0; cpu < allowed->words * 64; cpu++) take(&o, cpu); // what hwloc did not name, in the mask's order
  berthi_cpu_set_free(&o.taken);
  return o.count;
}
