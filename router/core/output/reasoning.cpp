#include "router/core/output/reasoning.hpp"

#include "router/core/output/tool_parser.hpp"

namespace penstock::router {
namespace {

constexpr std::string_view opening = "<think>";
constexpr std::string_view closing = "</think>";

}  // namespace

ReasoningSplit::ReasoningSplit(Begin begin) : state_(State::answer) {
  if (begin == Begin::perhaps) state_ = State::before;
  if (begin == Begin::in_thought) state_ = State::opened;
}

void ReasoningSplit::push(std::string_view text, OutputWriter& out, std::string& answer) {
  if (state_ == State::answer) {
    answer += text;
    return;
  }
  pending_ += text;
  std::string_view rest = pending_;
  while (!rest.empty() && step(rest, out, answer)) {
  }
  pending_.erase(0, pending_.size() - rest.size());
}

bool ReasoningSplit::step(std::string_view& rest, OutputWriter& out, std::string& answer) {
  switch (state_) {
    case State::before:
    case State::opened: {
      if (is_space(rest.front()) && hold_front(rest, space_)) return true;
      // Some models open the thought once more that the prompt has opened.
      const AtMarker at = at_marker(rest, opening);
      if (at == AtMarker::unclear) return false;
      if (at == AtMarker::yes) rest.remove_prefix(opening.size());
      const bool is_thought = at == AtMarker::yes || state_ == State::opened;
      if (!is_thought) answer += space_;
      space_.clear();
      state_ = is_thought ? State::thought : State::answer;
      return true;
    }
    case State::thought: {
      const std::size_t end = rest.find(closing);
      const bool is_closed = end != std::string_view::npos;
      std::string_view text = rest.substr(0, is_closed ? end : rest.size() - beginning_at_end(rest, closing));
      rest.remove_prefix(text.size() + (is_closed ? closing.size() : 0));
      while (!has_begun_ && !text.empty() && is_space(text.front())) text.remove_prefix(1);
      has_begun_ = has_begun_ || !text.empty();
      out.reasoning(text);
      if (!is_closed) return false;
      out.end_reasoning();
      state_ = State::closed;
      return true;
    }
    case State::closed:
      if (is_space(rest.front())) {
        rest.remove_prefix(1);
        return true;
      }
      state_ = State::answer;
      return true;
    case State::answer:
      answer += rest;
      rest = {};
      return false;
  }
  return false;
}

void ReasoningSplit::finish(OutputWriter& out, std::string& answer) {
  if (state_ == State::before) answer += space_ + pending_;
  if (state_ == State::opened || state_ == State::thought) out.reasoning(space_ + pending_);
  space_.clear();
  pending_.clear();
}

}  // namespace penstock::router
