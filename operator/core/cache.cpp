#include "operator/core/cache.hpp"

#include <algorithm>
#include <set>

namespace penstock::ctl {
namespace {

bool matches(const Node& node, const std::map<std::string, std::string>& selector) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& wanted) {
    return node.meta.labels.find(wanted.first) == std::optional<std::string_view>(wanted.second);
  });
}

bool holds(const api::NodeModelCache& state, const std::string& id) {
  return std::any_of(state.status.entries.begin(), state.status.entries.end(), [&](const api::NodeCacheEntry& entry) {
    return entry.cache == id && entry.state == api::CacheState::ready;
  });
}

}  // namespace

std::string cache_id(const kube::ObjectMeta& cache) {
  return cache.namespace_ + "/" + cache.name;
}

std::string cache_folder(const api::ModelCache& cache) {
  const std::string root =
      cache.spec.storage.host_path ? cache.spec.storage.host_path->path : api::HostPathStorage{}.path;
  // A dot can't begin a namespace, so no two caches share a folder.
  return root + "/" + cache.meta.namespace_ + "." + cache.meta.name;
}

std::vector<std::string> nodes_for(const api::ModelCache& cache, const std::vector<const Node*>& nodes,
                                   const std::vector<const api::NodeModelCache*>& states) {
  const std::string id = cache_id(cache.meta);
  std::set<std::string> holders;
  for (const auto* state : states) {
    if (holds(*state, id)) holders.insert(state->spec.node_name.empty() ? state->meta.name : state->spec.node_name);
  }
  std::vector<std::string> have, more;
  for (const auto* node : nodes) {
    if (node->meta.deleted || !matches(*node, cache.spec.node_selector)) continue;
    if (holders.contains(node->meta.name)) {
      have.push_back(node->meta.name);
    } else if (node->ready) {
      more.push_back(node->meta.name);
    }
  }
  std::sort(have.begin(), have.end());
  std::sort(more.begin(), more.end());
  have.insert(have.end(), more.begin(), more.end());
  if (cache.spec.copies.count) {
    const auto count = static_cast<std::size_t>(std::max(0, *cache.spec.copies.count));
    if (have.size() > count) have.resize(count);
  }
  return have;
}

AgentStep plan_agent(const AgentInput& input) {
  AgentStep step;
  std::int64_t room = input.available_bytes;
  std::vector<const api::NodeCacheEntry*> spare;  // held and not wanted
  const auto wanted = [&](const std::string& id) {
    return std::find_if(input.wanted.begin(), input.wanted.end(),
                        [&](const api::ModelCache* cache) { return cache_id(cache->meta) == id; });
  };
  for (const auto& entry : input.held) {
    if (wanted(entry.cache) == input.wanted.end()) spare.push_back(&entry);
  }
  std::sort(spare.begin(), spare.end(), [](const auto* a, const auto* b) {
    return std::pair(a->last_transition_time.value_or(kube::Timestamp()), a->cache) <
           std::pair(b->last_transition_time.value_or(kube::Timestamp()), b->cache);
  });
  auto next = spare.begin();
  for (const auto* cache : input.wanted) {
    const std::string id = cache_id(cache->meta);
    std::int64_t missing = cache->spec.size.units();
    bool complete = false;
    for (const auto& entry : input.held) {
      if (entry.cache != id) continue;
      complete = entry.state == api::CacheState::ready;
      missing = std::max<std::int64_t>(0, missing - entry.bytes_done);
    }
    if (complete) continue;
    while (room < missing && next != spare.end()) {
      step.evict.push_back((*next)->cache);
      room += std::max((*next)->bytes, (*next)->bytes_done);
      ++next;
    }
    if (room < missing) {
      step.wait.push_back(id);
      continue;
    }
    room -= missing;
    step.fetch.push_back(id);
  }
  return step;
}

}  // namespace penstock::ctl
