#include "router/core/api/prepare.hpp"

#include <algorithm>

namespace penstock::router {
namespace {

constexpr std::uint32_t completions_tokens_default = 16;  // as OpenAI's API has it

ApiError from_text_error(const Error& error, std::string param) {
  ApiError api = invalid_field(std::move(param), error.message);
  if (error.code == ErrorCode::internal) return engine_error(error.message);
  return api;
}

ApiResult<void> check_ids(const RequestFields& fields, std::uint64_t vocabulary_size) {
  for (const auto& [id, bias] : fields.sampling.logit_bias) {
    if (id >= vocabulary_size) return invalid_field("logit_bias", "logit_bias: token id is out of the vocabulary");
  }
  for (TokenId id : fields.sampling.stop_token_ids) {
    if (id >= vocabulary_size) {
      return invalid_field("stop_token_ids", "stop_token_ids: token id is out of the vocabulary");
    }
  }
  return {};
}

// Every position's scores come in one message: about 24 bytes and 12 for each alternative.
ApiResult<void> check_scores(const RequestFields& fields, std::uint64_t prompt_tokens) {
  if (!fields.sampling.prompt_logprobs) return {};
  const std::uint64_t positions_max = protocol::message_bytes_max / (24 + 12 * *fields.sampling.prompt_logprobs);
  if (prompt_tokens <= positions_max) return {};
  return invalid_field(fields.prompt_logprobs ? "prompt_logprobs" : "logprobs",
                       "log probabilities of so many alternatives are given of at most " +
                           std::to_string(positions_max) + " prompt tokens, the prompt has " +
                           std::to_string(prompt_tokens));
}

ApiResult<std::vector<TokenId>> tokenise_text(const TextPrompt& prompt, const RequestFields& fields,
                                              const ModelText& model, text::EncodeWork& work) {
  text::EncodeOptions options;
  options.work = &work;
  options.add_special = fields.add_special_tokens && model.card.add_bos ? text::AddSpecial::yes : text::AddSpecial::no;
  auto tokens = model.token_cache->encode(prompt.text, options);
  if (!tokens) return from_text_error(tokens.error(), "prompt");
  return std::move(*tokens);
}

ApiResult<std::vector<TokenId>> tokenise(const Prompt& prompt, const RequestFields& fields, const ModelText& model,
                                         std::int64_t now_unix_seconds, text::EncodeWork& work, OutputOptions& output) {
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    auto prepared = tokenise_chat(*chat, model, now_unix_seconds);
    if (!prepared) return prepared.error();
    output = std::move(prepared->output);
    return std::move(prepared->tokens);
  }
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) return tokenise_text(*text, fields, model, work);
  const auto& tokens = std::get<TokenPrompt>(prompt).tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= model.card.vocabulary_size) {
      const std::string at = "prompt[" + std::to_string(i) + "]";
      return invalid_field(at, at + ": token id is out of the vocabulary");
    }
  }
  return tokens;
}

// Nothing constrains what the model draws, so a call is forced by opening it at the end of the prompt: what the model
// writes is its name (if none was named) and its arguments. A thought that the template has opened is closed first.
ApiResult<OutputOptions> output_options(const ToolUse& use, const ModelText& model, std::string& rendered) {
  const OutputFormats& formats = model.formats;
  OutputOptions output;
  if (formats.reasoning == ReasoningFormat::think) {
    output.reasoning = ends_in_thought(rendered) ? ReasoningSplit::Begin::in_thought : ReasoningSplit::Begin::perhaps;
  }
  const bool is_named = use.choice == ToolUse::Choice::named;
  const bool is_forced = is_named || use.choice == ToolUse::Choice::required;
  if (is_forced && formats.tools == ToolFormat::none) {
    return unsupported_field("tool_choice",
                             "`tool_choice` required or named is not supported for this model: how it "
                             "calls tools is not known.");
  }
  if (use.set == nullptr || formats.tools == ToolFormat::none) return output;
  output.tools = formats.tools;
  output.tool_set = use.set;
  output.calls_max = is_named || !use.parallel ? 1 : 0;
  if (!is_forced) return output;
  if (output.reasoning == ReasoningSplit::Begin::in_thought) rendered += "\n</think>\n\n";
  output.reasoning = ReasoningSplit::Begin::no_thought;
  output.opening = formats.opening.before_name;
  if (is_named) output.opening += use.name + formats.opening.after_name;
  rendered += output.opening;
  return output;
}

