# Headers that most files include are compiled once and reused: parsing Asio alone takes longer than what most of its users
# define. A file includes what it uses all the same; -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows one that does not.
set(standard_headers <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex>
  <optional> <set> <span> <string> <string_view> <thread> <unordered_map> <unordered_set> <utility> <variant> <vector>)
set(asio_headers <boost/asio/as_tuple.hpp> <boost/asio/awaitable.hpp> <boost/asio/co_spawn.hpp> <boost/asio/connect.hpp>
  <boost/asio/io_context.hpp> <boost/asio/ip/tcp.hpp> <boost/asio/post.hpp> <boost/asio/ssl/context.hpp>
  <boost/asio/ssl/stream.hpp> <boost/asio/steady_timer.hpp> <boost/asio/this_coro.hpp> <boost/asio/thread_pool.hpp>
  <boost/asio/use_awaitable.hpp> <boost/asio/write.hpp>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(penstock_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/empty.cpp CONTENT "")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/main.cpp CONTENT "int main() { return 0; }\n")

# Code of libraries is position-independent in another way than that of executables, and tests are optimised less: each kind
# needs headers of its own. Reusing targets have the flags of the target named here, or the compiler says so.
add_library(penstock_headers_plain STATIC ${PROJECT_BINARY_DIR}/precompiled/empty.cpp)
add_library(penstock_headers_asio STATIC ${PROJECT_BINARY_DIR}/precompiled/empty.cpp)
target_link_libraries(penstock_headers_plain PRIVATE penstock_flags)
target_link_libraries(penstock_headers_asio PRIVATE penstock_flags penstock_asio)
target_precompile_headers(penstock_headers_plain PRIVATE ${standard_headers})
target_precompile_headers(penstock_headers_asio PRIVATE ${standard_headers} ${asio_headers})

# penstock_test_headers(): the same for the tests of this folder and those below.
function(penstock_test_headers)
  foreach(kind plain asio)
    add_executable(penstock_test_headers_${kind} ${PROJECT_BINARY_DIR}/precompiled/main.cpp)
    target_link_libraries(penstock_test_headers_${kind} PRIVATE penstock_flags GTest::gtest GTest::gmock)
  endforeach()
  target_link_libraries(penstock_test_headers_asio PRIVATE penstock_asio)
  target_precompile_headers(penstock_test_headers_plain PRIVATE ${standard_headers} <gtest/gtest.h>)
  target_precompile_headers(penstock_test_headers_asio PRIVATE ${standard_headers} <gtest/gtest.h> ${asio_headers})
endfunction()
