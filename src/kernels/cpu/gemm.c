// SPDX-License-Identifier: Apache-2.0
// Matrix products. Work is cut into column panels and into runs of the outer loops, by the shape alone, and the library's own threads are
// never used: a BLAS that picks its cuts by the number of threads changes bits with it. Long sums are cut into stretches of k that accumulate
// one after the other, so that no call runs longer than a cancel may wait. Rows are cut only where there are too few columns to share, into
// blocks that depend on m alone.
#include <cblas.h>
#include <limits.h>

#include "base/assert.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/gemm_small.h"
#include "kernels/kernels.h"
#include "kernels/vendor/blas_guard.h"

/// Multiply-adds of one BLAS call at most: some milliseconds.
static const double CALL_WORK = 1.0e8;
/// Multiply-adds of one task at least, and the number of tasks that is enough for every lane.
static const double TASK_WORK = 2.0e6;
static const int64_t ENOUGH_TASKS = 32;

enum {
  PANEL_ALIGN = 48,    // columns of a panel: a multiple of the register blocks of usual kernels
  ROW_ALIGN = 256,
  K_ALIGN = 256
};

typedef struct gemm_job {
  const berthi_gemm *gemm;
  size_t size;
  double weight; // real multiply-adds for one of the type
  char *c;
  const char *a;
  const char *b;
  int64_t panel;  // columns of a panel
  int64_t panels;
  int64_t rows; // rows of a row block
  int64_t row_blocks;
  int64_t k_stretch;
  int64_t loops;
  int64_t loops_per_task;
  bool small; // by the own kernels
} gemm_job;

typedef struct block {
  int64_t m, n, k;
  bool accumulate;
  char *c;
  const char *a;
  const char *b;
} block;

static int leading(int64_t step, int64_t rows) {
  int64_t ld = step > rows ? step : rows;
  return (int)(ld > 1 ? ld : 1);
}

static void call_blas(const berthi_gemm *gemm, const block *call) {
  static const float one_c64[2] = {1.0f, 0.0f};
  static const double one_c128[2] = {1.0, 0.0};
  static const float zero_c64[2] = {0.0f, 0.0f};
  static const double zero_c128[2] = {0.0, 0.0};
  int m = (int)call->m;
  int n = (int)call->n;
  int k = (int)call->k;
  bool a_plain = gemm->a_m == 1 || gemm->m == 1;
  bool b_plain = gemm->b_k == 1 || gemm->k == 1;
  // A matrix with one row or column has a free choice of form; take the one whose step exists.
  if (gemm->m == 1 && gemm->a_k == 1) a_plain = false;
  if (gemm->k == 1 && gemm->b_n == 1 && gemm->n > 1) b_plain = false;
  CBLAS_TRANSPOSE ta = a_plain ? CblasNoTrans : CblasTrans;
  CBLAS_TRANSPOSE tb = b_plain ? CblasNoTrans : CblasTrans;
  int lda = a_plain ? leading(gemm->a_k, call->m) : leading(gemm->a_m, call->k);
  int ldb = b_plain ? leading(gemm->b_n, call->k) : leading(gemm->b_k, call->n);
  int ldc = leading(gemm->c_n, call->m);
  berthi_blas_begin();
  switch (gemm->dtype) {
    case BERTH_F32:
      cblas_sgemm(CblasColMajor, ta, tb, m, n, k, 1.0f, (const float *)(const void *)call->a, lda, (const float *)(const void *)call->b, ldb,
                  call->accumulate ? 1.0f : 0.0f, (float *)(void *)call->c, ldc);
      break;
    case BERTH_F64:
      cblas_dgemm(CblasColMajor, ta, tb, m, n, k, 1.0, (const double *)(const void *)call->a, lda, (const double *)(const void *)call->b, ldb,
                  call->accumulate ? 1.0 : 0.0, (double *)(void *)call->c, ldc);
      break;
    case BERTH_C64:
      cblas_cgemm(CblasColMajor, ta, tb, m, n, k, one_c64, call->a, lda, call->b, ldb, call->accumulate ? one_c64 : zero_c64, call->c, ldc);
      break;
    default:
      cblas_zgemm(CblasColMajor, ta, tb, m, n, k, one_c128, call->a, lda, call->b, ldb, call->accumulate ? one_c128 : zero_c128, call->c, ldc);
      break;
  }
  berthi_blas_end();
}

/// One block of one product, in stretches of k.
static void run_block(const gemm_job *job, const int64_t at[3], int64_t row, int64_t column) {
  const berthi_gemm *gemm = job->gemm;
  int64_t size = (int64_t)job->size;
  block call;
  call.m = gemm->m - row < job->rows ? gemm->m - row : job->rows;
  call.n = gemm->n - column < job->panel ? gemm->n - column : job->panel;
  call.c = job->c + (at[0] + row + column * gemm->c_n) * size;
  for (int64_t k = 0; k < gemm->k; k += job->k_stretch) {
    call.k = gemm->k - k < job->k_stretch ? gemm->k - k : job->k_stretch;
    call.accumulate = k > 0;
    call.a = job->a + (at[1] + row * gemm->a_m + k * gemm->a_k) * size;
    call.b = job->b + (at[2] + column * gemm->b_n + k * gemm->b_k) * size;
    call_blas(gemm, &call);
  }
}

