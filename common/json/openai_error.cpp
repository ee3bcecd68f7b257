#include "common/json/openai_error.hpp"

#include "common/json/writer.hpp"

namespace penstock::json {

std::string to_text(const OpenAiError& error) {
  std::string out;
  Writer writer(out);
  const auto field = [&](std::string_view key, const std::optional<std::string_view>& text) {
    writer.key(key);
    if (text) {
      writer.value(*text);
    } else {
      writer.value(nullptr);
    }
  };
  writer.begin_object();
  writer.key("error");
  writer.begin_object();
  field("message", error.message);
  field("type", error.type);
  field("param", error.param);
  field("code", error.code);
  writer.end_object();
  writer.end_object();
  return out;
}

}  // namespace penstock::json
