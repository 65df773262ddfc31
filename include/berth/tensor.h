// SPDX-License-Identifier: Apache-2.0
/// Tensors, `.npy` files and einsum.
///
/// A tensor is an element type, a shape, strides in bytes and memory. The memory belongs to an execution (`berth_tensor_create`, results of
/// operations, `berth_npy_read`) or is borrowed from the host (`berth_tensor_wrap`). Nothing is promoted, transferred or copied in silence:
/// what an operation does not support it refuses before it touches its output (DESIGN section 5).
///
/// Memory of an execution is charged rounded up to BERTH_TENSOR_ALIGNMENT bytes. A tensor whose memory belongs to an execution has to be
/// released before that execution ends.
#ifndef BERTH_TENSOR_H
#define BERTH_TENSOR_H

#include "berth/base.h"
#include "berth/dtype.h"
#include "berth/runtime/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_MAX_RANK 64
#define BERTH_TENSOR_ALIGNMENT 64

typedef struct berth_tensor berth_tensor;
typedef struct berth_einsum_plan berth_einsum_plan;

/// What a tensor is. The pointers stay valid while the caller holds the tensor.
typedef struct berth_tensor_info {
  size_t struct_size;
  berth_dtype dtype;
  uint32_t rank;
  const int64_t *shape;   ///< `rank` extents, each >= 0.
  const int64_t *strides; ///< `rank` steps in bytes; may be negative or 0 in a wrapped tensor.
  uint64_t elements;      ///< Product of the extents; 1 for rank 0.
  uint64_t bytes;         ///< elements x element size.
  void *data;             ///< Element with all indices 0.
  bool compact;           ///< Row-major without gaps (axes of extent 1 do not matter).
  bool borrowed;          ///< Memory of the host, not of an execution.
} berth_tensor_info;
#define BERTH_TENSOR_INFO_INIT BERTH_SIZED(berth_tensor_info)

/// Creates a compact row-major tensor in the execution's memory, contents undefined.
///
/// shape: `rank` extents; may be NULL when `rank` is 0.
///
/// Owns:    returns one reference; its memory is the execution's.
/// Threads: the one that uses the execution.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT (rank above BERTH_MAX_RANK, negative extent, unknown dtype); OUT_OF_RANGE `size_overflow`; RESOURCE_EXHAUSTED
///          `grant_exhausted`, `device_exhausted`, `host_exhausted`; and whatever the execution answers when it has ended.
/// Since:   0.1
BERTH_API berth_status berth_tensor_create(berth_exec *exec, berth_dtype dtype, uint32_t rank, const int64_t *shape, berth_tensor **out_tensor,
                                           berth_error *err);

/// Wraps host memory as a tensor. No operation: nothing is read, and no execution is needed.
///
/// strides: `rank` steps in bytes, multiples of the element size, of any sign; NULL means compact row-major. `data` is the element with all
/// indices 0 and is aligned to its component type (f64 for c128).
///
/// Owns:    borrows the memory until the last reference is released; returns one reference.
/// Threads: any.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT; OUT_OF_RANGE `size_overflow`; RESOURCE_EXHAUSTED `host_exhausted`.
/// Since:   0.1
BERTH_API berth_status berth_tensor_wrap(void *data, berth_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *strides,
                                         berth_tensor **out_tensor, berth_error *err);

/// Takes another reference and returns the tensor.
///
/// Owns:    retains. NULL is a no-op and returns NULL.
/// Threads: any that holds a reference.
/// Blocks:  never.
/// Since:   0.1
BERTH_API berth_tensor *berth_tensor_retain(berth_tensor *tensor);

/// Gives one reference back; the last one frees the memory, or ends the borrowing.
///
/// Owns:    takes one reference; NULL is a no-op.
/// Threads: any for borrowed memory; the one that uses the execution otherwise.
/// Blocks:  never.
/// Since:   0.1
BERTH_API void berth_tensor_release(berth_tensor *tensor);

/// Fills `out_info`.
///
/// Owns:    borrows.
/// Threads: any that holds a reference.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT.
/// Since:   0.1
BERTH_API berth_status berth_tensor_get_info(const berth_tensor *tensor, berth_tensor_info *out_info, berth_error *err);

/// Returns the address of the element with all indices 0; NULL for NULL.
///
/// Owns:    borrows.
/// Threads: any that holds a reference.
/// Blocks:  never.
/// Since:   0.1
BERTH_API void *berth_tensor_data(const berth_tensor *tensor);

