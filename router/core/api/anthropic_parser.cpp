#include "router/core/api/anthropic_parser.hpp"

#include <string>

#include "common/json/writer.hpp"
#include "router/core/api/request_parser.hpp"

namespace penstock::router {
namespace {

json::Object text_part(std::string_view text) {
  json::Object part;
  part["type"] = "text";
  part["text"] = text;
  return part;
}

json::Object message_of(std::string_view role, json::Value content) {
  json::Object message;
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

ApiError unknown_block(const json::Path& path, std::string_view type) {
  const std::string at = path.field("type").to_string();
  for (std::string_view known : {"image", "document", "search_result", "server_tool_use", "web_search_tool_result"}) {
    if (type == known) {
      return unsupported_field(at, at + ": blocks of type " + std::string(type) +
                                       " are not supported: this model reads text and calls the client's tools only");
    }
  }
  return invalid_field(at, at + ": is not a known type of block");
}

// A string, or blocks of text only: the system prompt and what tools gave back.
ApiResult<json::Value> text_of(const json::Value& value, const json::Path& path) {
  if (value.is_string()) return value;
  PENSTOCK_FIELD(auto blocks, json::as<const json::Array*>(value, path));
  if (blocks->empty()) return json::Value("");
  json::Array parts;
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    const json::Path at = path.index(i);
    PENSTOCK_FIELD(auto block, json::as<const json::Object*>((*blocks)[i], at));
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(*block, "type", at));
    if (type != "text") return unknown_block(at, type);
    PENSTOCK_FIELD(auto text, json::required<std::string_view>(*block, "text", at));
    parts.push_back(text_part(text));
  }
  return json::Value(std::move(parts));
}

/// Turns the messages of a conversation into those of a chat.
class Conversation {
 public:
  ApiResult<void> add(const json::Value& value, const json::Path& path) {
    PENSTOCK_FIELD(auto message, json::as<const json::Object*>(value, path));
    PENSTOCK_FIELD(role_, json::required<std::string_view>(*message, "role", path));
    if (role_ != "user" && role_ != "assistant" && role_ != "system") {
      const std::string at = path.field("role").to_string();
      return invalid_field(at, at + ": must be user or assistant");
    }
    const json::Path at = path.field("content");
    const json::Value* content = message->if_contains("content");
    if (content == nullptr) return to_api(json::missing(path, "content"));
    if (content->is_string()) {
      messages.push_back(message_of(role_, *content));
      return {};
    }
    PENSTOCK_FIELD(auto blocks, json::as<const json::Array*>(*content, at));
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      const json::Path block_path = at.index(i);
      PENSTOCK_FIELD(auto block, json::as<const json::Object*>((*blocks)[i], block_path));
      PENSTOCK_FIELD_VOID(add_block(*block, block_path));
    }
    end_message();
    return {};
  }

  json::Array messages;

 private:
  ApiResult<void> add_block(const json::Object& block, const json::Path& path) {
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(block, "type", path));
    if (type == "text") {
      PENSTOCK_FIELD(auto text, json::required<std::string_view>(block, "text", path));
      parts_.push_back(text_part(text));
      return {};
    }
    if (type == "tool_result" && role_ == "user") return add_result(block, path);
    if (type == "tool_use" && role_ == "assistant") return add_call(block, path);
    if (type == "thinking" && role_ == "assistant") {
      PENSTOCK_FIELD(auto text, json::required<std::string_view>(block, "thinking", path));
      thought_ += text;
      return {};
    }
    if (type == "redacted_thinking" && role_ == "assistant") return {};  // of another model, nobody here can read it
    return unknown_block(path, type);
  }

  // What tools gave back are messages of their own, in their place among the user's text.
  ApiResult<void> add_result(const json::Object& block, const json::Path& path) {
    PENSTOCK_FIELD(auto id, json::required<std::string_view>(block, "tool_use_id", path));
    if (!parts_.empty()) end_message();
    const json::Value* content = block.if_contains("content");
    json::Value text("");
    if (content != nullptr && !content->is_null()) {
      PENSTOCK_FIELD(text, text_of(*content, path.field("content")));
    }
    json::Object message = message_of("tool", std::move(text));
    message["tool_call_id"] = id;
    messages.push_back(std::move(message));
    has_result_ = true;
    return {};
  }

  ApiResult<void> add_call(const json::Object& block, const json::Path& path) {
    PENSTOCK_FIELD(auto id, json::required<std::string_view>(block, "id", path));
    PENSTOCK_FIELD(auto name, json::required<std::string_view>(block, "name", path));
    PENSTOCK_FIELD_VOID(json::required<const json::Object*>(block, "input", path));
    std::string arguments;
    json::Writer writer(arguments);
    write_value(block.at("input"), writer);
    json::Object function;
    function["name"] = name;
    function["arguments"] = arguments;
    json::Object call;
    call["id"] = id;
    call["type"] = "function";
    call["function"] = std::move(function);
    calls_.push_back(std::move(call));
    return {};
  }

  void end_message() {
    const bool is_said = !parts_.empty() || !calls_.empty() || !thought_.empty();
    if (is_said || !has_result_) {
      json::Value content = parts_.empty() ? json::Value("") : json::Value(std::move(parts_));
      json::Object message = message_of(role_, std::move(content));
      if (!thought_.empty()) message["reasoning_content"] = thought_;
      if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
      messages.push_back(std::move(message));
    }
    parts_ = {};
    calls_ = {};
    thought_.clear();
    has_result_ = false;
  }

  std::string_view role_;
  json::Array parts_, calls_;  // of the message that is being read
  std::string thought_;
  bool has_result_ = false;
};

