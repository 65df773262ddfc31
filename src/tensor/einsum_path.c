// SPDX-License-Identifier: Apache-2.0
// The order of contractions: a given path, or a greedy search. The search takes, again and again, the pair of tensors that share a label and
// whose product grows memory least (or shrinks it most); it is run with several weights for what the pair gives back, and the best order by
// the objective wins. A pair's price may be stale when labels have vanished since it was computed: that costs quality, never correctness.
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/einsum_internal.h"

enum { MAX_HOLDERS = 48 }; // of one label, that are paired with each other

static berth_status no_memory(berth_error *err) {
  return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for planning an einsum");
}

/// Takes the entry's positions out of the list; they stay in `group` in the order of the path.
static berth_status take_group(const uint32_t *positions, uint32_t length, uint32_t entry, uint32_t *list, uint32_t *left, uint32_t *group,
                               berth_error *err) {
  for (uint32_t i = 0; i < length; i++) {
    if (positions[i] >= *left) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "path entry %u names position %u of %u", entry, positions[i], *left);
    }
    if (list[positions[i]] == BERTHI_NO_NODE) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "path entry %u names position %u twice", entry, positions[i]);
    }
    group[i] = list[positions[i]];
    list[positions[i]] = BERTHI_NO_NODE;
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *left; i++) {
    if (list[i] != BERTHI_NO_NODE) list[kept++] = list[i];
  }
  *left = kept;
  return BERTH_OK;
}

berth_status berthi_path_given(const berth_einsum_options *options, uint32_t operand_count, berthi_arena *arena, berthi_path_step *steps,
                               uint32_t *out_count, berth_error *err) {
  uint32_t *list = berthi_arena_alloc(arena, (size_t)operand_count + 1, sizeof *list);
  uint32_t *group = berthi_arena_alloc(arena, operand_count, sizeof *group);
  if (list == NULL || group == NULL) return no_memory(err);
  for (uint32_t i = 0; i < operand_count; i++) list[i] = i;
  uint32_t left = operand_count;
  uint32_t count = 0;
  const uint32_t *positions = options->path;
  for (uint32_t entry = 0; entry < options->path_entries; entry++) {
    uint32_t length = options->path_lengths == NULL ? 2 : options->path_lengths[entry];
    if (length == 0 || length > left) {
      return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "path entry %u has %u positions; %u tensors are left", entry, length, left);
    }
    BERTHI_TRY(take_group(positions, length, entry, list, &left, group, err));
    positions += length;
    // An entry with one position moves it to the end; sums happen where a label is used last.
    uint32_t joined = group[0];
    for (uint32_t i = 1; i < length; i++) {
      steps[count] = (berthi_path_step){joined, group[i]};
      joined = operand_count + count++;
    }
    list[left++] = joined;
  }
  if (left != 1) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "the path leaves %u tensors; it has to leave 1", left);
  *out_count = count;
  return BERTH_OK;
}

/// A pair and its price.
typedef struct candidate {
  double price;
  uint32_t left, right;
} candidate;

typedef struct search {
  uint32_t operand_count;
  uint32_t words;
  uint32_t label_count;
  const double *extents;
  const uint64_t *output;
  uint64_t *sets; // operands and results
  double *sizes;  // elements
  bool *alive;
  uint32_t *uses; // of each label by living nodes, the output included
  candidate *heap;
  size_t heap_count, heap_room;
  double weight;    // of what a pair gives back
  bool price_flops; // price is the work instead
  // Results.
  double flops, largest, traffic, peak;
} search;

