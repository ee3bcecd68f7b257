// The bytes of one frame: u32 length of the body, u16 type, u16 flags (all little-endian), then the body. Pure; any
// thread; bytes are hostile. Bounded by the caller's frame_bytes_max.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::async {

struct Frame {
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::string body;
  friend bool operator==(const Frame&, const Frame&) = default;
};
constexpr std::size_t frame_header_bytes = 8;

/// The first frame in `input`, and how many bytes it took; 0 while it is incomplete. A length over the limit is an
/// error (data_loss) as soon as it can be read.
Result<std::size_t> take_frame(std::string_view input, std::size_t frame_bytes_max, Frame& frame);
void append_frame(std::string& out, std::uint16_t type, std::uint16_t flags, std::string_view body);

}  // namespace penstock::async
