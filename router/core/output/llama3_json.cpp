// {"name": "f", "parameters": {...}}, perhaps after <|python_tag|>, several with ";" or "," between them. Nothing marks
// such a call, so only an answer that begins with one has calls, and only if the request has a tool of that name: JSON
// that was asked for stays content.
#include "router/core/output/json_call.hpp"
#include "router/core/output/tool_parser.hpp"

namespace penstock::router {
namespace {

constexpr std::string_view tag = "<|python_tag|>";

class Llama3JsonParser final : public ToolParser {
 public:
  explicit Llama3JsonParser(const ToolSet& tools) { call_.only_names_of(&tools); }

 private:
  enum class State : std::uint8_t { before_object, object, content };

  bool step(std::string_view& rest, OutputWriter& out) override {
    switch (state_) {
      case State::before_object:
        return before_object(rest, out);
      case State::object:
        return object(rest, out);
      case State::content:
        out.content(rest);
        rest = {};
        return false;
    }
    return false;
  }

  bool before_object(std::string_view& rest, OutputWriter& out) {
    const bool is_between = is_space(rest.front()) || (has_call_ && (rest.front() == ';' || rest.front() == ','));
    if (is_between && hold_front(rest, held_)) return true;
    if (rest.front() == '{') {
      call_.begin(held_);
      held_.clear();
      state_ = State::object;
      return true;
    }
    const AtMarker at = is_tagged_ ? AtMarker::no : at_marker(rest, tag);
    if (at == AtMarker::unclear) return false;
    if (at == AtMarker::yes) {
      is_tagged_ = true;
      held_ += tag;
      rest.remove_prefix(tag.size());
      return true;
    }
    out.content(held_);
    state_ = State::content;
    return true;
  }

  bool object(std::string_view& rest, OutputWriter& out) {
    switch (call_.push(rest, out)) {
      case JsonCall::Progress::more:
        return false;
      case JsonCall::Progress::complete:
        has_call_ = true;
        is_tagged_ = false;
        state_ = State::before_object;
        return true;
      case JsonCall::Progress::no_call:
        state_ = State::content;
        return true;
    }
    return false;
  }

  void end(std::string_view rest, OutputWriter& out) override {
    if (state_ == State::object) call_.finish(out);
    if (state_ == State::before_object) out.content(held_);
    out.content(rest);
  }

  State state_ = State::before_object;
  bool has_call_ = false;
  bool is_tagged_ = false;
  std::string held_;  // before an object
  JsonCall call_;
};

}  // namespace

std::unique_ptr<ToolParser> make_llama3_json_parser(const ToolSet& tools) {
  return std::make_unique<Llama3JsonParser>(tools);
}

}  // namespace penstock::router
