// SPDX-License-Identifier: Apache-2.0
// How one contraction becomes matrix products. An operand is used in place when its summed labels step as one axis and either they or a run
// of its free labels step by 1; free labels outside the run, and batch labels, become loops around the product. Otherwise it is packed. Each
// combination of in place and packed, and of writing the result directly or through a buffer, is priced; the cheapest wins. The layout of an
// intermediate is free: it is chosen so that the product writes it directly and the step that consumes it finds its summed labels together.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "tensor/einsum_internal.h"

/// Which step of a mode is meant.
typedef enum which { OF_A, OF_B, OF_C } which;

/// Free labels of one operand: their order, and the run of them that the product covers.
typedef struct side {
  berthi_mode_list modes;
  uint32_t first, last; // run [first, last)
  int64_t extent;       // of the run
} side;

typedef struct form {
  bool pack_a, pack_b, direct;
} form;

static int64_t *step_of(berthi_mode *mode, which w) {
  return w == OF_A ? &mode->a : w == OF_B ? &mode->b : &mode->c;
}

static int64_t get_step(const berthi_mode *mode, which w) {
  return w == OF_A ? mode->a : w == OF_B ? mode->b : mode->c;
}

/// By falling step; equal ones keep their order.
static void sort_modes(berthi_mode_list *list, which w) {
  for (uint32_t i = 1; i < list->count; i++) {
    berthi_mode moved = list->at[i];
    uint32_t at = i;
    for (; at > 0 && get_step(&list->at[at - 1], w) < get_step(&moved, w); at--) list->at[at] = list->at[at - 1];
    list->at[at] = moved;
  }
}

/// For a packed operand whose result is free: what the consumer batches over first, what it sums last.
static void sort_roles(berthi_mode_list *list) {
  static const uint8_t rank[] = {[BERTHI_ROLE_FREE] = 1, [BERTHI_ROLE_SUMMED] = 2, [BERTHI_ROLE_BATCH] = 0};
  for (uint32_t i = 1; i < list->count; i++) {
    berthi_mode moved = list->at[i];
    uint32_t at = i;
    for (; at > 0 && rank[list->at[at - 1].role] > rank[moved.role]; at--) list->at[at] = list->at[at - 1];
    list->at[at] = moved;
  }
}

static int64_t extent_of(const berthi_mode_list *list) {
  int64_t extent = 1;
  for (uint32_t i = 0; i < list->count; i++) extent *= list->at[i].extent;
  return extent;
}

static bool fuses(const berthi_mode *outer, const berthi_mode *inner, which w) {
  return get_step(outer, w) == get_step(inner, w) * inner->extent;
}

/// Step of modes that step as one axis; 0 when they do not.
static int64_t fused_step(const berthi_mode_list *list, which w) {
  for (uint32_t i = 0; i + 1 < list->count; i++) {
    if (!fuses(&list->at[i], &list->at[i + 1], w)) return 0;
  }
  int64_t step = get_step(&list->at[list->count - 1], w);
  return step > 0 ? step : 0;
}

/// True when a matrix with `k` summed elements by `k_step` and a run of `run` elements by `step` is one that BLAS takes.
static bool is_matrix(int64_t k, int64_t k_step, int64_t run, int64_t step) {
  if (k_step == 1 && (run == 1 || (step >= k && step <= INT_MAX))) return true;
  if (run == 1) return k_step >= 1 && k_step <= INT_MAX;
  return step == 1 && k_step >= run && k_step <= INT_MAX;
}

