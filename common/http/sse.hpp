// Server-sent events: pure encoding and a decoder that takes bytes split anywhere. Line ends may be LF, CRLF or CR; a
// BOM at the start, comments and unknown fields are skipped. One owner an object; bounded by event_bytes_max.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace penstock::http {

/// Appends one event whose data is `data` (a line break in it starts another data line).
void append_sse_event(std::string& out, std::string_view data, std::string_view event = {});
/// Appends a comment, which keeps intermediaries from closing a silent stream.
void append_sse_comment(std::string& out, std::string_view comment);

struct SseEvent {
  std::string event;  // "" is "message"
  std::string data;
  std::string id;

  friend bool operator==(const SseEvent&, const SseEvent&) = default;
};

class SseDecoder {
 public:
  explicit SseDecoder(std::size_t event_bytes_max = 1 << 20) : event_bytes_max_(event_bytes_max) {}

  /// Takes the next bytes; complete events are appended to `events`. Fails (and stays failed) with resource_exhausted
  /// when a line or an event grows over the bound.
  Result<void> feed(std::string_view bytes, std::vector<SseEvent>& events);

 private:
  void take_line(std::vector<SseEvent>& events);

  std::size_t event_bytes_max_;
  std::string line_;
  SseEvent current_;
  bool has_data_ = false;
  bool at_start_ = true;
  bool after_cr_ = false;
  bool failed_ = false;
};

}  // namespace penstock::http
