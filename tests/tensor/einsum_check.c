// SPDX-License-Identifier: Apache-2.0
#include "tensor/einsum_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void describe(uint32_t count, const literal *operands, berth_einsum_operand *described) {
  for (uint32_t i = 0; i < count; i++) described[i] = (berth_einsum_operand){operands[i].rank, operands[i].shape, NULL};
}

void check_einsum(const char *spec, uint32_t count, const literal *operands, const literal *expected) {
  static double nothing;
  berth_tensor *tensors[8];
  berth_tensor *result = NULL;
  berth_exec exec;
  berth_error err = BERTH_ERROR_INIT;
  berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
  fake_exec_init(&exec, 1 << 20);
  for (uint32_t i = 0; i < count; i++) {
    void *data = (void *)(uintptr_t)(operands[i].values == NULL ? &nothing : operands[i].values);
    assert_int_equal(berth_tensor_wrap(data, BERTH_F64, operands[i].rank, operands[i].shape, NULL, &tensors[i], &err), BERTH_OK);
  }
  if (berth_einsum(&exec, spec, (const berth_tensor *const *)tensors, count, &result, &err) != BERTH_OK) fail_msg("%s: %s", spec, err.message);
  assert_int_equal(berth_tensor_get_info(result, &info, NULL), BERTH_OK);
  assert_int_equal(info.rank, expected->rank);
  for (uint32_t i = 0; i < info.rank; i++) assert_int_equal(info.shape[i], expected->shape[i]);
  const double *values = info.data;
  for (uint64_t i = 0; i < info.elements; i++) {
    if (values[i] != expected->values[i]) fail_msg("%s: element %llu is %g, not %g", spec, (unsigned long long)i, values[i], expected->values[i]);
  }
  berth_tensor_release(result);
  for (uint32_t i = 0; i < count; i++) berth_tensor_release(tensors[i]);
  assert_true(fake_exec_is_clean(&exec));
}

void check_refused(const char *spec, uint32_t count, const literal *operands, const char *reason, const char *text) {
  berth_einsum_operand described[8];
  berth_einsum_plan *plan = NULL;
  berth_error err = BERTH_ERROR_INIT;
  describe(count, operands, described);
  berth_status status = berth_einsum_plan_create(spec, count, described, BERTH_F64, NULL, &plan, &err);
  if (status == BERTH_OK) fail_msg("'%s' was accepted", spec);
  assert_null(plan);
  assert_int_equal(status, err.code);
  assert_string_equal(err.reason, reason);
  if (strstr(err.message, text) == NULL) fail_msg("'%s': \"%s\" is not in \"%s\"", spec, text, err.message);
}