/// Picks the longest run of free labels that works: as a matrix of the operand when it is in place, as one axis of the result when that is
/// fixed, ending in the result's unit step when `unit` asks for it.
static bool pick_run(side *s, which operand, bool in_place, bool fixed, bool unit, int64_t k, int64_t k_step) {
  const berthi_mode_list *list = &s->modes;
  s->first = s->last = list->count;
  s->extent = 1;
  if (list->count == 0) return !in_place || is_matrix(k, k_step, 1, 1);
  bool found = false;
  for (uint32_t end = list->count; end > 0;) {
    uint32_t begin = end - 1;
    int64_t extent = list->at[begin].extent;
    while (begin > 0 && (!in_place || fuses(&list->at[begin - 1], &list->at[begin], operand)) &&
           (!fixed || fuses(&list->at[begin - 1], &list->at[begin], OF_C))) {
      begin--;
      extent *= list->at[begin].extent;
    }
    bool works = !in_place || is_matrix(k, k_step, extent, get_step(&list->at[end - 1], operand));
    if (fixed && (list->at[end - 1].c <= 0 || (unit && list->at[end - 1].c != 1))) works = false;
    if (works && (!found || extent > s->extent)) {
      s->first = begin;
      s->last = end;
      s->extent = extent;
      found = true;
    }
    end = begin;
  }
  // No run works, but one element at a time may.
  return found || (!unit && (!in_place || is_matrix(k, k_step, 1, 1)));
}

static void append(berthi_term *term, berthi_mode *mode, which w) {
  term->labels[term->rank] = mode->label;
  *step_of(mode, w) = term->rank; // place for now; steps when all places are known
  term->rank++;
}

static void append_all(berthi_term *term, berthi_mode_list *list, which w) {
  for (uint32_t i = 0; i < list->count; i++) append(term, &list->at[i], w);
}

/// Compact steps for a term whose places stand in its modes.
static void close_term(berthi_term *term, berthi_mode_list *const *lists, uint32_t count, which w) {
  int64_t extents[BERTHI_MAX_AXES];
  for (uint32_t l = 0; l < count; l++) {
    for (uint32_t i = 0; i < lists[l]->count; i++) extents[get_step(&lists[l]->at[i], w)] = lists[l]->at[i].extent;
  }
  int64_t step = 1;
  for (uint32_t i = term->rank; i-- > 0;) {
    term->steps[i] = step;
    step *= extents[i];
  }
  for (uint32_t l = 0; l < count; l++) {
    for (uint32_t i = 0; i < lists[l]->count; i++) {
      int64_t *place = step_of(&lists[l]->at[i], w);
      *place = term->steps[*place];
    }
  }
}

/// Lays a packed operand out: batch labels, then free ones and summed ones, the faster of them as it is in the source, if BLAS can take that.
static void pack(berthi_term *term, berthi_mode_list *batch, side *s, berthi_mode_list *k, which w, bool narrow) {
  berthi_mode_list *lists[] = {batch, &s->modes, k};
  int64_t free_least = INT64_MAX;
  int64_t k_least = INT64_MAX;
  for (uint32_t i = 0; i < s->modes.count; i++) {
    int64_t step = get_step(&s->modes.at[i], w);
    if (step < free_least) free_least = step;
  }
  for (uint32_t i = 0; i < k->count; i++) {
    int64_t step = get_step(&k->at[i], w);
    if (step < k_least) k_least = step;
  }
  bool run_last = s->last == s->modes.count && s->first < s->last && extent_of(&s->modes) <= INT_MAX;
  bool free_last = run_last && (narrow || free_least < k_least || extent_of(k) > INT_MAX);
  term->rank = 0;
  append_all(term, batch, w);
  if (free_last) append_all(term, k, w);
  append_all(term, &s->modes, w);
  if (!free_last) append_all(term, k, w);
  close_term(term, lists, 3, w);
}

/// How well an order suits the step that consumes it.
static double order_score(const berthi_mode *const *order, uint32_t count) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool summed = order[i]->role == BERTHI_ROLE_SUMMED;
    if (summed && (i == 0 || order[i - 1]->role != BERTHI_ROLE_SUMMED)) blocks++;
  }
  double score = blocks <= 1 ? 2.0 : 0.0;
  if (count > 0 && order[count - 1]->role != BERTHI_ROLE_BATCH) score += 1.0;
  if (count > 0 && order[count - 1]->role == BERTHI_ROLE_SUMMED) score += 0.5;
  return score;
}

static uint32_t gather_order(side *outer, side *inner, const berthi_mode **order) {
  uint32_t n = 0;
  for (uint32_t i = outer->first; i < outer->last; i++) order[n++] = &outer->modes.at[i];
  for (uint32_t i = inner->first; i < inner->last; i++) order[n++] = &inner->modes.at[i];
  return n;
}

