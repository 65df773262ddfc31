# SPDX-License-Identifier: Apache-2.0
# What the build takes from the system. Only threads, hwloc and a serial BLAS are needed; the rest switches parts on.

find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(JANSSON IMPORTED_TARGET jansson)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
pkg_check_modules(SQLITE3 IMPORTED_TARGET sqlite3)
pkg_check_modules(STARPU IMPORTED_TARGET starpu-1.3)
find_program(BERTH_SPIN spin)

# The serial BLAS itself, by its own path: the generic library name is an alternative that the host may have pointed at a threaded build, whose
# results change with the number of threads (EXE-4). Its static archive goes into libberth.so with hidden symbols, so that neither the host's
# choice nor another BLAS in the process can take its place.
find_path(BERTH_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial openblas REQUIRED)
find_library(BERTH_OPENBLAS_LIBRARY NAMES libopenblas.a PATH_SUFFIXES openblas-serial NO_CACHE)
if(NOT BERTH_OPENBLAS_LIBRARY OR NOT BERTH_OPENBLAS_LIBRARY MATCHES "openblas-serial")
  unset(BERTH_OPENBLAS_LIBRARY)
  find_library(BERTH_OPENBLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-serial)
endif()
if(NOT BERTH_OPENBLAS_LIBRARY)
  message(FATAL_ERROR "No OpenBLAS found. Install libopenblas-serial-dev, or give the serial library with -DBERTH_OPENBLAS_LIBRARY=/path/libopenblas.a")
endif()
message(STATUS "BLAS: ${BERTH_OPENBLAS_LIBRARY}")
if(NOT BERTH_OPENBLAS_LIBRARY MATCHES "serial")
  message(WARNING "This OpenBLAS may start threads of its own; results may then depend on their number. Prefer libopenblas-serial-dev.")
endif()
