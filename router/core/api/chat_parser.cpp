// Messages and tools of a chat request: checked, then written again as the variables of the model's template.
#include <algorithm>
#include <string>

#include "common/json/writer.hpp"
#include "router/core/api/request_parser.hpp"
#include "router/core/output/formats.hpp"

namespace penstock::router {
namespace {

bool is_known_role(std::string_view role) {
  for (std::string_view known : {"system", "developer", "user", "assistant", "tool"}) {
    if (role == known) return true;
  }
  return false;
}

// Text parts are joined by line breaks, which is what templates that know only text expect.
ApiResult<std::string> join_parts(const json::Array& parts, const json::Path& path, const ApiLimits& limits) {
  if (parts.empty()) return invalid_field(path.to_string(), path.to_string() + ": is empty");
  if (parts.size() > limits.parts_max)
    return invalid_field(path.to_string(), path.to_string() + ": has too many parts");
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const json::Path at = path.index(i);
    PENSTOCK_FIELD(auto part, json::as<const json::Object*>(parts[i], at));
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(*part, "type", at));
    if (type == "text" || type == "refusal") {
      PENSTOCK_FIELD(auto text, json::required<std::string_view>(*part, type, at));
      if (i > 0) joined += '\n';
      joined += text;
    } else if (type == "image_url" || type == "input_audio" || type == "file" || type == "video_url" ||
               type == "audio_url" || type == "input_image") {
      return unsupported_field(at.field("type").to_string(), "Content of type " + std::string(type) +
                                                                 " is not supported: this model reads text only.");
    } else {
      return invalid_field(at.field("type").to_string(),
                           at.field("type").to_string() + ": is not a known content type");
    }
  }
  return joined;
}

ApiResult<void> write_content(const json::Object& message, std::string_view role, const json::Path& path,
                              const ApiLimits& limits, json::Writer& writer) {
  const json::Path at = path.field("content");
  const json::Value* content = message.if_contains("content");
  writer.key("content");
  if (content == nullptr || content->is_null()) {
    if (role != "assistant") return invalid_field(at.to_string(), at.to_string() + ": is missing");
    writer.value("");
  } else if (content->is_string()) {
    writer.value(std::string_view(content->get_string()));
  } else if (content->is_array()) {
    PENSTOCK_FIELD(auto text, join_parts(content->get_array(), at, limits));
    writer.value(text);
  } else {
    return invalid_field(at.to_string(), at.to_string() + ": must be a string or an array of parts, is " +
                                             std::string(json::kind_name(*content)));
  }
  return {};
}

// Arguments come as the text of a JSON object; templates want the object.
ApiResult<void> write_tool_call(const json::Value& value, const json::Path& path, json::Writer& writer) {
  PENSTOCK_FIELD(auto call, json::as<const json::Object*>(value, path));
  PENSTOCK_FIELD(auto id, json::optional<std::string_view>(*call, "id", path));
  PENSTOCK_FIELD(auto type, json::optional<std::string_view>(*call, "type", path));
  if (type && *type != "function") {
    return unsupported_field(path.field("type").to_string(), "Only tool calls of type function are supported.");
  }
  PENSTOCK_FIELD(auto function, json::required<const json::Object*>(*call, "function", path));
  const json::Path at = path.field("function");
  PENSTOCK_FIELD(auto name, json::required<std::string_view>(*function, "name", at));
  PENSTOCK_FIELD(auto arguments, json::optional<std::string_view>(*function, "arguments", at));
  writer.begin_object();
  if (id) writer.field("id", *id);
  writer.field("type", "function");
  writer.key("function");
  writer.begin_object();
  writer.field("name", name);
  writer.key("arguments");
  const std::string_view text = arguments.value_or("{}");
  if (auto parsed = json::parse(text); parsed && parsed->is_object()) {
    writer.raw(text);
  } else {
    writer.value(text);
  }
  writer.end_object();
  writer.end_object();
  return {};
}

