// The name of an object within one resource type. Plain value; pure, any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace penstock::kube {

struct Key {
  std::string namespace_;  // "" for cluster-scoped objects
  std::string name;

  friend auto operator<=>(const Key&, const Key&) = default;
};

/// "namespace/name", or "name" for cluster-scoped objects.
inline std::string to_string(const Key& key) {
  return key.namespace_.empty() ? key.name : key.namespace_ + "/" + key.name;
}

}  // namespace penstock::kube

template <>
struct std::hash<penstock::kube::Key> {
  std::size_t operator()(const penstock::kube::Key& key) const noexcept {
    const std::hash<std::string_view> of_text;
    return of_text(key.namespace_) * 0x9E3779B97F4A7C15ull ^ of_text(key.name);
  }
};
