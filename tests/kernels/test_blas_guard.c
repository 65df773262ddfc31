// SPDX-License-Identifier: Apache-2.0
// Two threads that call the BLAS at the same time get what one gets: the packing buffers of a serial OpenBLAS are not shared (EXE-4, NUM-6).
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "kernels/vendor/blas_guard.h"

enum { LARGEST = 40, BLOCKS = 200, SHAPES = 60, ROUNDS = 6 };

typedef struct shape {
  int m, n, k;
  CBLAS_TRANSPOSE ta, tb;
  bool single;
  double *a, *b, *c;
  berthi_atomic32 next;
} shape;

static void product(const shape *s, int block, double *c) {
  size_t a_at = (size_t)block * LARGEST * LARGEST;
  int lda = s->ta == CblasNoTrans ? s->m : s->k;
  int ldb = s->tb == CblasNoTrans ? s->k : s->n;
  double *out = c + (size_t)block * (size_t)s->m * (size_t)s->n;
  berthi_blas_begin();
  if (s->single) {
    cblas_sgemm(CblasColMajor, s->ta, s->tb, s->m, s->n, s->k, 1.0f, (const float *)(const void *)(s->a + a_at), lda,
                (const float *)(const void *)(s->b + a_at), ldb, 0.0f, (float *)(void *)out, s->m);
  } else {
    cblas_dgemm(CblasColMajor, s->ta, s->tb, s->m, s->n, s->k, 1.0, s->a + a_at, lda, s->b + a_at, ldb, 0.0, out, s->m);
  }
  berthi_blas_end();
}

static void *work(void *arg) {
  shape *s = arg;
  for (;;) {
    uint32_t block = atomic_fetch_add(&s->next, 1);
    if (block >= BLOCKS) return NULL;
    product(s, (int)block, s->c);
  }
}

static double small_value(int i) {
  return (double)(i % 251 - 125) / 64.0;
}

static void test_two_threads(void **state) {
  (void)state;
  size_t elements = (size_t)BLOCKS * LARGEST * LARGEST;
  shape s = {.a = malloc(elements * sizeof(double)), .b = malloc(elements * sizeof(double)), .c = malloc(elements * sizeof(double))};
  double *expected = calloc(elements, sizeof(double));
  unsigned seed = 7;
  for (int i = 0; i < SHAPES; i++) {
    s.m = 1 + rand_r(&seed) % LARGEST;
    s.n = 1 + rand_r(&seed) % LARGEST;
    s.k = 1 + rand_r(&seed) % LARGEST;
    s.ta = rand_r(&seed) % 2 == 0 ? CblasTrans : CblasNoTrans;
    s.tb = rand_r(&seed) % 2 == 0 ? CblasTrans : CblasNoTrans;
    s.single = i % 2 == 0;
    for (size_t e = 0; e < elements; e++) {
      if (s.single) {
        ((float *)s.a)[e] = (float)small_value((int)e);
        ((float *)s.b)[e] = (float)small_value((int)e * 7);
      } else {
        s.a[e] = small_value((int)e);
        s.b[e] = small_value((int)e * 7);
      }
    }
    size_t bytes = (size_t)BLOCKS * (size_t)s.m * (size_t)s.n * sizeof(double);
    memset(expected, 0, bytes);
    for (int block = 0; block < BLOCKS; block++) product(&s, block, expected);
    for (int round = 0; round < ROUNDS; round++) {
      pthread_t other;
      memset(s.c, 0, bytes);
      atomic_store(&s.next, 0);
      assert_int_equal(pthread_create(&other, NULL, work, &s), 0);
      work(&s);
      pthread_join(other, NULL);
      assert_memory_equal(s.c, expected, bytes);
    }
  }
  free(s.a);
  free(s.b);
  free(s.c);
  free(expected);
}

/// The build links the BLAS so that products need not wait for each other.
static void test_guarded(void **state) {
  (void)state;
  assert_true(berthi_blas_is_guarded());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_threads),
      cmocka_unit_test(test_guarded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
