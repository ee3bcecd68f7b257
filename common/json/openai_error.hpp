// The error object of OpenAI's API, for all that answers over HTTP. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace penstock::json {

struct OpenAiError {
  std::string_view message;
  std::string_view type;
  std::optional<std::string_view> param;  // absent: null
  std::optional<std::string_view> code;
};

/// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string to_text(const OpenAiError& error);

}  // namespace penstock::json
