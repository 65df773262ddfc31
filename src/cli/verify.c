// SPDX-License-Identifier: Apache-2.0
// Each step of the other path joins two tensors. A step is a nest of loops over the labels of its result and, inside, over its summed labels;
// offsets of the summed labels are tabulated. Plain loops compute all elements, or some for a probe.
#include "verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "interrupt.h"

static const double LOOPS_UP_TO = 3.2e9; // 10^9.5 multiply-adds
static const double BOUND = 1e-9;
enum { PROBES = 64, MAX_LABELS = 64 };

typedef struct array {
  uint32_t rank;
  uint32_t labels[MAX_LABELS];
  int64_t steps[MAX_LABELS];
  int64_t elements;
  double *data;
} array;

/// A step ready to run.
typedef struct nest {
  uint32_t outer, inner; // numbers of loops
  int64_t extent[2 * MAX_LABELS];
  int64_t x[2 * MAX_LABELS], y[2 * MAX_LABELS], z[2 * MAX_LABELS];
  int64_t terms;
  int64_t *x_at, *y_at; // of each term
} nest;

typedef struct verification {
  const cli_network *network;
  const cli_path *path;
  uint64_t seed;
  array *nodes;
  uint32_t *list;
  uint32_t left;
  double worst_probe;
  uint64_t probes;
  uint64_t random;
} verification;

static int64_t step_in(const array *a, uint32_t label) {
  for (uint32_t i = 0; i < a->rank; i++) {
    if (a->labels[i] == label) return a->steps[i];
  }
  return 0;
}

static void set_steps(const cli_network *network, array *a) {
  a->elements = 1;
  for (uint32_t i = a->rank; i-- > 0;) {
    a->steps[i] = a->elements;
    a->elements *= network->extents[a->labels[i]];
  }
}

static bool is_needed(const verification *v, uint32_t label) {
  for (uint32_t i = 0; i < v->left; i++) {
    const array *other = &v->nodes[v->list[i]];
    for (uint32_t a = 0; a < other->rank; a++) {
      if (other->labels[a] == label) return true;
    }
  }
  for (uint32_t o = 0; o < v->network->out_rank; o++) {
    if (v->network->out_labels[o] == label) return true;
  }
  return false;
}

static void add_loop(nest *n, uint32_t at, int64_t extent, int64_t x, int64_t y, int64_t z) {
  n->extent[at] = extent;
  n->x[at] = x;
  n->y[at] = y;
  n->z[at] = z;
}

static bool make_nest(const verification *v, const array *x, const array *y, const array *z, nest *n) {
  n->outer = n->inner = 0;
  n->terms = 1;
  for (uint32_t i = 0; i < z->rank; i++) {
    add_loop(n, n->outer++, v->network->extents[z->labels[i]], step_in(x, z->labels[i]), step_in(y, z->labels[i]), z->steps[i]);
  }
  const array *sides[] = {x, y};
  for (uint32_t s = 0; s < 2; s++) {
    for (uint32_t i = 0; i < sides[s]->rank; i++) {
      uint32_t label = sides[s]->labels[i];
      bool seen = s == 1 && step_in(x, label) != 0;
      for (uint32_t k = 0; k < z->rank; k++) seen = seen || z->labels[k] == label;
      if (seen) continue;
      add_loop(n, n->outer + n->inner++, v->network->extents[label], step_in(x, label), step_in(y, label), 0);
      n->terms *= v->network->extents[label];
    }
  }
  n->x_at = calloc((size_t)n->terms, sizeof *n->x_at);
  n->y_at = calloc((size_t)n->terms, sizeof *n->y_at);
  if (n->x_at == NULL || n->y_at == NULL) return false;
  for (int64_t t = 0; t < n->terms; t++) {
    int64_t rest = t;
    for (uint32_t i = n->outer + n->inner; i-- > n->outer; rest /= n->extent[i]) {
      n->x_at[t] += rest % n->extent[i] * n->x[i];
      n->y_at[t] += rest % n->extent[i] * n->y[i];
    }
  }
  return true;
}

static double one_element(const nest *n, const double *x, const double *y, double *magnitude) {
  double sum = 0.0;
  double size = 0.0;
  for (int64_t t = 0; t < n->terms; t++) {
    double product = x[n->x_at[t]] * y[n->y_at[t]];
    sum += product;
    size += fabs(product);
  }
  *magnitude = size;
  return sum;
}

