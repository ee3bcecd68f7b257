#include "router/core/api/request_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "router/core/api/anthropic_parser.hpp"
#include "router/core/api/request_fields.hpp"

namespace penstock::router {
namespace {

std::string quoted(std::string_view name) {
  return "`" + std::string(name) + "`";
}

std::optional<TokenId> token_id(std::string_view text) {
  TokenId id = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

}  // namespace

ApiError to_api(const json::FieldError& error) {
  return invalid_field(error.path, error.path.empty() ? error.reason : error.path + ": " + error.reason);
}

RequestParser::RequestParser(Endpoint endpoint, const json::Object& body, const ApiLimits& limits)
    : body_(body), limits_(limits) {
  fields_.endpoint = endpoint;
}

ApiResult<ValidatedRequest> RequestParser::parse() {
  PENSTOCK_FIELD_VOID(read_identity());
  PENSTOCK_FIELD_VOID(read_unsupported());
  PENSTOCK_FIELD_VOID(read_lengths());
  PENSTOCK_FIELD_VOID(read_sampling());
  PENSTOCK_FIELD_VOID(read_seed());
  PENSTOCK_FIELD_VOID(read_stops());
  PENSTOCK_FIELD_VOID(read_stop_token_ids());
  PENSTOCK_FIELD_VOID(read_logit_bias());
  PENSTOCK_FIELD_VOID(read_logprobs());
  PENSTOCK_FIELD_VOID(read_stream());
  PENSTOCK_FIELD_VOID(read_prompt());
  count_unknown();
  return ValidatedRequest(std::move(fields_));
}

const json::Value* RequestParser::present(std::string_view key) const {
  const json::Value* value = body_.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

template <class T>
ApiResult<void> RequestParser::number(std::string_view key, double low, double high, T& out, bool* has) {
  PENSTOCK_FIELD(auto read, json::optional<double>(body_, key, root_, {low, high}));
  if (!read) return {};
  out = static_cast<T>(*read);
  if (has != nullptr) *has = true;
  return {};
}

ApiResult<void> RequestParser::flag(std::string_view key, bool& out) {
  PENSTOCK_FIELD(auto read, json::optional<bool>(body_, key, root_));
  if (read) out = *read;
  return {};
}

ApiResult<void> RequestParser::read_identity() {
  PENSTOCK_FIELD(auto model, json::required<std::string_view>(body_, "model", root_));
  fields_.model = model;
  PENSTOCK_FIELD(auto user, json::optional<std::string_view>(body_, "user", root_));
  if (user && user->size() > limits_.user_bytes_max) return invalid_field("user", "user: is too long");
  PENSTOCK_FIELD(auto metadata, json::optional<const json::Object*>(body_, "metadata", root_));
  if (metadata && (*metadata)->size() > 16) return invalid_field("metadata", "metadata: has more than 16 keys");
  PENSTOCK_FIELD(auto salt, json::optional<std::string_view>(body_, "cache_salt", root_));
  if (salt && (salt->empty() || salt->size() > limits_.salt_bytes_max)) {
    return invalid_field("cache_salt",
                         "cache_salt: must have 1 to " + std::to_string(limits_.salt_bytes_max) + " bytes");
  }
  if (salt) fields_.cache_salt = *salt;
  PENSTOCK_FIELD(auto priority, json::optional<std::int64_t>(body_, "priority", root_, {-1'000'000, 1'000'000}));
  // vLLM's convention: a lower value goes first.
  if (priority) fields_.priority = static_cast<std::int32_t>(-*priority);
  return {};
}

ApiResult<void> RequestParser::read_unsupported() {
  for (const auto& refused : refused_fields()) {
    if (present(refused.name) == nullptr) continue;
    return unsupported_field(std::string(refused.name), quoted(refused.name) + " " + std::string(refused.reason) + ".");
  }
  bool beam = false, continued = false;
  PENSTOCK_FIELD_VOID(flag("use_beam_search", beam));
  if (beam) return unsupported_field("use_beam_search", "`use_beam_search` is not supported.");
  PENSTOCK_FIELD_VOID(flag("continue_final_message", continued));
  if (continued) return unsupported_field("continue_final_message", "`continue_final_message` is not supported.");
  double typical = 1;
  PENSTOCK_FIELD_VOID(number("typical_p", 0, 1, typical));
  if (typical != 1) return unsupported_field("typical_p", "`typical_p` is not supported.");
  PENSTOCK_FIELD(auto modalities, json::optional<const json::Array*>(body_, "modalities", root_));
  if (modalities) {
    for (const auto& item : **modalities) {
      if (!item.is_string() || item.as_string() != "text") {
        return unsupported_field("modalities", "`modalities` other than text are not supported.");
      }
    }
  }
  PENSTOCK_FIELD(auto format, json::optional<const json::Object*>(body_, "response_format", root_));
  if (format) {
    const json::Path path = root_.field("response_format");
    PENSTOCK_FIELD(auto type, json::required<std::string_view>(**format, "type", path));
    if (type == "json_object" || type == "json_schema" || type == "grammar" || type == "structural_tag") {
      return unsupported_field("response_format", "`response_format` " + std::string(type) +
                                                      " is not supported: guided decoding is not there yet.");
    }
    if (type != "text") return invalid_field("response_format.type", "response_format.type: must be text");
  }
  return {};
}

ApiResult<void> RequestParser::read_lengths() {
  PENSTOCK_FIELD(auto n, json::optional<std::int64_t>(body_, "n", root_, {1, limits_.n_max}));
  if (n) fields_.n = static_cast<std::uint32_t>(*n);
  PENSTOCK_FIELD(auto best_of, json::optional<std::int64_t>(body_, "best_of", root_, {1, limits_.n_max}));
  if (best_of && *best_of < fields_.n) return invalid_field("best_of", "best_of: must not be less than n");
  if (best_of && *best_of > fields_.n) return unsupported_field("best_of", "`best_of` above n is not supported.");
  constexpr std::int64_t tokens_limit = std::numeric_limits<std::int32_t>::max();
  // Completions may ask for no token, to score the prompt.
  const std::int64_t low = fields_.endpoint == Endpoint::completions ? 0 : 1;
  for (std::string_view key : {"max_tokens", "max_completion_tokens"}) {
    PENSTOCK_FIELD(auto most, json::optional<std::int64_t>(body_, key, root_, {low, tokens_limit}));
    if (most) fields_.tokens_max = static_cast<std::uint32_t>(*most);
  }
  PENSTOCK_FIELD(auto least, json::optional<std::int64_t>(body_, "min_tokens", root_, {0, tokens_limit}));
  if (least) fields_.sampling.tokens_min = static_cast<std::uint32_t>(*least);
  if (fields_.tokens_max && fields_.sampling.tokens_min > *fields_.tokens_max) {
    return invalid_field("min_tokens", "min_tokens: must not be more than max_tokens");
  }
  PENSTOCK_FIELD_VOID(flag("ignore_eos", fields_.sampling.ignore_eos));
  PENSTOCK_FIELD_VOID(flag("echo", fields_.echo));
  if (fields_.echo && fields_.endpoint != Endpoint::completions) {
    return unsupported_field("echo", "`echo` is not supported for chat.");
  }
  return {};
}

ApiResult<void> RequestParser::read_sampling() {
  auto& sampling = fields_.sampling;
  PENSTOCK_FIELD_VOID(number("temperature", 0, 2, sampling.temperature, &fields_.has_temperature));
  // So small that dividing by it overflows: greedy is meant.
  if (sampling.temperature < 1e-5f) sampling.temperature = 0;
  PENSTOCK_FIELD_VOID(number("top_p", 0, 1, sampling.top_p, &fields_.has_top_p));
  if (sampling.top_p <= 0) return invalid_field("top_p", "top_p: must be more than 0");
  PENSTOCK_FIELD(auto top_k, json::optional<std::int64_t>(body_, "top_k", root_, {-1, 0x7FFFFFFF}));
  if (top_k) {
    fields_.has_top_k = true;
    sampling.top_k = *top_k < 0 ? 0 : static_cast<std::uint32_t>(*top_k);
  }
  PENSTOCK_FIELD_VOID(number("min_p", 0, 1, sampling.min_p));
  PENSTOCK_FIELD_VOID(number("repetition_penalty", 0, 10, sampling.repetition_penalty));
  if (sampling.repetition_penalty < 1e-3f) {
    return invalid_field("repetition_penalty", "repetition_penalty: must be at least 0.001");
  }
  PENSTOCK_FIELD_VOID(number("presence_penalty", -2, 2, sampling.presence_penalty));
  PENSTOCK_FIELD_VOID(number("frequency_penalty", -2, 2, sampling.frequency_penalty));
  PENSTOCK_FIELD_VOID(flag("skip_special_tokens", fields_.skip_special_tokens));
  PENSTOCK_FIELD_VOID(flag("add_special_tokens", fields_.add_special_tokens));
  return {};
}

ApiResult<void> RequestParser::read_seed() {
  const json::Value* seed = present("seed");
  if (seed == nullptr) return {};
  if (seed->is_int64()) {
    fields_.sampling.seed = static_cast<std::uint64_t>(seed->get_int64());
  } else if (seed->is_uint64()) {
    fields_.sampling.seed = seed->get_uint64();
  } else {
    return invalid_field("seed", "seed: must be a 64-bit integer, is " + std::string(json::kind_name(*seed)));
  }
  fields_.has_seed = true;
  return {};
}

ApiResult<void> RequestParser::read_stops() {
  PENSTOCK_FIELD_VOID(flag("include_stop_str_in_output", fields_.include_stop));
  const json::Value* stop = present("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) {
    fields_.stops.emplace_back(stop->get_string());
  } else if (stop->is_array()) {
    const auto& items = stop->get_array();
    if (items.size() > limits_.stops_max) {
      return invalid_field("stop", "stop: has more than " + std::to_string(limits_.stops_max) + " strings");
    }
    const json::Path path = root_.field("stop");
    for (std::size_t i = 0; i < items.size(); ++i) {
      PENSTOCK_FIELD(auto text, json::as<std::string_view>(items[i], path.index(i)));
      fields_.stops.emplace_back(text);
    }
  } else {
    return invalid_field("stop",
                         "stop: must be a string or an array of strings, is " + std::string(json::kind_name(*stop)));
  }
  for (const auto& text : fields_.stops) {
    if (text.empty()) return invalid_field("stop", "stop: has an empty string");
    if (text.size() > limits_.stop_bytes_max) {
      return invalid_field("stop", "stop: has a string over " + std::to_string(limits_.stop_bytes_max) + " bytes");
    }
  }
  return {};
}

ApiResult<std::vector<TokenId>> read_token_ids(const json::Array& items, const json::Path& path) {
  std::vector<TokenId> ids;
  ids.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    PENSTOCK_FIELD(auto id, json::as<std::int64_t>(items[i], path.index(i)));
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      return invalid_field(path.index(i).to_string(), path.index(i).to_string() + ": is no token id");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

ApiResult<void> RequestParser::read_stop_token_ids() {
  PENSTOCK_FIELD(auto items, json::optional<const json::Array*>(body_, "stop_token_ids", root_));
  if (!items) return {};
  if ((*items)->size() > limits_.stop_token_ids_max) {
    return invalid_field("stop_token_ids", "stop_token_ids: has too many entries");
  }
  PENSTOCK_FIELD(fields_.sampling.stop_token_ids, read_token_ids(**items, root_.field("stop_token_ids")));
  return {};
}

ApiResult<void> RequestParser::read_logit_bias() {
  PENSTOCK_FIELD(auto biases, json::optional<const json::Object*>(body_, "logit_bias", root_));
  if (!biases) return {};
  if ((*biases)->size() > limits_.logit_bias_max) {
    return invalid_field("logit_bias",
                         "logit_bias: has more than " + std::to_string(limits_.logit_bias_max) + " entries");
  }
  const json::Path path = root_.field("logit_bias");
  for (const auto& [key, value] : **biases) {
    const auto id = token_id(key);
    if (!id) return invalid_field("logit_bias", "logit_bias: a key is no token id");
    PENSTOCK_FIELD(auto bias, json::as<double>(value, path.field(key)));
    if (!(bias >= -100 && bias <= 100)) return invalid_field("logit_bias", "logit_bias: must be from -100 to 100");
    fields_.sampling.logit_bias.emplace_back(*id, static_cast<float>(bias));
  }
  std::sort(fields_.sampling.logit_bias.begin(), fields_.sampling.logit_bias.end());
  return {};
}

ApiResult<void> RequestParser::read_logprobs() {
  if (fields_.endpoint == Endpoint::completions) {
    PENSTOCK_FIELD(auto count, json::optional<std::int64_t>(body_, "logprobs", root_, {0, limits_.logprobs_max}));
    if (count) fields_.logprobs = static_cast<std::uint32_t>(*count);
  } else {
    bool wanted = false;
    PENSTOCK_FIELD_VOID(flag("logprobs", wanted));
    PENSTOCK_FIELD(auto count, json::optional<std::int64_t>(body_, "top_logprobs", root_, {0, limits_.logprobs_max}));
    if (count && *count > 0 && !wanted) {
      return invalid_field("top_logprobs", "top_logprobs: needs logprobs to be true");
    }
    if (wanted) fields_.logprobs = static_cast<std::uint32_t>(count.value_or(0));
  }
  fields_.sampling.logprobs = fields_.logprobs;
  PENSTOCK_FIELD(auto scores, json::optional<std::int64_t>(body_, "prompt_logprobs", root_, {0, limits_.logprobs_max}));
  if (scores) fields_.prompt_logprobs = static_cast<std::uint32_t>(*scores);
  fields_.sampling.prompt_logprobs = fields_.prompt_logprobs;
  if (fields_.echo && fields_.logprobs) {
    fields_.sampling.prompt_logprobs = std::max(*fields_.logprobs, fields_.prompt_logprobs.value_or(0));
  }
  return {};
}

ApiResult<void> RequestParser::read_stream() {
  PENSTOCK_FIELD_VOID(flag("stream", fields_.stream));
  if (fields_.stream && fields_.prompt_logprobs) {
    return invalid_field("prompt_logprobs", "prompt_logprobs: cannot be used with stream");
  }
  PENSTOCK_FIELD(auto options, json::optional<const json::Object*>(body_, "stream_options", root_));
  if (!options) return {};
  if (!fields_.stream) return invalid_field("stream_options", "stream_options: needs stream to be true");
  const json::Path path = root_.field("stream_options");
  PENSTOCK_FIELD(auto last, json::optional<bool>(**options, "include_usage", path));
  PENSTOCK_FIELD(auto every, json::optional<bool>(**options, "continuous_usage_stats", path));
  if (last.value_or(false)) {
    fields_.stream_usage = every.value_or(false) ? StreamUsage::every_chunk : StreamUsage::last_chunk;
  }
  return {};
}

ApiResult<void> RequestParser::read_prompt() {
  if (fields_.endpoint != Endpoint::completions) {
    PENSTOCK_FIELD(auto chat, read_chat_prompt(body_, limits_));
    fields_.prompts.emplace_back(std::move(chat));
    return {};
  }
  const json::Value* prompt = present("prompt");
  if (prompt == nullptr) return invalid_field("prompt", "prompt: is missing");
  if (prompt->is_string()) {
    fields_.prompts.emplace_back(TextPrompt{std::string(prompt->get_string())});
  } else if (prompt->is_array()) {
    PENSTOCK_FIELD_VOID(read_prompt_array(prompt->get_array()));
  } else {
    return invalid_field("prompt", "prompt: must be a string, an array of strings or of token ids, is " +
                                       std::string(json::kind_name(*prompt)));
  }
  if (fields_.prompts.size() * fields_.n > limits_.sequences_max) {
    return invalid_field("n", "n: prompts times n must not be more than " + std::to_string(limits_.sequences_max));
  }
  return {};
}

ApiResult<void> RequestParser::read_prompt_array(const json::Array& items) {
  const json::Path path = root_.field("prompt");
  if (items.empty()) return invalid_field("prompt", "prompt: is empty");
  if (items.front().is_number()) {
    PENSTOCK_FIELD(auto tokens, read_token_ids(items, path));
    fields_.prompts.emplace_back(TokenPrompt{std::move(tokens)});
    return {};
  }
  if (items.size() > limits_.prompts_max) {
    return invalid_field("prompt", "prompt: has more than " + std::to_string(limits_.prompts_max) + " prompts");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind() != items.front().kind()) {
      return invalid_field(path.index(i).to_string(), "prompt: mixes strings and token arrays");
    }
    if (items[i].is_array()) {
      if (items[i].get_array().empty()) {
        return invalid_field(path.index(i).to_string(), path.index(i).to_string() + ": is empty");
      }
      const json::Path item = path.index(i);
      PENSTOCK_FIELD(auto tokens, read_token_ids(items[i].get_array(), item));
      fields_.prompts.emplace_back(TokenPrompt{std::move(tokens)});
    } else {
      PENSTOCK_FIELD(auto text, json::as<std::string_view>(items[i], path.index(i)));
      fields_.prompts.emplace_back(TextPrompt{std::string(text)});
    }
  }
  return {};
}

void RequestParser::count_unknown() {
  for (const auto& [key, value] : body_) {
    if (!is_known_field(key)) ++fields_.unknown_fields;
  }
}

ApiResult<ValidatedRequest> parse_request(Endpoint endpoint, std::string_view body, const ApiLimits& limits) {
  json::Limits text_limits;
  text_limits.text_bytes_max = limits.body_bytes_max;
  auto parsed = json::parse(body, text_limits);
  if (!parsed) {
    ApiError error;
    error.code = "invalid_json";
    error.message = "The body is not valid JSON: " + parsed.error().message;
    return error;
  }
  if (!parsed->is_object()) {
    ApiError error;
    error.code = "invalid_json";
    error.message = "The body must be a JSON object, is " + std::string(json::kind_name(*parsed)) + ".";
    return error;
  }
  if (endpoint != Endpoint::messages) return RequestParser(endpoint, parsed->get_object(), limits).parse();
  PENSTOCK_FIELD(auto chat, chat_body_of_messages(parsed->get_object(), limits));
  return RequestParser(endpoint, chat, limits).parse();
}

}  // namespace penstock::router
