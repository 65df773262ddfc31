// SPDX-License-Identifier: Apache-2.0
// Sums over axes, pairwise. A work item is a strip of up to STRIP neighbouring outputs, or, when there are few outputs and much to sum, one
// output whose terms are cut into at most PARTS parts. Within an item the terms are taken in blocks of LEAF; sums of blocks combine as the
// carries of a binary counter do, which is a balanced tree with a short stack. Every cut depends on the shape alone (EXE-4).
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "kernels/cpu/elements.h"
#include "kernels/kernels.h"

enum {
  STRIP = 32,
  LEAF = 128,
  LEVELS = 48,
  PARTS = 128,
  TASK_ELEMENTS = 1 << 17,
  SPLIT_ALWAYS = 1 << 22 // elements of one item from which its terms are split, so that a cancel is seen
};

typedef struct reduce_job reduce_job;
/// Sums terms [first, last) for `width` outputs into `out`; `src` is the first output's element with all summed indices 0.
typedef void (*strip_fn)(const reduce_job *job, int64_t first, int64_t last, uint32_t width, const char *src, void *out);
/// Adds `count` rows of `width` values pairwise into the first row.
typedef void (*fold_fn)(void *values, uint32_t count, uint32_t width);

struct reduce_job {
  const berthi_reduce *reduce;
  strip_fn strip;
  fold_fn fold;
  size_t size;
  char *dst;
  const char *src;
  berthi_axis inner; // fastest kept axis, the strip's
  int64_t strip_width;
  int64_t strips; // along inner
  int64_t items;
  int64_t items_per_task;
  int64_t terms;
  int64_t parts;
  int64_t terms_per_part;
  uint32_t part_width; // of the item that is split
  char *partial;       // a row of part_width sums for each part
};

/// Position of the summed axes: an odometer with its offset.
typedef struct cursor {
  int64_t index[BERTHI_MAX_AXES];
  int64_t at;
} cursor;

static void cursor_set(const berthi_reduce *reduce, int64_t term, cursor *cur) {
  cur->at = 0;
  for (uint32_t i = reduce->summed_rank; i-- > 0;) {
    cur->index[i] = term % reduce->summed[i].extent;
    term /= reduce->summed[i].extent;
    cur->at += cur->index[i] * reduce->summed[i].step[1];
  }
}

/// Steps over `run` terms of the innermost axis, which it does not leave before its end.
static void cursor_advance(const berthi_reduce *reduce, int64_t run, cursor *cur) {
  uint32_t i = reduce->summed_rank - 1;
  cur->index[i] += run;
  cur->at += run * reduce->summed[i].step[1];
  while (cur->index[i] == reduce->summed[i].extent) {
    cur->at -= reduce->summed[i].extent * reduce->summed[i].step[1];
    cur->index[i] = 0;
    if (i == 0) return;
    i--;
    cur->index[i]++;
    cur->at += reduce->summed[i].step[1];
  }
}

