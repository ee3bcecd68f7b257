#include "common/text/chat_template.hpp"

#include "common/text/ffi.hpp"

namespace penstock::text {

void detail::TemplateHandleDeleter::operator()(TemplateHandle* handle) const noexcept {
  penstock_text_template_free(handle);
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view constants_json) {
  detail::Receiver received;
  detail::TemplateHandle* raw = nullptr;
  const auto status = detail::penstock_text_template_compile(detail::slice(source), detail::slice(constants_json), &raw,
                                                             received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return ChatTemplate(Handle(raw));
}

Result<std::string> ChatTemplate::render(std::string_view variables_json, std::int64_t now_unix_seconds) const {
  detail::Receiver received;
  const auto status = detail::penstock_text_template_render(handle_.get(), detail::slice(variables_json),
                                                            now_unix_seconds, received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return received.take_text();
}

}  // namespace penstock::text
