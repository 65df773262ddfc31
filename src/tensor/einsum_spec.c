// SPDX-License-Identifier: Apache-2.0
// The notation. Labels are code points; every axis gets a dense label number, axes under an ellipsis too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/einsum_internal.h"

enum { NO_ELLIPSIS = UINT32_MAX };

/// One operand's part of the text, or the output's.
typedef struct part {
  uint32_t count;    // labels written out
  uint32_t *codes;
  uint32_t ellipsis; // position among the codes, or NO_ELLIPSIS
} part;

typedef struct parser {
  const unsigned char *text;
  size_t length;
  size_t at;
  berthi_arena *arena;
  part *parts;
  part output;
  bool has_output;
  uint32_t *sorted; // all codes, sorted, without repeats
  uint32_t sorted_count;
  uint32_t ellipsis_rank; // most axes under an ellipsis
  berth_error *err;
} parser;

static berth_status no_memory(berth_error *err) {
  return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "no memory for planning an einsum");
}

const char *berthi_label_text(const berthi_label *label, char out[BERTHI_LABEL_TEXT]) {
  uint32_t c = label->code;
  if (c == 0) {
    snprintf(out, BERTHI_LABEL_TEXT, "...[%d]", -(int)label->ellipsis_axis - 1);
  } else if (c < 0x80) {
    snprintf(out, BERTHI_LABEL_TEXT, "%c", (char)c);
  } else if (c < 0x800) {
    snprintf(out, BERTHI_LABEL_TEXT, "%c%c", (char)(0xC0 | (c >> 6)), (char)(0x80 | (c & 63)));
  } else if (c < 0x10000) {
    snprintf(out, BERTHI_LABEL_TEXT, "%c%c%c", (char)(0xE0 | (c >> 12)), (char)(0x80 | ((c >> 6) & 63)), (char)(0x80 | (c & 63)));
  } else {
    snprintf(out, BERTHI_LABEL_TEXT, "%c%c%c%c", (char)(0xF0 | (c >> 18)), (char)(0x80 | ((c >> 12) & 63)), (char)(0x80 | ((c >> 6) & 63)),
             (char)(0x80 | (c & 63)));
  }
  return out;
}

/// Decodes one code point; 0 when the bytes are no UTF-8 (a NUL cannot occur).
static uint32_t decode(parser *p) {
  const unsigned char *t = p->text + p->at;
  size_t left = p->length - p->at;
  uint32_t length = t[0] < 0x80 ? 1 : t[0] >= 0xF0 && t[0] < 0xF5 ? 4 : t[0] >= 0xE0 && t[0] < 0xF0 ? 3 : t[0] >= 0xC2 && t[0] < 0xE0 ? 2 : 0;
  if (length == 0 || length > left) return 0;
  uint32_t code = length == 1 ? t[0] : t[0] & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; i++) {
    if ((t[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (t[i] & 63);
  }
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
  p->at += length;
  return code;
}

static bool is_blank(unsigned char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_label(uint32_t code) {
  return code >= 0x80 || (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') || code == '_';
}

/// Reads labels up to a comma, an arrow or the end.
static berth_status read_part(parser *p, const char *what, uint32_t number, part *out) {
  size_t room = 0;
  out->ellipsis = NO_ELLIPSIS;
  while (p->at < p->length) {
    unsigned char c = p->text[p->at];
    if (c == ',' || c == '-') break;
    if (is_blank(c)) {
      p->at++;
      continue;
    }
    if (c == '.') {
      if (p->length - p->at < 3 || memcmp(p->text + p->at, "...", 3) != 0) {
        return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "a dot at byte %zu is not part of an ellipsis '...'", p->at);
      }
      if (out->ellipsis != NO_ELLIPSIS) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "%s %u has two ellipses", what, number);
      out->ellipsis = out->count;
      p->at += 3;
      continue;
    }
    size_t before = p->at;
    uint32_t code = decode(p);
    if (code == 0) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "byte %zu (0x%02x) is not UTF-8", before, c);
    if (!is_label(code)) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "'%c' at byte %zu is no label", (char)code, before);
    if (out->count == BERTH_MAX_RANK) {
      return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "%s %u has more than %d labels", what, number, BERTH_MAX_RANK);
    }
    if (out->count == room) {
      room = room == 0 ? 8 : BERTH_MAX_RANK;
      uint32_t *codes = berthi_arena_alloc(p->arena, room, sizeof *codes);
      if (codes == NULL) return no_memory(p->err);
      if (out->count > 0) memcpy(codes, out->codes, out->count * sizeof *codes);
      out->codes = codes;
    }
    out->codes[out->count++] = code;
  }
  return BERTH_OK;
}