/// What the header of a `.npy` file says.
typedef struct berth_npy_header {
  size_t struct_size;
  berth_dtype dtype;
  bool fortran_order;  ///< First axis fastest.
  bool swapped;        ///< Bytes are in the other order than this machine's; berth_npy_read turns them.
  uint32_t version;    ///< Major version of the format: 1, 2 or 3.
  uint32_t rank;
  int64_t shape[BERTH_MAX_RANK];
  int64_t strides[BERTH_MAX_RANK]; ///< In bytes, of the tensor that berth_npy_read returns.
  uint64_t data_offset;            ///< First byte of the data in the file.
  uint64_t bytes;                  ///< Bytes of the data.
} berth_npy_header;
#define BERTH_NPY_HEADER_INIT BERTH_SIZED(berth_npy_header)

/// Reads the header of a `.npy` file and checks it against the file's size, without reading data. For planning, before admission.
///
/// Owns:    borrows.
/// Threads: any.
/// Blocks:  on the file system.
/// Fails:   NOT_FOUND `file_not_found`; INVALID_ARGUMENT `invalid_file` (the message says what is wrong where); UNIMPLEMENTED `unimplemented`
///          for element types that Berth does not have (objects, strings, records).
/// Source:  the NPY format, versions 1.0 to 3.0.
/// Since:   0.1
BERTH_API berth_status berth_npy_peek(const char *path, berth_npy_header *out_header, berth_error *err);

/// Reads a `.npy` file into the execution's memory. A file in Fortran order becomes a tensor with Fortran strides, without a copy.
///
/// Owns:    returns one reference.
/// Threads: the one that uses the execution.
/// Blocks:  on the file system.
/// Fails:   as berth_npy_peek and berth_tensor_create; CANCELLED and DEADLINE_EXCEEDED between chunks.
/// Since:   0.1
BERTH_API berth_status berth_npy_read(berth_exec *exec, const char *path, berth_tensor **out_tensor, berth_error *err);

/// Writes a tensor of any strides as a `.npy` file, in C order (in Fortran order when the tensor has just that layout). The data goes to a
/// temporary file beside `path`, which replaces `path` when it is complete: a failure leaves the old file as it was.
///
/// A tensor whose layout is neither order takes 64 KiB of the execution's memory meanwhile.
///
/// Owns:    borrows.
/// Threads: the one that uses the execution.
/// Blocks:  on the file system.
/// Fails:   INTERNAL `write_failed` (the message has the system's reason); UNIMPLEMENTED `unimplemented` for bf16, which NPY cannot name;
///          CANCELLED and DEADLINE_EXCEEDED between chunks.
/// Since:   0.1
BERTH_API berth_status berth_npy_write(berth_exec *exec, const berth_tensor *tensor, const char *path, berth_error *err);

/// What the search for a contraction order minimizes.
typedef enum berth_einsum_objective {
  BERTH_EINSUM_BALANCED = 0, ///< Flops and traffic, as an estimate of time.
  BERTH_EINSUM_FLOPS = 1,    ///< Multiply-add count.
  BERTH_EINSUM_SIZE = 2      ///< Peak bytes.
} berth_einsum_objective;

/// One operand as a plan needs to know it.
typedef struct berth_einsum_operand {
  uint32_t rank;
  const int64_t *shape;
  const int64_t *strides; ///< In bytes; NULL means compact row-major.
} berth_einsum_operand;

/// Options of a plan.
typedef struct berth_einsum_options {
  size_t struct_size;
  /// Contraction order in the shrinking-list form: each entry names positions in the list of what is left; these are removed and the result
  /// is appended. `path_lengths[i]` positions (1 or more) belong to entry i, and all positions follow one another in `path`. NULL `path`
  /// means that an order is searched.
  const uint32_t *path;
  const uint32_t *path_lengths; ///< NULL: every entry has two positions.
  uint32_t path_entries;
  berth_einsum_objective objective; ///< Of the search.
  bool charge_operands;             ///< Peak bytes include the operands, as if each were loaded into the execution's memory.
} berth_einsum_options;
#define BERTH_EINSUM_OPTIONS_INIT BERTH_SIZED(berth_einsum_options)

/// What a plan will do and take.
typedef struct berth_einsum_plan_info {
  size_t struct_size;
  berth_dtype dtype;
  uint32_t operands;
  uint32_t steps;            ///< Contractions of the path (a single operand: 1).
  double flops;              ///< Multiply-adds, counted as one each for real types.
  uint64_t peak_bytes;       ///< Most bytes of the execution in use at once: output, intermediates, packing, and operands if charged.
  uint64_t output_bytes;     ///< Charged for the output.
  uint64_t operand_bytes;    ///< Charged for all operands (whether or not in peak_bytes).
  uint64_t largest_bytes;    ///< Largest intermediate or output.
  uint64_t traffic_bytes;    ///< Bytes that all steps read and write.
  uint64_t copied_bytes;     ///< Of these, bytes of permuted copies.
  uint32_t out_rank;
  const int64_t *out_shape;  ///< Valid while the plan is held.
} berth_einsum_plan_info;
#define BERTH_EINSUM_PLAN_INFO_INIT BERTH_SIZED(berth_einsum_plan_info)

