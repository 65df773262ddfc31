// SPDX-License-Identifier: Apache-2.0
#include "base/coroutine.h"

#if defined(BERTHI_SCHED)

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/annotate.h"

#if defined(BERTHI_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#define USE_UCONTEXT 1
#include <ucontext.h>
#endif

#define STACK_BYTES ((size_t)256 * 1024) // committed by the kernel as touched

// Lies at the top of its own stack, so a coroutine is one mapping.
struct berthi_coroutine {
  void *stack_pointer; // while it does not run
  char *bottom;        // lowest usable byte; for the root, as the sanitizer reports it
  size_t size;
  void *fake_stack; // the sanitizer's
  berthi_coroutine_fn fn;
  void *arg;
  berthi_coroutine *next; // in the pool
#if defined(USE_UCONTEXT)
  ucontext_t context;
#endif
};

static berthi_coroutine root;
static berthi_coroutine *pool;
static berthi_coroutine *came_from;

#if defined(__x86_64__)
// Saves what the calling convention asks a callee to keep, except the floating-point control words, which nothing here changes.
__asm__(".text\n"
        ".p2align 4\n"
        ".type berthi_stack_swap, @function\n"
        ".local berthi_stack_swap\n"
        "berthi_stack_swap:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size berthi_stack_swap, .-berthi_stack_swap\n"
        ".p2align 4\n"
        ".type berthi_stack_start, @function\n"
        ".local berthi_stack_start\n"
        "berthi_stack_start:\n"
        "  .cfi_startproc\n  .cfi_undefined rip\n"
        "  movq %r12, %rdi\n"
        "  callq *%r13\n"
        "  ud2\n"
        "  .cfi_endproc\n"
        ".size berthi_stack_start, .-berthi_stack_start\n");
#define SAVED_WORDS 7 // r15 r14 r13 r12 rbx rbp, return address: the stack is aligned to 16 at the call in the start function
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".type berthi_stack_swap, %function\n"
        ".local berthi_stack_swap\n"
        "berthi_stack_swap:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size berthi_stack_swap, .-berthi_stack_swap\n"
        ".p2align 4\n"
        ".type berthi_stack_start, %function\n"
        ".local berthi_stack_start\n"
        "berthi_stack_start:\n"
        "  .cfi_startproc\n  .cfi_undefined x30\n"
        "  mov x0, x19\n"
        "  blr x20\n"
        "  brk #1\n"
        "  .cfi_endproc\n"
        ".size berthi_stack_start, .-berthi_stack_start\n");
#define SAVED_WORDS 20
#endif

#if !defined(USE_UCONTEXT)
extern void berthi_stack_swap(void **save, void *load);
extern void berthi_stack_start(void);
#endif

berthi_coroutine *berthi_coroutine_root(void) { return &root; }

/// First thing after every switch, on the stack arrived at.
static void arrived(berthi_coroutine *self) {
#if defined(BERTHI_ASAN)
  const void *bottom = NULL;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
  if (came_from == &root) {
    root.bottom = (char *)(uintptr_t)bottom;
    root.size = size;
  }
#else
  (void)self;
#endif
}

static void first_run(void *value) {
  berthi_coroutine *self = value;
  arrived(self);
  self->fn(self->arg);
  __builtin_trap();
}

#if defined(USE_UCONTEXT)
static berthi_coroutine *starting;
static void first_run_ucontext(void) { first_run(starting); }

static void prepare(berthi_coroutine *self) {
  getcontext(&self->context);
  self->context.uc_stack.ss_sp = self->bottom;
  self->context.uc_stack.ss_size = self->size;
  self->context.uc_link = NULL;
  makecontext(&self->context, first_run_ucontext, 0);
}

static void swap(berthi_coroutine *from, berthi_coroutine *to) {
  starting = to;
  swapcontext(&from->context, &to->context);
}
#else
/// Lays out the stack as if the coroutine had been switched away from at the start function.
static void prepare(berthi_coroutine *self) {
  uintptr_t top = ((uintptr_t)self->bottom + self->size) & ~(uintptr_t)15;
  void **saved = (void **)top - SAVED_WORDS;
  for (int i = 0; i < SAVED_WORDS; i++) saved[i] = NULL;
#if defined(__x86_64__)
  saved[3] = self;                         // r12
  saved[2] = (void *)(uintptr_t)first_run; // r13
  saved[6] = (void *)(uintptr_t)berthi_stack_start;
#else
  saved[0] = self;                                   // x19
  saved[1] = (void *)(uintptr_t)first_run;           // x20
  saved[11] = (void *)(uintptr_t)berthi_stack_start; // x30
#endif
  self->stack_pointer = saved;
}

static void swap(berthi_coroutine *from, berthi_coroutine *to) { berthi_stack_swap(&from->stack_pointer, to->stack_pointer); }
#endif

/// Maps a stack with a page below it that faults.
static berthi_coroutine *map_stack(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t head = (sizeof(berthi_coroutine) + 63) & ~(size_t)63;
  char *memory = mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  mprotect(memory, page, PROT_NONE);
  berthi_coroutine *self = (berthi_coroutine *)(void *)(memory + page + STACK_BYTES - head);
  self->bottom = memory + page;
  self->size = STACK_BYTES - head;
#if defined(VALGRIND_STACK_REGISTER)
  (void)VALGRIND_STACK_REGISTER(self->bottom, self->bottom + self->size);
#endif
  return self;
}

berthi_coroutine *berthi_coroutine_create(berthi_coroutine_fn fn, void *arg) {
  berthi_coroutine *self = pool;
  if (self != NULL) {
    pool = self->next;
  } else {
    self = map_stack();
    if (self == NULL) return NULL;
  }
#if defined(BERTHI_ASAN)
  __asan_unpoison_memory_region(self->bottom, self->size); // frames of a former user that never returned
#endif
  self->fn = fn;
  self->arg = arg;
  self->fake_stack = NULL;
  prepare(self);
  return self;
}

void berthi_coroutine_release(berthi_coroutine *coroutine) {
  coroutine->next = pool;
  pool = coroutine;
}

void berthi_coroutine_switch(berthi_coroutine *from, berthi_coroutine *to, bool from_ends) {
  came_from = from;
#if defined(BERTHI_ASAN)
  __sanitizer_start_switch_fiber(from_ends ? NULL : &from->fake_stack, to->bottom, to->size);
#else
  (void)from_ends;
#endif
  swap(from, to);
  arrived(from);
}

#endif