ApiResult<void> write_message(const json::Value& value, const json::Path& path, const ApiLimits& limits,
                              json::Writer& writer) {
  PENSTOCK_FIELD(auto message, json::as<const json::Object*>(value, path));
  PENSTOCK_FIELD(auto role, json::required<std::string_view>(*message, "role", path));
  if (!is_known_role(role)) {
    const std::string at = path.field("role").to_string();
    return invalid_field(at, at + ": must be system, developer, user, assistant or tool");
  }
  writer.begin_object();
  // Templates of open models know no "developer"; its meaning is the system's.
  writer.field("role", role == "developer" ? std::string_view("system") : role);
  PENSTOCK_FIELD_VOID(write_content(*message, role, path, limits, writer));
  for (std::string_view key : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    PENSTOCK_FIELD(auto text, json::optional<std::string_view>(*message, key, path));
    // Clients that read either name of the thoughts may send either back; templates know the older one.
    const bool is_alias = key == "reasoning";
    if (text && !(is_alias && message->contains("reasoning_content"))) {
      writer.field(is_alias ? "reasoning_content" : key, *text);
    }
  }
  PENSTOCK_FIELD(auto calls, json::optional<const json::Array*>(*message, "tool_calls", path));
  if (calls && !(*calls)->empty()) {
    const json::Path at = path.field("tool_calls");
    if ((*calls)->size() > limits.tools_max)
      return invalid_field(at.to_string(), at.to_string() + ": has too many calls");
    writer.key("tool_calls");
    writer.begin_array();
    for (std::size_t i = 0; i < (*calls)->size(); ++i) {
      PENSTOCK_FIELD_VOID(write_tool_call((**calls)[i], at.index(i), writer));
    }
    writer.end_array();
  }
  writer.end_object();
  return {};
}

ApiResult<void> read_tool_choice(const json::Object& body, ToolUse& use) {
  const json::Value* choice = body.if_contains("tool_choice");
  use.choice = ToolUse::Choice::automatic;
  if (choice == nullptr || choice->is_null()) return {};
  if (choice->is_object()) {
    const json::Path path = json::Path().field("tool_choice");
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(choice->get_object(), "type", path));
    if (type != "function") {
      return unsupported_field("tool_choice", "`tool_choice` of type " + std::string(type) + " is not supported.");
    }
    PENSTOCK_FIELD(auto function, json::required<const json::Object*>(choice->get_object(), "function", path));
    PENSTOCK_FIELD(auto name, json::required<std::string_view>(*function, "name", path.field("function")));
    use.choice = ToolUse::Choice::named;
    use.name = name;
    return {};
  }
  const std::string_view text = choice->is_string() ? std::string_view(choice->get_string()) : "";
  if (text == "none") {
    use.choice = ToolUse::Choice::none;
  } else if (text == "required") {
    use.choice = ToolUse::Choice::required;
  } else if (text != "auto") {
    return invalid_field("tool_choice", "tool_choice: must be none, auto, required or a function");
  }
  return {};
}

ApiResult<std::string> write_tools(const json::Array& tools, const json::Path& path, const ApiLimits& limits,
                                   ToolSet& set) {
  if (tools.size() > limits.tools_max) {
    return invalid_field("tools", "tools: has more than " + std::to_string(limits.tools_max) + " entries");
  }
  std::string out;
  json::Writer writer(out);
  writer.begin_array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const json::Path at = path.index(i);
    PENSTOCK_FIELD(auto tool, json::as<const json::Object*>(tools[i], at));
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(*tool, "type", at));
    if (type != "function") {
      return unsupported_field(at.field("type").to_string(), "Only tools of type function are supported.");
    }
    PENSTOCK_FIELD(auto function, json::required<const json::Object*>(*tool, "function", at));
    const json::Path inside = at.field("function");
    PENSTOCK_FIELD(auto name, json::required<std::string_view>(*function, "name", inside));
    if (name.empty() || name.size() > 64) {
      return invalid_field(inside.field("name").to_string(),
                           inside.field("name").to_string() + ": must have 1 to 64 bytes");
    }
    PENSTOCK_FIELD_VOID(json::optional<std::string_view>(*function, "description", inside));
    PENSTOCK_FIELD_VOID(json::optional<const json::Object*>(*function, "parameters", inside));
    set.add(name, *function);
    write_value(tools[i], writer);
    if (out.size() > limits.tools_bytes_max) return invalid_field("tools", "tools: are too large");
  }
  writer.end_array();
  return out;
}

// A forced call is opened in the prompt with its name, which therefore must not be able to say anything else.
bool can_be_forced(std::string_view name) {
  return std::all_of(name.begin(), name.end(), is_name_character);
}

