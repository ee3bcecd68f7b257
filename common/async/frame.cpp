#include "common/async/frame.hpp"

#include <cstring>

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

}  // namespace penstock::async
