#include "common/async/frame.hpp"

#include <cstring>
#include <utility>

namespace penstock::async {
namespace {

struct Header {
  std::uint32_t size;
  std::uint16_t type;
  std::uint16_t flags;
};
static_assert(sizeof(Header) == frame_header_bytes);

}  // namespace

Result<std::size_t> take_frame(std::string_view input, std::size_t frame_bytes_max, Frame& frame) {
  if (input.size() < frame_header_bytes) return std::size_t{0};
  Header header;
  std::memcpy(&header, input.data(), sizeof header);
  if (header.size > frame_bytes_max) {
    return make_error(ErrorCode::data_loss, "a frame of " + std::to_string(header.size) +
                                                " bytes is over the limit of " + std::to_string(frame_bytes_max));
  }
  if (input.size() - frame_header_bytes < header.size) return std::size_t{0};
  frame.type = header.type;
  frame.flags = header.flags;
  frame.body = input.substr(frame_header_bytes, header.size);
  return frame_header_bytes + header.size;
}

void append_frame(std::string& out, std::uint16_t type, std::uint16_t flags, std::string_view body) {
  const Header header{static_cast<std::uint32_t>(body.size()), type, flags};
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(body);
}

void append_message(std::string& out, std::uint16_t type, std::uint16_t flags, std::string_view body,
                    std::size_t frame_bytes_max) {
  for (; body.size() > frame_bytes_max; body.remove_prefix(frame_bytes_max)) {
    append_frame(out, type, static_cast<std::uint16_t>(flags | frame_continues), body.substr(0, frame_bytes_max));
  }
  append_frame(out, type, flags, body);
}

Result<bool> FrameJoiner::add(Frame& frame) {
  const bool continues = (frame.flags & frame_continues) != 0;
  if (!continues && !is_within_message_) return true;
  frame.flags = static_cast<std::uint16_t>(frame.flags & ~frame_continues);
  if (!std::exchange(is_within_message_, true)) {
    message_ = std::move(frame);
  } else if (message_.type != frame.type || message_.flags != frame.flags) {
    return make_error(ErrorCode::data_loss, "a frame of another type came within a message");
  } else {
    message_.body += frame.body;
  }
  if (message_bytes_max_ == 0 || message_.body.size() > message_bytes_max_) {
    return make_error(ErrorCode::data_loss,
                      "a message is over the limit of " + std::to_string(message_bytes_max_) + " bytes");
  }
  if (continues) return false;
  is_within_message_ = false;
  frame = std::exchange(message_, Frame());
  return true;
}

}  // namespace penstock::async