static bool all_elements(const nest *n, const array *x, const array *y, array *z) {
  int64_t index[MAX_LABELS] = {0};
  const double *px = x->data;
  const double *py = y->data;
  double *pz = z->data;
  for (int64_t e = 0; e < z->elements; e++) {
    double sum = 0.0;
    for (int64_t t = 0; t < n->terms; t++) sum += px[n->x_at[t]] * py[n->y_at[t]];
    *pz = sum;
    for (uint32_t i = n->outer; i-- > 0;) {
      px += n->x[i];
      py += n->y[i];
      pz += n->z[i];
      if (++index[i] < n->extent[i]) break;
      px -= n->extent[i] * n->x[i];
      py -= n->extent[i] * n->y[i];
      pz -= n->extent[i] * n->z[i];
      index[i] = 0;
    }
    if ((e & 0xFFFF) == 0 && cli_interrupted()) return false;
  }
  return true;
}

static uint64_t next_random(verification *v) {
  v->random = v->random * 6364136223846793005ull + 1442695040888963407ull;
  return v->random >> 16;
}

static void probe(verification *v, const nest *n, const array *x, const array *y, const array *z) {
  for (int p = 0; p < PROBES && z->elements > 0; p++) {
    int64_t e = (int64_t)(next_random(v) % (uint64_t)z->elements);
    int64_t rest = e;
    const double *px = x->data;
    const double *py = y->data;
    for (uint32_t i = n->outer; i-- > 0; rest /= n->extent[i]) {
      px += rest % n->extent[i] * n->x[i];
      py += rest % n->extent[i] * n->y[i];
    }
    double magnitude;
    double sum = one_element(n, px, py, &magnitude);
    double off = magnitude > 0.0 ? fabs(sum - z->data[e]) / magnitude : fabs(z->data[e]);
    if (!(off <= v->worst_probe)) v->worst_probe = off;
    v->probes++;
  }
}

// ---- By the library, pair by pair -----------------------------------------------------------------------------------------------------------

/// Text of a term for the library: labels as code points of a private range.
static char *write_labels(char *at, const array *a) {
  for (uint32_t i = 0; i < a->rank; i++) {
    uint32_t code = 0x4E00 + a->labels[i];
    *at++ = (char)(0xE0 | (code >> 12));
    *at++ = (char)(0x80 | ((code >> 6) & 63));
    *at++ = (char)(0x80 | (code & 63));
  }
  return at;
}

static berth_status plan_pair(const cli_network *network, const array *x, const array *y, const array *z, berth_einsum_plan **plan, berth_error *err) {
  char spec[3 * 3 * MAX_LABELS + 8];
  int64_t shapes[2][MAX_LABELS];
  const array *sides[] = {x, y};
  berth_einsum_operand operands[2];
  char *at = write_labels(spec, x);
  *at++ = ',';
  at = write_labels(at, y);
  *at++ = '-';
  *at++ = '>';
  *write_labels(at, z) = '\0';
  for (int s = 0; s < 2; s++) {
    for (uint32_t i = 0; i < sides[s]->rank; i++) shapes[s][i] = network->extents[sides[s]->labels[i]];
    operands[s] = (berth_einsum_operand){sides[s]->rank, shapes[s], NULL};
  }
  return berth_einsum_plan_create(spec, 2, operands, BERTH_F64, NULL, plan, err);
}

static berth_status wrap(const cli_network *network, const array *a, berth_tensor **out, berth_error *err) {
  int64_t shape[MAX_LABELS];
  for (uint32_t i = 0; i < a->rank; i++) shape[i] = network->extents[a->labels[i]];
  return berth_tensor_wrap(a->data, BERTH_F64, a->rank, shape, NULL, out, err);
}

