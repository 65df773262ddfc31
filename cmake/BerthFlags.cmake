# SPDX-License-Identifier: Apache-2.0
# Language, warnings, build types and sanitizers. Sets the interface target berth_flags, which everything in this tree links privately.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release (no asserts) or Debug (asserts, -O1)" FORCE)
  endif()
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g -DNDEBUG")
  set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")
  # gcc 12.2 at -O1 drops the stores of `for (i = n; i-- > 0;) { to->a[i] = x; x *= f(to->b[i]); }`: after ivopts it takes the function for pure.
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    string(APPEND CMAKE_C_FLAGS_DEBUG " -fno-ivopts")
  endif()
endif()

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
endif()

add_library(berth_flags INTERFACE)
target_compile_options(berth_flags INTERFACE -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>
                                             -fno-omit-frame-pointer)
# GCC 12 at -O1 and above deletes calls of a small function whose stores its induction-variable pass has rewritten to "null + offset": a later pass takes
# such a store for an access through null, hence the function for one that never writes (tests/checks/test_compiler_stores.c).
target_compile_options(berth_flags INTERFACE $<$<C_COMPILER_ID:GNU>:-fno-delete-null-pointer-checks>)
# Empty, so that a source file's own `#define _GNU_SOURCE` is the same definition.
target_compile_definitions(berth_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>)
if(BERTH_WERROR)
  target_compile_options(berth_flags INTERFACE -Werror)
endif()
if(BERTH_THREAD_SAFETY)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BERTH_THREAD_SAFETY needs clang; the C compiler is ${CMAKE_C_COMPILER_ID}. Use the preset `clang`.")
  endif()
  target_compile_options(berth_flags INTERFACE -Wthread-safety -Werror=thread-safety)
endif()
if(BERTH_SANITIZE)
  target_compile_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE})
  if(BERTH_SANITIZE MATCHES "undefined")
    # Overlong negative shifts and the like must end the test, not only print.
    target_compile_options(berth_flags INTERFACE -fno-sanitize-recover=all)
  endif()
  target_link_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE})
endif()
