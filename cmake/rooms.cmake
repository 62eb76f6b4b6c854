# A room is one folder of src/. snug_room(NAME DEPENDS a b LIBRARIES x y) makes
#   snug_NAME        static library of every NAME/*.cc that is not a test (and nothing below NAME/)
#   snug_NAME_test   GoogleTest program of every NAME/*_test.cc, when there is one
#
# The table of who may include whom (docs/architecture.md) is enforced by the compiler: a room sees the headers of a
# folder only through that folder's link in the include tree of its target, so `#include "layout/solver.h"` does not
# resolve in a room that does not depend on layout.
set(SNUG_INCLUDE_TREE "${CMAKE_BINARY_DIR}/rooms")
set_property(GLOBAL PROPERTY SNUG_ROOMS "")

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
    target_precompile_headers(snug_${name}_test PRIVATE <gtest/gtest.h>)
    target_link_libraries(snug_${name}_test PRIVATE snug_${name} ${test_dependencies} GTest::gmock_main)
    target_compile_definitions(snug_${name}_test PRIVATE SNUG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    # OpenMP threads that wait by spinning steal the processors of the tests beside them.
    gtest_discover_tests(snug_${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)
  endif()
endfunction()
