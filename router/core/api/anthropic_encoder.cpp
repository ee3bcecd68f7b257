#include "router/core/api/anthropic_encoder.hpp"

#include "common/json/json.hpp"
#include "common/json/writer.hpp"

namespace penstock::router {
namespace {

using Kind = OutputEvent::Kind;

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

/// Opens an event whose data is an object that begins with its type.
void begin_event(std::string_view type, std::string& out) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += '"';
}

// Cached tokens are counted apart from those that had to be computed.
void append_usage_members(const ClientUsage& usage, std::string& out) {
  out += "\"input_tokens\":";
  json::append_number(out, usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens));
  out += ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":";
  json::append_number(out, usage.cached_tokens);
  out += ",\"output_tokens\":";
  json::append_number(out, usage.completion_tokens);
}

void append_text_block(std::string_view text, std::string& out) {
  out += "{\"type\":\"text\",\"text\":";
  json::append_quoted(out, text);
  out += '}';
}

void append_thinking_block(std::string_view text, std::string& out) {
  out += "{\"type\":\"thinking\",\"thinking\":";
  json::append_quoted(out, text);
  out += ",\"signature\":\"\"}";
}

void append_tool_block(const OutputEvent& call, std::string_view input, std::string& out) {
  out += "{\"type\":\"tool_use\",\"id\":";
  json::append_quoted(out, call.id);
  out += ",\"name\":";
  json::append_quoted(out, call.text);
  out += ",\"input\":";
  out += input;
  out += '}';
}

bool is_object(std::string_view text) {
  const auto value = json::parse(text);
  return value && value->is_object();
}

std::string_view stop_reason(const std::optional<ChoiceFinish>& finish, bool has_stop_string) {
  if (!finish) return "end_turn";
  switch (*finish) {
    case ChoiceFinish::length:
      return "max_tokens";
    case ChoiceFinish::tool_calls:
      return "tool_use";
    case ChoiceFinish::stop:
      return has_stop_string ? "stop_sequence" : "end_turn";
  }
  return "end_turn";
}

}  // namespace

std::string to_anthropic_json(const ApiError& error) {
  std::string out = "{\"type\":\"error\",\"error\":{\"type\":\"";
  out += error_type(error.status);
  out += "\",\"message\":";
  json::append_quoted(out, error.message);
  out += "}}";
  return out;
}

AnthropicEncoder::AnthropicEncoder(const RequestFields& fields, std::string_view id)
    : fields_(fields), id_("msg_" + std::string(id)) {}

void AnthropicEncoder::append_head(const ClientUsage& usage, std::string_view content, std::string_view stop,
                                   std::string& out) const {
  out += "{\"id\":";
  json::append_quoted(out, id_);
  out += ",\"type\":\"message\",\"role\":\"assistant\",\"model\":";
  json::append_quoted(out, fields_.model);
  out += ",\"content\":[";
  out += content;
  out += "],";
  out += stop;
  out += ",\"usage\":{";
  append_usage_members(usage, out);
  out += "}}";
}

std::string AnthropicEncoder::stop_members(const ChoiceDelta& delta, bool has_call) const {
  // Calls that could not be shown as such do not end a turn.
  const bool is_hidden = delta.finish == ChoiceFinish::tool_calls && !has_call;
  std::string out = "\"stop_reason\":\"";
  out += is_hidden ? "end_turn" : stop_reason(delta.finish, delta.stop_string.has_value());
  out += "\",\"stop_sequence\":";
  if (delta.stop_string && delta.finish == ChoiceFinish::stop) {
    json::append_quoted(out, fields_.stops[*delta.stop_string]);
  } else {
    out += "null";
  }
  return out;
}

void AnthropicEncoder::begin_message(const ClientUsage& usage, std::string& out) {
  if (has_begun_) return;
  has_begun_ = true;
  begin_event("message_start", out);
  out += ",\"message\":";
  append_head(usage, "", "\"stop_reason\":null,\"stop_sequence\":null", out);
  out += "}\n\n";
}

