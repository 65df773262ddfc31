// SPDX-License-Identifier: Apache-2.0
// Permuted copy. Rows that are contiguous on both sides are copied as rows. Otherwise the copy goes tile by tile: a tile takes the axes that
// are fastest in the destination and those that are fastest in the source, each until a row fills a few cache lines. Its rows are read along
// the source into a small buffer and written along the destination, so each line of either side is touched once: power-of-two strides, where
// all rows of a tile fall into one cache set, then cost nothing extra.
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/assert.h"
#include "kernels/cpu/elements.h"
#include "kernels/kernels.h"

enum {
  TASK_BYTES = 1 << 20, // bytes a task copies: about 0.2 ms
  ROW_BYTES = 128,      // contiguous rows from here on are copied as rows
  STREAM_BYTES = 4 << 20, // copies above this do not fit into the caches
  MAX_SIDE = 72         // longest side of a tile
};

typedef struct bits256 {
  uint64_t word[4];
} bits256;
typedef struct bits512 {
  uint64_t word[8];
} bits512;

/// An axis of the walk over tiles: whole axes, and the blocks of the two axes that are cut.
typedef struct walk_axis {
  int64_t count;
  int64_t dst_step;
  int64_t src_step;
} walk_axis;

typedef struct copy_job {
  uint32_t size; // of an element after widening
  const char *src;
  char *dst;
  uint32_t walk_rank;
  walk_axis walk[BERTHI_MAX_AXES + 2];
  int64_t tiles;
  int64_t tiles_per_task;
  // Rows form: a tile is a block of one row, cut as side 0 is.
  bool rows;
  // Tile form. Side i runs along the destination, side j along the source; steps are offsets in elements of that place of the side.
  uint32_t sides[2];     // full length of i and j
  uint32_t unit[2];      // elements of the side for one step of its cut axis
  int64_t cut_extent[2]; // extent of the cut axis; 0 when no axis is cut
  int64_t cut_block[2];
  uint32_t cut_axis[2];
  uint32_t cut_walk[2]; // position in walk of its blocks
  int64_t i_dst[MAX_SIDE], i_src[MAX_SIDE];
  int64_t j_dst[MAX_SIDE], j_src[MAX_SIDE];
  bool i_unit, j_unit; // i_dst[i] == i, j_src[j] == j
  bool stream;         // the copy is larger than the caches
} copy_job;

/// Writes a row of a tile: element i is in[i * pitch]. Rows of a large copy bypass the caches where the destination allows it.
#define DEFINE_ROWS(name, type)                                                                                              \
  static void rows_##name(const copy_job *job, uint32_t ni, uint32_t nj, type *dst, const type *buffer) {                     \
    for (uint32_t j = 0; j < nj; j++) {                                                                                       \
      type *row = dst + job->j_dst[j];                                                                                        \
      const type *in = buffer + j;                                                                                            \
      if (job->i_unit) {                                                                                                      \
        for (uint32_t i = 0; i < ni; i++) row[i] = in[(size_t)i * nj];                                                        \
      } else {                                                                                                                \
        for (uint32_t i = 0; i < ni; i++) row[job->i_dst[i]] = in[(size_t)i * nj];                                            \
      }                                                                                                                       \
    }                                                                                                                         \
  }
DEFINE_ROWS(1, uint8_t)
DEFINE_ROWS(2, uint16_t)
DEFINE_ROWS(4, uint32_t)
DEFINE_ROWS(16, berthi_bits128)
DEFINE_ROWS(32, bits256)
DEFINE_ROWS(64, bits512)
DEFINE_ROWS(plain_8, uint64_t)

typedef uint64_t pair64 __attribute__((vector_size(16)));

static inline void put_pair(uint64_t *to, pair64 value, bool stream) {
#if defined(__SSE2__)
  if (stream) {
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)value);
    return;
  }
#endif
  (void)stream;
  memcpy(to, &value, sizeof value);
}

/// Two rows at a time, by squares of two: what most copies of f64 spend their time in.
static void rows_8(const copy_job *job, uint32_t ni, uint32_t nj, uint64_t *dst, const uint64_t *buffer) {
  if (!job->i_unit || ni % 2 != 0 || nj % 2 != 0) {
    rows_plain_8(job, ni, nj, dst, buffer);
    return;
  }
  for (uint32_t j = 0; j < nj; j += 2) {
    uint64_t *first = dst + job->j_dst[j];
    uint64_t *second = dst + job->j_dst[j + 1];
    bool stream = job->stream && (((uintptr_t)first | (uintptr_t)second) & 15) == 0;
    const uint64_t *in = buffer + j;
    for (uint32_t i = 0; i < ni; i += 2) {
      pair64 a, b;
      memcpy(&a, in + (size_t)i * nj, sizeof a);
      memcpy(&b, in + (size_t)(i + 1) * nj, sizeof b);
      put_pair(first + i, __builtin_shufflevector(a, b, 0, 2), stream);
      put_pair(second + i, __builtin_shufflevector(a, b, 1, 3), stream);
    }
  }
}

