# A room is one folder of src/. snug_room(NAME DEPENDS a b LIBRARIES x y) makes
#   snug_NAME        static library of every NAME/*.cc that is not a test (and nothing below NAME/)
#   snug_NAME_test   GoogleTest program of every NAME/*_test.cc, when there is one
#
# The table of who may include whom (docs/architecture.md) is enforced by the compiler: a room sees the headers of a
# folder only through that folder's link in the include tree of its target, so `#include "layout/solver.h"` does not
# resolve in a room that does not depend on layout.
set(SNUG_INCLUDE_TREE "${CMAKE_BINARY_DIR}/rooms")
set_property(GLOBAL PROPERTY SNUG_ROOMS "")

# The rooms' own tests have the label quick, and this builds them: what `./run-tests --sanitize --quick` runs. The program and what
# crosses rooms (tests/) are left out.
add_custom_target(snug_quick_tests)

# What keeps builds from nothing short:
#   all test programs share one precompiled header, and so OpenMP's flags;
#   tests are not optimised: what takes time when they run is the library;
#   with SNUG_UNITY, which quickstart and run-tests set, a room's files compile six at a time as one (snug_room), but for rooms whose
#   file-local names collide or, as Highway's, include themselves once an instruction set. Who changes files builds without.
set(SNUG_ONE_BY_ONE base formats formats/tokenizer formats/chat_template ir models planner compile backends/cpu backends/conformance)

# What the test program `target` needs beside its sources and the rooms it tests.
function(snug_test_program target)
  target_link_libraries(${target} PRIVATE GTest::gmock_main)
  target_compile_definitions(${target} PRIVATE SNUG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT TARGET snug_test_header)
    # A program because programs are compiled with -fPIE and libraries with -fPIC; it is never run.
    file(WRITE "${CMAKE_BINARY_DIR}/test_header.cc" "int main() {}\n")
    add_executable(snug_test_header EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/test_header.cc")
    target_precompile_headers(snug_test_header PRIVATE <gmock/gmock.h> <fmt/format.h> <filesystem> <functional>)
    target_link_libraries(snug_test_header PRIVATE GTest::gmock_main fmt::fmt OpenMP::OpenMP_CXX)
    target_compile_definitions(snug_test_header PRIVATE SNUG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_compile_options(snug_test_header PRIVATE -O0)
  endif()
  target_precompile_headers(${target} REUSE_FROM snug_test_header)
  target_link_libraries(${target} PRIVATE fmt::fmt OpenMP::OpenMP_CXX)
  target_compile_options(${target} PRIVATE -O0)
endfunction()

function(snug_room folder)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;LIBRARIES;TEST_DEPENDS" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  set(directory "${PROJECT_SOURCE_DIR}/src/${folder}")
  set(tree "${SNUG_INCLUDE_TREE}/${name}")

  # The include tree shows this folder alone: parents are real directories, the folder itself is links to its headers.
  file(GLOB headers CONFIGURE_DEPENDS "${directory}/*.h")
  file(REMOVE_RECURSE "${tree}")
  file(MAKE_DIRECTORY "${tree}/${folder}")
  foreach(header ${headers})
    get_filename_component(base "${header}" NAME)
    file(CREATE_LINK "${header}" "${tree}/${folder}/${base}" SYMBOLIC)
  endforeach()

  file(GLOB sources CONFIGURE_DEPENDS "${directory}/*.cc")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")

  set(dependencies "")
  foreach(dependency ${ROOM_DEPENDS})
    list(APPEND dependencies "snug_${dependency}")
  endforeach()
  if(sources)
    add_library(snug_${name} STATIC ${sources})
    target_include_directories(snug_${name} PUBLIC "$<BUILD_INTERFACE:${tree}>")
    target_link_libraries(snug_${name} PUBLIC ${dependencies} ${ROOM_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY SNUG_ROOMS snug_${name})
    if(SNUG_UNITY AND NOT folder IN_LIST SNUG_ONE_BY_ONE)
      set_target_properties(snug_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    endif()
  else()
    add_library(snug_${name} INTERFACE)
    target_include_directories(snug_${name} INTERFACE "$<BUILD_INTERFACE:${tree}>")
    target_link_libraries(snug_${name} INTERFACE ${dependencies} ${ROOM_LIBRARIES})
  endif()

  if(SNUG_TESTS AND tests)
    set(test_dependencies "")
    foreach(dependency ${ROOM_TEST_DEPENDS})
      list(APPEND test_dependencies "snug_${dependency}")
    endforeach()
    add_executable(snug_${name}_test ${tests})
    target_link_libraries(snug_${name}_test PRIVATE snug_${name} ${test_dependencies})
    snug_test_program(snug_${name}_test)
    add_dependencies(snug_quick_tests snug_${name}_test)
    # OpenMP threads that wait by spinning steal the processors of the tests beside them.
    gtest_discover_tests(snug_${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS quick TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)
  endif()
endfunction()
