#include "router/core/output/json_call.hpp"

#include "common/json/json.hpp"
#include "router/core/output/tool_set.hpp"

namespace penstock::router {
namespace {

std::optional<std::string> decoded(std::string_view inside_quotes) {
  json::Limits limits;
  limits.text_bytes_max = JsonCall::held_bytes_max + 2;
  const auto parsed = json::parse("\"" + std::string(inside_quotes) + "\"", limits);
  if (!parsed || !parsed->is_string()) return std::nullopt;
  return std::string(parsed->get_string());
}

bool opens(char c) {
  return c == '{' || c == '[';
}
bool closes(char c) {
  return c == '}' || c == ']';
}

}  // namespace

void JsonCall::begin(std::string_view before) {
  const ToolSet* tools = tools_;
  *this = JsonCall();
  tools_ = tools;
  held_ = before;
}

void JsonCall::begin_arguments(std::string_view before, std::string_view name) {
  begin(before);
  is_bare_ = true;
  name_ = name;
  key_ = "arguments";
  state_ = State::value;
}

JsonCall::Progress JsonCall::push(std::string_view& rest, OutputWriter& out) {
  std::size_t at = 0;
  Take taken = Take::took;
  for (; at < rest.size() && taken == Take::took; ++at) {
    taken = step(rest[at], out);
    if (taken == Take::refused) break;
    if (!is_call_) held_ += rest[at];
    if (!is_call_ && held_.size() > held_bytes_max) {
      ++at;
      taken = Take::refused;
      break;
    }
  }
  rest.remove_prefix(at);
  if (is_call_ && !arguments_.empty()) {
    out.arguments(arguments_);
    arguments_.clear();
  }
  if (taken == Take::took) return Progress::more;
  if (is_call_) {
    out.end_call();
    return Progress::complete;
  }
  out.content(held_);
  return Progress::no_call;
}

void JsonCall::finish(OutputWriter& out) {
  if (!is_call_) out.content(held_);
}

bool JsonCall::begin_call(OutputWriter& out) {
  if (tools_ != nullptr && !tools_->contains(*name_)) return false;
  is_call_ = true;
  held_.clear();
  out.begin_call(*name_);
  return true;
}

bool JsonCall::take_text(char c, std::string& text) {
  if (!is_escaped_ && c == '"') {
    in_text_ = false;
    return true;
  }
  is_escaped_ = !is_escaped_ && c == '\\';
  text += c;
  return false;
}

JsonCall::Take JsonCall::step(char c, OutputWriter& out) {
  switch (state_) {
    case State::open:
      state_ = State::key_or_end;
      return c == '{' ? Take::took : Take::refused;
    case State::key_or_end:
      if (is_space(c)) return Take::took;
      if (c == '}') return end(out);
      key_.clear();
      state_ = State::key;
      return c == '"' ? Take::took : Take::refused;
    case State::key:
      if (take_text(c, key_)) state_ = State::colon;
      return key_.size() <= held_bytes_max ? Take::took : Take::refused;
    case State::colon:
      if (is_space(c)) return Take::took;
      state_ = State::value;
      return c == ':' ? Take::took : Take::refused;
    case State::value:
      if (is_space(c)) return Take::took;
      return begin_value(c, out);
    case State::name:
      if (!take_text(c, *name_)) return Take::took;
      state_ = State::after_value;
      name_ = decoded(*name_);
      if (!name_ || name_->empty()) return Take::refused;
      if (!has_arguments_) return Take::took;
      return begin_call(out) ? Take::took : Take::refused;
    case State::arguments:
      return take_arguments(c);
    case State::text_arguments:
      if (!take_text(c, arguments_)) return arguments_.size() <= held_bytes_max ? Take::took : Take::refused;
      return end_text_arguments(out);
    case State::skipped:
      return skip(c, out);
    case State::after_value:
      if (is_space(c)) return Take::took;
      if (c == '}') return end(out);
      state_ = State::key_or_end;
      return c == ',' ? Take::took : Take::refused;
  }
  return Take::refused;
}

JsonCall::Take JsonCall::begin_value(char c, OutputWriter& out) {
  is_escaped_ = false;
  in_text_ = c == '"';
  if (key_ == "name" && !name_) {
    state_ = State::name;
    name_.emplace();
    return c == '"' ? Take::took : Take::refused;
  }
  const bool is_arguments = (key_ == "arguments" || key_ == "parameters") && !has_arguments_;
  if (is_arguments && c == '{') {
    has_arguments_ = true;
    if (name_ && !begin_call(out)) return Take::refused;
    state_ = State::arguments;
    arguments_ = c;
    depth_ = 1;
    return Take::took;
  }
  if (is_arguments && c == '"') {
    state_ = State::text_arguments;
    return Take::took;
  }
  if (is_arguments && c != 'n') return Take::refused;  // null means none
  state_ = State::skipped;
  depth_ = opens(c) ? 1 : 0;
  return closes(c) || c == ',' || c == '<' ? Take::refused : Take::took;
}

// Within strings anything goes. Outside of them "<" is no JSON: a marker begins, the brackets before it were left open.
JsonCall::Take JsonCall::take_arguments(char c) {
  if (!in_text_ && c == '<') return Take::refused;
  arguments_ += c;
  if (in_text_) {
    if (!is_escaped_ && c == '"') in_text_ = false;
    is_escaped_ = !is_escaped_ && c == '\\';
  } else if (c == '"') {
    in_text_ = true;
    is_escaped_ = false;
  } else if (opens(c)) {
    ++depth_;
  } else if (closes(c) && --depth_ == 0) {
    state_ = State::after_value;
    if (is_bare_) return Take::ended;
  }
  return Take::took;
}

// Some models write the object as a string once more.
JsonCall::Take JsonCall::end_text_arguments(OutputWriter& out) {
  const auto text = decoded(arguments_);
  state_ = State::after_value;
  has_arguments_ = true;
  if (!text) return Take::refused;
  arguments_ = text->empty() ? "{}" : *text;
  if (!name_) return Take::took;
  return begin_call(out) ? Take::took : Take::refused;
}

JsonCall::Take JsonCall::skip(char c, OutputWriter& out) {
  if (in_text_) {
    if (!is_escaped_ && c == '"') {
      in_text_ = false;
      if (depth_ == 0) state_ = State::after_value;
    }
    is_escaped_ = !is_escaped_ && c == '\\';
    return Take::took;
  }
  if (c == '<') return Take::refused;
  if (c == '"') {
    in_text_ = true;
    is_escaped_ = false;
  } else if (opens(c)) {
    ++depth_;
  } else if (depth_ > 0 && closes(c)) {
    if (--depth_ == 0) state_ = State::after_value;
  } else if (depth_ == 0 && (c == ',' || c == '}' || is_space(c))) {
    state_ = State::after_value;
    return step(c, out);
  }
  return Take::took;
}

JsonCall::Take JsonCall::end(OutputWriter& out) {
  if (!name_) return Take::refused;
  if (!is_call_) {
    if (!begin_call(out)) return Take::refused;
    arguments_ = "{}";
  }
  return Take::ended;
}

}  // namespace penstock::router