/// One tile. `ahead` is where the next one starts in the source: its lines are asked for meanwhile.
#define DEFINE_TILE(name, type, side)                                                                                        \
  static void tile_##name(const copy_job *job, uint32_t ni, uint32_t nj, char *dst_bytes, const char *src_bytes,              \
                          const char *ahead) {                                                                                \
    type *restrict dst = (type *)(void *)dst_bytes;                                                                           \
    const type *restrict src = (const type *)(const void *)src_bytes;                                                         \
    const type *next = (const type *)(const void *)ahead;                                                                     \
    if (nj == 1) {                                                                                                            \
      for (uint32_t i = 0; i < ni; i++) dst[job->i_dst[i]] = src[job->i_src[i]];                                              \
      return;                                                                                                                 \
    }                                                                                                                         \
    type buffer[(side) * (side)];                                                                                             \
    for (uint32_t i = 0; i < ni; i++) {                                                                                       \
      const type *row = src + job->i_src[i];                                                                                  \
      type *out = buffer + (size_t)i * nj;                                                                                    \
      if (job->j_unit) {                                                                                                      \
        for (uint32_t j = 0; j < nj; j += 64 / sizeof(type)) __builtin_prefetch(next + job->i_src[i] + j);                    \
        for (uint32_t j = 0; j < nj; j++) out[j] = row[j];                                                                    \
      } else {                                                                                                                \
        for (uint32_t j = 0; j < nj; j++) out[j] = row[job->j_src[j]];                                                        \
      }                                                                                                                       \
    }                                                                                                                         \
    rows_##name(job, ni, nj, dst, buffer);                                                                                    \
  }
DEFINE_TILE(1, uint8_t, 72)
DEFINE_TILE(2, uint16_t, 72)
DEFINE_TILE(4, uint32_t, 72)
DEFINE_TILE(8, uint64_t, 48)
DEFINE_TILE(16, berthi_bits128, 24)
DEFINE_TILE(32, bits256, 24)
DEFINE_TILE(64, bits512, 12)

/// Usual side of a tile for an element size: a few cache lines. It may become half as long again, as DEFINE_TILE says: 20 KiB of buffer.
static uint32_t side_target(uint32_t size) {
  switch (size) {
    case 1:
    case 2:
    case 4: return 48;
    case 8: return 32;
    case 16: return 16;
    case 32: return 16;
    default: return 8;
  }
}

static void run_tile(const copy_job *job, uint32_t ni, uint32_t nj, char *dst, const char *src, const char *ahead) {
  switch (job->size) {
    case 1: tile_1(job, ni, nj, dst, src, ahead); break;
    case 2: tile_2(job, ni, nj, dst, src, ahead); break;
    case 4: tile_4(job, ni, nj, dst, src, ahead); break;
    case 8: tile_8(job, ni, nj, dst, src, ahead); break;
    case 16: tile_16(job, ni, nj, dst, src, ahead); break;
    case 32: tile_32(job, ni, nj, dst, src, ahead); break;
    default: tile_64(job, ni, nj, dst, src, ahead); break;
  }
}

static uint32_t side_length(const copy_job *job, uint32_t side, const int64_t *index) {
  if (job->cut_extent[side] == 0) return job->sides[side];
  int64_t left = job->cut_extent[side] - index[job->cut_walk[side]] * job->cut_block[side];
  if (left > job->cut_block[side]) left = job->cut_block[side];
  return (uint32_t)left * job->unit[side];
}

static void copy_task(void *arg, uint64_t task) {
  const copy_job *job = arg;
  int64_t first = (int64_t)task * job->tiles_per_task;
  int64_t last = first + job->tiles_per_task;
  if (last > job->tiles) last = job->tiles;
  int64_t index[BERTHI_MAX_AXES + 2];
  int64_t dst_at = 0;
  int64_t src_at = 0;
  int64_t rest = first;
  for (uint32_t w = job->walk_rank; w-- > 0;) {
    index[w] = rest % job->walk[w].count;
    rest /= job->walk[w].count;
    dst_at += index[w] * job->walk[w].dst_step;
    src_at += index[w] * job->walk[w].src_step;
  }
  for (int64_t tile = first; tile < last; tile++) {
    char *dst = job->dst + dst_at * job->size;
    const char *src = job->src + src_at * job->size;
    uint32_t ni = side_length(job, 0, index);
    uint32_t nj = side_length(job, 1, index);
    for (uint32_t w = job->walk_rank; w-- > 0;) {
      dst_at += job->walk[w].dst_step;
      src_at += job->walk[w].src_step;
      if (++index[w] < job->walk[w].count) break;
      dst_at -= job->walk[w].count * job->walk[w].dst_step;
      src_at -= job->walk[w].count * job->walk[w].src_step;
      index[w] = 0;
    }
    if (job->rows) {
      memcpy(dst, src, (size_t)ni * job->size);
    } else {
      run_tile(job, ni, nj, dst, src, job->src + src_at * job->size);
    }
  }
#if defined(__SSE2__)
  if (job->stream) _mm_sfence(); // streamed stores are weakly ordered; the task's end has to publish them
#endif
}

