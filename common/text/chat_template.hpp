// A model's chat template: Jinja source compiled once, rendered once a request, with the settings and helper functions
// that Hugging Face's transformers gives templates. A ChatTemplate never changes: any number of threads may render at
// once. A rendering is bounded to 1,000,000 template steps and 4 MiB of text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::text {

namespace detail {
struct TemplateHandle;  // lives in the Rust crate
struct TemplateHandleDeleter {
  void operator()(TemplateHandle* handle) const noexcept;
};
}  // namespace detail

class ChatTemplate {
 public:
  /// The members of the JSON object `constants_json` are variables of every rendering: bos_token, eos_token.
  /// Errors: a template that does not parse (invalid_argument, with line and reason).
  static Result<ChatTemplate> compile(std::string_view source, std::string_view constants_json = "{}");

  /// Renders with the members of a JSON object as variables: messages, tools, add_generation_prompt, ...
  /// `now_unix_seconds` is what strftime_now() shows, in UTC.
  /// Errors: invalid_argument (raise_exception, an undefined value, wrong JSON), resource_exhausted (steps or size).
  Result<std::string> render(std::string_view variables_json, std::int64_t now_unix_seconds) const;

 private:
  using Handle = std::unique_ptr<detail::TemplateHandle, detail::TemplateHandleDeleter>;
  explicit ChatTemplate(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

}  // namespace penstock::text
