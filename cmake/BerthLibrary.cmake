# SPDX-License-Identifier: Apache-2.0
# The library. Rule: every .c and .S under the library's rooms is in it, except the deterministic scheduler (files named sched* and coroutine*).
# berth_sched is base, device and runtime once more, with BERTHI_SCHED=1 and the scheduler in, and without the CPU device.

set(library_rooms base device runtime kernels tensor table query server)
set(sched_rooms base device runtime)

function(berth_room_sources out_sources)
  set(all)
  foreach(room IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c ${PROJECT_SOURCE_DIR}/src/${room}/*.S)
    list(APPEND all ${found})
  endforeach()
  set(${out_sources} ${all} PARENT_SCOPE)
endfunction()

berth_room_sources(library_sources ${library_rooms})
list(FILTER library_sources EXCLUDE REGEX "/(sched|coroutine)[^/]*$")
if(NOT library_sources)
  message(STATUS "src is empty: the library holds nothing")
  file(WRITE ${PROJECT_BINARY_DIR}/empty.c "extern int berth_empty;\n")
  set(library_sources ${PROJECT_BINARY_DIR}/empty.c)
endif()
berth_room_sources(sched_sources ${sched_rooms})
list(FILTER sched_sources EXCLUDE REGEX "/src/device/cpu/")

# One file calls user code and lets exceptions of other languages pass (USR-1).
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/runtime/user_code.c PROPERTY COMPILE_OPTIONS -fexceptions)
# Loops over elements: no kernel reads errno or floating-point exception flags.
berth_room_sources(kernel_sources kernels)
set_property(SOURCE ${kernel_sources} PROPERTY COMPILE_OPTIONS -fno-math-errno -fno-trapping-math $<$<CONFIG:Release>:-O3>)

# See BerthFlags.cmake: gcc's ivopts at -O1 loses stores of shape loops, also under a builder's own flags.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  berth_room_sources(tensor_sources tensor)
  set_property(SOURCE ${tensor_sources} PROPERTY COMPILE_OPTIONS -fno-ivopts)
endif()

# A serial OpenBLAS hands out its buffers without a lock; kernels/vendor/blas_guard.c puts one around (EXE-4).
set(berth_blas_wrap -Wl,--wrap=blas_memory_alloc -Wl,--wrap=blas_memory_free)
set(berth_private_links PkgConfig::HWLOC ${BERTH_OPENBLAS_LIBRARY} Threads::Threads m ${CMAKE_DL_LIBS})

add_library(berth_objects OBJECT ${library_sources})
target_include_directories(berth_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(berth_objects SYSTEM PRIVATE ${BERTH_OPENBLAS_INCLUDE} ${HWLOC_INCLUDE_DIRS})
target_link_libraries(berth_objects PRIVATE berth_flags)
set_target_properties(berth_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)

add_library(berth SHARED $<TARGET_OBJECTS:berth_objects>)
set_target_properties(berth PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C)
target_link_libraries(berth PRIVATE berth_flags ${berth_private_links})
target_link_options(berth PRIVATE -Wl,--exclude-libs,ALL ${berth_blas_wrap})
if(NOT BERTH_SANITIZE)
  target_link_options(berth PRIVATE -Wl,-z,defs)
endif()

add_library(berth_static STATIC $<TARGET_OBJECTS:berth_objects>)
set_target_properties(berth_static PROPERTIES OUTPUT_NAME berth LINKER_LANGUAGE C)
target_link_libraries(berth_static PRIVATE berth_flags ${berth_private_links})
target_link_options(berth_static INTERFACE ${berth_blas_wrap})

foreach(target berth berth_static)
  add_library(berth::${target} ALIAS ${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

if(BERTH_BUILD_TESTS AND sched_sources)
  add_library(berth_sched STATIC EXCLUDE_FROM_ALL ${sched_sources})
  target_compile_definitions(berth_sched PUBLIC BERTHI_SCHED=1)
  target_include_directories(berth_sched PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(berth_sched SYSTEM PRIVATE ${HWLOC_INCLUDE_DIRS})
  target_link_libraries(berth_sched PRIVATE berth_flags PUBLIC Threads::Threads m ${CMAKE_DL_LIBS})
  set_target_properties(berth_sched PROPERTIES C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C)
endif()
