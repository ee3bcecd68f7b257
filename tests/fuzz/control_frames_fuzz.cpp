// Control frames between router and worker: a stream of frames is cut the same way however it arrives, and a body that
// decodes encodes to something that decodes to the same.
#include <string>

#include "common/async/frame.hpp"
#include "common/base/check.hpp"
#include "common/protocol/codec.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace penstock;  // NOLINT: one file
constexpr std::size_t frame_bytes_max = 4096;

// Bytes are compared, since a float may be NaN, which equals nothing.
template <class Decode>
void check_message(Decode decode, std::uint16_t type, std::string_view body) {
  const auto message = decode(type, body);
  if (!message) return;
  const protocol::EncodedMessage once = protocol::encode(*message);
  const auto again = decode(once.type, once.body);
  PENSTOCK_CHECK(again && once.type == type, "type", type);
  PENSTOCK_CHECK(protocol::encode(*again).body == once.body, "type", type);
}

struct Frames {
  std::vector<async::Frame> frames;
  bool failed = false;
};

Frames cut(std::string_view stream, std::size_t piece_max) {
  Frames out;
  std::string buffered;
  fuzz::in_pieces(stream, piece_max, [&](std::string_view piece) {
    buffered += piece;
    while (!out.failed) {
      async::Frame frame;
      const auto taken = async::take_frame(buffered, frame_bytes_max, frame);
      out.failed = !taken;
      if (!taken || *taken == 0) break;
      PENSTOCK_CHECK(*taken <= buffered.size() && frame.body.size() <= frame_bytes_max);
      buffered.erase(0, *taken);
      out.frames.push_back(std::move(frame));
    }
  });
  return out;
}

// Whatever frames come, what is joined keeps to its bound; and a message that is taken apart comes back whole.
void check_joiner(const std::vector<async::Frame>& frames) {
  constexpr std::size_t message_bytes_max = 512, piece_bytes = 64;
  async::FrameJoiner joiner(message_bytes_max);
  for (async::Frame frame : frames) {
    const bool is_one = !joiner.is_within_message() && (frame.flags & async::frame_continues) == 0;
    const Result<bool> whole = joiner.add(frame);
    if (!whole) return;
    PENSTOCK_CHECK(!*whole || is_one || frame.body.size() <= message_bytes_max, "bytes", frame.body.size());
    if (!*whole || frame.body.size() > message_bytes_max) continue;
    std::string apart;
    async::append_message(apart, frame.type, frame.flags, frame.body, piece_bytes);
    async::FrameJoiner again(message_bytes_max);
    for (std::string_view left = apart; !left.empty();) {
      async::Frame piece;
      left.remove_prefix(async::take_frame(left, piece_bytes, piece).value());
      if (again.add(piece).value()) PENSTOCK_CHECK(left.empty() && piece == frame, "left", left.size());
    }
    PENSTOCK_CHECK(!again.is_within_message());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t piece_max = 1 + input.byte() % 64u;
  const std::string_view stream = input.rest();
  const Frames whole = cut(stream, std::max<std::size_t>(stream.size(), 1));
  const Frames split = cut(stream, piece_max);
  PENSTOCK_CHECK(whole.failed == split.failed && whole.frames == split.frames, "pieces", piece_max);
  check_joiner(whole.frames);

  std::string encoded;
  for (const auto& frame : whole.frames) {
    async::append_frame(encoded, frame.type, frame.flags, frame.body);
    check_message(protocol::decode_router_message, frame.type, frame.body);
    check_message(protocol::decode_worker_message, frame.type, frame.body);
  }
  PENSTOCK_CHECK(stream.starts_with(encoded));
  // The body as such, under a type of the input's choosing: most mutations break the length before it.
  fuzz::Input body(data, size);
  const std::uint16_t type = body.byte();
  check_message(protocol::decode_router_message, type, body.rest());
  fuzz::Input other(data, size);
  (void)other.byte();
  check_message(protocol::decode_worker_message, type, other.rest());
  return 0;
}
