#include "router/core/api/message_writer.hpp"

#include "common/json/writer.hpp"

namespace penstock::router {
namespace {

using Kind = OutputEvent::Kind;

void append_field(std::string_view name, std::string_view text, std::string& out) {
  out += '"';
  out += name;
  out += "\":";
  json::append_quoted(out, text);
}

std::string joined(const OutputEvents& events, Kind kind) {
  std::string text;
  for (const auto& event : events) {
    if (event.kind == kind) text += event.text;
  }
  return text;
}

void append_function(const OutputEvent& call, std::string_view arguments, std::string& out) {
  append_field("id", call.id, out);
  out += ",\"type\":\"function\",\"function\":{";
  append_field("name", call.text, out);
  out += ',';
  append_field("arguments", arguments, out);
  out += '}';
}

}  // namespace

void append_event_delta(const OutputEvent& event, std::string& out) {
  switch (event.kind) {
    case Kind::content:
      return append_field("content", event.text, out);
    case Kind::reasoning:
      return append_field("reasoning_content", event.text, out);
    case Kind::call:
    case Kind::arguments:
      out += "\"tool_calls\":[{\"index\":";
      json::append_number(out, std::uint64_t{event.call});
      out += ',';
      if (event.kind == Kind::call) {
        append_function(event, "", out);
      } else {
        out += "\"function\":{";
        append_field("arguments", event.text, out);
        out += '}';
      }
      out += "}]";
  }
}

// The arguments of a call are one event that follows it.
void append_message(const OutputEvents& events, std::string& out) {
  const std::string content = joined(events, Kind::content), reasoning = joined(events, Kind::reasoning);
  out += "\"content\":";
  if (content.empty()) {
    out += "null";
  } else {
    json::append_quoted(out, content);
  }
  if (!reasoning.empty()) {
    out += ',';
    append_field("reasoning_content", reasoning, out);
  }
  bool is_first = true;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind != Kind::call) continue;
    const bool has_arguments = i + 1 < events.size() && events[i + 1].kind == Kind::arguments;
    out += is_first ? ",\"tool_calls\":[{" : ",{";
    append_function(events[i], has_arguments ? std::string_view(events[i + 1].text) : std::string_view(), out);
    out += '}';
    is_first = false;
  }
  if (!is_first) out += ']';
}

}  // namespace penstock::router
