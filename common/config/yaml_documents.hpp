// The documents of a YAML text. Internal to this folder. Any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

namespace penstock::config {

/// Throws YAML::Exception for bad syntax, and for text after a document's end that starts no other one, at which
/// YAML::LoadAll never returns (yaml-cpp 0.7: "," at the start of a line).
std::vector<YAML::Node> load_documents(const std::string& text);

}  // namespace penstock::config
