// SPDX-License-Identifier: Apache-2.0
/// Clang thread-safety annotations (functions only: C has no analysis of fields) and small compiler helpers.
#ifndef BERTHI_ANNOTATE_H
#define BERTHI_ANNOTATE_H

#if defined(__clang__)
#define BERTHI_TSA(x) __attribute__((x))
#else
#define BERTHI_TSA(x)
#endif
#define BERTHI_CAPABILITY(name) BERTHI_TSA(capability(name))
#define BERTHI_ACQUIRE(...) BERTHI_TSA(acquire_capability(__VA_ARGS__))
#define BERTHI_TRY_ACQUIRE(...) BERTHI_TSA(try_acquire_capability(__VA_ARGS__))
#define BERTHI_RELEASE(...) BERTHI_TSA(release_capability(__VA_ARGS__))
#define BERTHI_REQUIRES(...) BERTHI_TSA(requires_capability(__VA_ARGS__))
#define BERTHI_EXCLUDES(...) BERTHI_TSA(locks_excluded(__VA_ARGS__))
#define BERTHI_NO_TSA BERTHI_TSA(no_thread_safety_analysis)

#if defined(__SANITIZE_ADDRESS__)
#define BERTHI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BERTHI_ASAN 1
#endif
#endif

#define BERTHI_LIKELY(x) __builtin_expect(!!(x), 1)
#define BERTHI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BERTHI_COLD __attribute__((cold, noinline))
#define BERTHI_CACHE_LINE 64
#define BERTHI_ALIGNED_LINE __attribute__((aligned(BERTHI_CACHE_LINE)))
#define BERTHI_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))
#define BERTHI_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
