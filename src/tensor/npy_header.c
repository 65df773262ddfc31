// SPDX-License-Identifier: Apache-2.0
// The header is text from outside: every read is bounded, and what is not understood is refused with its place.
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/npy.h"
#include "tensor/tensor_internal.h"

static const char magic[] = "\x93NUMPY";

berth_status berthi_npy_parse_prefix(const unsigned char *bytes, size_t length, uint32_t *out_version, size_t *out_start, uint64_t *out_length,
                                     berth_error *err) {
  if (length < 10) return berthi_fail(err, BERTHI_R_INVALID_FILE, "%zu bytes are too few for a .npy file", length);
  if (memcmp(bytes, magic, 6) != 0) return berthi_fail(err, BERTHI_R_INVALID_FILE, "the file does not begin as a .npy file does");
  uint32_t version = bytes[6];
  if (version < 1 || version > 3) return berthi_fail(err, BERTHI_R_INVALID_FILE, ".npy version %u; known are 1 to 3", version);
  *out_version = version;
  if (version == 1) {
    *out_start = 10;
    *out_length = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8;
    return BERTH_OK;
  }
  if (length < 12) return berthi_fail(err, BERTHI_R_INVALID_FILE, "the file ends inside its header");
  *out_start = 12;
  *out_length = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8 | (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
  if (*out_length > BERTHI_NPY_MAX_HEADER) {
    return berthi_fail(err, BERTHI_R_INVALID_FILE, "a header of %llu bytes; at most %d", (unsigned long long)*out_length, BERTHI_NPY_MAX_HEADER);
  }
  return BERTH_OK;
}

typedef struct reader {
  const char *text;
  size_t length;
  size_t at;
  berth_error *err;
} reader;

static berth_status malformed(const reader *r, const char *expected) {
  return berthi_fail(r->err, BERTHI_R_INVALID_FILE, "header: %s expected at byte %zu", expected, r->at);
}

static void skip_blanks(reader *r) {
  while (r->at < r->length && (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\t')) r->at++;
}

static bool accept(reader *r, char c) {
  skip_blanks(r);
  if (r->at >= r->length || r->text[r->at] != c) return false;
  r->at++;
  return true;
}

static bool accept_word(reader *r, const char *word) {
  size_t length = strlen(word);
  skip_blanks(r);
  if (r->length - r->at < length || memcmp(r->text + r->at, word, length) != 0) return false;
  r->at += length;
  return true;
}

/// A quoted string of up to 31 bytes without escapes.
static berth_status read_string(reader *r, char out[32]) {
  skip_blanks(r);
  if (r->at >= r->length || (r->text[r->at] != '\'' && r->text[r->at] != '"')) return malformed(r, "a string");
  char quote = r->text[r->at++];
  size_t n = 0;
  while (r->at < r->length && r->text[r->at] != quote) {
    if (n == 31 || r->text[r->at] == '\\' || r->text[r->at] < ' ') return malformed(r, "the end of a short string");
    out[n++] = r->text[r->at++];
  }
  if (r->at >= r->length) return malformed(r, "the end of a string");
  r->at++;
  out[n] = '\0';
  return BERTH_OK;
}

static berth_status read_extent(reader *r, int64_t *out) {
  skip_blanks(r);
  size_t start = r->at;
  int64_t value = 0;
  while (r->at < r->length && r->text[r->at] >= '0' && r->text[r->at] <= '9') {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, r->text[r->at] - '0', &value)) {
      return malformed(r, "an extent below 2^63");
    }
    r->at++;
  }
  if (r->at == start) return malformed(r, "an extent");
  if (r->at < r->length && r->text[r->at] == 'L') r->at++; // written by old Pythons
  *out = value;
  return BERTH_OK;
}

static berth_status read_shape(reader *r, berth_npy_header *header) {
  header->rank = 0;
  if (!accept(r, '(')) return malformed(r, "'(' of the shape");
  while (!accept(r, ')')) {
    if (header->rank == BERTH_MAX_RANK) return berthi_fail(r->err, BERTHI_R_INVALID_FILE, "header: more than %d axes", BERTH_MAX_RANK);
    BERTHI_TRY(read_extent(r, &header->shape[header->rank]));
    header->rank++;
    bool comma = accept(r, ',');
    skip_blanks(r);
    bool end = r->at < r->length && r->text[r->at] == ')';
    if (!comma && (!end || header->rank == 1)) return malformed(r, "',' in the shape");
  }
  return BERTH_OK;
}

static berth_status read_descr(reader *r, berth_npy_header *header) {
  static const struct {
    const char *code;
    berth_dtype dtype;
  } codes[] = {{"b1", BERTH_BOOL}, {"i1", BERTH_I8},  {"i2", BERTH_I16}, {"i4", BERTH_I32}, {"i8", BERTH_I64}, {"u1", BERTH_U8},  {"u2", BERTH_U16},
               {"u4", BERTH_U32},  {"u8", BERTH_U64}, {"f2", BERTH_F16}, {"f4", BERTH_F32}, {"f8", BERTH_F64}, {"c8", BERTH_C64}, {"c16", BERTH_C128}};
  char text[32];
  skip_blanks(r);
  if (r->at < r->length && r->text[r->at] == '[') {
    return berthi_fail(r->err, BERTHI_R_UNIMPLEMENTED, "records (a descr that is a list) are no element type of Berth");
  }
  BERTHI_TRY(read_string(r, text));
  char order = text[0];
  bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const char *code = text + (has_order ? 1 : 0);
  header->dtype = BERTH_DTYPE_NONE;
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
    if (strcmp(code, codes[i].code) == 0) header->dtype = codes[i].dtype;
  }
  if (header->dtype == BERTH_DTYPE_NONE) return berthi_fail(r->err, BERTHI_R_UNIMPLEMENTED, "descr '%s' is no element type of Berth", text);
  bool big = order == '>';
  header->swapped = berth_dtype_size(header->dtype) > 1 && big != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) && order != '=' && order != '|' && has_order;
  return BERTH_OK;
}