ApiResult<ToolUse> read_tools(const json::Object& body, const ApiLimits& limits, std::string& out) {
  const json::Path root;
  ToolUse use;
  PENSTOCK_FIELD_VOID(read_tool_choice(body, use));
  PENSTOCK_FIELD(auto parallel, json::optional<bool>(body, "parallel_tool_calls", root));
  use.parallel = parallel.value_or(true);
  PENSTOCK_FIELD(auto tools, json::optional<const json::Array*>(body, "tools", root));
  auto set = std::make_shared<ToolSet>();
  std::string text;
  if (tools) {
    PENSTOCK_FIELD(text, write_tools(**tools, root.field("tools"), limits, *set));
  }
  if (set->empty()) {
    const bool is_forced = use.choice == ToolUse::Choice::required || use.choice == ToolUse::Choice::named;
    if (is_forced) return invalid_field("tool_choice", "tool_choice: needs tools");
    return ToolUse{};
  }
  if (use.choice == ToolUse::Choice::none) return ToolUse{};
  if (use.choice == ToolUse::Choice::required && set->size() == 1) {
    use.choice = ToolUse::Choice::named;
    use.name = set->first();
  }
  if (use.choice == ToolUse::Choice::named && !set->contains(use.name)) {
    return invalid_field("tool_choice", "tool_choice: names a function that is not in tools");
  }
  if (use.choice == ToolUse::Choice::named && !can_be_forced(use.name)) {
    return unsupported_field("tool_choice",
                             "A function whose name has other characters than letters, digits, _, - and "
                             ". cannot be forced.");
  }
  out += ",\"tools\":" + text;
  use.set = std::move(set);
  return use;
}

/// What the variables will mostly take, so that long messages are written once and never moved.
std::size_t expected_bytes(const json::Array& messages) {
  std::size_t bytes = 256;
  for (const auto& message : messages) {
    const json::Value* content = message.is_object() ? message.get_object().if_contains("content") : nullptr;
    const std::size_t text = content != nullptr && content->is_string() ? content->get_string().size() : 0;
    bytes += text + text / 16 + 64;
  }
  return bytes;
}

}  // namespace

void write_value(const json::Value& value, json::Writer& writer) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return writer.value(nullptr);
    case boost::json::kind::bool_:
      return writer.value(value.get_bool());
    case boost::json::kind::int64:
      return writer.value(value.get_int64());
    case boost::json::kind::uint64:
      return writer.value(value.get_uint64());
    case boost::json::kind::double_:
      return writer.value(value.get_double());
    case boost::json::kind::string:
      return writer.value(std::string_view(value.get_string()));
    case boost::json::kind::array:
      writer.begin_array();
      for (const auto& item : value.get_array()) write_value(item, writer);
      return writer.end_array();
    case boost::json::kind::object:
      writer.begin_object();
      for (const auto& [key, item] : value.get_object()) {
        writer.key(key);
        write_value(item, writer);
      }
      return writer.end_object();
  }
}

ApiResult<ChatPrompt> read_chat_prompt(const json::Object& body, const ApiLimits& limits) {
  const json::Path root;
  const json::Path path = root.field("messages");
  PENSTOCK_FIELD(auto messages, json::required<const json::Array*>(body, "messages", root));
  if (messages->empty()) return invalid_field("messages", "messages: is empty");
  if (messages->size() > limits.messages_max) {
    return invalid_field("messages", "messages: has more than " + std::to_string(limits.messages_max) + " entries");
  }
  std::string out;
  out.reserve(expected_bytes(*messages));
  out += "{\"messages\":";
  json::Writer writer(out);
  writer.begin_array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    PENSTOCK_FIELD_VOID(write_message((*messages)[i], path.index(i), limits, writer));
  }
  writer.end_array();
  PENSTOCK_FIELD(auto tools, read_tools(body, limits, out));
  PENSTOCK_FIELD(auto add_prompt, json::optional<bool>(body, "add_generation_prompt", root));
  out += add_prompt.value_or(true) ? ",\"add_generation_prompt\":true" : ",\"add_generation_prompt\":false";
  PENSTOCK_FIELD(auto effort, json::optional<std::string_view>(body, "reasoning_effort", root));
  if (effort) {
    out += ",\"reasoning_effort\":";
    json::append_quoted(out, *effort);
  }
  out += '}';
  return ChatPrompt{std::move(out), std::move(tools)};
}

}  // namespace penstock::router
