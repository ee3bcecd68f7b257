// The bytes of a connection as requests: the same requests and the same refusal however the bytes arrive.
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "common/http/detail/request_parser.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace penstock;  // NOLINT: one file
using http::detail::Progress;
constexpr std::size_t requests_max = 8;

http::ServerLimits small_limits() {
  http::ServerLimits limits;
  limits.request_line_bytes_max = 128;
  limits.header_bytes_max = 512;
  limits.header_count_max = 8;
  limits.body_bytes_max = 256;
  return limits;
}

struct Conversation {
  std::vector<std::string> requests;
  std::string refusal;
};

std::string describe(const http::Request& request) {
  std::string text = request.method + " " + request.path + "?" + request.query + "\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\n";
  return text + "\n" + request.body;
}

void check_request(const http::Request& request, const http::ServerLimits& limits) {
  PENSTOCK_CHECK(request.path.starts_with('/') || request.path == "*", request.path);
  PENSTOCK_CHECK(request.path.find('\0') == std::string::npos);
  PENSTOCK_CHECK(request.body.size() <= limits.body_bytes_max, "bytes", request.body.size());
  PENSTOCK_CHECK(request.headers.size() <= limits.header_count_max, "fields", request.headers.size());
}

/// As a connection does it: one parser a request, input kept until it is consumed.
Conversation converse(std::string_view stream, std::size_t piece_max) {
  static const http::ServerLimits limits = small_limits();
  Conversation out;
  std::string buffered;
  auto parser = std::make_unique<http::detail::RequestParser>(limits);
  fuzz::in_pieces(stream, piece_max, [&](std::string_view piece) {
    if (!out.refusal.empty() || out.requests.size() >= requests_max) return;
    buffered += piece;
    for (bool goes_on = true; goes_on && out.requests.size() < requests_max;) {
      std::size_t consumed = 0;
      const Progress progress = parser->feed(buffered, consumed);
      PENSTOCK_CHECK(consumed <= buffered.size(), "consumed", consumed);
      buffered.erase(0, consumed);
      switch (progress) {
        case Progress::need_more:
          goes_on = false;
          break;
        case Progress::head_done:
          break;
        case Progress::complete: {
          const bool keeps_alive = parser->keep_alive();
          const http::Request request = parser->take();
          check_request(request, limits);
          out.requests.push_back(describe(request));
          if (!keeps_alive) out.refusal = "closed";
          goes_on = keeps_alive;
          parser = std::make_unique<http::detail::RequestParser>(limits);
          break;
        }
        case Progress::failed:
          PENSTOCK_CHECK(parser->error().status >= 400 && parser->error().status < 600, "status",
                         parser->error().status);
          out.refusal = std::to_string(parser->error().status) + " " + parser->error().message;
          goes_on = false;
          break;
      }
    }
  });
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t piece_max = 1 + input.byte() % 64u;
  const std::string_view stream = input.rest();
  const Conversation whole = converse(stream, std::max<std::size_t>(stream.size(), 1));
  const Conversation split = converse(stream, piece_max);
  PENSTOCK_CHECK(whole.requests == split.requests, "pieces", piece_max, "requests", whole.requests.size(),
                 split.requests.size());
  PENSTOCK_CHECK(whole.refusal.empty() == split.refusal.empty(), whole.refusal, "/", split.refusal);
  return 0;
}
