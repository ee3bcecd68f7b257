// `penstock-operator check HOST:PORT`: asks a program's admin port whether it is ready; what `helm test` runs.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::ctl {

/// What /readyz said; an error if it was not 200 within the time.
boost::asio::awaitable<Result<std::string>> check_ready(std::string address, Duration timeout);

}  // namespace penstock::ctl
