// From a valid request to token ids: render the chat template, tokenise, check lengths and ids against the model, fill
// in the model's defaults. Pure and without shared state besides the model's token cache: any thread, so long texts are
// done off the I/O thread.
#pragma once

#include <cstdint>
#include <vector>

#include "router/core/api/model_text.hpp"
#include "router/core/api/validated_request.hpp"
#include "router/core/output/output_parser.hpp"

namespace penstock::router {

struct PreparedPrompt {
  std::vector<TokenId> tokens;
  std::uint32_t tokens_max = 0;  // output tokens of each choice
  OutputOptions output;          // how its choices are read; the seed of ids is set by the caller
};

struct PreparedRequest {
  std::vector<PreparedPrompt> prompts;
  protocol::SamplingParams sampling;  // without tokens_max; the seed is set by the caller if the client gave none
};

/// `now_unix_seconds` is what a template's strftime_now() shows.
ApiResult<PreparedRequest> prepare(const ValidatedRequest& request, const ModelText& model,
                                   std::int64_t now_unix_seconds);

/// The rendered chat, tokenised, and how the answer is to be read; for /tokenize too.
struct PreparedChat {
  std::vector<TokenId> tokens;
  OutputOptions output;
};
ApiResult<PreparedChat> tokenise_chat(const ChatPrompt& prompt, const ModelText& model, std::int64_t now_unix_seconds);

}  // namespace penstock::router
