// SPDX-License-Identifier: Apache-2.0
// The compiler keeps the stores of a function that only stores. GCC 12 without -fno-delete-null-pointer-checks takes `compact` for a function without
// effect and deletes its call (cmake/BerthFlags.cmake).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct term {
  unsigned buffer, rank;
  unsigned labels[64];
  long steps[64];
} term;

static long extents[8] = {2, 2};

__attribute__((noinline)) static long extent_of(unsigned label) { return extents[label]; }

__attribute__((noinline)) static void compact(term *t) {
  long step = 1;
  for (unsigned i = t->rank; i-- > 0;) {
    t->steps[i] = step;
    step *= extent_of(t->labels[i]);
  }
}

static void stores_are_kept(void **state) {
  static term t = {.rank = 2, .labels = {0, 1}};
  (void)state;
  compact(&t);
  assert_int_equal(t.steps[0], 2);
  assert_int_equal(t.steps[1], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stores_are_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
