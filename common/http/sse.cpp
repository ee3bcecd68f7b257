#include "common/http/sse.hpp"

#include <algorithm>

namespace penstock::http {

void append_sse_event(std::string& out, std::string_view data, std::string_view event) {
  if (!event.empty()) {
    out += "event: ";
    out += event;
    out += '\n';
  }
  // A reader takes LF, CR and CRLF as line ends, so each of them starts a new data line.
  while (true) {
    const std::size_t end = std::min(data.find_first_of("\r\n"), data.size());
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == data.size()) break;
    data.remove_prefix(end + (data.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  out += '\n';
}

void append_sse_comment(std::string& out, std::string_view comment) {
  out += ": ";
  for (char c : comment) out += c == '\r' || c == '\n' ? ' ' : c;
  out += "\n\n";
}

Result<void> SseDecoder::feed(std::string_view bytes, std::vector<SseEvent>& events) {
  while (!bytes.empty() && !failed_) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + end + current_.data.size() > event_bytes_max_) {
      failed_ = true;
      break;
    }
    line_.append(bytes.substr(0, end));
    if (end == bytes.size()) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    take_line(events);
  }
  if (failed_) {
    return make_error(ErrorCode::resource_exhausted,
                      "an event is larger than " + std::to_string(event_bytes_max_) + " bytes");
  }
  return {};
}

void SseDecoder::take_line(std::vector<SseEvent>& events) {
  std::string_view line = line_;
  if (std::exchange(at_start_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) {
      if (!current_.data.empty()) current_.data.pop_back();  // the line end after the last data line
      events.push_back(current_);
    }
    current_.event.clear();
    current_.data.clear();
    has_data_ = false;
  } else {
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (name == "data") {
      current_.data.append(value).append("\n");
      has_data_ = true;
    } else if (name == "event") {
      current_.event = value;
    } else if (name == "id" && value.find('\0') == std::string_view::npos) {
      current_.id = value;
    }
  }
  line_.clear();
}

}  // namespace penstock::http
