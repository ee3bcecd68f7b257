// YAML text as a JSON value, for documents whose fields are not settings: Kubernetes objects, kubeconfig. Settings are
// read by load.hpp. Text is hostile: size, depth and the number of values (aliases expanded) are bounded. Pure; any
// thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace penstock::config {

struct YamlLimits {
  std::size_t text_bytes_max = 4 << 20;
  std::size_t depth_max = 64;
  std::size_t values_max = 200'000;  // over all documents
};

/// Every document of the text, in order; empty ones are left out. Plain scalars get the types of YAML's core schema,
/// quoted ones are text. Refused with the line: bad syntax, keys that are no text, duplicate keys, anything over a
/// limit.
Result<std::vector<boost::json::value>> parse_yaml(std::string_view text, const YamlLimits& limits = {});

}  // namespace penstock::config