struct OutputLength {
  std::uint32_t tokens_max = 0;
};

ApiResult<OutputLength> resolve_tokens_max(const RequestFields& fields, std::uint64_t prompt_tokens,
                                           std::uint64_t context_tokens) {
  auto too_long = [&](std::uint64_t output_tokens) {
    ApiError error = context_length_exceeded(prompt_tokens, output_tokens, context_tokens);
    if (fields.endpoint == Endpoint::completions) error.param = "prompt";
    return error;
  };
  if (fields.tokens_max) {
    if (prompt_tokens + *fields.tokens_max > context_tokens) return too_long(*fields.tokens_max);
    return OutputLength{*fields.tokens_max};
  }
  if (prompt_tokens + 1 > context_tokens) return too_long(1);
  std::uint64_t left = context_tokens - prompt_tokens;
  if (fields.endpoint == Endpoint::completions) left = std::min<std::uint64_t>(left, completions_tokens_default);
  if (fields.sampling.tokens_min > left) return too_long(fields.sampling.tokens_min);
  return OutputLength{static_cast<std::uint32_t>(left)};
}

void fill_defaults(const RequestFields& fields, const protocol::ModelCard& card, protocol::SamplingParams& sampling) {
  if (!fields.has_temperature && card.default_temperature) sampling.temperature = *card.default_temperature;
  if (!fields.has_top_p && card.default_top_p) sampling.top_p = *card.default_top_p;
  if (!fields.has_top_k && card.default_top_k) sampling.top_k = *card.default_top_k;
}

}  // namespace

ApiResult<PreparedChat> tokenise_chat(const ChatPrompt& prompt, const ModelText& model, std::int64_t now_unix_seconds) {
  if (!model.chat_template) {
    return unsupported_field("messages", "This model has no chat template; use /v1/completions.");
  }
  const auto broken = break_special_texts(model.special_texts, prompt.variables);
  auto rendered = model.chat_template->render(broken ? *broken : prompt.variables, now_unix_seconds);
  if (!rendered) return from_text_error(rendered.error(), "messages");
  auto output = output_options(prompt.tools, model, *rendered);
  if (!output) return output.error();

  std::vector<TokenId> tokens;
  text::EncodeWork work;
  text::EncodeOptions options;
  options.work = &work;
  std::string_view rest = *rendered;
  while (!rest.empty()) {
    const std::size_t cut = rest.find(break_mark);
    auto piece = model.token_cache->encode(rest.substr(0, cut), options);
    if (!piece) return from_text_error(piece.error(), "messages");
    if (tokens.empty()) {
      tokens = std::move(*piece);
    } else {
      tokens.insert(tokens.end(), piece->begin(), piece->end());
    }
    rest = cut == std::string_view::npos ? std::string_view() : rest.substr(cut + break_mark.size());
  }
  return PreparedChat{std::move(tokens), std::move(*output)};
}

ApiResult<PreparedRequest> prepare(const ValidatedRequest& request, const ModelText& model,
                                   std::int64_t now_unix_seconds) {
  const RequestFields& fields = *request;
  if (auto checked = check_ids(fields, model.card.vocabulary_size); !checked) return checked.error();
  PreparedRequest prepared;
  prepared.sampling = fields.sampling;
  fill_defaults(fields, model.card, prepared.sampling);
  text::EncodeWork work;  // for all of them together
  for (const auto& prompt : fields.prompts) {
    OutputOptions output;
    auto tokens = tokenise(prompt, fields, model, now_unix_seconds, work, output);
    if (!tokens) return tokens.error();
    const std::string_view param = fields.endpoint == Endpoint::completions ? "prompt" : "messages";
    if (tokens->empty()) return invalid_field(std::string(param), std::string(param) + ": has no tokens");
    auto length = resolve_tokens_max(fields, tokens->size(), model.card.context_tokens);
    if (!length) return length.error();
    if (length->tokens_max == 0 && !fields.echo && !fields.prompt_logprobs) {
      return invalid_field("max_tokens", "max_tokens: 0 needs echo or prompt_logprobs");
    }
    if (auto checked = check_scores(fields, tokens->size()); !checked) return checked.error();
    prepared.prompts.push_back({std::move(*tokens), length->tokens_max, std::move(output)});
  }
  return prepared;
}

}  // namespace penstock::router
