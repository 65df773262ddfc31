// SPDX-License-Identifier: Apache-2.0
// Elementwise and outer products over one loop nest. The two innermost loops are a tile: the destination's fastest axis, and the axis that is
// fastest in an operand when that is another one (a transposed operand), so that lines of both stay in cache while they are used.
#include <string.h>

#include "base/assert.h"
#include "kernels/cpu/elements.h"
#include "kernels/kernels.h"

enum {
  TASK_ELEMENTS = 1 << 17, // elements of a task: a fraction of a millisecond
  TILE_ROWS = 16,
  TILE_COLUMNS = 256
};

typedef struct multiply_job multiply_job;
typedef void (*tile_fn)(const multiply_job *job, int64_t rows, int64_t columns, char *dst, const char *a, const char *b);

struct multiply_job {
  tile_fn tile;
  size_t size;
  char *dst;
  const char *a;
  const char *b;
  berthi_axis row;    // axis of the tile's rows; extent 1 when there is none
  berthi_axis column; // the destination's fastest axis
  int64_t row_block, column_block;
  uint32_t walk_rank;
  berthi_axis walk[BERTHI_MAX_AXES + 2]; // outer axes, then blocks of rows, then blocks of columns
  int64_t tiles;
  int64_t tiles_per_task;
};

#define DEFINE_TILE(name, constant)                                                                                                   \
  static void tile_##name(const multiply_job *job, int64_t rows, int64_t columns, char *dst_at, const char *a_at, const char *b_at) {  \
    const berthi_axis *column = &job->column;                                                                                         \
    int64_t sd = column->step[0], sa = column->step[1], sb = column->step[2];                                                         \
    for (int64_t r = 0; r < rows; r++) {                                                                                              \
      berthi_##name *restrict dst = (berthi_##name *)(void *)dst_at + r * job->row.step[0];                                           \
      const berthi_##name *a = (const berthi_##name *)(const void *)a_at + r * job->row.step[1];                                      \
      const berthi_##name *b = (const berthi_##name *)(const void *)b_at + r * job->row.step[2];                                      \
      if (sd == 1 && sa == 1 && sb == 1) {                                                                                            \
        for (int64_t i = 0; i < columns; i++) dst[i] = berthi_mul_##name(a[i], b[i]);                                                 \
      } else if (sd == 1 && sa == 1 && sb == 0) {                                                                                     \
        for (int64_t i = 0; i < columns; i++) dst[i] = berthi_mul_##name(a[i], b[0]);                                                 \
      } else if (sd == 1 && sa == 0 && sb == 1) {                                                                                     \
        for (int64_t i = 0; i < columns; i++) dst[i] = berthi_mul_##name(a[0], b[i]);                                                 \
      } else {                                                                                                                        \
        for (int64_t i = 0; i < columns; i++) dst[i * sd] = berthi_mul_##name(a[i * sa], b[i * sb]);                                  \
      }                                                                                                                               \
    }                                                                                                                                 \
  }
BERTHI_FOR_ELEMENTS(DEFINE_TILE)

static tile_fn tile_of(berth_dtype dtype) {
  switch (dtype) {
#define CASE(name, constant) \
  case constant: return tile_##name;
    BERTHI_FOR_ELEMENTS(CASE)
#undef CASE
    default: return NULL;
  }
}

static void step_walk(const multiply_job *job, int64_t *index, int64_t at[3]) {
  for (uint32_t w = job->walk_rank; w-- > 0;) {
    for (int i = 0; i < 3; i++) at[i] += job->walk[w].step[i];
    if (++index[w] < job->walk[w].extent) return;
    for (int i = 0; i < 3; i++) at[i] -= job->walk[w].extent * job->walk[w].step[i];
    index[w] = 0;
  }
}

static int64_t block_length(const berthi_axis *axis, int64_t block, int64_t index) {
  int64_t left = axis->extent - index * block;
  return left < block ? left : block;
}