static void append_loops(berthi_term *term, side *s) {
  for (uint32_t i = 0; i < s->modes.count; i++) {
    if (i < s->first || i >= s->last) append(term, &s->modes.at[i], OF_C);
  }
}

/// Chooses the order of a free result.
static void place_result(berthi_layout *out, berthi_mode_list *batch, side *m, side *n) {
  const berthi_mode *order[BERTHI_MAX_AXES];
  berthi_mode_list *lists[] = {batch, &m->modes, &n->modes};
  double m_last = order_score(order, gather_order(n, m, order));
  double n_last = order_score(order, gather_order(m, n, order));
  bool m_inner = m_last > n_last || (m_last == n_last && m->extent >= n->extent);
  if (m->extent > INT_MAX) m_inner = false;
  if (n->extent > INT_MAX) m_inner = true;
  side *outer = m_inner ? n : m;
  side *inner = m_inner ? m : n;
  out->c.rank = 0;
  append_all(&out->c, batch, OF_C);
  append_loops(&out->c, m);
  append_loops(&out->c, n);
  for (uint32_t i = outer->first; i < outer->last; i++) append(&out->c, &outer->modes.at[i], OF_C);
  for (uint32_t i = inner->first; i < inner->last; i++) append(&out->c, &inner->modes.at[i], OF_C);
  close_term(&out->c, lists, 3, OF_C);
  out->swap = !m_inner;
}

static void add_loop(berthi_layout *out, const berthi_mode *mode) {
  out->loops[out->loops_rank++] = (berthi_axis){mode->extent, {mode->c, out->swap ? mode->b : mode->a, out->swap ? mode->a : mode->b}};
}

static void add_loops(berthi_layout *out, const side *s) {
  for (uint32_t i = 0; i < s->modes.count; i++) {
    if (i < s->first || i >= s->last) add_loop(out, &s->modes.at[i]);
  }
}

/// Step of the run in an array; 1 for a run of one element.
static int64_t run_step(const side *s, which w) {
  return s->last == s->first ? 1 : get_step(&s->modes.at[s->last - 1], w);
}

static void fill_product(berthi_layout *out, berth_dtype dtype, const berthi_mode_list *batch, const side *m, const side *n,
                         const berthi_mode_list *k) {
  const side *rows = out->swap ? n : m;
  const side *columns = out->swap ? m : n;
  which a = out->swap ? OF_B : OF_A;
  which b = out->swap ? OF_A : OF_B;
  berthi_gemm *gemm = &out->gemm;
  *gemm = (berthi_gemm){.dtype = dtype, .m = rows->extent, .n = columns->extent, .k = extent_of(k)};
  gemm->c_n = columns->extent == 1 ? rows->extent : run_step(columns, OF_C);
  gemm->a_m = run_step(rows, a);
  gemm->a_k = get_step(&k->at[k->count - 1], a);
  gemm->b_n = run_step(columns, b);
  gemm->b_k = get_step(&k->at[k->count - 1], b);
  out->loops_rank = 0;
  for (uint32_t i = 0; i < batch->count; i++) add_loop(out, &batch->at[i]);
  add_loops(out, m);
  add_loops(out, n);
  out->loops_rank = berthi_axes_simplify(out->loops, out->loops_rank, 3);
}

/// Rough nanoseconds: what matters is the order of the candidates.
static double price(const berthi_layout *out, const berthi_contraction *con) {
  const berthi_gemm *g = &out->gemm;
  double size = (double)berth_dtype_size(con->dtype);
  double weight = con->dtype == BERTH_C64 || con->dtype == BERTH_C128 ? 4.0 : 1.0;
  double m = (double)g->m, n = (double)g->n, k = (double)g->k;
  double loops = (double)berthi_axes_count(out->loops, out->loops_rank);
  double batch = (double)extent_of(&con->batch);
  double all_m = (double)extent_of(&con->m), all_n = (double)extent_of(&con->n);
  double rate = (con->dtype == BERTH_F32 || con->dtype == BERTH_C64 ? 24.0 : 12.0) * (m / (m + 6.0)) * (n / (n + 6.0)) * (k / (k + 12.0));
  double traffic = (m * k + k * n + m * n) * size / 8.0;
  double once = 120.0 + fmax(m * n * k * weight / rate, traffic);
  double copied = 0.0;
  if (out->pack_a) copied += batch * all_m * k;
  if (out->pack_b) copied += batch * all_n * k;
  if (out->unpack) copied += batch * all_m * all_n;
  uint32_t copies = (uint32_t)out->pack_a + (uint32_t)out->pack_b + (uint32_t)out->unpack;
  return loops * once + copied * size * 2.0 / 3.0 + 400.0 * copies;
}

