// The bytes of one frame: u32 length of the body, u16 type, u16 flags (all little-endian), then the body. A message
// whose body is over frame_bytes_max goes on in further frames of its type, all but the last with the flag
// frame_continues. Pure; any thread; bytes are hostile. Bounded by the caller's frame_bytes_max and message_bytes_max.
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
constexpr std::uint16_t frame_continues = 0x8000;  // in flags: the body goes on in the next frame

/// The first frame in `input`, and how many bytes it took; 0 while it is incomplete. A length over the limit is an
/// error (data_loss) as soon as it can be read.
Result<std::size_t> take_frame(std::string_view input, std::size_t frame_bytes_max, Frame& frame);
void append_frame(std::string& out, std::uint16_t type, std::uint16_t flags, std::string_view body);
/// The same over as many frames as it takes.
void append_message(std::string& out, std::uint16_t type, std::uint16_t flags, std::string_view body,
                    std::size_t frame_bytes_max);

/// Puts the frames of one message together. Holds at most one unfinished message, of message_bytes_max and one frame.
class FrameJoiner {
 public:
  /// `message_bytes_max` 0: every message is one frame.
  explicit FrameJoiner(std::size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}
  /// True: `frame` is now a whole message. False: it was kept, more must come. An error (data_loss): it does not go on
  /// the message before it, or that is over the limit.
  Result<bool> add(Frame& frame);
  bool is_within_message() const { return is_within_message_; }

 private:
  std::size_t message_bytes_max_;
  Frame message_;
  bool is_within_message_ = false;
};

}  // namespace penstock::async