static void multiply_task(void *arg, uint64_t task) {
  const multiply_job *job = arg;
  int64_t first = (int64_t)task * job->tiles_per_task;
  int64_t last = first + job->tiles_per_task < job->tiles ? first + job->tiles_per_task : job->tiles;
  int64_t index[BERTHI_MAX_AXES + 2];
  int64_t at[3] = {0, 0, 0};
  int64_t rest = first;
  for (uint32_t w = job->walk_rank; w-- > 0;) {
    index[w] = rest % job->walk[w].extent;
    rest /= job->walk[w].extent;
    for (int i = 0; i < 3; i++) at[i] += index[w] * job->walk[w].step[i];
  }
  for (int64_t tile = first; tile < last; tile++) {
    int64_t rows = block_length(&job->row, job->row_block, index[job->walk_rank - 2]);
    int64_t columns = block_length(&job->column, job->column_block, index[job->walk_rank - 1]);
    job->tile(job, rows, columns, job->dst + at[0] * (int64_t)job->size, job->a + at[1] * (int64_t)job->size,
              job->b + at[2] * (int64_t)job->size);
    step_walk(job, index, at);
  }
}

static int64_t magnitude(int64_t value) {
  return value < 0 ? -value : value;
}

/// The axis for the tile's rows: the fastest of an operand that does not run along the columns, else the one outside the columns.
static uint32_t pick_row(const berthi_axis *axes, uint32_t rank) {
  const berthi_axis *column = &axes[rank - 1];
  for (uint32_t operand = 1; operand < 3; operand++) {
    if (magnitude(column->step[operand]) <= 1) continue;
    uint32_t best = rank - 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
      int64_t step = magnitude(axes[i].step[operand]);
      if (step != 0 && step < magnitude(axes[best].step[operand])) best = i;
    }
    if (best != rank - 1) return best;
  }
  return rank - 2;
}

static void add_blocks(multiply_job *job, const berthi_axis *axis, int64_t block) {
  berthi_axis *walk = &job->walk[job->walk_rank++];
  walk->extent = (axis->extent + block - 1) / block;
  for (int i = 0; i < 3; i++) walk->step[i] = axis->step[i] * block;
}

static void plan_walk(multiply_job *job, const berthi_axis *axes, uint32_t rank) {
  static const berthi_axis none = {.extent = 1};
  uint32_t row = rank < 2 ? rank : pick_row(axes, rank);
  job->column = rank > 0 ? axes[rank - 1] : none;
  job->row = rank < 2 ? none : axes[row];
  bool transposed = rank >= 2 && (magnitude(job->column.step[1]) > 1 || magnitude(job->column.step[2]) > 1);
  // Narrow columns take all rows of the axis outside into one call.
  job->row_block = transposed ? TILE_ROWS : TILE_ROWS * TILE_COLUMNS / (job->column.extent < TILE_COLUMNS ? job->column.extent : TILE_COLUMNS);
  job->column_block = transposed ? TILE_COLUMNS : TASK_ELEMENTS;
  if (job->row_block > job->row.extent) job->row_block = job->row.extent;
  for (uint32_t i = 0; i + 1 < rank; i++) {
    if (i != row) job->walk[job->walk_rank++] = axes[i];
  }
  add_blocks(job, &job->row, job->row_block);
  add_blocks(job, &job->column, job->column_block);
}

berth_status berthi_cpu_multiply(berth_exec *exec, berth_dtype dtype, const berthi_axis *axes, uint32_t rank, void *dst, const void *a,
                                 const void *b, berth_error *err) {
  berthi_assert(rank <= BERTHI_MAX_AXES, "EXE-4");
  berthi_assert(berthi_cpu_supports(dtype), "NUM-6");
  if (berthi_axes_count(axes, rank) == 0) return BERTH_OK;
  multiply_job job;
  job.tile = tile_of(dtype);
  job.size = berth_dtype_size(dtype);
  job.dst = dst;
  job.a = a;
  job.b = b;
  job.walk_rank = 0;
  plan_walk(&job, axes, rank);
  job.tiles = berthi_axes_count(job.walk, job.walk_rank);
  int64_t column = job.column.extent < job.column_block ? job.column.extent : job.column_block;
  int64_t elements = job.row_block * column;
  job.tiles_per_task = (TASK_ELEMENTS + elements - 1) / elements;
  uint64_t tasks = (uint64_t)((job.tiles + job.tiles_per_task - 1) / job.tiles_per_task);
  if (tasks == 1) {
    multiply_task(&job, 0);
    return BERTH_OK;
  }
  return berthi_exec_parallel(exec, tasks, multiply_task, &job, err);
}
