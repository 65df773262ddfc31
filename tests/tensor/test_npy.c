// SPDX-License-Identifier: Apache-2.0
// .npy files: round trips of every type and layout, other byte orders and versions, malformed headers, random damage, failing files and memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "tensor/fake_exec.h"
#include "tensor/naive_einsum.h"
#include "tensor/npy.h"

static char path[64];

static int open_directory(void **state) {
  static char directory[] = "/tmp/test_npy_XXXXXX";
  (void)state;
  if (mkdtemp(directory) == NULL) return -1;
  snprintf(path, sizeof path, "%s/t.npy", directory);
  return 0;
}

static int close_directory(void **state) {
  (void)state;
  unlink(path);
  *strrchr(path, '/') = '\0';
  return rmdir(path); // fails when a temporary file was left behind
}

static void put_file(const void *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, length, file), length);
  fclose(file);
}

static size_t get_file(char *bytes, size_t room) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t length = fread(bytes, 1, room, file);
  fclose(file);
  return length;
}

/// A version 1 file from header text and data; `length` -1 takes the text's.
static size_t make_file(char *out, int version, const char *text, long length, const void *data, size_t bytes) {
  size_t n = strlen(text);
  size_t start = version == 1 ? 10 : 12;
  if (length < 0) length = (long)n;
  memcpy(out, "\x93NUMPY", 6);
  out[6] = (char)version;
  out[7] = 0;
  out[8] = (char)(length & 0xFF);
  out[9] = (char)((length >> 8) & 0xFF);
  if (version > 1) out[10] = (char)((length >> 16) & 0xFF);
  if (version > 1) out[11] = (char)((length >> 24) & 0xFF);
  memcpy(out + start, text, n);
  if (bytes > 0) memcpy(out + start + n, data, bytes);
  return start + n + bytes;
}

static void test_round_trips(void **state) {
  static const int64_t shapes[][4] = {{0}, {5}, {2, 3}, {3, 1, 4}, {2, 3, 4, 5}, {0, 3}};
  static const uint32_t ranks[] = {0, 1, 2, 3, 4, 2};
  (void)state;
  for (int dtype = BERTH_BOOL; dtype <= BERTH_C128; dtype++) {
    if (dtype == BERTH_BF16) continue;
    for (size_t s = 0; s < sizeof ranks / sizeof *ranks; s++) {
      for (int layout = 0; layout < 3; layout++) { // C, Fortran, reversed first axis
        naive_random random = {s};
        char memory[120 * 16];
        int64_t strides[4];
        int64_t size = (int64_t)berth_dtype_size((berth_dtype)dtype);
        int64_t elements = 1;
        int64_t step = size;
        for (size_t i = 0; i < sizeof memory; i++) memory[i] = (char)naive_next(&random);
        for (uint32_t i = 0; i < ranks[s]; i++) {
          uint32_t axis = layout == 1 ? i : ranks[s] - 1 - i;
          strides[axis] = step;
          step *= shapes[s][axis];
          elements *= shapes[s][axis];
        }
        char *first = memory;
        if (layout == 2 && ranks[s] > 0 && elements > 0) {
          first += (shapes[s][0] - 1) * strides[0];
          strides[0] = -strides[0];
        }
        berth_exec exec;
        berth_error err = BERTH_ERROR_INIT;
        berth_tensor *t = NULL, *back = NULL;
        fake_exec_init(&exec, 1 << 20);
        assert_int_equal(berth_tensor_wrap(first, (berth_dtype)dtype, ranks[s], shapes[s], strides, &t, &err), BERTH_OK);
        if (berth_npy_write(&exec, t, path, &err) != BERTH_OK || berth_npy_read(&exec, path, &back, &err) != BERTH_OK) fail_msg("%s", err.message);
        berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
        berth_npy_header header = BERTH_NPY_HEADER_INIT;
        berth_tensor_get_info(back, &info, NULL);
        assert_int_equal(berth_npy_peek(path, &header, NULL), BERTH_OK);
        assert_int_equal(header.data_offset % 64, 0);
        assert_int_equal(header.dtype, dtype);
        assert_int_equal(info.dtype, dtype);
        assert_int_equal(info.rank, ranks[s]);
        assert_int_equal(info.elements, elements);
        for (int64_t e = 0; e < elements; e++) {
          int64_t rest = e, from = 0, to = 0;
          for (uint32_t i = ranks[s]; i-- > 0; rest /= shapes[s][i]) {
            from += rest % shapes[s][i] * strides[i];
            to += rest % shapes[s][i] * info.strides[i];
            assert_int_equal(info.strides[i], header.strides[i]);
          }
          assert_memory_equal(first + from, (char *)info.data + to, (size_t)size);
        }
        berth_tensor_release(back);
        berth_tensor_release(t);
        assert_true(fake_exec_is_clean(&exec));
      }
    }
  }
}