static berth_status run_pair(berth_exec *exec, const cli_network *network, const array *x, const array *y, const array *z, berth_error *err) {
  berth_einsum_plan *plan = NULL;
  berth_tensor *tensors[3] = {NULL, NULL, NULL};
  berth_status status = plan_pair(network, x, y, z, &plan, err);
  if (status == BERTH_OK) status = wrap(network, x, &tensors[0], err);
  if (status == BERTH_OK) status = wrap(network, y, &tensors[1], err);
  if (status == BERTH_OK) status = wrap(network, z, &tensors[2], err);
  if (status == BERTH_OK) status = berth_einsum_run_into(exec, plan, (const berth_tensor *const *)tensors, tensors[2], NULL, err);
  for (int i = 0; i < 3; i++) berth_tensor_release(tensors[i]);
  berth_einsum_plan_release(plan);
  return status;
}

// ---- Along the path -------------------------------------------------------------------------------------------------------------------------

/// Takes the pair of an entry out of the list and describes its result.
static void next_pair(verification *v, uint32_t e, array **x, array **y, array **z) {
  uint32_t p = v->path->positions[2 * e];
  uint32_t q = v->path->positions[2 * e + 1];
  uint32_t node = v->network->operand_count + e;
  *x = &v->nodes[v->list[p]];
  *y = &v->nodes[v->list[q]];
  *z = &v->nodes[node];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < v->left; i++) {
    if (i != p && i != q) v->list[kept++] = v->list[i];
  }
  v->left = kept;
  const array *sides[] = {*x, *y};
  (*z)->rank = 0;
  if (e + 1 == v->path->entries) {
    (*z)->rank = v->network->out_rank;
    memcpy((*z)->labels, v->network->out_labels, v->network->out_rank * sizeof *v->network->out_labels);
  }
  for (int s = 0; s < 2 && e + 1 < v->path->entries; s++) {
    for (uint32_t i = 0; i < sides[s]->rank; i++) {
      uint32_t label = sides[s]->labels[i];
      bool seen = s == 1 && step_in(*x, label) != 0;
      if (!seen && is_needed(v, label)) (*z)->labels[(*z)->rank++] = label;
    }
  }
  set_steps(v->network, *z);
  v->list[v->left++] = node;
}

/// Runs one entry: with an execution by the library and probes, else by loops.
static berth_status run_entry(verification *v, uint32_t e, berth_exec *exec, berth_error *err) {
  array *x;
  array *y;
  array *z;
  nest n;
  next_pair(v, e, &x, &y, &z);
  z->data = malloc((size_t)z->elements * sizeof *z->data + 1);
  bool ready = make_nest(v, x, y, z, &n) && z->data != NULL;
  berth_status status = BERTH_OK;
  if (!ready) {
    snprintf(err->message, sizeof err->message, "no memory for verification");
    status = BERTH_RESOURCE_EXHAUSTED;
  } else if (exec == NULL) {
    if (!all_elements(&n, x, y, z)) status = BERTH_CANCELLED;
    if (status != BERTH_OK) snprintf(err->message, sizeof err->message, "interrupted while verifying");
  } else {
    status = run_pair(exec, v->network, x, y, z, err);
    if (status == BERTH_OK) probe(v, &n, x, y, z);
  }
  free(n.x_at);
  free(n.y_at);
  free(x->data);
  free(y->data);
  x->data = y->data = NULL;
  if (status != BERTH_OK) err->code = status;
  return status;
}

static bool prepare(verification *v) {
  uint32_t count = v->network->operand_count;
  v->nodes = calloc((size_t)count + v->path->entries, sizeof *v->nodes);
  v->list = calloc((size_t)count + 1, sizeof *v->list);
  if (v->nodes == NULL || v->list == NULL) return false;
  v->left = count;
  for (uint32_t i = 0; i < count; i++) {
    const cli_operand *operand = &v->network->operands[i];
    array *a = &v->nodes[i];
    v->list[i] = i;
    a->rank = operand->rank;
    memcpy(a->labels, operand->labels, operand->rank * sizeof *operand->labels);
    set_steps(v->network, a);
  }
  return true;
}

static bool fill(verification *v) {
  for (uint32_t i = 0; i < v->network->operand_count; i++) {
    v->nodes[i].data = malloc((size_t)v->nodes[i].elements * sizeof(double) + 1);
    if (v->nodes[i].data == NULL) return false;
    cli_network_fill(v->network, i, v->seed, v->nodes[i].data);
  }
  return true;
}

