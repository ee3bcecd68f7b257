// <tool_call>{"name": "f", "arguments": {...}}</tool_call>, any number of them, with text before, between and after.
// Closing markers that are missing and brackets too few or too many before them do no harm.
#include "router/core/output/json_call.hpp"
#include "router/core/output/tool_parser.hpp"

namespace penstock::router {
namespace {

constexpr std::string_view opening = "<tool_call>";
constexpr std::string_view closing = "</tool_call>";

class HermesParser final : public ToolParser {
 private:
  enum class State : std::uint8_t { content, before_object, object, after_object };

  bool step(std::string_view& rest, OutputWriter& out) override {
    switch (state_) {
      case State::content:
        if (!take_content_to(opening, rest, out)) return false;
        held_ = opening;
        state_ = State::before_object;
        return true;
      case State::before_object:
        return before_object(rest, out);
      case State::object:
        return object(rest, out);
      case State::after_object:
        return after_object(rest, out);
    }
    return false;
  }

  bool before_object(std::string_view& rest, OutputWriter& out) {
    if (is_space(rest.front()) && hold_front(rest, held_)) return true;
    if (rest.front() == '{') {
      call_.begin(held_);
      state_ = State::object;
    } else {
      out.content(held_);
      state_ = State::content;
    }
    return true;
  }

  bool object(std::string_view& rest, OutputWriter& out) {
    switch (call_.push(rest, out)) {
      case JsonCall::Progress::more:
        return false;
      case JsonCall::Progress::complete:
        held_.clear();
        state_ = State::after_object;
        return true;
      case JsonCall::Progress::no_call:
        state_ = State::content;
        return true;
    }
    return false;
  }

  bool after_object(std::string_view& rest, OutputWriter& out) {
    const bool is_stray = is_space(rest.front()) || rest.front() == '}' || rest.front() == ']';
    if (is_stray && hold_front(rest, held_)) return true;
    switch (at_marker(rest, closing)) {
      case AtMarker::unclear:
        return false;
      case AtMarker::yes:
        rest.remove_prefix(closing.size());
        break;
      case AtMarker::no:
        out.content(held_);
        break;
    }
    state_ = State::content;
    return true;
  }

  void end(std::string_view rest, OutputWriter& out) override {
    switch (state_) {
      case State::object:
        call_.finish(out);
        break;
      case State::before_object:
        out.content(held_);
        break;
      case State::after_object:
        return;
      case State::content:
        break;
    }
    out.content(rest);
  }

  State state_ = State::content;
  std::string held_;  // the marker and white space before an object, or what follows it
  JsonCall call_;
};

}  // namespace

std::unique_ptr<ToolParser> make_hermes_parser() {
  return std::make_unique<HermesParser>();
}

}  // namespace penstock::router