#define DEFINE_REDUCE(name, constant)                                                                                                     \
  /* Adds a run of terms of one output to eight lanes, which is what the hardware adds at once. */                                        \
  static void run_##name(const berthi_##name *src, int64_t step, int64_t count, berthi_##name lanes[8]) {                                 \
    int64_t i = 0;                                                                                                                        \
    if (step == 1) {                                                                                                                      \
      for (; i + 8 <= count; i += 8) {                                                                                                    \
        for (int l = 0; l < 8; l++) lanes[l] = berthi_add_##name(lanes[l], src[i + l]);                                                   \
      }                                                                                                                                   \
    } else {                                                                                                                              \
      for (; i + 8 <= count; i += 8) {                                                                                                    \
        for (int l = 0; l < 8; l++) lanes[l] = berthi_add_##name(lanes[l], src[(i + l) * step]);                                          \
      }                                                                                                                                   \
    }                                                                                                                                     \
    for (; i < count; i++) lanes[i & 7] = berthi_add_##name(lanes[i & 7], src[i * step]);                                                 \
  }                                                                                                                                       \
  static void fold_##name(void *values, uint32_t count, uint32_t width) {                                                                 \
    berthi_##name *v = values;                                                                                                            \
    for (uint32_t gap = 1; gap < count; gap *= 2) {                                                                                       \
      for (uint32_t i = 0; i + gap < count; i += 2 * gap) {                                                                               \
        for (uint32_t w = 0; w < width; w++) v[i * width + w] = berthi_add_##name(v[i * width + w], v[(i + gap) * width + w]);            \
      }                                                                                                                                   \
    }                                                                                                                                     \
  }                                                                                                                                       \
  static void leaf_##name(const reduce_job *job, cursor *cur, int64_t count, uint32_t width, const berthi_##name *src,                    \
                          berthi_##name *sum) {                                                                                           \
    const berthi_reduce *reduce = job->reduce;                                                                                            \
    const berthi_axis *axis = &reduce->summed[reduce->summed_rank - 1];                                                                   \
    berthi_##name lanes[8];                                                                                                               \
    memset(lanes, 0, sizeof lanes);                                                                                                       \
    memset(sum, 0, width * sizeof *sum);                                                                                                  \
    while (count > 0) {                                                                                                                   \
      int64_t run = axis->extent - cur->index[reduce->summed_rank - 1];                                                                   \
      if (run > count) run = count;                                                                                                       \
      const berthi_##name *from = src + cur->at;                                                                                          \
      if (width == 1) {                                                                                                                   \
        run_##name(from, axis->step[1], run, lanes);                                                                                      \
      } else if (job->inner.step[1] == 1) {                                                                                               \
        for (int64_t t = 0; t < run; t++) {                                                                                               \
          const berthi_##name *row = from + t * axis->step[1];                                                                            \
          for (uint32_t w = 0; w < width; w++) sum[w] = berthi_add_##name(sum[w], row[w]);                                                \
        }                                                                                                                                 \
      } else {                                                                                                                            \
        for (int64_t t = 0; t < run; t++) {                                                                                               \
          const berthi_##name *row = from + t * axis->step[1];                                                                            \
          for (uint32_t w = 0; w < width; w++) sum[w] = berthi_add_##name(sum[w], row[w * job->inner.step[1]]);                           \
        }                                                                                                                                 \
      }                                                                                                                                   \
      cursor_advance(reduce, run, cur);                                                                                                   \
      count -= run;                                                                                                                       \
    }                                                                                                                                     \
    if (width == 1) {                                                                                                                     \
      fold_##name(lanes, 8, 1);                                                                                                            \
      sum[0] = lanes[0];                                                                                                                  \
    }                                                                                                                                     \
  }                                                                                                                                       \
  static void strip_##name(const reduce_job *job, int64_t first, int64_t last, uint32_t width, const char *src_at, void *out) {           \
    const berthi_##name *src = (const berthi_##name *)(const void *)src_at;                                                               \
    berthi_##name stack[LEVELS][STRIP];                                                                                                   \
    uint64_t blocks = 0; /* bit l set: stack[l] holds the sum of 2^l blocks */                                                            \
    int64_t leaf = width == 1 ? 8 * LEAF : LEAF;                                                                                          \
    cursor cur;                                                                                                                           \
    cursor_set(job->reduce, first, &cur);                                                                                                 \
    for (int64_t term = first; term < last; term += leaf) {                                                                               \
      berthi_##name sum[STRIP];                                                                                                           \
      leaf_##name(job, &cur, last - term < leaf ? last - term : leaf, width, src, sum);                                                   \
      uint32_t level = 0;                                                                                                                 \
      for (; (blocks >> level) & 1; level++) {                                                                                            \
        for (uint32_t w = 0; w < width; w++) sum[w] = berthi_add_##name(stack[level][w], sum[w]);                                         \
      }                                                                                                                                   \
      memcpy(stack[level], sum, width * sizeof *sum);                                                                                     \
      blocks++;                                                                                                                           \
    }                                                                                                                                     \
    berthi_##name *result = out;                                                                                                          \
    memset(result, 0, width * sizeof *result);                                                                                            \
    for (uint32_t level = 0; level < LEVELS; level++) {                                                                                   \
      if (((blocks >> level) & 1) == 0) continue;                                                                                         \
      for (uint32_t w = 0; w < width; w++) result[w] = berthi_add_##name(stack[level][w], result[w]);                                     \
    }                                                                                                                                     \
  }
BERTHI_FOR_ELEMENTS(DEFINE_REDUCE)

static void pick_functions(reduce_job *job) {
  switch (job->reduce->dtype) {
#define CASE(name, constant)   \
  case constant:               \
    job->strip = strip_##name; \
    job->fold = fold_##name;   \
    break;
    BERTHI_FOR_ELEMENTS(CASE)
#undef CASE
    default: break;
  }
}

/// Offsets of an item's first output, and the number of outputs in it.
static uint32_t item_at(const reduce_job *job, int64_t item, int64_t *dst_at, int64_t *src_at) {
  const berthi_reduce *reduce = job->reduce;
  int64_t strip = item % job->strips;
  int64_t rest = item / job->strips;
  int64_t left = job->inner.extent - strip * job->strip_width;
  *dst_at = strip * job->strip_width * job->inner.step[0];
  *src_at = strip * job->strip_width * job->inner.step[1];
  for (uint32_t i = reduce->kept_rank; i-- > 1;) {
    const berthi_axis *axis = &reduce->kept[i - 1];
    *dst_at += rest % axis->extent * axis->step[0];
    *src_at += rest % axis->extent * axis->step[1];
    rest /= axis->extent;
  }
  return (uint32_t)(left < job->strip_width ? left : job->strip_width);
}

