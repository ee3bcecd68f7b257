// Server-sent events: the same events however the bytes are split, and what is encoded comes back.
#include <string>

#include "common/base/check.hpp"
#include "common/http/sse.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace penstock;  // NOLINT: one file
constexpr std::size_t event_bytes_max = 256;

struct Decoded {
  std::vector<http::SseEvent> events;
  bool failed = false;
};

Decoded decode(std::string_view stream, std::size_t piece_max) {
  Decoded decoded;
  http::SseDecoder decoder(event_bytes_max);
  fuzz::in_pieces(stream, piece_max, [&](std::string_view piece) {
    if (!decoder.feed(piece, decoded.events)) decoded.failed = true;
  });
  return decoded;
}

std::string with_line_feeds(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

void check_round_trip(std::string_view data) {
  std::string stream;
  http::append_sse_comment(stream, data);
  http::append_sse_event(stream, data);
  std::vector<http::SseEvent> events;
  http::SseDecoder decoder;
  PENSTOCK_CHECK(decoder.feed(stream, events) && events.size() == 1, "events", events.size());
  PENSTOCK_CHECK(events[0].data == with_line_feeds(data) && events[0].event.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t piece_max = 1 + input.byte() % 32u;
  const std::string_view stream = input.rest();
  const Decoded whole = decode(stream, std::max<std::size_t>(stream.size(), 1));
  const Decoded split = decode(stream, piece_max);
  PENSTOCK_CHECK(whole.failed == split.failed && whole.events == split.events, "pieces", piece_max);
  for (const auto& event : whole.events) PENSTOCK_CHECK(event.data.size() <= event_bytes_max);
  check_round_trip(stream);
  return 0;
}