/// Plans an einsum: parses, validates, chooses the order and the layout of every intermediate, and computes the exact peak of memory. An
/// execution that has `peak_bytes` free runs the plan (EXE-6).
///
/// spec: UTF-8; one label is one code point; blanks are ignored. `ij,jk->ik`; without `->` the output has the labels that occur once, in the
/// order of their code points, after the ellipsis. `...` stands for the axes that have no label; they broadcast from the right. A label that
/// occurs twice in one operand takes the diagonal. An extent of 1 broadcasts against any extent, 0 included, summed labels too.
///
/// Owns:    borrows everything; returns a plan that any number of threads may run at the same time.
/// Threads: any.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT `invalid_spec`, `shape_mismatch`, `invalid_argument`; UNIMPLEMENTED `unsupported_on_device` (element type);
///          OUT_OF_RANGE `size_overflow`; RESOURCE_EXHAUSTED `host_exhausted`.
/// Source:  numpy.einsum for the notation; opt_einsum for the path form.
/// Since:   0.1
BERTH_API berth_status berth_einsum_plan_create(const char *spec, uint32_t operand_count, const berth_einsum_operand *operands, berth_dtype dtype,
                                                const berth_einsum_options *options, berth_einsum_plan **out_plan, berth_error *err);

/// Fills `out_info`.
///
/// Owns:    borrows.
/// Threads: any that holds the plan.
/// Blocks:  never.
/// Fails:   INVALID_ARGUMENT.
/// Since:   0.1
BERTH_API berth_status berth_einsum_plan_get_info(const berth_einsum_plan *plan, berth_einsum_plan_info *out_info, berth_error *err);

/// Frees a plan that no thread runs any more; NULL is a no-op.
///
/// Owns:    takes the plan.
/// Threads: any.
/// Blocks:  never.
/// Since:   0.1
BERTH_API void berth_einsum_plan_release(berth_einsum_plan *plan);

/// Called between the steps of a run, on the thread that runs.
typedef void (*berth_einsum_progress)(void *arg, uint32_t steps_done, uint32_t steps);

/// Options of a run.
typedef struct berth_einsum_run_options {
  size_t struct_size;
  berth_einsum_progress progress; ///< NULL: none.
  void *progress_arg;
} berth_einsum_run_options;
#define BERTH_EINSUM_RUN_OPTIONS_INIT BERTH_SIZED(berth_einsum_run_options)

/// Runs a plan. The operands have the plan's dtype, shapes and strides; results do not depend on the number of lanes (NUM-6).
///
/// Owns:    borrows, `options` may be NULL; returns one reference to a compact row-major tensor in the execution's memory.
/// Threads: the one that uses the execution.
/// Blocks:  while it computes; a cancel is seen within a few milliseconds.
/// Fails:   INVALID_ARGUMENT `shape_mismatch`, `dtype_mismatch`, before anything is written; RESOURCE_EXHAUSTED `grant_exhausted` (names step,
///          bytes and what to ask for); CANCELLED; DEADLINE_EXCEEDED.
/// Since:   0.1
BERTH_API berth_status berth_einsum_run(berth_exec *exec, const berth_einsum_plan *plan, const berth_tensor *const *operands,
                                        const berth_einsum_run_options *options, berth_tensor **out_result, berth_error *err);

/// Runs a plan into a destination of any strides, which is overwritten and never read. Its memory may not overlap an operand's. A destination
/// that is not compact takes `output_bytes` of the execution's memory in addition, and so fits in `peak_bytes` as well.
///
/// Owns:    borrows everything; `options` may be NULL.
/// Threads: the one that uses the execution.
/// Blocks:  while it computes.
/// Fails:   as berth_einsum_run; INVALID_ARGUMENT `invalid_argument` when the destination overlaps an operand or itself. After CANCELLED the
///          destination's contents are undefined.
/// Since:   0.1
BERTH_API berth_status berth_einsum_run_into(berth_exec *exec, const berth_einsum_plan *plan, const berth_tensor *const *operands,
                                             berth_tensor *destination, const berth_einsum_run_options *options, berth_error *err);

/// Plans and runs in one call.
///
/// Owns:    borrows; returns one reference.
/// Threads: the one that uses the execution.
/// Blocks:  while it computes.
/// Fails:   as berth_einsum_plan_create and berth_einsum_run.
/// Since:   0.1
BERTH_API berth_status berth_einsum(berth_exec *exec, const char *spec, const berth_tensor *const *operands, uint32_t operand_count,
                                    berth_tensor **out_result, berth_error *err);

#ifdef __cplusplus
}
#endif
#endif