static void test_high_rank(void **state) {
  int64_t shape[BERTH_MAX_RANK];
  double value = 3.5;
  berth_exec exec;
  berth_tensor *t = NULL, *back = NULL;
  (void)state;
  fake_exec_init(&exec, 1 << 16);
  for (int i = 0; i < BERTH_MAX_RANK; i++) shape[i] = 1;
  assert_int_equal(berth_tensor_wrap(&value, BERTH_F64, BERTH_MAX_RANK, shape, NULL, &t, NULL), BERTH_OK);
  assert_int_equal(berth_npy_write(&exec, t, path, NULL), BERTH_OK);
  assert_int_equal(berth_npy_read(&exec, path, &back, NULL), BERTH_OK);
  assert_true(*(double *)berth_tensor_data(back) == 3.5);
  berth_tensor_release(t);
  berth_tensor_release(back);
}

static void test_versions_and_byte_order(void **state) {
  static const unsigned char big[] = {0x3F, 0xF8, 0, 0, 0, 0, 0, 0}; // 1.5
  static const char *const texts[] = {
      "{'descr': '>f8', 'fortran_order': False, 'shape': (1,), }   \n",
      "{\"shape\":(1L,),\"descr\":\">f8\",\"fortran_order\":True}",
      "{ 'fortran_order' : False , 'descr' : '>f8' , 'shape' : ( 1 , ) }",
  };
  (void)state;
  for (int version = 1; version <= 3; version++) {
    char file[256];
    berth_exec exec;
    berth_error err = BERTH_ERROR_INIT;
    berth_tensor *t = NULL;
    fake_exec_init(&exec, 1 << 16);
    put_file(file, make_file(file, version, texts[version - 1], -1, big, sizeof big));
    if (berth_npy_read(&exec, path, &t, &err) != BERTH_OK) fail_msg("version %d: %s", version, err.message);
    assert_true(*(double *)berth_tensor_data(t) == 1.5);
    berth_tensor_release(t);
  }
}

