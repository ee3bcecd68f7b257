#include "router/core/output/formats.hpp"

#include <array>
#include <utility>

#include "router/core/output/output_writer.hpp"

namespace penstock::router {
namespace {

constexpr std::array<std::pair<ToolFormat, std::string_view>, 5> tool_names{{{ToolFormat::none, "none"},
                                                                             {ToolFormat::hermes, "hermes"},
                                                                             {ToolFormat::llama3_json, "llama3_json"},
                                                                             {ToolFormat::mistral, "mistral"},
                                                                             {ToolFormat::qwen3_coder, "qwen3_coder"}}};
constexpr std::array<std::pair<ReasoningFormat, std::string_view>, 2> reasoning_names{
    {{ReasoningFormat::none, "none"}, {ReasoningFormat::think, "think"}}};

template <class Format, std::size_t count>
std::optional<Format> format_of(const std::array<std::pair<Format, std::string_view>, count>& names,
                                std::string_view wanted) {
  for (const auto& [format, name] : names) {
    if (name == wanted) return format;
  }
  return std::nullopt;
}

template <class Format, std::size_t count>
std::string_view name_of(const std::array<std::pair<Format, std::string_view>, count>& names, Format wanted) {
  for (const auto& [format, name] : names) {
    if (format == wanted) return name;
  }
  return "none";
}

struct Entry {
  std::string_view model;
  std::string_view format;
};
Entry split(std::string_view entry) {
  const std::size_t equals = entry.rfind('=');
  if (equals == std::string_view::npos) return {{}, entry};
  return {entry.substr(0, equals), entry.substr(equals + 1)};
}

template <class Names>
Error unknown_format(std::string_view what, std::string_view name, const Names& names) {
  std::string message = "'" + std::string(name) + "' is no format of " + std::string(what) + "; there are";
  for (const auto& [format, known] : names) {
    message += format == names.front().first ? " " : ", ";
    message += known;
  }
  return make_error(ErrorCode::invalid_argument, std::move(message));
}

ToolFormat shown_tools(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  // Its calls look like Hermes' from outside, but have no JSON in them; no parser here reads them.
  if (has("<arg_key>")) return ToolFormat::none;
  if (has("<function=")) return ToolFormat::qwen3_coder;
  if (has("<tool_call>")) return ToolFormat::hermes;
  if (has("[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has("<|python_tag|>") || has("\"parameters\": dictionary of argument name")) return ToolFormat::llama3_json;
  return ToolFormat::none;
}

CallOpening opening_of(ToolFormat format, std::string_view source) {
  switch (format) {
    case ToolFormat::none:
      return {};
    case ToolFormat::hermes:
      return {"<tool_call>\n{\"name\": \"", "\", \"arguments\": {"};
    case ToolFormat::llama3_json:
      return {"{\"name\": \"", "\", \"parameters\": {"};
    case ToolFormat::mistral:
      if (source.find("[ARGS]") != std::string_view::npos) return {"[TOOL_CALLS]", "[ARGS]{"};
      return {"[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": {"};
    case ToolFormat::qwen3_coder:
      return {"<tool_call>\n<function=", ">\n"};
  }
  return {};
}

}  // namespace

std::string_view to_string(ToolFormat format) {
  return name_of(tool_names, format);
}

std::string_view to_string(ReasoningFormat format) {
  return name_of(reasoning_names, format);
}

std::optional<ToolFormat> tool_format(std::string_view name) {
  return format_of(tool_names, name);
}

std::optional<ReasoningFormat> reasoning_format(std::string_view name) {
  return format_of(reasoning_names, name);
}

Result<void> FormatChoices::add_tools(std::string_view entry) {
  const Entry parts = split(entry);
  const auto format = tool_format(parts.format);
  if (!format) return unknown_format("calls", parts.format, tool_names);
  choice_of(parts.model).tools = *format;
  return {};
}

Result<void> FormatChoices::add_reasoning(std::string_view entry) {
  const Entry parts = split(entry);
  const auto format = reasoning_format(parts.format);
  if (!format) return unknown_format("thoughts", parts.format, reasoning_names);
  choice_of(parts.model).reasoning = *format;
  return {};
}

FormatChoice& FormatChoices::choice_of(std::string_view model) {
  return by_model_[std::string(model)];
}

FormatChoice FormatChoices::of(std::string_view model) const {
  FormatChoice choice;
  for (const std::string_view key : {std::string_view(), model}) {
    const auto found = by_model_.find(key);
    if (found == by_model_.end()) continue;
    if (found->second.tools) choice.tools = found->second.tools;
    if (found->second.reasoning) choice.reasoning = found->second.reasoning;
  }
  return choice;
}

OutputFormats choose_formats(std::string_view template_source, const FormatChoice& choice) {
  OutputFormats formats;
  formats.tools = choice.tools.value_or(shown_tools(template_source));
  const bool shows_thoughts = template_source.find("</think>") != std::string_view::npos ||
                              template_source.find("<think>") != std::string_view::npos;
  formats.reasoning = choice.reasoning.value_or(shows_thoughts ? ReasoningFormat::think : ReasoningFormat::none);
  formats.opening = opening_of(formats.tools, template_source);
  return formats;
}

const std::vector<std::string_view>& marker_spellings() {
  static const std::vector<std::string_view> spellings{"<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]",
                                                       "[CALL_ID]",   "[ARGS]",       "<think>",        "</think>"};
  return spellings;
}

bool ends_in_thought(std::string_view rendered_prompt) {
  while (!rendered_prompt.empty() && is_space(rendered_prompt.back())) rendered_prompt.remove_suffix(1);
  return rendered_prompt.ends_with("<think>");
}

}  // namespace penstock::router