static berth_status read_all(parser *p, uint32_t operand_count) {
  uint32_t read = 0;
  for (;;) {
    if (read == operand_count) {
      uint32_t written = read + 1;
      for (size_t i = p->at; i < p->length; i++) written += p->text[i] == ',';
      return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "the specification has %u operands and %u are given", written, operand_count);
    }
    BERTHI_TRY(read_part(p, "operand", read, &p->parts[read]));
    read++;
    if (p->at == p->length || p->text[p->at] == '-') break;
    p->at++; // the comma
  }
  if (read != operand_count) {
    return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "the specification has %u operands and %u are given", read, operand_count);
  }
  if (p->at == p->length) return BERTH_OK;
  if (p->length - p->at < 2 || p->text[p->at + 1] != '>') {
    return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "'-' at byte %zu is not part of an arrow '->'", p->at);
  }
  p->at += 2;
  p->has_output = true;
  BERTHI_TRY(read_part(p, "output", 0, &p->output));
  if (p->at < p->length) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "'%c' at byte %zu stands behind the output", p->text[p->at], p->at);
  return BERTH_OK;
}

static int compare_codes(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a;
  uint32_t right = *(const uint32_t *)b;
  return left < right ? -1 : left > right;
}

static uint32_t find_code(const parser *p, uint32_t code) {
  const uint32_t *found = p->sorted_count == 0 ? NULL : bsearch(&code, p->sorted, p->sorted_count, sizeof code, compare_codes);
  return found == NULL ? UINT32_MAX : (uint32_t)(found - p->sorted);
}

static berth_status collect_codes(parser *p, uint32_t operand_count) {
  size_t total = 0;
  for (uint32_t i = 0; i < operand_count; i++) total += p->parts[i].count;
  p->sorted = berthi_arena_alloc(p->arena, total, sizeof *p->sorted);
  if (p->sorted == NULL) return no_memory(p->err);
  size_t n = 0;
  for (uint32_t i = 0; i < operand_count; i++) {
    for (uint32_t j = 0; j < p->parts[i].count; j++) p->sorted[n++] = p->parts[i].codes[j];
  }
  if (n > 0) qsort(p->sorted, n, sizeof *p->sorted, compare_codes);
  for (size_t i = 0; i < n; i++) {
    if (i == 0 || p->sorted[i] != p->sorted[i - 1]) p->sorted[p->sorted_count++] = p->sorted[i];
  }
  if (p->sorted_count > BERTHI_EINSUM_MAX_LABELS) {
    return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "%u labels; at most %d", p->sorted_count, BERTHI_EINSUM_MAX_LABELS);
  }
  return BERTH_OK;
}

/// Numbers of the labels of one part: written labels by their rank among the codes, ellipsis axes behind them, the last axis first.
static uint32_t number_axes(const parser *p, const part *from, uint32_t ellipsis_rank, uint32_t *axes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i <= from->count; i++) {
    if (i == from->ellipsis) {
      for (uint32_t e = ellipsis_rank; e-- > 0;) axes[n++] = p->sorted_count + e;
    }
    if (i < from->count) axes[n++] = find_code(p, from->codes[i]);
  }
  return n;
}

static berth_status number_operands(parser *p, const berth_einsum_operand *operands, berthi_einsum_spec *spec) {
  for (uint32_t i = 0; i < spec->operand_count; i++) {
    const part *from = &p->parts[i];
    bool dots = from->ellipsis != NO_ELLIPSIS;
    if (dots ? operands[i].rank < from->count : operands[i].rank != from->count) {
      return berthi_fail(p->err, BERTHI_R_SHAPE_MISMATCH, "operand %u has %u axes and the specification names %s%u", i, operands[i].rank,
                         dots ? "at least " : "", from->count);
    }
    uint32_t hidden = operands[i].rank - from->count;
    if (hidden > p->ellipsis_rank) p->ellipsis_rank = hidden;
    spec->ranks[i] = operands[i].rank;
    spec->axes[i] = berthi_arena_alloc(p->arena, operands[i].rank, sizeof **spec->axes);
    if (spec->axes[i] == NULL) return no_memory(p->err);
    number_axes(p, from, hidden, spec->axes[i]);
  }
  return BERTH_OK;
}

/// The labels that occur once, in the order of their code points, behind the ellipsis.
static berth_status implicit_output(parser *p, const berthi_einsum_spec *spec, uint32_t operand_count) {
  uint32_t *uses = berthi_arena_alloc(p->arena, p->sorted_count, sizeof *uses);
  p->output.codes = berthi_arena_alloc(p->arena, p->sorted_count, sizeof *p->output.codes);
  if (uses == NULL || p->output.codes == NULL) return no_memory(p->err);
  for (uint32_t i = 0; i < operand_count; i++) {
    for (uint32_t j = 0; j < spec->ranks[i]; j++) {
      if (spec->axes[i][j] < p->sorted_count) uses[spec->axes[i][j]]++;
    }
  }
  for (uint32_t l = 0; l < p->sorted_count; l++) {
    if (uses[l] == 1) p->output.codes[p->output.count++] = p->sorted[l];
  }
  p->output.ellipsis = 0;
  return BERTH_OK;
}

