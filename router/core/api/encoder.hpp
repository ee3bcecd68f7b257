// Answers in OpenAI's shapes: whole ones, and streams as server-sent events. Made for streams: all that does not change
// between chunks is written once, a chunk of one token is a few appends to a string that the caller reuses.
// One object a call; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api/answer_encoder.hpp"

namespace penstock::router {

class Encoder final : public AnswerEncoder {
 public:
  /// `id` without prefix; `created` in seconds since 1970.
  Encoder(const RequestFields& fields, const ModelText& model, std::string_view id, std::int64_t created);

  /// What is new of one choice, as one chunk, or one for each event of its output. The role is in the first chunk of
  /// each chat choice, the finish in its last. Chat choices below that have not begun are begun before it. `usage` is
  /// shown only if the client asked for it in every chunk.
  void append_chunk(std::uint32_t index, const ChoiceDelta& delta, const ClientUsage& usage, std::string& out) override;
  bool needs_usage() const override { return fields_.stream_usage == StreamUsage::every_chunk; }
  /// The chunk with no choices, if the client asked for it, and [DONE].
  void append_end(const ClientUsage& usage, std::string& out) override;
  /// The connection is then ended without [DONE].
  void append_error(const ApiError& error, std::string& out) const override;
  std::string whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                    const std::vector<PromptScores>& scores) const override;

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
