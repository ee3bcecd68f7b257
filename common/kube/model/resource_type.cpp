#include "common/kube/model/resource_type.hpp"

namespace penstock::kube {

std::string ResourceType::api_version() const {
  if (group.empty()) return std::string(version);
  return std::string(group) + "/" + std::string(version);
}

std::string ResourceType::path(std::string_view namespace_) const {
  std::string text = group.empty() ? "/api/" : "/apis/";
  text += api_version();
  if (scope == Scope::namespaced && !namespace_.empty()) text += "/namespaces/" + percent_encode(namespace_);
  return text + "/" + std::string(plural);
}

std::string ResourceType::path(const Key& key, std::string_view subresource) const {
  std::string text = path(key.namespace_) + "/" + percent_encode(key.name);
  if (!subresource.empty()) text += "/" + std::string(subresource);
  return text;
}

std::string percent_encode(std::string_view text, std::string_view plain) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || plain.find(c) != std::string_view::npos) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

}  // namespace penstock::kube