static void gemm_task(void *arg, uint64_t task) {
  const gemm_job *job = arg;
  const berthi_gemm *gemm = job->gemm;
  int64_t cuts = job->panels * job->row_blocks;
  int64_t cut = (int64_t)task % cuts;
  int64_t first = (int64_t)task / cuts * job->loops_per_task;
  int64_t last = first + job->loops_per_task < job->loops ? first + job->loops_per_task : job->loops;
  int64_t row = cut % job->row_blocks * job->rows;
  int64_t column = cut / job->row_blocks * job->panel;
  int64_t index[BERTHI_MAX_AXES];
  int64_t at[3] = {0, 0, 0};
  int64_t rest = first;
  for (uint32_t l = gemm->loops_rank; l-- > 0;) {
    index[l] = rest % gemm->loops[l].extent;
    rest /= gemm->loops[l].extent;
    for (int i = 0; i < 3; i++) at[i] += index[l] * gemm->loops[l].step[i];
  }
  for (int64_t loop = first; loop < last; loop++) {
    if (job->small) {
      int64_t rows = gemm->m - row < job->rows ? gemm->m - row : job->rows;
      int64_t size = (int64_t)job->size;
      berthi_gemm_small(gemm, rows, job->c + (at[0] + row) * size, job->a + (at[1] + row * gemm->a_m) * size, job->b + at[2] * size);
    } else {
      run_block(job, at, row, column);
    }
    for (uint32_t l = gemm->loops_rank; l-- > 0;) {
      for (int i = 0; i < 3; i++) at[i] += gemm->loops[l].step[i];
      if (++index[l] < gemm->loops[l].extent) break;
      for (int i = 0; i < 3; i++) at[i] -= gemm->loops[l].extent * gemm->loops[l].step[i];
      index[l] = 0;
    }
  }
}

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Length of equal cuts of `extent`, about `wanted` of them, at a multiple of `unit`.
static int64_t cut_length(int64_t extent, double wanted, int64_t unit) {
  if (wanted <= 1.0) return extent;
  int64_t pieces = wanted > (double)extent ? extent : (int64_t)wanted;
  int64_t length = round_up((extent + pieces - 1) / pieces, unit);
  return length < extent ? length : extent;
}

static void cut_own(gemm_job *job, double work) {
  const berthi_gemm *gemm = job->gemm;
  job->panel = gemm->n;
  job->k_stretch = gemm->k;
  job->rows = cut_length(gemm->m, work / TASK_WORK, ROW_ALIGN);
}

/// Columns are cut until there are enough tasks of some size, and further until no call is too long; then rows; then k.
static void cut_blas(gemm_job *job, double work) {
  const berthi_gemm *gemm = job->gemm;
  double wanted = (double)ENOUGH_TASKS / (double)job->loops;
  if (wanted > work / TASK_WORK) wanted = work / TASK_WORK;
  if (wanted < work / CALL_WORK) wanted = work / CALL_WORK;
  job->panel = cut_length(gemm->n, wanted, PANEL_ALIGN);
  double left = wanted * (double)job->panel / (double)gemm->n;
  job->rows = cut_length(gemm->m, left, ROW_ALIGN);
  if (job->rows > INT_MAX / 2) job->rows = round_up(INT_MAX / 4, ROW_ALIGN);
  double stretch = CALL_WORK / ((double)job->panel * (double)job->rows * job->weight);
  job->k_stretch = gemm->k;
  if (stretch < (double)gemm->k) job->k_stretch = round_up((int64_t)stretch + 1, K_ALIGN);
  if (job->k_stretch > gemm->k) job->k_stretch = gemm->k;
  if (job->k_stretch > INT_MAX / 2) job->k_stretch = INT_MAX / 4;
}

berth_status berthi_cpu_gemm(berth_exec *exec, const berthi_gemm *gemm, void *c, const void *a, const void *b, berth_error *err) {
  berthi_assert(berthi_cpu_supports(gemm->dtype) && gemm->k > 0, "NUM-6");
  gemm_job job = {.gemm = gemm, .c = c, .a = a, .b = b, .size = berth_dtype_size(gemm->dtype)};
  job.loops = berthi_axes_count(gemm->loops, gemm->loops_rank);
  if (job.loops == 0 || gemm->m == 0 || gemm->n == 0) return BERTH_OK;
  job.weight = gemm->dtype == BERTH_C64 || gemm->dtype == BERTH_C128 ? 4.0 : 1.0;
  job.small = berthi_gemm_small_fits(gemm);
  double work = (double)gemm->m * (double)gemm->n * (double)gemm->k * job.weight;
  if (job.small) {
    cut_own(&job, work);
  } else {
    cut_blas(&job, work);
  }
  job.panels = (gemm->n + job.panel - 1) / job.panel;
  job.row_blocks = (gemm->m + job.rows - 1) / job.rows;
  double piece = work / (double)(job.panels * job.row_blocks);
  job.loops_per_task = piece >= TASK_WORK ? 1 : (int64_t)(TASK_WORK / piece) + 1;
  if (job.loops_per_task > job.loops) job.loops_per_task = job.loops;
  int64_t runs = (job.loops + job.loops_per_task - 1) / job.loops_per_task;
  uint64_t tasks = (uint64_t)(runs * job.panels * job.row_blocks);
  if (tasks == 1) {
    gemm_task(&job, 0);
    return BERTH_OK;
  }
  return berthi_exec_parallel(exec, tasks, gemm_task, &job, err);
}
