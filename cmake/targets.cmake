# penstock_library(NAME SOURCES... DEPS... [HEADERS plain|asio|none]): static library penstock_NAME of one folder. HEADERS
# names those that are compiled once for all (precompiled.cmake).
function(penstock_library name)
  cmake_parse_arguments(ARG "" "HEADERS" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(penstock_${name} PUBLIC ${ARG_DEPS} PRIVATE penstock_flags ${ARG_PRIVATE_DEPS})
  target_include_directories(penstock_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  penstock_reuse_headers(penstock_${name} penstock_headers "${ARG_HEADERS}")
endfunction()

function(penstock_reuse_headers target group kind)
  if(NOT kind)
    set(kind plain)
  endif()
  if(NOT kind STREQUAL "none")
    target_precompile_headers(${target} REUSE_FROM ${group}_${kind})
  endif()
endfunction()

# penstock_executable(NAME SOURCES... DEPS...)
function(penstock_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE penstock_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# penstock_test(NAME SOURCES... DEPS... [LABEL unit] [TIMEOUT 60] [HEADERS plain|asio|none]): one GoogleTest binary, one CTest
# entry.
function(penstock_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;HEADERS" "SOURCES;DEPS;ARGS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE penstock_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  penstock_reuse_headers(${name} penstock_test_headers "${ARG_HEADERS}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
    TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/sanitizers/thread.txt
    ASAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/sanitizers/address.txt)
endfunction()

# penstock_folders(NAMES...): the subfolders of this one, in order of dependency. All must be there: a misspelt one would
# take its tests away in silence.
function(penstock_folders)
  foreach(folder IN LISTS ARGN)
    add_subdirectory(${folder})
  endforeach()
endfunction()
