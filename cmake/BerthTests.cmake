# SPDX-License-Identifier: Apache-2.0
# ctest. Rules:
#   tests/<room>/test_<name>.c   one cmocka executable and one test, named test_<name>, label <room>
#   tests/<room>/<other>.c       doubles and helpers of that room: an archive, so that only a test that uses one links it
#   tests/sched/test_<name>.c    the same against berth_sched, the build under the deterministic scheduler
#   tests/<room>/test_<name>.sh  a script test; its environment has BERTH_SOURCE_DIR, BERTH_BUILD_DIR, BERTH_PYTHON, BERTH_SANITIZE, CC, CXX
#   examples/*                   runs without arguments
#   models/*.pml                 checked with spin
# Exit status 77 is a skip. Nothing here may sleep.

# A python that has NumPy, for tests that compare with it; they skip when BERTH_PYTHON is empty.
set(berth_python "")
foreach(candidate python3 /usr/bin/python3)
  execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE candidate_result OUTPUT_QUIET ERROR_QUIET)
  if(candidate_result EQUAL 0 AND NOT berth_python)
    set(berth_python ${candidate})
  endif()
endforeach()

# die_after_fork: ThreadSanitizer by itself ends a forked child that starts threads; a child may do so here (CLS-6).
function(berth_test_properties name room)
  set_tests_properties(${name} PROPERTIES LABELS ${room} SKIP_RETURN_CODE 77 WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  get_test_property(${name} TIMEOUT timeout)
  if(NOT timeout)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${BERTH_TEST_TIMEOUT})
  endif()
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "BERTH_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "BERTH_BUILD_DIR=${PROJECT_BINARY_DIR}"
               "BERTH_SANITIZE=${BERTH_SANITIZE}" "BERTH_PYTHON=${berth_python}" "CC=${CMAKE_C_COMPILER}" "CXX=${CMAKE_CXX_COMPILER}"
               "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp" "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp:die_after_fork=0"
               "UBSAN_OPTIONS=print_stacktrace=1" "ASAN_OPTIONS=detect_stack_use_after_return=0")
endfunction()

function(berth_room_tests room library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${room}/test_*.c)
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${room}/*.c)
  list(FILTER support EXCLUDE REGEX "/test_[^/]*$")
  add_custom_target(${room}_tests)
  if(NOT sources)
    return()
  endif()
  if(support)
    add_library(tests_${room}_support STATIC ${support})
    target_include_directories(tests_${room}_support PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(tests_${room}_support PRIVATE berth_flags ${library} PkgConfig::CMOCKA)
    set(support_library tests_${room}_support)
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(${name} SYSTEM PRIVATE ${BERTH_OPENBLAS_INCLUDE})
    target_link_libraries(${name} PRIVATE berth_flags ${support_library} ${library} PkgConfig::CMOCKA Threads::Threads m)
    add_test(NAME ${name} COMMAND ${BERTH_TEST_WRAPPER} $<TARGET_FILE:${name}>)
    berth_test_properties(${name} ${room})
    add_dependencies(${room}_tests ${name})
  endforeach()
endfunction()

if(NOT CMOCKA_FOUND)
  message(WARNING "cmocka is missing (libcmocka-dev): the unit tests are not built")
else()
  file(GLOB rooms LIST_DIRECTORIES true CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/*)
  list(REMOVE_ITEM rooms sched)
  foreach(room IN LISTS rooms)
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/${room})
      berth_room_tests(${room} berth_static)
    endif()
  endforeach()
  if(TARGET berth_sched)
    berth_room_tests(sched berth_sched)
  endif()
endif()

file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/test_*.sh)
foreach(script IN LISTS scripts)
  get_filename_component(name ${script} NAME_WE)
  get_filename_component(directory ${script} DIRECTORY)
  get_filename_component(room ${directory} NAME)
  add_test(NAME ${name} COMMAND bash ${script})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  berth_test_properties(${name} ${room})
endforeach()

get_property(examples GLOBAL PROPERTY BERTH_EXAMPLES)
# AddressSanitizer's allocator (GCC 12) does not release its locks in a forked child: a child of a process whose other threads allocate can hang in it.
if(BERTH_SANITIZE MATCHES "address")
  list(REMOVE_ITEM examples example_forking_embedder)
endif()
foreach(example IN LISTS examples)
  add_test(NAME ${example} COMMAND ${BERTH_TEST_WRAPPER} $<TARGET_FILE:${example}>)
  berth_test_properties(${example} examples)
endforeach()

file(GLOB models CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/*.pml)
foreach(model IN LISTS models)
  get_filename_component(name ${model} NAME_WE)
  add_test(NAME model_${name} COMMAND bash ${PROJECT_SOURCE_DIR}/scripts/models ${model})
  set_tests_properties(model_${name} PROPERTIES TIMEOUT 900)
  berth_test_properties(model_${name} models)
endforeach()