static void test_malformed(void **state) {
  static const struct {
    const char *text, *error;
  } cases[] = {
      {"", "'{' expected at byte 0"},
      {"{'descr': '<f8', 'fortran_order': False}", "key 'shape' is missing"},
      {"{'descr': '<f8', 'shape': (1,)}", "key 'fortran_order' is missing"},
      {"{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", "key 'descr' twice"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': 1}", "unknown key 'x'"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "descr '|O'"},
      {"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", "records"},
      {"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", "descr '<U3'"},
      {"{'descr': '<f8', 'fortran_order': 1, 'shape': (1,)}", "True or False"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "an extent expected"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", "below 2^63"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "more than 2^63 bytes"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (1000,)}", "tells of 8000 bytes of data and the file has 8"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (1)}", "',' in the shape"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), } x", "the end of the header"},
      {"{'descr': '<f8", "end of a string"},
  };
  double data = 1;
  char file[512];
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    berth_npy_header header = BERTH_NPY_HEADER_INIT;
    berth_error err = BERTH_ERROR_INIT;
    put_file(file, make_file(file, 1, cases[c].text, -1, &data, sizeof data));
    berth_status status = berth_npy_peek(path, &header, &err);
    if (status == BERTH_OK) fail_msg("'%s' was accepted", cases[c].text);
    if (strstr(err.message, cases[c].error) == NULL) fail_msg("'%s': %s", cases[c].text, err.message);
    if (strstr(err.message, "t.npy") == NULL) fail_msg("no file name in: %s", err.message);
  }
  berth_npy_header header = BERTH_NPY_HEADER_INIT;
  berth_error err = BERTH_ERROR_INIT;
  put_file(file, make_file(file, 1, "{}", 500, NULL, 0));
  assert_int_equal(berth_npy_peek(path, &header, &err), BERTH_INVALID_ARGUMENT);
  put_file(file, make_file(file, 2, "{}", 0x7FFFFFFF, NULL, 0));
  assert_int_equal(berth_npy_peek(path, &header, &err), BERTH_INVALID_ARGUMENT);
  put_file(file, make_file(file, 9, "{}", -1, NULL, 0));
  assert_int_equal(berth_npy_peek(path, &header, &err), BERTH_INVALID_ARGUMENT);
  put_file("", 0);
  assert_int_equal(berth_npy_peek(path, &header, &err), BERTH_INVALID_ARGUMENT);
  assert_int_equal(berth_npy_peek("/nonexistent/x.npy", &header, &err), BERTH_NOT_FOUND);
  assert_string_equal(err.reason, "file_not_found");
}

/// Damaged headers never do more than fail; what is accepted has sound figures.
static void test_damaged_headers(void **state) {
  static const char good[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4, 5), }";
  naive_random random = {2024};
  uint64_t accepted = 0;
  (void)state;
  for (int round = 0; round < 200000; round++) {
    char text[128];
    size_t length = sizeof good - 1;
    memcpy(text, good, length);
    int64_t damages = naive_between(&random, 1, 4);
    for (int64_t d = 0; d < damages; d++) {
      size_t at = (size_t)naive_between(&random, 0, (int64_t)length - 1);
      switch (naive_between(&random, 0, 3)) {
        case 0: text[at] = (char)naive_next(&random); break;
        case 1: text[at] = good[naive_between(&random, 0, (int64_t)sizeof good - 2)]; break;
        case 2:
          memmove(text + at, text + at + 1, length - at - 1);
          length--;
          break;
        default:
          if (length + 1 < sizeof text) {
            memmove(text + at + 1, text + at, length - at);
            text[at] = "0123456789,()'<>"[naive_between(&random, 0, 15)];
            length++;
          }
      }
    }
    char *exact = malloc(length); // so that a read beyond its end is seen
    memcpy(exact, text, length);
    berth_npy_header header = BERTH_NPY_HEADER_INIT;
    berth_error err = BERTH_ERROR_INIT;
    if (berthi_npy_parse_header(exact, length, &header, &err) == BERTH_OK) {
      accepted++;
      uint64_t bytes = berth_dtype_size(header.dtype);
      assert_true(bytes > 0 && header.rank <= BERTH_MAX_RANK);
      for (uint32_t i = 0; i < header.rank; i++) bytes *= (uint64_t)header.shape[i];
      assert_int_equal(bytes, header.bytes);
    } else {
      assert_true(err.code != BERTH_OK && err.reason != NULL);
    }
    free(exact);
  }
  assert_true(accepted > 1000);
}

