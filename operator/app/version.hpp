// What `--version` prints.
#pragma once

#include <string_view>

namespace penstock::ctl {

inline constexpr std::string_view version = "0.1.0";

}  // namespace penstock::ctl