ApiResult<json::Array> tools_of(const json::Array& tools, const json::Path& path) {
  json::Array out;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const json::Path at = path.index(i);
    PENSTOCK_FIELD(auto tool, json::as<const json::Object*>(tools[i], at));
    PENSTOCK_FIELD(auto type, json::optional<std::string_view>(*tool, "type", at));
    if (type && *type != "custom") {
      return unsupported_field(at.field("type").to_string(),
                               at.field("type").to_string() + ": only the client's own tools are supported");
    }
    PENSTOCK_FIELD(auto name, json::required<std::string_view>(*tool, "name", at));
    PENSTOCK_FIELD(auto description, json::optional<std::string_view>(*tool, "description", at));
    PENSTOCK_FIELD_VOID(json::required<const json::Object*>(*tool, "input_schema", at));
    json::Object function;
    function["name"] = name;
    if (description) function["description"] = *description;
    function["parameters"] = tool->at("input_schema");
    json::Object one;
    one["type"] = "function";
    one["function"] = std::move(function);
    out.push_back(std::move(one));
  }
  return out;
}

ApiResult<void> lower_tool_choice(const json::Object& choice, const json::Path& path, json::Object& out) {
  PENSTOCK_FIELD(auto type, json::required<std::string_view>(choice, "type", path));
  PENSTOCK_FIELD(auto single, json::optional<bool>(choice, "disable_parallel_tool_use", path));
  if (single.value_or(false)) out["parallel_tool_calls"] = false;
  if (type == "tool") {
    PENSTOCK_FIELD(auto name, json::required<std::string_view>(choice, "name", path));
    json::Object function, named;
    function["name"] = name;
    named["type"] = "function";
    named["function"] = std::move(function);
    out["tool_choice"] = std::move(named);
  } else if (type == "any") {
    out["tool_choice"] = "required";
  } else if (type == "auto" || type == "none") {
    out["tool_choice"] = type;
  } else {
    return invalid_field(path.field("type").to_string(), "tool_choice.type: must be auto, any, tool or none");
  }
  return {};
}

ApiResult<void> lower_stops(const json::Array& stops, const json::Path& path, const ApiLimits& limits,
                            json::Object& out) {
  if (stops.size() > limits.stops_max) {
    return invalid_field("stop_sequences",
                         "stop_sequences: has more than " + std::to_string(limits.stops_max) + " strings");
  }
  for (std::size_t i = 0; i < stops.size(); ++i) {
    PENSTOCK_FIELD(auto text, json::as<std::string_view>(stops[i], path.index(i)));
    if (text.empty() || text.size() > limits.stop_bytes_max) {
      return invalid_field("stop_sequences",
                           "stop_sequences: each must have 1 to " + std::to_string(limits.stop_bytes_max) + " bytes");
    }
  }
  out["stop"] = stops;
  return {};
}

ApiResult<void> lower_messages(const json::Object& body, json::Object& out) {
  const json::Path root;
  Conversation conversation;
  if (const json::Value* system = body.if_contains("system"); system != nullptr && !system->is_null()) {
    PENSTOCK_FIELD(auto text, text_of(*system, root.field("system")));
    conversation.messages.push_back(message_of("system", std::move(text)));
  }
  const json::Path path = root.field("messages");
  PENSTOCK_FIELD(auto messages, json::required<const json::Array*>(body, "messages", root));
  if (messages->empty()) return invalid_field("messages", "messages: is empty");
  for (std::size_t i = 0; i < messages->size(); ++i) {
    PENSTOCK_FIELD_VOID(conversation.add((*messages)[i], path.index(i)));
  }
  const auto& last = conversation.messages.back().get_object();
  if (last.at("role") == "assistant") {
    return unsupported_field("messages", "messages: going on with a last message of the assistant is not supported");
  }
  out["messages"] = std::move(conversation.messages);
  return {};
}

}  // namespace

ApiResult<json::Object> chat_body_of_count(const json::Object& body, const ApiLimits& limits) {
  const json::Path root;
  json::Object out;
  PENSTOCK_FIELD(auto model, json::required<std::string_view>(body, "model", root));
  out["model"] = model;
  PENSTOCK_FIELD_VOID(lower_messages(body, out));
  PENSTOCK_FIELD(auto tools, json::optional<const json::Array*>(body, "tools", root));
  if (tools) {
    if ((*tools)->size() > limits.tools_max) {
      return invalid_field("tools", "tools: has more than " + std::to_string(limits.tools_max) + " entries");
    }
    PENSTOCK_FIELD(auto lowered, tools_of(**tools, root.field("tools")));
    out["tools"] = std::move(lowered);
  }
  PENSTOCK_FIELD(auto choice, json::optional<const json::Object*>(body, "tool_choice", root));
  if (choice) PENSTOCK_FIELD_VOID(lower_tool_choice(**choice, root.field("tool_choice"), out));
  return out;
}

ApiResult<json::Object> chat_body_of_messages(const json::Object& body, const ApiLimits& limits) {
  const json::Path root;
  PENSTOCK_FIELD_VOID(json::required<std::int64_t>(body, "max_tokens", root));
  PENSTOCK_FIELD(auto out, chat_body_of_count(body, limits));
  for (std::string_view key : {"max_tokens", "stream", "temperature", "top_p", "top_k", "priority", "cache_salt"}) {
    if (const json::Value* value = body.if_contains(key)) out[key] = *value;
  }
  PENSTOCK_FIELD(auto stops, json::optional<const json::Array*>(body, "stop_sequences", root));
  if (stops) PENSTOCK_FIELD_VOID(lower_stops(**stops, root.field("stop_sequences"), limits, out));
  return out;
}

}  // namespace penstock::router
