// Model caches: which nodes are to hold which weights, and where on them. The operator writes the wish
// (NodeModelCache.spec), the agent of the node writes what is so (its status; agent/node_agent.hpp); neither writes the
// other's part. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/model_cache.hpp"
#include "operator/core/observed.hpp"

namespace penstock::ctl {

/// Nodes that are to hold a cache: those its selector matches; of these the ones that have it already come first, then
/// by name, so that a count is stable. Nodes that aren't ready keep what they have and get nothing new.
std::vector<std::string> nodes_for(const api::ModelCache& cache, const std::vector<const Node*>& nodes,
                                   const std::vector<const api::NodeModelCache*>& states);

std::string cache_id(const kube::ObjectMeta& cache);  // "namespace/name"
/// The folder of a cache below its storage's path.
std::string cache_folder(const api::ModelCache& cache);
std::string cache_folder(const std::string& root, std::string_view cache_id);
/// "namespace/name" of a folder's name; "" if it isn't one of ours.
std::string cache_of_folder(std::string_view folder);
}  // namespace penstock::ctl