static bool before(const candidate *a, const candidate *b) {
  if (a->price != b->price) return a->price < b->price;
  return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool push(search *s, candidate item) {
  if (s->heap_count == s->heap_room) {
    size_t room = s->heap_room * 2 + 64;
    candidate *grown = berthi_alloc(room * sizeof *grown);
    if (grown == NULL) return false;
    if (s->heap_count > 0) memcpy(grown, s->heap, s->heap_count * sizeof *grown);
    berthi_free(s->heap);
    s->heap = grown;
    s->heap_room = room;
  }
  size_t at = s->heap_count++;
  while (at > 0 && before(&item, &s->heap[(at - 1) / 2])) {
    s->heap[at] = s->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  s->heap[at] = item;
  return true;
}

static candidate pop(search *s) {
  candidate top = s->heap[0];
  candidate item = s->heap[--s->heap_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= s->heap_count) break;
    if (child + 1 < s->heap_count && before(&s->heap[child + 1], &s->heap[child])) child++;
    if (!before(&s->heap[child], &item)) break;
    s->heap[at] = s->heap[child];
    at = child;
  }
  s->heap[at] = item;
  return top;
}

/// Work and result size of joining two nodes; fills the result's labels when `out` is given.
static double join(const search *s, uint32_t left, uint32_t right, double *out_size, uint64_t *out) {
  const uint64_t *a = s->sets + (size_t)left * s->words;
  const uint64_t *b = s->sets + (size_t)right * s->words;
  double work = 1.0;
  double size = 1.0;
  for (uint32_t w = 0; w < s->words; w++) {
    uint64_t all = a[w] | b[w];
    uint64_t kept = 0;
    for (uint64_t rest = all; rest != 0; rest &= rest - 1) {
      uint32_t bit = (uint32_t)__builtin_ctzll(rest);
      uint32_t label = w * 64 + bit;
      uint32_t here = (uint32_t)((a[w] >> bit) & 1) + (uint32_t)((b[w] >> bit) & 1);
      work *= s->extents[label];
      if (s->uses[label] > here) {
        size *= s->extents[label];
        kept |= 1ull << bit;
      }
    }
    if (out != NULL) out[w] = kept;
  }
  *out_size = size;
  return work;
}

static bool offer(search *s, uint32_t left, uint32_t right) {
  double size;
  double work = join(s, left, right, &size, NULL);
  double price = s->price_flops ? work : size - s->weight * (s->sizes[left] + s->sizes[right]);
  return push(s, (candidate){price, left < right ? left : right, left < right ? right : left});
}

static bool shares(const search *s, uint32_t left, uint32_t right) {
  const uint64_t *a = s->sets + (size_t)left * s->words;
  const uint64_t *b = s->sets + (size_t)right * s->words;
  for (uint32_t w = 0; w < s->words; w++) {
    if ((a[w] & b[w]) != 0) return true;
  }
  return false;
}

/// Offers a node with the living ones that share a label with it.
static bool offer_neighbours(search *s, uint32_t node) {
  uint32_t offered = 0;
  for (uint32_t other = node; other-- > 0;) {
    if (!s->alive[other] || !shares(s, node, other)) continue;
    if (!offer(s, node, other)) return false;
    if (++offered > 4 * MAX_HOLDERS) break;
  }
  return true;
}

static void contract(search *s, uint32_t left, uint32_t right, uint32_t node) {
  uint64_t *out = s->sets + (size_t)node * s->words;
  double size;
  double work = join(s, left, right, &size, out);
  for (uint32_t w = 0; w < s->words; w++) {
    const uint64_t a = s->sets[(size_t)left * s->words + w];
    const uint64_t b = s->sets[(size_t)right * s->words + w];
    for (uint64_t rest = a; rest != 0; rest &= rest - 1) s->uses[w * 64 + (uint32_t)__builtin_ctzll(rest)]--;
    for (uint64_t rest = b; rest != 0; rest &= rest - 1) s->uses[w * 64 + (uint32_t)__builtin_ctzll(rest)]--;
    for (uint64_t rest = out[w]; rest != 0; rest &= rest - 1) s->uses[w * 64 + (uint32_t)__builtin_ctzll(rest)]++;
  }
  s->alive[left] = s->alive[right] = false;
  s->alive[node] = true;
  s->sizes[node] = size;
  s->flops += work;
  s->largest = fmax(s->largest, size);
  s->traffic += size + s->sizes[left] + s->sizes[right];
  s->peak = fmax(s->peak, size + s->sizes[left] + s->sizes[right]);
}

/// What is left shares no labels: the two smallest, again and again.
static void pick_smallest(const search *s, uint32_t nodes, uint32_t *left, uint32_t *right) {
  *left = *right = BERTHI_NO_NODE;
  for (uint32_t i = 0; i < nodes; i++) {
    if (!s->alive[i]) continue;
    if (*left == BERTHI_NO_NODE || s->sizes[i] < s->sizes[*left]) {
      *right = *left;
      *left = i;
    } else if (*right == BERTHI_NO_NODE || s->sizes[i] < s->sizes[*right]) {
      *right = i;
    }
  }
}

static void reset(search *s, const berthi_label_sets *given) {
  memcpy(s->sets, given->sets, (size_t)s->operand_count * s->words * sizeof *s->sets);
  memset(s->uses, 0, s->label_count * sizeof *s->uses);
  s->heap_count = 0;
  s->flops = s->largest = s->traffic = s->peak = 0;
  for (uint32_t l = 0; l < s->label_count; l++) s->uses[l] = (s->output[l / 64] >> (l % 64)) & 1;
  for (uint32_t i = 0; i < 2 * s->operand_count; i++) {
    s->alive[i] = i < s->operand_count;
    if (i >= s->operand_count) continue;
    s->sizes[i] = 1.0;
    for (uint32_t l = 0; l < s->label_count; l++) {
      if (((s->sets[(size_t)i * s->words + l / 64] >> (l % 64)) & 1) == 0) continue;
      s->sizes[i] *= s->extents[l];
      s->uses[l]++;
    }
  }
}

static bool greedy(search *s, const berthi_label_sets *given, berthi_path_step *steps) {
  reset(s, given);
  for (uint32_t i = 1; i < s->operand_count; i++) {
    if (!offer_neighbours(s, i)) return false;
  }
  for (uint32_t count = 0; count + 1 < s->operand_count; count++) {
    uint32_t node = s->operand_count + count;
    uint32_t left = BERTHI_NO_NODE;
    uint32_t right = BERTHI_NO_NODE;
    while (s->heap_count > 0 && left == BERTHI_NO_NODE) {
      candidate best = pop(s);
      if (!s->alive[best.left] || !s->alive[best.right]) continue;
      left = best.left;
      right = best.right;
    }
    if (left == BERTHI_NO_NODE) pick_smallest(s, node, &left, &right);
    contract(s, left, right, node);
    steps[count] = (berthi_path_step){left, right};
    if (!offer_neighbours(s, node)) return false;
  }
  return true;
}

static double score(const search *s, berth_einsum_objective objective, size_t size) {
  switch (objective) {
    case BERTH_EINSUM_FLOPS: return s->flops;
    case BERTH_EINSUM_SIZE: return s->peak * 1e3 + s->largest;
    default: return s->flops + s->traffic * (double)size; // a multiply-add takes about as long as a byte of traffic
  }
}

static bool make_search(search *s, const berthi_einsum_spec *spec, const berthi_label_sets *sets, berthi_arena *arena) {
  size_t nodes = 2 * (size_t)spec->operand_count;
  double *extents = berthi_arena_alloc(arena, spec->label_count, sizeof *extents);
  s->operand_count = spec->operand_count;
  s->words = sets->words;
  s->label_count = spec->label_count;
  s->output = sets->output;
  s->sets = berthi_arena_alloc(arena, nodes * s->words, sizeof *s->sets);
  s->sizes = berthi_arena_alloc(arena, nodes, sizeof *s->sizes);
  s->alive = berthi_arena_alloc(arena, nodes, sizeof *s->alive);
  s->uses = berthi_arena_alloc(arena, spec->label_count, sizeof *s->uses);
  if (extents == NULL || s->sets == NULL || s->sizes == NULL || s->alive == NULL || s->uses == NULL) return false;
  for (uint32_t l = 0; l < spec->label_count; l++) extents[l] = (double)spec->labels[l].extent;
  s->extents = extents;
  return true;
}

berth_status berthi_path_search(const berthi_einsum_spec *spec, const berthi_label_sets *sets, berth_einsum_objective objective, size_t size,
                                berthi_arena *arena, berthi_path_step *steps, uint32_t *out_count, berth_error *err) {
  static const double weights[] = {1.0, 0.3, 3.0, 0.0};
  uint32_t count = spec->operand_count - 1;
  *out_count = count;
  if (count == 0) return BERTH_OK;
  if (count == 1) {
    steps[0] = (berthi_path_step){0, 1};
    return BERTH_OK;
  }
  search s = {0};
  berthi_path_step *tried = berthi_arena_alloc(arena, count, sizeof *tried);
  if (tried == NULL || !make_search(&s, spec, sets, arena)) return no_memory(err);
  double best = INFINITY;
  berth_status status = BERTH_OK;
  for (uint32_t w = 0; w < 5 && status == BERTH_OK; w++) {
    s.price_flops = w == 4;
    s.weight = w < 4 ? weights[w] : 0.0;
    if (!greedy(&s, sets, tried)) {
      status = no_memory(err);
      break;
    }
    double found = score(&s, objective, size);
    if (w > 0 && !(found < best)) continue;
    best = found;
    memcpy(steps, tried, count * sizeof *steps);
  }
  berthi_free(s.heap);
  return status;
}
