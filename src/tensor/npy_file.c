// SPDX-License-Identifier: Apache-2.0
// Files: read in chunks into the tensor's memory, written in chunks to a temporary file that replaces the old one when it is complete.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include "runtime/exec_ops.h"
#include "tensor/npy.h"
#include "tensor/tensor_internal.h"

enum { CHUNK = 4 << 20, PATH_ROOM = 4096 };

static berth_status bad_path(const char *path, berth_error *err) {
  if (path == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "path is NULL");
  return BERTH_OK;
}

/// Reads exactly `bytes`, or says how many there were.
static ssize_t read_fully(int file, void *to, size_t bytes, uint64_t offset) {
  size_t done = 0;
  if (berthi_fault_fires(BERTHI_FAULT_FILE, "npy.read")) {
    errno = EIO;
    return -1;
  }
  while (done < bytes) {
    ssize_t got = pread(file, (char *)to + done, bytes - done, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += (size_t)got;
  }
  return (ssize_t)done;
}

static berth_status cannot_read(const char *path, berth_error *err) {
  return berthi_fail(err, BERTHI_R_INVALID_FILE, "%s: %s", path, strerror(errno));
}

/// Puts the path before a message about the file's contents.
static berth_status name_file(const char *path, const berth_error *inner, berth_status status, berth_error *err) {
  if (err == NULL) return status;
  const char *text = strstr(inner->message, ": ");
  *err = *inner;
  snprintf(err->message, sizeof err->message, "%s: %.90s: %.120s", inner->reason, path, text == NULL ? inner->message : text + 2);
  return status;
}

static berth_status open_file(const char *path, int *out_file, berth_error *err) {
  int file = berthi_fault_fires(BERTHI_FAULT_FILE, "npy.open") ? (errno = EIO, -1) : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return berthi_fail(err, BERTHI_R_FILE_NOT_FOUND, "%s: %s", path, strerror(errno));
  *out_file = file;
  return BERTH_OK;
}

static berth_status read_text(int file, const char *path, size_t start, uint64_t length, berth_npy_header *header, berth_error *err) {
  char *text = berthi_alloc((size_t)length + 1);
  if (text == NULL) return berthi_fail(err, BERTHI_R_HOST_EXHAUSTED, "%llu bytes for a header", (unsigned long long)length);
  berth_error inner = BERTH_ERROR_INIT;
  berth_status status;
  ssize_t got = read_fully(file, text, (size_t)length, start);
  if (got < 0) {
    status = cannot_read(path, err);
  } else if ((uint64_t)got < length) {
    status = berthi_fail(err, BERTHI_R_INVALID_FILE, "%s: the file ends inside its header", path);
  } else {
    status = berthi_npy_parse_header(text, (size_t)length, header, &inner);
    if (status != BERTH_OK) name_file(path, &inner, status, err);
  }
  berthi_free(text);
  return status;
}

static berth_status read_header(int file, const char *path, berth_npy_header *header, berth_error *err) {
  unsigned char prefix[BERTHI_NPY_PREFIX];
  berth_error inner = BERTH_ERROR_INIT;
  struct stat info;
  size_t start;
  uint64_t length;
  ssize_t got = read_fully(file, prefix, sizeof prefix, 0);
  if (got < 0 || fstat(file, &info) != 0) return cannot_read(path, err);
  berth_status status = berthi_npy_parse_prefix(prefix, (size_t)got, &header->version, &start, &length, &inner);
  if (status != BERTH_OK) return name_file(path, &inner, status, err);
  BERTHI_TRY(read_text(file, path, start, length, header, err));
  header->data_offset = start + length;
  uint64_t there = (uint64_t)info.st_size > header->data_offset ? (uint64_t)info.st_size - header->data_offset : 0;
  if (S_ISREG(info.st_mode) && there < header->bytes) {
    return berthi_fail(err, BERTHI_R_INVALID_FILE, "%s: the header tells of %llu bytes of data and the file has %llu", path,
                       (unsigned long long)header->bytes, (unsigned long long)there);
  }
  return BERTH_OK;
}

berth_status berth_npy_peek(const char *path, berth_npy_header *out_header, berth_error *err) {
  berth_npy_header header = BERTH_NPY_HEADER_INIT;
  int file;
  BERTHI_TRY(bad_path(path, err));
  if (out_header == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "out_header is NULL");
  BERTHI_TRY(open_file(path, &file, err));
  berth_status status = read_header(file, path, &header, err);
  close(file);
  if (status != BERTH_OK) return status;
  return berthi_output_copy(out_header, &header, sizeof header, "berth_npy_header", err);
}

/// Turns the bytes of each component round.
static void swap_bytes(char *data, uint64_t bytes, size_t part) {
  for (uint64_t at = 0; at + part <= bytes; at += part) {
    for (size_t i = 0; i < part / 2; i++) {
      char moved = data[at + i];
      data[at + i] = data[at + part - 1 - i];
      data[at + part - 1 - i] = moved;
    }
  }
}

static void nothing(void *arg, uint64_t i) {
  (void)arg;
  (void)i;
}

/// Answers a cancel or a passed deadline with its reason.
static berth_status check_cancel(berth_exec *exec, berth_error *err) {
  return berthi_exec_cancelled(exec) ? berthi_exec_parallel(exec, 1, nothing, NULL, err) : BERTH_OK;
}

static berth_status read_data(berth_exec *exec, int file, const char *path, const berth_npy_header *header, char *data, berth_error *err) {
  bool complex_type = header->dtype == BERTH_C64 || header->dtype == BERTH_C128;
  size_t part = berth_dtype_size(header->dtype) / (complex_type ? 2 : 1);
  for (uint64_t at = 0; at < header->bytes; at += CHUNK) {
    size_t wanted = header->bytes - at < CHUNK ? (size_t)(header->bytes - at) : CHUNK;
    BERTHI_TRY(check_cancel(exec, err));
    ssize_t got = read_fully(file, data + at, wanted, header->data_offset + at);
    if (got < 0) return cannot_read(path, err);
    if ((size_t)got < wanted) return berthi_fail(err, BERTHI_R_INVALID_FILE, "%s: the file became shorter while it was read", path);
    if (header->swapped) swap_bytes(data + at, wanted, part);
  }
  return BERTH_OK;
}

static berth_status read_tensor(berth_exec *exec, int file, const char *path, berth_tensor **out_tensor, berth_error *err) {
  berth_npy_header header = BERTH_NPY_HEADER_INIT;
  void *data;
  BERTHI_TRY(read_header(file, path, &header, err));
  BERTHI_TRY(berth_exec_alloc(exec, header.bytes, &data, err));
  berth_status status = read_data(exec, file, path, &header, data, err);
  if (status == BERTH_OK) status = berthi_tensor_adopt(exec, data, header.dtype, header.rank, header.shape, header.strides, out_tensor, err);
  if (status != BERTH_OK) berth_exec_free(exec, data);
  return status;
}

berth_status berth_npy_read(berth_exec *exec, const char *path, berth_tensor **out_tensor, berth_error *err) {
  int file;
  BERTHI_TRY(bad_path(path, err));
  if (exec == NULL || out_tensor == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", exec == NULL ? "exec" : "out_tensor");
  BERTHI_TRY(open_file(path, &file, err));
  berth_status status = berthi_exec_op_begin(exec, "npy_read", err);
  if (status == BERTH_OK) {
    status = read_tensor(exec, file, path, out_tensor, err);
    berthi_exec_op_end(exec, 0, status == BERTH_OK ? (*out_tensor)->bytes : 0);
  }
  close(file);
  return status;
}

static bool write_fully(int file, const void *from, size_t bytes) {
  size_t done = 0;
  if (berthi_fault_fires(BERTHI_FAULT_FILE, "npy.write")) {
    errno = ENOSPC;
    return false;
  }
  while (done < bytes) {
    ssize_t put = write(file, (const char *)from + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += (size_t)put;
  }
  return true;
}

static berth_status cannot_write(const char *path, berth_error *err) {
  return berthi_fail(err, BERTHI_R_WRITE_FAILED, "%s: %s", path, strerror(errno));
}

static bool is_fortran(const berth_tensor *tensor) {
  int64_t step = (int64_t)berth_dtype_size(tensor->dtype);
  if (tensor->compact) return false;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 1) continue;
    if (tensor->strides[i] != step) return false;
    step *= tensor->shape[i];
  }
  return true;
}

static berth_status write_whole(berth_exec *exec, int file, const char *path, const char *data, uint64_t bytes, berth_error *err) {
  for (uint64_t at = 0; at < bytes; at += CHUNK) {
    size_t length = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
    BERTHI_TRY(check_cancel(exec, err));
    if (!write_fully(file, data + at, length)) return cannot_write(path, err);
  }
  return BERTH_OK;
}

/// A tensor of other strides: gathered into a buffer of the execution, some elements at a time in C order.
static berth_status write_gathered(berth_exec *exec, int file, const char *path, const berth_tensor *tensor, berth_error *err) {
  int64_t size = (int64_t)berth_dtype_size(tensor->dtype);
  int64_t room = 65536 / size;
  int64_t index[BERTH_MAX_RANK] = {0};
  const char *at = tensor->data;
  char *buffer;
  BERTHI_TRY(berth_exec_alloc(exec, 65536, (void **)&buffer, err));
  berth_status status = BERTH_OK;
  int64_t filled = 0;
  for (uint64_t done = 0; done < tensor->elements && status == BERTH_OK; done++) {
    memcpy(buffer + filled * size, at, (size_t)size);
    filled++;
    for (uint32_t i = tensor->rank; i-- > 0;) {
      at += tensor->strides[i];
      if (++index[i] < tensor->shape[i]) break;
      at -= tensor->shape[i] * tensor->strides[i];
      index[i] = 0;
    }
    if (filled < room && done + 1 < tensor->elements) continue;
    status = write_whole(exec, file, path, buffer, (uint64_t)(filled * size), err);
    filled = 0;
  }
  berth_exec_free(exec, buffer);
  return status;
}

static berth_status write_contents(berth_exec *exec, int file, const char *path, const berth_tensor *tensor, berth_error *err) {
  char header[BERTHI_NPY_MAX_WRITTEN];
  bool fortran = is_fortran(tensor);
  size_t length = berthi_npy_format_header(tensor->dtype, tensor->rank, tensor->shape, fortran, header);
  if (!write_fully(file, header, length)) return cannot_write(path, err);
  if (tensor->elements == 0) return BERTH_OK;
  if (tensor->compact || fortran) return write_whole(exec, file, path, tensor->data, tensor->bytes, err);
  return write_gathered(exec, file, path, tensor, err);
}

/// Creates the temporary file beside `path`. Mode as an ordinary new file's, after the process's mask.
static int create_temporary(const char *path, char temporary[PATH_ROOM]) {
  if (berthi_fault_fires(BERTHI_FAULT_FILE, "npy.create")) {
    errno = EACCES;
    return -1;
  }
  for (uint32_t attempt = 0; attempt < 1000; attempt++) {
    int length = snprintf(temporary, PATH_ROOM, "%s.%ld.%u.tmp", path, (long)getpid(), attempt);
    if (length < 0 || length >= PATH_ROOM) {
      errno = ENAMETOOLONG;
      return -1;
    }
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

static berth_status write_file(berth_exec *exec, const berth_tensor *tensor, const char *path, berth_error *err) {
  char temporary[PATH_ROOM];
  int file = create_temporary(path, temporary);
  if (file < 0) return cannot_write(path, err);
  berth_status status = write_contents(exec, file, path, tensor, err);
  if (close(file) != 0 && status == BERTH_OK) status = cannot_write(path, err);
  if (status == BERTH_OK && rename(temporary, path) != 0) status = cannot_write(path, err);
  if (status != BERTH_OK) unlink(temporary);
  return status;
}

berth_status berth_npy_write(berth_exec *exec, const berth_tensor *tensor, const char *path, berth_error *err) {
  BERTHI_TRY(bad_path(path, err));
  if (exec == NULL || tensor == NULL) return berthi_fail(err, BERTHI_R_INVALID_ARGUMENT, "%s is NULL", exec == NULL ? "exec" : "tensor");
  if (tensor->dtype == BERTH_BF16) return berthi_fail(err, BERTHI_R_UNIMPLEMENTED, "the NPY format has no name for bf16; convert it to f32");
  BERTHI_TRY(berthi_exec_op_begin(exec, "npy_write", err));
  berth_status status = write_file(exec, tensor, path, err);
  berthi_exec_op_end(exec, status == BERTH_OK ? tensor->bytes : 0, 0);
  return status;
}
