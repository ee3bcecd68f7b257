// Labels or annotations: a sorted map of text to text in one allocation, since tens of thousands of them are held.
// Lookups walk; meant for at most some dozens of entries. Plain value; pure, one owner.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/json/json.hpp"

namespace penstock::kube {

class StringMap {
 public:
  using Entry = std::pair<std::string_view, std::string_view>;

  StringMap() = default;
  StringMap(std::initializer_list<Entry> entries);

  std::optional<std::string_view> find(std::string_view key) const;
  /// The value, or "" if there is none.
  std::string_view get(std::string_view key) const { return find(key).value_or(std::string_view()); }
  bool contains(std::string_view key) const { return find(key).has_value(); }
  void set(std::string_view key, std::string_view value);
  bool erase(std::string_view key);
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const;
  std::size_t memory_bytes() const { return bytes_.capacity(); }

  /// In the order of the keys. Views point into the map.
  class Iterator {
   public:
    using value_type = Entry;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Entry;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(const char* at) : at_(at) {}
    Entry operator*() const;
    Iterator& operator++();
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const char* at_;
  };
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

  friend bool operator==(const StringMap&, const StringMap&) = default;

 private:
  std::string bytes_;  // entries, sorted: key size, value size (4 bytes each), key, value
};

json::Object to_json(const StringMap& map);

}  // namespace penstock::kube
