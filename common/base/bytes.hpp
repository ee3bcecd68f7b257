// Little-endian reading and writing of untrusted bytes. Every read checks what is left; after the first failure the
// reader stays failed and returns zeros, so that a decoder can read a whole header and ask ok() once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock::base {

static_assert(std::endian::native == std::endian::little, "Penstock runs on little-endian machines only");

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

inline BytesView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteReader {
 public:
  explicit ByteReader(BytesView bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return rest_.size(); }

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T read() {
    T value{};
    BytesView raw = take(sizeof(T));
    if (ok_) std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  /// The next `count` bytes, or an empty view (and a failed reader) if fewer are left.
  BytesView take(std::uint64_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    BytesView head = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
    return head;
  }

 private:
  BytesView rest_;
  bool ok_ = true;
};

class ByteWriter {
 public:
  explicit ByteWriter(Bytes& out) : out_(out) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void write(const T& value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), raw, raw + sizeof(T));
  }
  void write_bytes(BytesView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

 private:
  Bytes& out_;
};

}  // namespace penstock::base