static berth_status read_order(reader *r, berth_npy_header *header) {
  if (accept_word(r, "True")) {
    header->fortran_order = true;
    return BERTH_OK;
  }
  if (accept_word(r, "False")) {
    header->fortran_order = false;
    return BERTH_OK;
  }
  return malformed(r, "True or False");
}

static berth_status read_entries(reader *r, berth_npy_header *header) {
  static const char *const names[] = {"descr", "fortran_order", "shape"};
  unsigned seen = 0;
  if (!accept(r, '{')) return malformed(r, "'{'");
  while (!accept(r, '}')) {
    char key[32];
    unsigned which = 3;
    BERTHI_TRY(read_string(r, key));
    for (unsigned i = 0; i < 3; i++) {
      if (strcmp(key, names[i]) == 0) which = i;
    }
    if (which == 3) return berthi_fail(r->err, BERTHI_R_INVALID_FILE, "header: unknown key '%s'", key);
    if (seen & (1u << which)) return berthi_fail(r->err, BERTHI_R_INVALID_FILE, "header: key '%s' twice", key);
    seen |= 1u << which;
    if (!accept(r, ':')) return malformed(r, "':'");
    BERTHI_TRY(which == 0 ? read_descr(r, header) : which == 1 ? read_order(r, header) : read_shape(r, header));
    if (accept(r, ',')) continue;
    skip_blanks(r);
    if (r->at >= r->length || r->text[r->at] != '}') return malformed(r, "',' or '}'");
  }
  if (seen != 7) return berthi_fail(r->err, BERTHI_R_INVALID_FILE, "header: key '%s' is missing", names[(seen & 1) == 0 ? 0 : (seen & 2) == 0 ? 1 : 2]);
  skip_blanks(r);
  return r->at == r->length ? BERTH_OK : malformed(r, "the end of the header");
}

berth_status berthi_npy_parse_header(const char *text, size_t length, berth_npy_header *header, berth_error *err) {
  reader r = {.text = text, .length = length, .err = err};
  uint64_t elements;
  BERTHI_TRY(read_entries(&r, header));
  BERTHI_TRY(berthi_shape_check(header->dtype, header->rank, header->shape, &elements, &header->bytes, err));
  int64_t size = (int64_t)berth_dtype_size(header->dtype);
  if (!header->fortran_order) {
    berthi_shape_strides(header->rank, header->shape, size, header->strides);
    return BERTH_OK;
  }
  for (uint32_t i = 0; i < header->rank; i++) {
    header->strides[i] = size;
    if (header->shape[i] > 1) size *= header->shape[i];
  }
  return BERTH_OK;
}

static const char *descr_of(berth_dtype dtype) {
  bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
  switch (dtype) {
    case BERTH_BOOL: return "|b1";
    case BERTH_I8: return "|i1";
    case BERTH_U8: return "|u1";
    case BERTH_I16: return big ? ">i2" : "<i2";
    case BERTH_I32: return big ? ">i4" : "<i4";
    case BERTH_I64: return big ? ">i8" : "<i8";
    case BERTH_U16: return big ? ">u2" : "<u2";
    case BERTH_U32: return big ? ">u4" : "<u4";
    case BERTH_U64: return big ? ">u8" : "<u8";
    case BERTH_F16: return big ? ">f2" : "<f2";
    case BERTH_F32: return big ? ">f4" : "<f4";
    case BERTH_F64: return big ? ">f8" : "<f8";
    case BERTH_C64: return big ? ">c8" : "<c8";
    case BERTH_C128: return big ? ">c16" : "<c16";
    default: return "";
  }
}

size_t berthi_npy_format_header(berth_dtype dtype, uint32_t rank, const int64_t *shape, bool fortran_order, char out[BERTHI_NPY_MAX_WRITTEN]) {
  // 64 axes of at most 20 bytes each and the keys stay below the limit of 2048 bytes, and so within version 1.
  char *at = out + 10;
  char *end = out + BERTHI_NPY_MAX_WRITTEN;
  at += snprintf(at, (size_t)(end - at), "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr_of(dtype), fortran_order ? "True" : "False");
  for (uint32_t i = 0; i < rank; i++) at += snprintf(at, (size_t)(end - at), i == 0 ? "%lld," : " %lld,", (long long)shape[i]);
  if (rank > 1) at--;
  at += snprintf(at, (size_t)(end - at), "), }");
  size_t length = (size_t)(at - out) + 1;
  size_t padded = (length + 63) / 64 * 64;
  memset(at, ' ', padded - length);
  out[padded - 1] = '\n';
  memcpy(out, magic, 6);
  out[6] = 1;
  out[7] = 0;
  out[8] = (char)((padded - 10) & 0xFF);
  out[9] = (char)((padded - 10) >> 8);
  return padded;
}
