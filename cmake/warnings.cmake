# Flags for our own code: penstock_library() and friends link this privately.
add_library(penstock_flags INTERFACE)
target_compile_options(penstock_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch-enum
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports false positives for these inside coroutines, std::variant and std::string at -O2.
  target_compile_options(penstock_flags INTERFACE -Wno-maybe-uninitialized -Wno-mismatched-new-delete
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict -Wno-dangling-pointer -Wno-free-nonheap-object)
endif()
# Paths in assertions and debug information are relative, so that compiler caches work across checkouts.
target_compile_options(penstock_flags INTERFACE -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
target_include_directories(penstock_flags INTERFACE ${PROJECT_SOURCE_DIR})

if(PENSTOCK_SANITIZE)
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
  # Asio's fences, which the thread sanitizer does not model: it would only miss what they order.
  if(PENSTOCK_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
endif()

# Coverage of all code, libraries too: without it libFuzzer mutates blindly.
if(PENSTOCK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
