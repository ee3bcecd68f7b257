// The answers that need no worker: models, tokenize, detokenize, count_tokens.
#include "common/json/writer.hpp"
#include "common/time/wall_clock.hpp"
#include "router/backend/workshop.hpp"
#include "router/core/api/anthropic_parser.hpp"
#include "router/core/api/request_parser.hpp"
#include "router/proxy/http_errors.hpp"
#include "router/server/public_api.hpp"

namespace penstock::router {
namespace {

namespace asio = boost::asio;

void write_model(const ServedModel& model, json::Writer& writer) {
  writer.begin_object();
  writer.field("id", model.name);
  writer.field("object", "model");
  writer.field("created", model.created);
  writer.field("owned_by", "penstock");
  if (model.text) writer.field("max_model_len", model.text->card.context_tokens);
  writer.end_object();
}

ApiResult<json::Value> read_body(const http::Request& request, const ApiLimits& limits) {
  json::Limits text_limits;
  text_limits.text_bytes_max = limits.body_bytes_max;
  auto parsed = json::parse(request.body, text_limits);
  if (!parsed || !parsed->is_object()) {
    ApiError error;
    error.code = "invalid_json";
    error.message =
        parsed ? "The body must be a JSON object." : "The body is not valid JSON: " + parsed.error().message;
    return error;
  }
  return std::move(*parsed);
}

ApiResult<std::vector<TokenId>> tokens_of(const json::Object& body, const ModelText& model, const ApiLimits& limits) {
  const json::Path root;
  if (body.contains("messages")) {
    PENSTOCK_FIELD(auto chat, read_chat_prompt(body, limits));
    auto prepared = tokenise_chat(chat, model, wall_now().unix_s);
    if (!prepared) return prepared.error();
    return std::move(prepared->tokens);
  }
  PENSTOCK_FIELD(auto content, json::optional<std::string_view>(body, "content", root));
  std::string_view text;
  if (content) {
    text = *content;
  } else {
    PENSTOCK_FIELD(text, json::required<std::string_view>(body, "prompt", root));
  }
  PENSTOCK_FIELD(auto special, json::optional<bool>(body, "add_special_tokens", root));
  text::EncodeWork work;
  text::EncodeOptions options;
  options.work = &work;
  if (special.value_or(true) && model.card.add_bos) options.add_special = text::AddSpecial::yes;
  auto tokens = model.token_cache->encode(text, options);
  if (!tokens) return invalid_field(content ? "content" : "prompt", tokens.error().message);
  return std::move(*tokens);
}

}  // namespace

ServedModel* PublicApi::model_of(std::optional<std::string_view> name) const {
  if (name) return registry_.find(*name);
  return registry_.models().size() == 1 ? registry_.models().begin()->second.get() : nullptr;
}

http::Response PublicApi::list_models() const {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.field("object", "list");
  writer.key("data");
  writer.begin_array();
  for (const auto& [name, model] : registry_.models()) write_model(*model, writer);
  writer.end_array();
  writer.end_object();
  return http::json_response(200, std::move(out));
}

http::Response PublicApi::one_model(std::string_view name) const {
  const ServedModel* model = registry_.find(name);
  if (model == nullptr) return to_response(unknown_model(name));
  std::string out;
  json::Writer writer(out);
  write_model(*model, writer);
  return http::json_response(200, std::move(out));
}

asio::awaitable<http::Response> PublicApi::answer_text(TextAnswer answer, http::Request request, Caller caller) {
  if (auto refused = tenants_.enter(caller.tenant, 0, clock_.now())) {
    co_return to_response(rate_limit_exceeded(*refused), request.path);
  }
  struct Leaving {
    PublicApi& api;
    const Caller& caller;
    ~Leaving() { api.tenants_.leave(caller.tenant, 0, api.clock_.now()); }
  };
  const Leaving leaving{*this, caller};
  const bool is_long = request.body.size() > settings_.inline_bytes_max;
  const auto parse = [&] { return read_body(request, settings_.api); };
  // No co_await within ?: here: gcc 12 destroys its result twice.
  std::optional<ApiResult<json::Value>> body;
  if (is_long) {
    body.emplace(co_await run_in(workshop_, parse));
  } else {
    body.emplace(parse());
  }
  if (!*body) co_return to_response(body->error(), request.path);
  const json::Object& object = (*body)->get_object();
  auto name = json::optional<std::string_view>(object, "model", json::Path());
  if (!name) co_return to_response(to_api(name.error()), request.path);
  const ServedModel* model = model_of(*name);
  if (model == nullptr || !model->text) {
    co_return to_response(unknown_model(name->value_or("")), request.path);
  }
  // Held here: the model may get another text while this one is used.
  const std::shared_ptr<const ModelText> text = model->text;
  const auto work = [&] { return answer(object, *text, settings_.api); };
  std::optional<ApiResult<std::string>> done;
  if (is_long) {
    done.emplace(co_await run_in(workshop_, work));
  } else {
    done.emplace(work());
  }
  if (!*done) co_return to_response(done->error(), request.path);
  http::Response response = http::json_response(200, std::move(**done));
  co_return response;
}

ApiResult<std::string> PublicApi::tokenize(const json::Object& body, const ModelText& model, const ApiLimits& limits) {
  auto tokens = tokens_of(body, model, limits);
  if (!tokens) return tokens.error();
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.field("count", static_cast<std::uint64_t>(tokens->size()));
  writer.field("max_model_len", model.card.context_tokens);
  writer.key("tokens");
  writer.begin_array();
  for (TokenId token : *tokens) writer.value(token);
  writer.end_array();
  writer.end_object();
  return out;
}

ApiResult<std::string> PublicApi::detokenize(const json::Object& body, const ModelText& model, const ApiLimits&) {
  const json::Path root;
  auto items = json::required<const json::Array*>(body, "tokens", root);
  if (!items) return to_api(items.error());
  auto tokens = read_token_ids(**items, root.field("tokens"));
  if (!tokens) return tokens.error();
  for (TokenId token : *tokens) {
    if (token < model.card.vocabulary_size) continue;
    return invalid_field("tokens", "tokens: token id is out of the vocabulary");
  }
  const std::string text = model.tokenizer->decode(*tokens, text::SkipSpecial::no);
  std::string out = "{\"prompt\":";
  json::append_quoted(out, text);
  out += ",\"content\":";
  json::append_quoted(out, text);
  out += '}';
  return out;
}

ApiResult<std::string> PublicApi::count_tokens(const json::Object& body, const ModelText& model,
                                               const ApiLimits& limits) {
  PENSTOCK_FIELD(auto chat, chat_body_of_count(body, limits));
  PENSTOCK_FIELD(auto prompt, read_chat_prompt(chat, limits));
  auto prepared = tokenise_chat(prompt, model, wall_now().unix_s);
  if (!prepared) return prepared.error();
  return "{\"input_tokens\":" + std::to_string(prepared->tokens.size()) + "}";
}

}  // namespace penstock::router
