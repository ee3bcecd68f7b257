// A call's answer in the shape of the API that it was asked over: whole, or as a stream of server-sent events. The call
// knows nothing of shapes. One object a call; pure.
#pragma once

#include <cstdint>
#include <memory>
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

class AnswerEncoder {
 public:
  virtual ~AnswerEncoder() = default;

  /// What is new of one choice. `usage` is filled in only if needs_usage().
  virtual void append_chunk(std::uint32_t index, const ChoiceDelta& delta, const ClientUsage& usage,
                            std::string& out) = 0;
  /// The next chunk says what has been used so far.
  virtual bool needs_usage() const = 0;
  /// All choices have finished.
  virtual void append_end(const ClientUsage& usage, std::string& out) = 0;
  /// In a stream that has begun; nothing follows it.
  virtual void append_error(const ApiError& error, std::string& out) const = 0;
  /// The whole answer; `choices` by index, `scores` by prompt if prompt_logprobs were asked for.
  virtual std::string whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                            const std::vector<PromptScores>& scores) const = 0;
};

/// `id` without prefix; `created` in seconds since 1970. The references outlive the encoder.
std::unique_ptr<AnswerEncoder> make_encoder(const RequestFields& fields, const ModelText& model, std::string_view id,
                                            std::int64_t created);

}  // namespace penstock::router
