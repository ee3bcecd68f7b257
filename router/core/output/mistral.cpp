// [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...], and what newer models write, once a call: [TOOL_CALLS]f{...},
// [TOOL_CALLS]f[ARGS]{...} or [TOOL_CALLS]f[CALL_ID]id[ARGS]{...}. Text may come before, between and after.
#include "router/core/output/json_call.hpp"
#include "router/core/output/tool_parser.hpp"

namespace penstock::router {
namespace {

constexpr std::string_view opening = "[TOOL_CALLS]";
constexpr std::string_view id_marker = "[CALL_ID]";
constexpr std::string_view arguments_marker = "[ARGS]";

class MistralParser final : public ToolParser {
 private:
  enum class State : std::uint8_t { content, after_marker, in_list, name, object };
  enum class Part : std::uint8_t { name, id, arguments };

  bool step(std::string_view& rest, OutputWriter& out) override {
    switch (state_) {
      case State::content:
        if (!take_content_to(opening, rest, out)) return false;
        held_ = opening;
        state_ = State::after_marker;
        return true;
      case State::after_marker:
        return after_marker(rest, out);
      case State::in_list:
        return in_list(rest, out);
      case State::name:
        return name(rest, out);
      case State::object:
        return object(rest, out);
    }
    return false;
  }

  bool after_marker(std::string_view& rest, OutputWriter& out) {
    const char c = rest.front();
    if (is_space(c)) return hold(rest, out);
    is_list_ = c == '[';
    has_call_ = false;
    if (is_list_) {
      state_ = State::in_list;
      return hold(rest, out);
    }
    if (c == '{') {
      call_.begin(held_);
      state_ = State::object;
      return true;
    }
    name_.clear();
    part_ = Part::name;
    state_ = State::name;
    return is_name_character(c) || give_up(out);
  }

  bool in_list(std::string_view& rest, OutputWriter& out) {
    const char c = rest.front();
    if (is_space(c) || c == ',') return hold(rest, out);
    if (c == '{') {
      call_.begin(held_);
      state_ = State::object;
      return true;
    }
    if (c != ']' || !has_call_) return give_up(out);
    rest.remove_prefix(1);
    state_ = State::content;
    return true;
  }

  bool name(std::string_view& rest, OutputWriter& out) {
    for (const auto& [marker, part] : {std::pair{id_marker, Part::id}, std::pair{arguments_marker, Part::arguments}}) {
      if (part_ >= part) continue;
      const AtMarker at = at_marker(rest, marker);
      if (at == AtMarker::unclear) return false;
      if (at == AtMarker::no) continue;
      held_ += marker;
      rest.remove_prefix(marker.size());
      part_ = part;
      return true;
    }
    const char c = rest.front();
    if (c == '{' && part_ != Part::id) {
      call_.begin_arguments(held_, name_);
      state_ = State::object;
      return true;
    }
    if (is_space(c)) return hold(rest, out);
    if (!is_name_character(c) || part_ == Part::arguments || is_space(held_.back())) return give_up(out);
    if (part_ == Part::name) name_ += c;
    return hold(rest, out);
  }

  bool object(std::string_view& rest, OutputWriter& out) {
    switch (call_.push(rest, out)) {
      case JsonCall::Progress::more:
        return false;
      case JsonCall::Progress::complete:
        held_.clear();
        has_call_ = true;
        state_ = is_list_ ? State::in_list : State::content;
        return true;
      case JsonCall::Progress::no_call:
        state_ = State::content;
        return true;
    }
    return false;
  }

  bool hold(std::string_view& rest, OutputWriter& out) { return hold_front(rest, held_) || give_up(out); }

  bool give_up(OutputWriter& out) {
    out.content(held_);
    state_ = State::content;
    return true;
  }

  void end(std::string_view rest, OutputWriter& out) override {
    if (state_ == State::object) {
      call_.finish(out);
    } else if (state_ != State::content) {
      out.content(held_);
    }
    out.content(rest);
  }

  State state_ = State::content;
  Part part_ = Part::name;
  bool is_list_ = false;
  bool has_call_ = false;  // in this list
  std::string held_;       // what is no call yet
  std::string name_;
  JsonCall call_;
};

}  // namespace

std::unique_ptr<ToolParser> make_mistral_parser() {
  return std::make_unique<MistralParser>();
}

}  // namespace penstock::router
