// Carves the bytes of one fuzz run into numbers and texts; when they run out, zeros and empty texts. One run, one
// owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const char first = rest_.front();
    rest_.remove_prefix(1);
    return static_cast<std::uint8_t>(first);
  }
  std::uint16_t number() {
    const std::uint16_t low = byte();
    return static_cast<std::uint16_t>(low | (byte() << 8));
  }
  std::string_view text(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return text(rest_.size()); }

 private:
  std::string_view rest_;
};

/// Calls `take(piece)` with `whole` in pieces of at most `piece_max` bytes.
template <class Take>
void in_pieces(std::string_view whole, std::size_t piece_max, Take take) {
  for (std::size_t at = 0; at < whole.size(); at += piece_max) take(whole.substr(at, piece_max));
}

}  // namespace penstock::fuzz
