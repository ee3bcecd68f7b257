#include "router/core/api/request_fields.hpp"

#include <algorithm>
#include <array>

namespace penstock::router {
namespace {

// clang-format off
constexpr std::array<std::string_view, 62> known{
    "model", "messages", "prompt", "n", "best_of", "max_tokens", "max_completion_tokens", "min_tokens", "temperature",
    "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop",
    "stop_token_ids", "logit_bias", "logprobs", "top_logprobs", "stream", "stream_options", "echo", "ignore_eos",
    "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens",
    "add_generation_prompt", "continue_final_message", "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "user", "metadata", "store", "priority", "cache_salt", "request_id", "service_tier",
    "reasoning_effort", "verbosity", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "suffix",
    "modalities", "audio", "prediction", "functions", "function_call", "web_search_options", "use_beam_search",
    "length_penalty", "typical_p", "prompt_logprobs", "chat_template", "chat_template_kwargs", "documents",
    "truncate_prompt_tokens",
};
// clang-format on

constexpr std::array<RefusedField, 26> refused{{
    {"suffix", "insertion is not supported"},
    {"audio", "audio output is not supported"},
    {"prediction", "predicted outputs are not supported"},
    {"functions", "is no longer supported, use tools"},
    {"function_call", "is no longer supported, use tool_choice"},
    {"web_search_options", "web search is not supported"},
    {"guided_json", "guided decoding is not supported"},
    {"guided_regex", "guided decoding is not supported"},
    {"guided_choice", "guided decoding is not supported"},
    {"guided_grammar", "guided decoding is not supported"},
    {"structured_outputs", "guided decoding is not supported"},
    {"grammar", "guided decoding is not supported"},
    {"json_schema", "guided decoding is not supported"},
    {"regex", "guided decoding is not supported"},
    {"chat_template", "templates of requests are not accepted"},
    {"chat_template_kwargs", "template variables of requests are not accepted"},
    {"documents", "documents are not supported"},
    {"prompt_embeds", "embeddings as a prompt are not accepted"},
    {"multi_modal_data", "only text is supported"},
    {"mm_processor_kwargs", "only text is supported"},
    {"truncate_prompt_tokens", "prompts are not truncated"},
    {"bad_words", "is not supported, use logit_bias"},
    {"allowed_token_ids", "is not supported"},
    {"logits_processors", "is not supported"},
    {"kv_transfer_params", "is decided by the router"},
    {"data_parallel_rank", "is decided by the router"},
}};

}  // namespace

bool is_known_field(std::string_view name) {
  return std::find(known.begin(), known.end(), name) != known.end();
}

std::span<const RefusedField> refused_fields() {
  return refused;
}

}  // namespace penstock::router