static void add_walk(copy_job *job, int64_t count, int64_t dst_step, int64_t src_step) {
  job->walk[job->walk_rank++] = (walk_axis){count, dst_step, src_step};
}

/// Takes an innermost axis that is contiguous on both sides into the element, as far as an element size exists for it.
static uint32_t widen(copy_job *job, berthi_axis *axes, uint32_t rank) {
  if (rank < 2) return rank;
  berthi_axis *inner = &axes[rank - 1];
  if (inner->step[0] != 1 || inner->step[1] != 1) return rank;
  int64_t wide = inner->extent * job->size;
  if (wide > 64 || (wide & (wide - 1)) != 0) return rank;
  for (uint32_t i = 0; i + 1 < rank; i++) {
    if (axes[i].step[0] % inner->extent != 0 || axes[i].step[1] % inner->extent != 0) return rank;
  }
  for (uint32_t i = 0; i + 1 < rank; i++) {
    axes[i].step[0] /= inner->extent;
    axes[i].step[1] /= inner->extent;
  }
  job->size = (uint32_t)wide;
  return rank - 1;
}

/// Adds an axis, or a block of it, to a side of the tile.
static void extend_side(copy_job *job, uint32_t side, const berthi_axis *axis, int64_t block) {
  int64_t *dst = side == 0 ? job->i_dst : job->j_dst;
  int64_t *src = side == 0 ? job->i_src : job->j_src;
  uint32_t length = job->sides[side];
  for (int64_t b = 1; b < block; b++) {
    for (uint32_t p = 0; p < length; p++) {
      dst[(uint32_t)b * length + p] = dst[p] + b * axis->step[0];
      src[(uint32_t)b * length + p] = src[p] + b * axis->step[1];
    }
  }
  job->unit[side] = length;
  job->sides[side] = length * (uint32_t)block;
}

/// Picks the axes of one side, fastest first; `order` lists axes by falling step of that side. Marks them in `taken`.
static void pick_side(copy_job *job, uint32_t side, const berthi_axis *axes, const uint32_t *order, uint32_t rank, bool *taken,
                      int64_t *block_of) {
  uint32_t target = side_target(job->size);
  int64_t reached = 1;
  for (uint32_t r = rank; r-- > 0 && reached < target;) {
    uint32_t a = order[r];
    int64_t extent = axes[a].extent;
    if (taken[a]) {
      reached *= block_of[a];
      continue;
    }
    int64_t block = extent;
    int64_t limit = target * 3 / 2 / job->sides[side];
    if (limit < 2) break;
    if (block > limit) {
      int64_t aim = target / job->sides[side] < 1 ? 1 : target / job->sides[side];
      int64_t blocks = (extent + aim - 1) / aim;
      block = (extent + blocks - 1) / blocks;
    }
    if (block < 2) break;
    extend_side(job, side, &axes[a], block);
    taken[a] = true;
    block_of[a] = block;
    reached *= block;
    if (block < extent) {
      job->cut_extent[side] = extent;
      job->cut_block[side] = block;
      job->cut_axis[side] = a;
      return;
    }
  }
}

static void source_order(const berthi_axis *axes, uint32_t rank, uint32_t *order) {
  for (uint32_t i = 0; i < rank; i++) {
    int64_t step = axes[i].step[1] < 0 ? -axes[i].step[1] : axes[i].step[1];
    uint32_t at = i;
    for (; at > 0; at--) {
      int64_t other = axes[order[at - 1]].step[1];
      if ((other < 0 ? -other : other) >= step) break;
      order[at] = order[at - 1];
    }
    order[at] = i;
  }
}

