#include "router/core/output/output_writer.hpp"

#include <algorithm>

namespace penstock::router {

std::size_t beginning_at_end(std::string_view text, std::string_view marker) {
  for (std::size_t count = std::min(text.size(), marker.size() - 1); count > 0; --count) {
    if (text.ends_with(marker.substr(0, count))) return count;
  }
  return 0;
}

void OutputWriter::add(OutputEvent::Kind kind, std::string_view text) {
  if (text.empty() || is_full()) return;
  if (kind != space_kind_) drop_space();
  space_kind_ = kind;
  std::size_t solid = text.size();
  while (solid > 0 && is_space(text[solid - 1])) --solid;
  if (solid > 0) {
    append_event(events_, {kind, 0, std::move(space_) + std::string(text.substr(0, solid)), {}});
    space_.clear();
    run_passes_ = false;
    is_after_call_ = false;
  }
  space_ += text.substr(solid);
  if (run_passes_ || space_.size() > space_bytes_max) {
    run_passes_ = true;
    append_event(events_, {kind, 0, std::move(space_), {}});
    space_.clear();
  }
}

void OutputWriter::drop_space() {
  space_.clear();
  run_passes_ = false;
}

void OutputWriter::begin_call(std::string_view name) {
  if (is_full()) return;
  drop_space();
  append_event(events_, {OutputEvent::Kind::call, calls_begun_, std::string(name), next_id()});
  ++calls_begun_;
  is_after_call_ = true;
}

void OutputWriter::arguments(std::string_view json) {
  if (json.empty() || is_full()) return;
  append_event(events_, {OutputEvent::Kind::arguments, calls_begun_ - 1, std::string(json), {}});
}

void OutputWriter::finish() {
  if (!is_after_call_ && !space_.empty()) append_event(events_, {space_kind_, 0, std::move(space_), {}});
  drop_space();
}

void OutputWriter::take(OutputEvents& out) {
  for (auto& event : events_) append_event(out, std::move(event));
  events_.clear();
}

std::string OutputWriter::next_id() {
  constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const bool is_long = style_ == CallIdStyle::long_hex;
  const std::size_t kinds = is_long ? 16 : letters.size();
  std::string id = is_long ? "call_" : "";
  for (std::size_t i = 0; i < (is_long ? 24u : 9u); ++i) id += letters[random_.below(kinds)];
  return id;
}

}  // namespace penstock::router