/// Each failing file operation, once and from then on: the right error, the old file as it was, no temporary file left (close_directory).
static void test_failing_files(void **state) {
  double old_values[2] = {1, 2}, new_values[3] = {3, 4, 5};
  const int64_t two[] = {2}, three[] = {3};
  berth_tensor *old_tensor = NULL, *new_tensor = NULL;
  berth_exec exec;
  char before[512], after[512];
  (void)state;
  fake_exec_init(&exec, 1 << 20);
  berth_tensor_wrap(old_values, BERTH_F64, 1, two, NULL, &old_tensor, NULL);
  berth_tensor_wrap(new_values, BERTH_F64, 1, three, NULL, &new_tensor, NULL);
  assert_int_equal(berth_npy_write(&exec, old_tensor, path, NULL), BERTH_OK);
  size_t length = get_file(before, sizeof before);
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t nth = 1;; nth++) {
      berth_error err = BERTH_ERROR_INIT;
      berthi_fault_plan(BERTHI_FAULT_FILE, nth, sticky == 1);
      berth_status status = berth_npy_write(&exec, new_tensor, path, &err);
      berthi_fault_plan_end();
      if (status == BERTH_OK) break;
      assert_string_equal(err.reason, "write_failed");
      assert_int_equal(get_file(after, sizeof after), length);
      assert_memory_equal(before, after, length);
    }
    assert_int_equal(berth_npy_write(&exec, old_tensor, path, NULL), BERTH_OK);
    for (uint64_t nth = 1;; nth++) {
      berth_error err = BERTH_ERROR_INIT;
      berth_tensor *t = NULL;
      berthi_fault_plan(BERTHI_FAULT_FILE, nth, sticky == 1);
      berth_status status = berth_npy_read(&exec, path, &t, &err);
      berthi_fault_plan_end();
      berth_tensor_release(t);
      if (status == BERTH_OK) break;
      assert_true(status == BERTH_NOT_FOUND || status == BERTH_INVALID_ARGUMENT);
      assert_true(fake_exec_is_clean(&exec));
    }
  }
  uint64_t live = berthi_alloc_live();
  for (uint64_t nth = 1;; nth++) {
    berth_error err = BERTH_ERROR_INIT;
    berth_tensor *t = NULL;
    berthi_fault_plan(BERTHI_FAULT_ALLOC, nth, false);
    berth_status status = berth_npy_read(&exec, path, &t, &err);
    berthi_fault_plan_end();
    berth_tensor_release(t);
    assert_int_equal(berthi_alloc_live(), live);
    assert_true(fake_exec_is_clean(&exec));
    if (status == BERTH_OK) break;
    assert_string_equal(err.reason, "host_exhausted");
  }
  berth_tensor_release(old_tensor);
  berth_tensor_release(new_tensor);
}

static void test_grant_and_cancel(void **state) {
  enum { N = 3 << 20 };
  double *values = calloc(N, sizeof *values);
  const int64_t shape[] = {N};
  berth_tensor *t = NULL, *back = NULL;
  berth_exec exec;
  berth_error err = BERTH_ERROR_INIT;
  (void)state;
  berth_tensor_wrap(values, BERTH_F64, 1, shape, NULL, &t, NULL);
  fake_exec_init(&exec, N * 8);
  assert_int_equal(berth_npy_write(&exec, t, path, NULL), BERTH_OK);
  assert_int_equal(berth_npy_read(&exec, path, &back, NULL), BERTH_OK);
  assert_int_equal(exec.peak, N * 8);
  berth_tensor_release(back);
  exec.limit = N * 8 - 64;
  assert_int_equal(berth_npy_read(&exec, path, &back, &err), BERTH_RESOURCE_EXHAUSTED);
  exec.limit = N * 8;
  exec.cancelled = true;
  assert_int_equal(berth_npy_read(&exec, path, &back, &err), BERTH_CANCELLED);
  assert_int_equal(berth_npy_write(&exec, t, path, &err), BERTH_CANCELLED);
  assert_true(fake_exec_is_clean(&exec));
  berth_tensor_release(t);
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_high_rank),
      cmocka_unit_test(test_versions_and_byte_order),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_damaged_headers),
      cmocka_unit_test(test_failing_files),
      cmocka_unit_test(test_grant_and_cancel),
  };
  return cmocka_run_group_tests(tests, open_directory, close_directory);
}
