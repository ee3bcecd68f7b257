// <tool_call><function=f><parameter=key>value</parameter>...</function></tool_call>. The values are text; the schema of
// the tool says which of them are JSON. Values that can only be strings are given out as they come; others wait for
// their end, since a number that turns out to be none has to become a string. Nothing is ever evaluated.
// A missing <tool_call> does no harm; a value ends at </parameter> only, whatever else is in it.
#include <algorithm>

#include "common/json/json.hpp"
#include "common/json/writer.hpp"
#include "router/core/output/json_call.hpp"
#include "router/core/output/tool_parser.hpp"
#include "router/core/output/tool_set.hpp"

namespace penstock::router {
namespace {

constexpr std::string_view call_opening = "<tool_call>";
constexpr std::string_view call_closing = "</tool_call>";
constexpr std::string_view function_opening = "<function=";
constexpr std::string_view function_closing = "</function>";
constexpr std::string_view parameter_opening = "<parameter=";
constexpr std::string_view value_closing = "</parameter>";
constexpr std::size_t name_bytes_max = 256;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The value as JSON where the schema allows that, else nothing.
std::optional<std::string> as_json(std::string_view text, const ParameterKinds& kinds) {
  text = trimmed(text);
  if (kinds.null && (text == "null" || text == "None")) return "null";
  const bool is_said = kinds.text || kinds.null || kinds.other;
  if (is_said && !kinds.other) return std::nullopt;
  if (kinds.other && text == "True") return "true";
  if (kinds.other && text == "False") return "false";
  const auto value = json::parse(text);
  if (!value || value->is_string()) return std::nullopt;
  if (!is_said && !value->is_object() && !value->is_array()) return std::nullopt;
  return std::string(text);
}

class Qwen3CoderParser final : public ToolParser {
 public:
  explicit Qwen3CoderParser(const ToolSet& tools) : tools_(tools) {}

 private:
  enum class State : std::uint8_t { content, before_function, function_name, body, parameter_name, value, after_call };

  bool step(std::string_view& rest, OutputWriter& out) override {
    switch (state_) {
      case State::content:
        return content(rest, out);
      case State::before_function:
        return before_function(rest, out);
      case State::function_name:
        return function_name(rest, out);
      case State::body:
        return body(rest, out);
      case State::parameter_name:
        return parameter_name(rest, out);
      case State::value:
        return value(rest, out);
      case State::after_call:
        return after_call(rest, out);
    }
    return false;
  }

  // Whichever of the two markers comes first.
  bool content(std::string_view& rest, OutputWriter& out) {
    const std::size_t call = rest.find(call_opening), function = rest.find(function_opening);
    if (call == std::string_view::npos && function == std::string_view::npos) {
      const std::size_t kept = std::max(beginning_at_end(rest, call_opening), beginning_at_end(rest, function_opening));
      out.content(rest.substr(0, rest.size() - kept));
      rest.remove_prefix(rest.size() - kept);
      return false;
    }
    const bool is_call = call < function;
    held_ = is_call ? call_opening : function_opening;
    (void)take_content_to(held_, rest, out);
    state_ = is_call ? State::before_function : State::function_name;
    name_.clear();
    return true;
  }

  bool before_function(std::string_view& rest, OutputWriter& out) {
    if (is_space(rest.front())) return hold(rest, out);
    const AtMarker at = at_marker(rest, function_opening);
    if (at == AtMarker::unclear) return false;
    if (at == AtMarker::no) return give_up(out);
    held_ += function_opening;
    rest.remove_prefix(function_opening.size());
    name_.clear();
    state_ = State::function_name;
    return true;
  }

  bool function_name(std::string_view& rest, OutputWriter& out) {
    const char c = rest.front();
    if (c != '>' && c != '<' && c != '\n') {
      name_ += c;
      return hold(rest, out);
    }
    if (c != '>' || trimmed(name_).empty()) return give_up(out);
    rest.remove_prefix(1);
    held_.clear();
    name_ = std::string(trimmed(name_));
    out.begin_call(name_);
    has_parameter_ = false;
    state_ = State::body;
    return true;
  }

  bool body(std::string_view& rest, OutputWriter& out) {
    if (is_space(rest.front())) {
      rest.remove_prefix(1);
      return true;
    }
    const AtMarker parameter = at_marker(rest, parameter_opening), closing = at_marker(rest, function_closing);
    if (parameter == AtMarker::unclear || closing == AtMarker::unclear) return false;
    if (parameter == AtMarker::yes) {
      rest.remove_prefix(parameter_opening.size());
      key_.clear();
      state_ = State::parameter_name;
      return true;
    }
    // Anything else than the closing marker is content; the call is over all the same.
    if (closing == AtMarker::yes) rest.remove_prefix(function_closing.size());
    end_call(out);
    return true;
  }

