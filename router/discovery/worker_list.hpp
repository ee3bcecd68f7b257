// The text of a file of worker addresses: one host:port a line; empty lines and what follows '#' are ignored. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace penstock::router {

/// Errors name the line. An empty list is right: no workers yet.
Result<std::vector<std::string>> parse_worker_list(std::string_view text);
Result<void> check_worker_address(std::string_view address);

}  // namespace penstock::router
