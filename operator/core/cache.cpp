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
  return cache_folder(cache.spec.storage.host_path ? cache.spec.storage.host_path->path : api::HostPathStorage().path,
                      cache_id(cache.meta));
}

std::string cache_folder(const std::string& root, std::string_view cache_id) {
  const auto slash = cache_id.find('/');
  // No namespace has a dot in it, so no two caches share a folder.
  return root + "/" + std::string(cache_id.substr(0, slash)) + "." + std::string(cache_id.substr(slash + 1));
}

std::string cache_of_folder(std::string_view folder) {
  const auto dot = folder.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot + 1 == folder.size()) return {};
  return std::string(folder.substr(0, dot)) + "/" + std::string(folder.substr(dot + 1));
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

}  // namespace penstock::ctl