static void put(const reduce_job *job, int64_t dst_at, uint32_t width, const char *values) {
  for (uint32_t w = 0; w < width; w++) {
    memcpy(job->dst + (dst_at + w * job->inner.step[0]) * (int64_t)job->size, values + w * job->size, job->size);
  }
}

static void reduce_task(void *arg, uint64_t task) {
  const reduce_job *job = arg;
  int64_t first = (int64_t)task * job->items_per_task;
  int64_t last = first + job->items_per_task < job->items ? first + job->items_per_task : job->items;
  for (int64_t item = first; item < last; item++) {
    berthi_c128 values[STRIP];
    int64_t dst_at;
    int64_t src_at;
    uint32_t width = item_at(job, item, &dst_at, &src_at);
    job->strip(job, 0, job->terms, width, job->src + src_at * (int64_t)job->size, values);
    put(job, dst_at, width, (const char *)values);
  }
}

static void part_task(void *arg, uint64_t part) {
  const reduce_job *job = arg;
  int64_t first = (int64_t)part * job->terms_per_part;
  int64_t last = first + job->terms_per_part < job->terms ? first + job->terms_per_part : job->terms;
  job->strip(job, first, last, job->part_width, job->src, job->partial + part * job->part_width * job->size);
}

/// Few items with many terms each: one item after the other, its parts in parallel.
static berth_status reduce_split(berth_exec *exec, const reduce_job *whole, berth_error *err) {
  berthi_c128 partial[PARTS * STRIP];
  for (int64_t item = 0; item < whole->items; item++) {
    reduce_job job = *whole;
    int64_t dst_at;
    int64_t src_at;
    job.partial = (char *)partial;
    job.part_width = item_at(whole, item, &dst_at, &src_at);
    job.src += src_at * (int64_t)job.size;
    BERTHI_TRY(berthi_exec_parallel(exec, (uint64_t)job.parts, part_task, &job, err));
    job.fold(partial, (uint32_t)job.parts, job.part_width);
    put(&job, dst_at, job.part_width, job.partial);
  }
  return BERTH_OK;
}

berth_status berthi_cpu_reduce(berth_exec *exec, const berthi_reduce *reduce, void *dst, const void *src, berth_error *err) {
  static const berthi_axis none = {.extent = 1};
  berthi_assert(berthi_cpu_supports(reduce->dtype) && reduce->summed_rank > 0, "NUM-1");
  reduce_job job = {.reduce = reduce, .dst = dst, .src = src, .size = berth_dtype_size(reduce->dtype)};
  pick_functions(&job);
  job.inner = reduce->kept_rank > 0 ? reduce->kept[reduce->kept_rank - 1] : none;
  job.terms = berthi_axes_count(reduce->summed, reduce->summed_rank);
  int64_t outputs = berthi_axes_count(reduce->kept, reduce->kept_rank);
  if (outputs == 0) return BERTH_OK;
  bool along_terms = reduce->summed[reduce->summed_rank - 1].step[1] == 1;
  // Long rows are summed one by one, along the row; else neighbouring outputs go together.
  job.strip_width = along_terms && job.terms >= 64 ? 1 : STRIP;
  job.strips = (job.inner.extent + job.strip_width - 1) / job.strip_width;
  job.items = job.strips * (outputs / job.inner.extent);
  int64_t width = job.inner.extent < job.strip_width ? job.inner.extent : job.strip_width;
  int64_t work = width * job.terms;
  if (work >= SPLIT_ALWAYS || (work >= 2 * TASK_ELEMENTS && job.items < 16)) {
    job.terms_per_part = (job.terms + PARTS - 1) / PARTS;
    if (job.terms_per_part < TASK_ELEMENTS / width) job.terms_per_part = TASK_ELEMENTS / width;
    job.parts = (job.terms + job.terms_per_part - 1) / job.terms_per_part;
    return reduce_split(exec, &job, err);
  }
  job.items_per_task = (TASK_ELEMENTS + work - 1) / work;
  uint64_t tasks = (uint64_t)((job.items + job.items_per_task - 1) / job.items_per_task);
  if (tasks == 1) {
    reduce_task(&job, 0);
    return BERTH_OK;
  }
  return berthi_exec_parallel(exec, tasks, reduce_task, &job, err);
}
