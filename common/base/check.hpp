// Broken invariants (kind 3 of the style guide): print where and why, then abort; also in release builds.
// Never for anything a user, a file or a peer can cause.
#pragma once

#include <string>
#include <string_view>

namespace penstock::base {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);

inline std::string check_values() { return {}; }
template <class T, class... Rest>
std::string check_values(const T& value, const Rest&... rest) {
  std::string text;
  if constexpr (requires { std::to_string(value); }) {
    text = std::to_string(value);
  } else {
    text = std::string(value);
  }
  if constexpr (sizeof...(rest) > 0) text += " " + check_values(rest...);
  return text;
}

}  // namespace penstock::base

/// PENSTOCK_CHECK(free_blocks <= total, "free", free_blocks, "total", total);
#define PENSTOCK_CHECK(condition, ...)                                                                 \
  do {                                                                                                 \
    if (!(condition)) [[unlikely]] {                                                                   \
      ::penstock::base::check_failed(__FILE__, __LINE__, #condition,                                   \
                                     ::penstock::base::check_values(__VA_ARGS__));                     \
    }                                                                                                  \
  } while (false)
