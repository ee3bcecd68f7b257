// `penstock-operator apply-crds`: brings the definitions of the custom resources that came with this program to the API
// server, by server-side apply, and waits until they are served. Run by the init container of the chart, so that an
// upgrade of the operator upgrades them first. Start-up only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/kube/client/client.hpp"
#include "common/log/logger.hpp"

namespace penstock::ctl {

/// All definitions in the YAML files of a folder. Errors name the file.
Result<std::vector<json::Object>> read_definitions(const std::string& folder);

/// Error: the first one that the server refuses, or that is not served within the time.
boost::asio::awaitable<Result<void>> apply_definitions(kube::Client& client, std::vector<json::Object> definitions,
                                                       Duration timeout, log::Logger logger);

}  // namespace penstock::ctl