static berth_status number_output(parser *p, berthi_einsum_spec *spec) {
  uint32_t hidden = p->output.ellipsis == NO_ELLIPSIS ? 0 : p->ellipsis_rank;
  if (p->output.ellipsis == NO_ELLIPSIS && p->ellipsis_rank > 0) {
    return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "the operands' ellipsis covers %u axes and the output has no ellipsis", p->ellipsis_rank);
  }
  if (p->output.count + hidden > BERTH_MAX_RANK) {
    return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "the output has %u axes; at most %d", p->output.count + hidden, BERTH_MAX_RANK);
  }
  spec->out_axes = berthi_arena_alloc(p->arena, p->output.count + hidden, sizeof *spec->out_axes);
  bool *used = berthi_arena_alloc(p->arena, p->sorted_count, sizeof *used);
  if (spec->out_axes == NULL || used == NULL) return no_memory(p->err);
  for (uint32_t i = 0; i < p->output.count; i++) {
    char text[BERTHI_LABEL_TEXT];
    berthi_label label = {.code = p->output.codes[i]};
    uint32_t number = find_code(p, p->output.codes[i]);
    if (number == UINT32_MAX) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "output label %s is in no operand", berthi_label_text(&label, text));
    if (used[number]) return berthi_fail(p->err, BERTHI_R_INVALID_SPEC, "output label %s occurs twice", berthi_label_text(&label, text));
    used[number] = true;
  }
  spec->out_rank = number_axes(p, &p->output, hidden, spec->out_axes);
  return BERTH_OK;
}

/// Extents of the labels: all axes of a label agree, or are 1.
static berth_status find_extents(parser *p, const berth_einsum_operand *operands, berthi_einsum_spec *spec) {
  spec->label_count = p->sorted_count + p->ellipsis_rank;
  spec->labels = berthi_arena_alloc(p->arena, spec->label_count, sizeof *spec->labels);
  if (spec->labels == NULL) return no_memory(p->err);
  for (uint32_t l = 0; l < spec->label_count; l++) {
    spec->labels[l].code = l < p->sorted_count ? p->sorted[l] : 0;
    spec->labels[l].ellipsis_axis = l < p->sorted_count ? 0 : l - p->sorted_count;
    spec->labels[l].extent = 1;
  }
  for (uint32_t i = 0; i < spec->operand_count; i++) {
    for (uint32_t j = 0; j < spec->ranks[i]; j++) {
      berthi_label *label = &spec->labels[spec->axes[i][j]];
      int64_t extent = operands[i].shape[j];
      if (extent == 1 || extent == label->extent) continue;
      if (label->extent != 1) {
        char text[BERTHI_LABEL_TEXT];
        berth_status status = berthi_fail(p->err, BERTHI_R_SHAPE_MISMATCH, "label %s is %lld in operand %u axis %u and %lld in operand %u axis %u",
                                          berthi_label_text(label, text), (long long)label->extent, label->seen_operand, label->seen_axis,
                                          (long long)extent, i, j);
        berthi_fact(p->err, "extent", label->extent);
        berthi_fact(p->err, "other_extent", extent);
        return status;
      }
      label->extent = extent;
      label->seen_operand = i;
      label->seen_axis = j;
    }
  }
  return BERTH_OK;
}

berth_status berthi_einsum_parse(const char *text, uint32_t operand_count, const berth_einsum_operand *operands, berthi_arena *arena,
                                 berthi_einsum_spec *spec, berth_error *err) {
  parser p = {.text = (const unsigned char *)text, .length = strnlen(text, BERTHI_EINSUM_MAX_SPEC + 1), .arena = arena, .err = err};
  if (p.length > BERTHI_EINSUM_MAX_SPEC) {
    return berthi_fail(err, BERTHI_R_INVALID_SPEC, "the specification is longer than %d bytes", BERTHI_EINSUM_MAX_SPEC);
  }
  if (operand_count == 0 || operand_count > BERTHI_EINSUM_MAX_OPERANDS) {
    return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%u operands; from 1 to %d", operand_count, BERTHI_EINSUM_MAX_OPERANDS);
  }
  spec->operand_count = operand_count;
  p.parts = berthi_arena_alloc(arena, operand_count, sizeof *p.parts);
  spec->axes = berthi_arena_alloc(arena, operand_count, sizeof *spec->axes);
  spec->ranks = berthi_arena_alloc(arena, operand_count, sizeof *spec->ranks);
  if (p.parts == NULL || spec->axes == NULL || spec->ranks == NULL) return no_memory(err);
  BERTHI_TRY(read_all(&p, operand_count));
  BERTHI_TRY(collect_codes(&p, operand_count));
  BERTHI_TRY(number_operands(&p, operands, spec));
  if (!p.has_output) BERTHI_TRY(implicit_output(&p, spec, operand_count));
  BERTHI_TRY(number_output(&p, spec));
  return find_extents(&p, operands, spec);
}
