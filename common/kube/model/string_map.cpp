#include "common/kube/model/string_map.hpp"

#include <cstdint>
#include <cstring>

namespace penstock::kube {
namespace {

constexpr std::size_t head_bytes = 2 * sizeof(std::uint32_t);

struct Sizes {
  std::uint32_t key = 0;
  std::uint32_t value = 0;
};

Sizes sizes_at(const char* at) {
  Sizes sizes;
  std::memcpy(&sizes.key, at, sizeof sizes.key);
  std::memcpy(&sizes.value, at + sizeof sizes.key, sizeof sizes.value);
  return sizes;
}

std::size_t entry_bytes(const char* at) {
  const Sizes sizes = sizes_at(at);
  return head_bytes + sizes.key + sizes.value;
}

std::string encode(std::string_view key, std::string_view value) {
  const Sizes sizes{static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size())};
  std::string entry(head_bytes, '\0');
  std::memcpy(entry.data(), &sizes.key, sizeof sizes.key);
  std::memcpy(entry.data() + sizeof sizes.key, &sizes.value, sizeof sizes.value);
  entry.append(key).append(value);
  return entry;
}

}  // namespace

StringMap::StringMap(std::initializer_list<Entry> entries) {
  for (const auto& [key, value] : entries) set(key, value);
}

StringMap::Entry StringMap::Iterator::operator*() const {
  const Sizes sizes = sizes_at(at_);
  return {{at_ + head_bytes, sizes.key}, {at_ + head_bytes + sizes.key, sizes.value}};
}

StringMap::Iterator& StringMap::Iterator::operator++() {
  at_ += entry_bytes(at_);
  return *this;
}

std::optional<std::string_view> StringMap::find(std::string_view key) const {
  for (const auto& [name, value] : *this) {
    if (name == key) return value;
    if (name > key) break;
  }
  return std::nullopt;
}

void StringMap::set(std::string_view key, std::string_view value) {
  const std::string entry = encode(key, value);  // made first: the views may point into this map
  std::size_t at = 0;
  while (at < bytes_.size()) {
    const std::string_view name(bytes_.data() + at + head_bytes, sizes_at(bytes_.data() + at).key);
    if (name >= key) {
      if (name == key) {
        bytes_.replace(at, entry_bytes(bytes_.data() + at), entry);
        return;
      }
      break;
    }
    at += entry_bytes(bytes_.data() + at);
  }
  bytes_.insert(at, entry);
}

bool StringMap::erase(std::string_view key) {
  for (std::size_t at = 0; at < bytes_.size(); at += entry_bytes(bytes_.data() + at)) {
    const std::string_view name(bytes_.data() + at + head_bytes, sizes_at(bytes_.data() + at).key);
    if (name != key) continue;
    bytes_.erase(at, entry_bytes(bytes_.data() + at));
    return true;
  }
  return false;
}

std::size_t StringMap::size() const {
  return static_cast<std::size_t>(std::distance(begin(), end()));
}

json::Object to_json(const StringMap& map) {
  json::Object object;
  for (const auto& [key, value] : map) object.emplace(key, value);
  return object;
}

}  // namespace penstock::kube
