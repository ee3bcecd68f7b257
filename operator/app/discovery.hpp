// Which optional APIs this cluster serves. Asked at start and again from time to time, since schedulers and gateways
// come and go. One call a group.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "common/kube/client/client.hpp"
#include "operator/app/config.hpp"
#include "operator/core/context.hpp"

namespace penstock::ctl {

/// Error: the API server gave no answer; what is not served is simply false.
boost::asio::awaitable<Result<Capabilities>> discover(kube::Client& client);

/// What is left of it by the operator's own option.
Capabilities limit_to(Capabilities found, GangChoice choice);

}  // namespace penstock::ctl