  bool parameter_name(std::string_view& rest, OutputWriter& out) {
    const char c = rest.front();
    if (c != '>' && c != '<' && c != '\n' && key_.size() < name_bytes_max) {
      key_ += c;
      rest.remove_prefix(1);
      return true;
    }
    if (c != '>') {
      end_call(out);
      held_ = std::string(parameter_opening) + key_;
      return true;
    }
    rest.remove_prefix(1);
    kinds_ = tools_.kinds(name_, trimmed(key_));
    std::string head = has_parameter_ ? ", " : "{";
    json::append_quoted(head, trimmed(key_));
    out.arguments(head + ": ");
    has_parameter_ = true;
    value_.clear();
    is_streamed_ = false;
    is_at_start_ = true;
    state_ = State::value;
    if (kinds_.text && !kinds_.null && !kinds_.other) stream_value(out);
    return true;
  }

  // One line break after the opening marker and one before the closing one are layout.
  bool value(std::string_view& rest, OutputWriter& out) {
    if (is_at_start_ && rest.front() == '\n') rest.remove_prefix(1);
    is_at_start_ = false;
    const std::size_t end = rest.find(value_closing);
    std::string_view text = rest.substr(0, end);
    if (end == std::string_view::npos) {
      text.remove_suffix(beginning_at_end(text, value_closing));
      if (text.ends_with('\n')) text.remove_suffix(1);
      take_value(text, out);
      rest.remove_prefix(text.size());
      return false;
    }
    if (text.ends_with('\n')) text.remove_suffix(1);
    take_value(text, out);
    rest.remove_prefix(end + value_closing.size());
    end_value(out);
    state_ = State::body;
    return true;
  }

  void take_value(std::string_view text, OutputWriter& out) {
    if (is_streamed_) {
      std::string escaped;
      json::append_escaped(escaped, text);
      return out.arguments(escaped);
    }
    value_ += text;
    if (value_.size() > JsonCall::held_bytes_max) stream_value(out);
  }

  void stream_value(OutputWriter& out) {
    is_streamed_ = true;
    out.arguments("\"");
    const std::string waiting = std::move(value_);
    value_.clear();
    take_value(waiting, out);
  }

  void end_value(OutputWriter& out) {
    if (!is_streamed_) {
      if (const auto json = as_json(value_, kinds_)) return out.arguments(*json);
      stream_value(out);
    }
    out.arguments("\"");
  }

  void end_call(OutputWriter& out) {
    out.arguments(has_parameter_ ? "}" : "{}");
    out.end_call();
    held_.clear();
    state_ = State::after_call;
  }

  bool after_call(std::string_view& rest, OutputWriter& out) {
    if (is_space(rest.front())) return hold(rest, out);
    const AtMarker at = at_marker(rest, call_closing);
    if (at == AtMarker::unclear) return false;
    if (at == AtMarker::yes) {
      rest.remove_prefix(call_closing.size());
      state_ = State::content;
      return true;
    }
    return give_up(out);
  }

  bool hold(std::string_view& rest, OutputWriter& out) {
    if (held_.size() >= name_bytes_max) return give_up(out);
    held_ += rest.front();
    rest.remove_prefix(1);
    return true;
  }

  bool give_up(OutputWriter& out) {
    out.content(held_);
    held_.clear();
    state_ = State::content;
    return true;
  }

  void end(std::string_view rest, OutputWriter& out) override {
    if (state_ == State::value) {
      take_value(rest, out);
      if (!is_streamed_) out.arguments(value_);
      return;
    }
    if (state_ == State::body || state_ == State::parameter_name || state_ == State::after_call) return;
    out.content(held_);
    out.content(rest);
  }

  const ToolSet& tools_;
  State state_ = State::content;
  std::string held_;  // what is no call yet, or what follows one
  std::string name_;
  std::string key_;
  std::string value_;  // that waits for its end
  ParameterKinds kinds_;
  bool has_parameter_ = false;
  bool is_streamed_ = false;
  bool is_at_start_ = false;  // of a value
};

}  // namespace

std::unique_ptr<ToolParser> make_qwen3_coder_parser(const ToolSet& tools) {
  return std::make_unique<Qwen3CoderParser>(tools);
}

}  // namespace penstock::router
