// The ways in which models write calls of tools and thoughts, and how a chat template shows which one its model uses.
// A template has to be able to write earlier calls and thoughts of a conversation, so it holds their markers.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace penstock::router {

enum class ToolFormat : std::uint8_t {
  none,         // calls stay text
  hermes,       // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen2.5, Qwen3
  llama3_json,  // {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>: Llama 3.1 to 3.3
  mistral,      // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]name[ARGS]{...}
  qwen3_coder,  // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
};
enum class ReasoningFormat : std::uint8_t {
  none,   // thoughts stay text
  think,  // <think>...</think> before the answer
};

std::string_view to_string(ToolFormat format);
std::string_view to_string(ReasoningFormat format);
std::optional<ToolFormat> tool_format(std::string_view name);
std::optional<ReasoningFormat> reasoning_format(std::string_view name);

/// How a call is opened, so that a prompt that ends with it makes the model go on with the call. With the brace, since
/// small models otherwise begin arguments that are no object, which is no call.
struct CallOpening {
  std::string before_name;
  std::string after_name;
};

/// What a model uses.
struct OutputFormats {
  ToolFormat tools = ToolFormat::none;
  ReasoningFormat reasoning = ReasoningFormat::none;
  CallOpening opening;  // empty with ToolFormat::none
};

/// What the settings say; absent: what the template shows.
struct FormatChoice {
  std::optional<ToolFormat> tools;
  std::optional<ReasoningFormat> reasoning;
};

/// The same by model.
class FormatChoices {
 public:
  /// "FORMAT" for all models or "MODEL=FORMAT". Errors: a name that is no format.
  Result<void> add_tools(std::string_view entry);
  Result<void> add_reasoning(std::string_view entry);
  FormatChoice of(std::string_view model) const;

 private:
  FormatChoice& choice_of(std::string_view model);  // "" is all

  std::map<std::string, FormatChoice, std::less<>> by_model_;
};

OutputFormats choose_formats(std::string_view template_source, const FormatChoice& choice);

/// Spellings that have to reach the parsers even where a vocabulary has them as special tokens, which are not text.
const std::vector<std::string_view>& marker_spellings();

/// The rendered prompt ends within a thought, which the model will go on with.
bool ends_in_thought(std::string_view rendered_prompt);

/// What names of functions are made of where they are not quoted: in a forced call, and in formats that write them
/// bare.
inline bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

}  // namespace penstock::router
