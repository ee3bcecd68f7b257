// Answers in OpenAI's shapes: whole ones, and streams as server-sent events. Made for streams: all that does not change
// between chunks is written once, a chunk of one token is a few appends to a string that the caller reuses.
// One object a call; pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api/api_error.hpp"
#include "router/core/api/choice_text.hpp"
#include "router/core/api/model_text.hpp"
#include "router/core/api/validated_request.hpp"

namespace penstock::router {

/// What the client is told it used.
struct ClientUsage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;
};

/// Of the prompt's second token and later.
using PromptScores = std::span<const protocol::PositionLogprobs>;

class Encoder {
 public:
  /// `id` without prefix; `created` in seconds since 1970.
  Encoder(const RequestFields& fields, const ModelText& model, std::string_view id, std::int64_t created);

  /// One chunk of one choice. The role is in the first chunk of each chat choice, the finish in its last. Chat choices
  /// below that have not begun are begun before it.
  /// `usage` is shown only if the client asked for it in every chunk.
  void append_chunk(std::uint32_t index, const ChoiceDelta& delta, const ClientUsage& usage, std::string& out);
  /// The chunk with no choices that comes before [DONE], if the client asked for it.
  void append_usage_chunk(const ClientUsage& usage, std::string& out) const;
  static void append_done(std::string& out);
  /// In a stream that has begun; the connection is then ended without [DONE].
  static void append_error(const ApiError& error, std::string& out);

  /// The whole answer; `choices` by index, `scores` by prompt if prompt_logprobs were asked for.
  std::string whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                    const std::vector<PromptScores>& scores = {}) const;

 private:
  void append_chat_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const;
  void append_completion_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const;
  void append_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const;
  void append_token_entry(const protocol::TokenLogprob& entry, std::string& out) const;
  void append_prompt_logprobs(PromptScores scores, std::string& out) const;
  void append_top_map(const protocol::PositionLogprobs& logprobs, std::string& out) const;

  const RequestFields& fields_;
  const ModelText& model_;
  std::string identity_;  // "id":...,"object":...,"created":...,"model":... of a whole answer
  std::string prefix_;    // of a chunk, up to the index
  std::vector<bool> has_begun_;
};

void append_usage(const ClientUsage& usage, std::string& out);

}  // namespace penstock::router
