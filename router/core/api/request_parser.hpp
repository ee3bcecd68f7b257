// Reads the fields of a request body into RequestFields. Private to core/api. One object a request.
#pragma once

#include <string>
#include <string_view>

#include "common/json/json.hpp"
#include "common/json/writer.hpp"
#include "router/core/api/validated_request.hpp"

namespace penstock::router {

ApiError to_api(const json::FieldError& error);

class RequestParser {
 public:
  RequestParser(Endpoint endpoint, const json::Object& body, const ApiLimits& limits);
  ApiResult<ValidatedRequest> parse();

 private:
  ApiResult<void> read_unsupported();
  ApiResult<void> read_identity();
  ApiResult<void> read_lengths();
  ApiResult<void> read_sampling();
  ApiResult<void> read_seed();
  ApiResult<void> read_stops();
  ApiResult<void> read_stop_token_ids();
  ApiResult<void> read_logit_bias();
  ApiResult<void> read_logprobs();
  ApiResult<void> read_stream();
  ApiResult<void> read_prompt();
  ApiResult<void> read_prompt_array(const json::Array& items);
  void count_unknown();

  template <class T>
  ApiResult<void> number(std::string_view key, double low, double high, T& out, bool* has = nullptr);
  ApiResult<void> flag(std::string_view key, bool& out);
  const json::Value* present(std::string_view key) const;  // null counts as absent

  const json::Object& body_;
  const ApiLimits& limits_;
  const json::Path root_;
  RequestFields fields_;
};

/// messages, tools and tool_choice of a chat request (chat_parser.cpp).
ApiResult<ChatPrompt> read_chat_prompt(const json::Object& body, const ApiLimits& limits);
/// The same value in the same order.
void write_value(const json::Value& value, json::Writer& writer);
ApiResult<std::vector<TokenId>> read_token_ids(const json::Array& items, const json::Path& path);

/// Evaluates a FieldResult or ApiResult; returns its error as an ApiError, or assigns its value.
inline const ApiError& to_api(const ApiError& error) {
  return error;
}
#define PENSTOCK_FIELD(lhs, expr) PENSTOCK_FIELD_INNER(PENSTOCK_CONCAT(penstock_field_, __LINE__), lhs, expr)
#define PENSTOCK_FIELD_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp) return to_api(tmp.error());      \
  lhs = std::move(*tmp)
#define PENSTOCK_FIELD_VOID(expr)                                  \
  do {                                                             \
    if (auto tried = (expr); !tried) return to_api(tried.error()); \
  } while (false)

}  // namespace penstock::router