static void plan_tiles(copy_job *job, const berthi_axis *axes, uint32_t rank) {
  uint32_t dst_order[BERTHI_MAX_AXES] = {0};
  uint32_t src_order[BERTHI_MAX_AXES] = {0};
  bool taken[BERTHI_MAX_AXES] = {false};
  int64_t block_of[BERTHI_MAX_AXES];
  for (uint32_t i = 0; i < rank; i++) {
    dst_order[i] = i;
    block_of[i] = axes[i].extent;
  }
  source_order(axes, rank, src_order);
  job->sides[0] = job->sides[1] = 1;
  job->unit[0] = job->unit[1] = 1;
  pick_side(job, 0, axes, dst_order, rank, taken, block_of);
  pick_side(job, 1, axes, src_order, rank, taken, block_of);
  for (uint32_t i = 0; i < rank; i++) {
    int64_t block = taken[i] ? block_of[i] : 1;
    if (block == axes[i].extent && taken[i]) continue;
    for (uint32_t side = 0; side < 2; side++) {
      if (job->cut_extent[side] != 0 && job->cut_axis[side] == i) job->cut_walk[side] = job->walk_rank;
    }
    add_walk(job, (axes[i].extent + block - 1) / block, block * axes[i].step[0], block * axes[i].step[1]);
  }
  job->i_unit = job->j_unit = true;
  for (uint32_t i = 0; i < job->sides[0]; i++) job->i_unit = job->i_unit && job->i_dst[i] == i;
  for (uint32_t j = 0; j < job->sides[1]; j++) job->j_unit = job->j_unit && job->j_src[j] == j;
}

static void plan_rows(copy_job *job, const berthi_axis *axes, uint32_t rank) {
  const berthi_axis *inner = &axes[rank - 1];
  int64_t block = TASK_BYTES / job->size;
  job->rows = true;
  job->unit[0] = 1;
  for (uint32_t i = 0; i + 1 < rank; i++) add_walk(job, axes[i].extent, axes[i].step[0], axes[i].step[1]);
  if (inner->extent <= block) {
    job->sides[0] = (uint32_t)inner->extent;
    job->sides[1] = 1;
    return;
  }
  job->sides[0] = (uint32_t)block;
  job->sides[1] = 1;
  job->cut_extent[0] = inner->extent;
  job->cut_block[0] = block;
  job->cut_walk[0] = job->walk_rank;
  add_walk(job, (inner->extent + block - 1) / block, block, block);
}

berth_status berthi_cpu_copy(berth_exec *exec, uint32_t size, const berthi_axis *given, uint32_t given_rank, void *dst, const void *src,
                             berth_error *err) {
  uint32_t rank = given_rank;
  berthi_assert(rank <= BERTHI_MAX_AXES, "EXE-4");
  if (berthi_axes_count(given, rank) == 0) return BERTH_OK;
  copy_job job;
  memset(&job, 0, offsetof(copy_job, i_dst)); // the tables behind are filled as far as they are used
  job.size = size;
  job.dst = dst;
  job.src = src;
  job.i_dst[0] = job.i_src[0] = job.j_dst[0] = job.j_src[0] = 0;
  berthi_axis axes[BERTHI_MAX_AXES + 1] = {{.extent = 1}};
  if (rank > 0) memcpy(axes, given, rank * sizeof *axes);
  rank = widen(&job, axes, rank);
  if (rank > 0 && axes[rank - 1].step[0] == 1 && axes[rank - 1].step[1] == 1 && (rank == 1 || axes[rank - 1].extent * job.size >= ROW_BYTES)) {
    plan_rows(&job, axes, rank);
  } else {
    plan_tiles(&job, axes, rank);
  }
  job.stream = berthi_axes_count(given, given_rank) * size > STREAM_BYTES;
  job.tiles = 1;
  for (uint32_t w = 0; w < job.walk_rank; w++) job.tiles *= job.walk[w].count;
  int64_t tile_bytes = (int64_t)job.sides[0] * job.sides[1] * job.size;
  job.tiles_per_task = (TASK_BYTES + tile_bytes - 1) / tile_bytes;
  uint64_t tasks = (uint64_t)((job.tiles + job.tiles_per_task - 1) / job.tiles_per_task);
  if (tasks == 1) {
    copy_task(&job, 0);
    return BERTH_OK;
  }
  return berthi_exec_parallel(exec, tasks, copy_task, &job, err);
}

typedef struct zero_job {
  char *dst;
  uint64_t bytes;
} zero_job;

static void zero_task(void *arg, uint64_t task) {
  const zero_job *job = arg;
  uint64_t first = task * TASK_BYTES;
  uint64_t length = job->bytes - first < TASK_BYTES ? job->bytes - first : TASK_BYTES;
  memset(job->dst + first, 0, length);
}

berth_status berthi_cpu_zero(berth_exec *exec, void *dst, uint64_t bytes, berth_error *err) {
  zero_job job = {dst, bytes};
  uint64_t tasks = (bytes + TASK_BYTES - 1) / TASK_BYTES;
  if (tasks == 0) return BERTH_OK;
  if (tasks == 1) {
    zero_task(&job, 0);
    return BERTH_OK;
  }
  return berthi_exec_parallel(exec, tasks, zero_task, &job, err);
}
