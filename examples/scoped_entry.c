// SPDX-License-Identifier: Apache-2.0
// The scoped door: the callback runs once, inside 1 MiB and one lane that were promised before it started.
#include <stdio.h>

#include "berth/berth.h"

static intptr_t multiply(berth_exec *exec, void *arg) {
  double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
  berth_tensor *in[2] = {NULL, NULL}, *product = NULL;
  berth_status status = berth_tensor_wrap(a, BERTH_F64, 2, (int64_t[]){2, 2}, NULL, &in[0], NULL);
  if (status == BERTH_OK) status = berth_tensor_wrap(b, BERTH_F64, 2, (int64_t[]){2, 2}, NULL, &in[1], NULL);
  if (status == BERTH_OK) status = berth_einsum(exec, "ij,jk->ik", (const berth_tensor *const *)in, 2, &product, NULL);
  if (status == BERTH_OK) *(double *)arg = ((double *)berth_tensor_data(product))[3];
  berth_tensor_release(product);
  berth_tensor_release(in[1]);
  berth_tensor_release(in[0]);
  return status;
}

int main(void) {
  berth_backend *backend = NULL;
  berth_run_options options = BERTH_RUN_OPTIONS_INIT;
  berth_run_result result = BERTH_RUN_RESULT_INIT;
  berth_error err = BERTH_ERROR_INIT;
  double corner = 0;
  options.bytes = 1 << 20;
  berth_status status = berth_backend_default(&backend, &err);
  berth_session *session = status == BERTH_OK ? berth_backend_session(backend) : NULL;
  if (status == BERTH_OK) status = berth_run(session, &options, multiply, &corner, &result, &err);
  printf("%s%s, callback %ld, corner %g\n", berth_status_name(status), err.message, (long)result.value, corner);
  berth_session_release(session);
  berth_backend_release(backend);
  return status == BERTH_OK && result.value == BERTH_OK && corner == 50 ? 0 : 1;
}
