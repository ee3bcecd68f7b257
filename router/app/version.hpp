// The version of the router, as --version, /version and the log say it.
#pragma once

#include <string_view>

namespace penstock::router {
inline constexpr std::string_view version = "0.1.0";
}  // namespace penstock::router