static void drop(verification *v) {
  uint32_t nodes = v->nodes == NULL ? 0 : v->network->operand_count + v->path->entries;
  for (uint32_t i = 0; i < nodes; i++) free(v->nodes[i].data);
  free(v->nodes);
  free(v->list);
}

/// Most bytes that a pair's plan takes; the lists are run through once without data.
static berth_status peak_of_pairs(const verification *v, uint64_t *out_peak, berth_error *err) {
  verification dry = *v;
  *out_peak = 0;
  if (!prepare(&dry)) {
    drop(&dry);
    snprintf(err->message, sizeof err->message, "no memory for verification");
    return err->code = BERTH_RESOURCE_EXHAUSTED;
  }
  berth_status status = BERTH_OK;
  for (uint32_t e = 0; e < v->path->entries && status == BERTH_OK; e++) {
    array *x;
    array *y;
    array *z;
    berth_einsum_plan *plan = NULL;
    berth_einsum_plan_info info = BERTH_EINSUM_PLAN_INFO_INIT;
    next_pair(&dry, e, &x, &y, &z);
    status = plan_pair(v->network, x, y, z, &plan, err);
    if (status == BERTH_OK) status = berth_einsum_plan_get_info(plan, &info, err);
    if (info.peak_bytes > *out_peak) *out_peak = info.peak_bytes;
    berth_einsum_plan_release(plan);
  }
  drop(&dry);
  return status;
}

static berth_status evaluate(verification *v, berth_exec *exec, berth_error *err) {
  for (uint32_t e = 0; e < v->path->entries; e++) {
    berth_status status = run_entry(v, e, exec, err);
    if (status != BERTH_OK) return status;
  }
  return BERTH_OK;
}

static berth_status evaluate_admitted(verification *v, const cli_job_options *options, berth_error *err) {
  cli_job job;
  uint64_t peak = 0;
  berth_status status = cli_job_begin(&job, options, err);
  if (status == BERTH_OK) status = peak_of_pairs(v, &peak, err);
  if (status == BERTH_OK) status = cli_job_admit(&job, peak, "verify pair by pair", err);
  if (status == BERTH_OK) status = evaluate(v, job.exec, err);
  cli_job_end(&job, status, err, NULL, NULL);
  return status;
}

static void compare(const verification *v, const double *result, bool loops, cli_verdict *out) {
  const array *last = &v->nodes[v->path->entries == 0 ? 0 : v->network->operand_count + v->path->entries - 1];
  double largest = 0.0;
  double off = 0.0;
  for (int64_t i = 0; i < last->elements; i++) {
    double difference = fabs(result[i] - last->data[i]);
    largest = fmax(largest, fabs(last->data[i]));
    if (!(difference <= off)) off = difference;
  }
  out->off = largest > 0.0 ? off / largest : off;
  out->equal = out->off <= BOUND && v->worst_probe <= BOUND;
  if (loops) {
    snprintf(out->how, sizeof out->how, "equal within %.1e to plain loops along %s", out->off, v->path->name);
  } else {
    snprintf(out->how, sizeof out->how, "equal within %.1e to %s pair by pair, %llu elements of its steps recomputed by plain loops", out->off,
             v->path->name, (unsigned long long)v->probes);
  }
  if (!out->equal) snprintf(out->how, sizeof out->how, "DIFFERS: off by %.1e along %s, steps off by %.1e", out->off, v->path->name, v->worst_probe);
}

int cli_verify(const cli_network *network, const cli_path *other, uint64_t seed, const double *result, const cli_job_options *options,
               cli_verdict *out) {
  berth_error err = BERTH_ERROR_INIT;
  verification v = {.network = network, .path = other, .seed = seed, .random = seed};
  bool loops = cli_network_work(network, other) <= LOOPS_UP_TO;
  berth_status status = BERTH_OK;
  if (!prepare(&v) || !fill(&v)) {
    snprintf(err.message, sizeof err.message, "no memory for verification");
    status = err.code = BERTH_RESOURCE_EXHAUSTED;
  } else {
    status = loops ? evaluate(&v, NULL, &err) : evaluate_admitted(&v, options, &err);
  }
  if (status == BERTH_OK) compare(&v, result, loops, out);
  drop(&v);
  return status == BERTH_OK ? CLI_DONE : cli_error(&err);
}