static void order_sides(const berthi_contraction *con, const form *f, side *m, side *n, berthi_mode_list *k, berthi_mode_list *batch) {
  m->modes = con->m;
  n->modes = con->n;
  *k = con->k;
  *batch = con->batch;
  sort_modes(&m->modes, f->direct && con->fixed ? OF_C : OF_A);
  sort_modes(&n->modes, f->direct && con->fixed ? OF_C : OF_B);
  sort_modes(k, f->pack_a && !f->pack_b ? OF_B : OF_A);
  sort_modes(batch, f->direct && con->fixed ? OF_C : f->pack_a && !f->pack_b ? OF_B : OF_A);
  if (con->fixed) return;
  if (f->pack_a) sort_roles(&m->modes);
  if (f->pack_b) sort_roles(&n->modes);
}

/// Finds the runs; with a fixed result one of them has to end in its unit step.
static bool pick_runs(const berthi_contraction *con, const form *f, side *m, side *n, const berthi_mode_list *k, bool *out_swap) {
  int64_t count = extent_of(k);
  int64_t a_step = f->pack_a ? 1 : fused_step(k, OF_A);
  int64_t b_step = f->pack_b ? 1 : fused_step(k, OF_B);
  if (a_step == 0 || b_step == 0) return false;
  bool fixed = con->fixed && f->direct;
  *out_swap = false;
  if (!fixed) {
    return pick_run(m, OF_A, !f->pack_a, false, false, count, a_step) && pick_run(n, OF_B, !f->pack_b, false, false, count, b_step);
  }
  if (pick_run(m, OF_A, !f->pack_a, true, true, count, a_step) && pick_run(n, OF_B, !f->pack_b, true, false, count, b_step)) return true;
  *out_swap = true;
  return pick_run(m, OF_A, !f->pack_a, true, false, count, a_step) && pick_run(n, OF_B, !f->pack_b, true, true, count, b_step);
}

/// BLAS wants the result's columns apart by at least a column; a fixed result of any strides may not offer that.
static bool result_is_matrix(const berthi_gemm *gemm) {
  return gemm->n == 1 || (gemm->c_n >= gemm->m && gemm->c_n <= INT_MAX);
}

static bool try_form(const berthi_contraction *con, const form *f, berthi_layout *out) {
  side m;
  side n;
  berthi_mode_list k;
  berthi_mode_list batch;
  order_sides(con, f, &m, &n, &k, &batch);
  out->pack_a = f->pack_a;
  out->pack_b = f->pack_b;
  out->unpack = con->fixed && !f->direct;
  if (!pick_runs(con, f, &m, &n, &k, &out->swap)) return false;
  bool narrow = extent_of(&k) <= 8 && (m.extent <= 8 || n.extent <= 8);
  if (f->pack_a) pack(&out->a, &batch, &m, &k, OF_A, narrow);
  if (f->pack_b) pack(&out->b, &batch, &n, &k, OF_B, narrow);
  if (!con->fixed || !f->direct) place_result(out, &batch, &m, &n);
  fill_product(out, con->dtype, &batch, &m, &n, &k);
  out->cost = price(out, con);
  return result_is_matrix(&out->gemm);
}

void berthi_layout_choose(const berthi_contraction *con, berthi_layout *out) {
  bool found = false;
  out->cost = INFINITY;
  for (uint32_t i = 0; i < 8; i++) {
    form f = {.pack_a = (i & 1) != 0, .pack_b = (i & 2) != 0, .direct = (i & 4) == 0};
    if (!con->fixed && !f.direct) continue;
    berthi_layout tried;
    if (!try_form(con, &f, &tried) || !(tried.cost < out->cost)) continue;
    *out = tried;
    found = true;
  }
  berthi_assert(found, "NUM-6"); // both packed and the result free is a form that always works
  (void)found;
}
