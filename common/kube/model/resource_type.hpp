// Which kind of object, and where it lives on the API server. Views of literals: a ResourceType is a constant (see
// known_types.hpp) or refers to text that outlives it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/kube/model/key.hpp"

namespace penstock::kube {

enum class Scope : std::uint8_t { namespaced, cluster };

struct ResourceType {
  std::string_view group;  // "" is the core group
  std::string_view version;
  std::string_view kind;    // "Pod"
  std::string_view plural;  // "pods"
  Scope scope = Scope::namespaced;

  std::string api_version() const;  // "v1", "apps/v1"
  /// The collection, for lists, watches and creates. An empty namespace means all of them.
  std::string path(std::string_view namespace_) const;
  /// One object, or one of its subresources ("status", "scale").
  std::string path(const Key& key, std::string_view subresource = {}) const;

  friend bool operator==(const ResourceType&, const ResourceType&) = default;
};

/// Everything but letters, digits and `plain` becomes %XX, so that no name can change a path or a query.
std::string percent_encode(std::string_view text, std::string_view plain = "-._~:");

}  // namespace penstock::kube