void AnthropicEncoder::append_chunk(std::uint32_t, const ChoiceDelta& delta, const ClientUsage& usage,
                                    std::string& out) {
  begin_message(usage, out);
  if (!delta.text.empty()) append_event({Kind::content, 0, delta.text, {}}, out);
  for (const auto& event : delta.output) append_event(event, out);
  if (delta.finish) stop_ = stop_members(delta, true);
}

void AnthropicEncoder::append_event(const OutputEvent& event, std::string& out) {
  if (event.kind == Kind::call) return begin_block(event, out);
  const bool goes_on = block_ == event.kind || (block_ == Kind::call && event.kind == Kind::arguments);
  if (!goes_on) begin_block(event, out);
  begin_event("content_block_delta", out);
  out += ",\"index\":";
  json::append_number(out, blocks_ - 1);
  switch (event.kind) {
    case Kind::content:
      out += ",\"delta\":{\"type\":\"text_delta\",\"text\":";
      break;
    case Kind::reasoning:
      out += ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":";
      break;
    case Kind::call:
    case Kind::arguments:
      out += ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":";
      break;
  }
  json::append_quoted(out, event.text);
  out += "}}\n\n";
}

void AnthropicEncoder::begin_block(const OutputEvent& event, std::string& out) {
  end_block(out);
  block_ = event.kind;
  begin_event("content_block_start", out);
  out += ",\"index\":";
  json::append_number(out, blocks_++);
  out += ",\"content_block\":";
  switch (event.kind) {
    case Kind::content:
      append_text_block("", out);
      break;
    case Kind::reasoning:
      append_thinking_block("", out);
      break;
    case Kind::call:
    case Kind::arguments:
      append_tool_block(event, "{}", out);
      break;
  }
  out += "}\n\n";
}

void AnthropicEncoder::end_block(std::string& out) {
  if (!block_) return;
  block_.reset();
  begin_event("content_block_stop", out);
  out += ",\"index\":";
  json::append_number(out, blocks_ - 1);
  out += "}\n\n";
}

void AnthropicEncoder::append_end(const ClientUsage& usage, std::string& out) {
  begin_message(usage, out);
  end_block(out);
  begin_event("message_delta", out);
  out += ",\"delta\":{";
  out += stop_.empty() ? stop_members({}, true) : stop_;
  out += "},\"usage\":{";
  append_usage_members(usage, out);
  out += "}}\n\n";
  begin_event("message_stop", out);
  out += "}\n\n";
}

void AnthropicEncoder::append_error(const ApiError& error, std::string& out) const {
  out += "event: error\ndata: ";
  out += to_anthropic_json(error);
  out += "\n\n";
}

// A call whose arguments are no object, because the answer was cut or the model erred, has no place in `input`, and
// with an empty one it could be carried out. It is shown as text.
std::string AnthropicEncoder::whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                                    const std::vector<PromptScores>&) const {
  const ChoiceDelta& choice = choices.front();
  std::string content;
  bool has_call = false;
  if (!choice.text.empty()) append_text_block(choice.text, content);
  for (std::size_t i = 0; i < choice.output.size(); ++i) {
    const OutputEvent& event = choice.output[i];
    if (event.kind == Kind::arguments) continue;
    if (!content.empty()) content += ',';
    const bool has_arguments = i + 1 < choice.output.size() && choice.output[i + 1].kind == Kind::arguments;
    const std::string_view arguments = has_arguments ? std::string_view(choice.output[i + 1].text) : "{}";
    if (event.kind == Kind::content) {
      append_text_block(event.text, content);
    } else if (event.kind == Kind::reasoning) {
      append_thinking_block(event.text, content);
    } else if (is_object(arguments)) {
      append_tool_block(event, arguments, content);
      has_call = true;
    } else {
      append_text_block(event.text + " " + std::string(arguments), content);
    }
  }
  std::string out;
  append_head(usage, content, stop_members(choice, has_call), out);
  return out;
}

}  // namespace penstock::router
