// The strict parser of json.hpp with the caller's storage: for many documents, one after the other, in one arena. The
// value must not outlive the storage. Pure; any thread.
#pragma once

#include <boost/json/storage_ptr.hpp>
#include <string_view>

#include "common/json/json.hpp"

namespace penstock::json {

Result<Value> parse_into(std::string_view text, const Limits& limits, boost::json::storage_ptr storage);

}  // namespace penstock::json
