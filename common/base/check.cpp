#include "common/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock::base {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  std::fprintf(stderr, "penstock: invariant broken at %s:%d: %s%s%.*s\n", file, line, condition,
               detail.empty() ? "" : " | ", static_cast<int>(detail.size()), detail.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace penstock::base
