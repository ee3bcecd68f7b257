// Model caches: which nodes are to hold which weights, and on each node what the agent does next. The operator writes
// the wish (NodeModelCache.spec), the agent of the node writes what is so (its status); neither writes the other's
// part. Pure; any thread.
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

/// What the agent of one node does now.
struct AgentStep {
  std::vector<std::string> fetch;  // cache ids, in this order, one at a time
  std::vector<std::string> evict;  // to be removed before anything is fetched
  std::vector<std::string> wait;   // no room even after that: a condition, not a loop
};
struct AgentInput {
  std::vector<const api::ModelCache*> wanted;
  std::vector<api::NodeCacheEntry> held;
  std::int64_t available_bytes = 0;
};
/// What is no longer wanted stays until room is needed; then the least recently changed goes first. What is wanted is
/// never evicted for something else that is wanted.
AgentStep plan_agent(const AgentInput& input);

}  // namespace penstock::ctl
