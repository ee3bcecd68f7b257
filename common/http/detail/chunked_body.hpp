// What Beast's parsers must be spared of a chunked body: they assert five bytes whenever they look at the last chunk
// again, and of an empty body fewer may have come ("0", CRLF). No chunked body is shorter, so neither side gives the
// parser its beginning before. Owner: who owns the parser; one a message. Thread: the owner's.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock::http::detail {

class BodyStart {
 public:
  /// Whether `input`, where the body begins or goes on, must wait for more.
  template <class Parser>
  bool is_held(const Parser& parser, std::string_view input) {
    has_begun_ = has_begun_ || !parser.chunked() || input.size() >= chunked_bytes_min;
    return !has_begun_;
  }

 private:
  static constexpr std::size_t chunked_bytes_min = 5;  // "0" CRLF CRLF
  bool has_begun_ = false;
};

}  // namespace penstock::http::detail
