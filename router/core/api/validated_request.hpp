// The one request type that the inside of the router accepts. Every front door (chat, completions) lowers into it, and
// only the parser can make one, so whoever holds it need not check anything again, except what depends on the model:
// token ids against the vocabulary and lengths against the context (see prepare.hpp).
// Pure values; any thread. Bounded by ApiLimits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/types.hpp"
#include "common/protocol/messages.hpp"
#include "router/core/api/api_error.hpp"
#include "router/core/output/tool_set.hpp"

namespace penstock::router {

/// Hard maxima of what a request may ask for.
struct ApiLimits {
  std::size_t body_bytes_max = 8 << 20;
  std::uint32_t n_max = 16;
  std::uint32_t prompts_max = 128;    // of one completions call
  std::uint32_t sequences_max = 256;  // prompts times n
  std::uint32_t stops_max = 4;
  std::size_t stop_bytes_max = 1 << 10;  // each
  std::uint32_t logprobs_max = 20;
  std::uint32_t logit_bias_max = 1024;
  std::uint32_t stop_token_ids_max = 128;
  std::uint32_t messages_max = 10'000;
  std::uint32_t parts_max = 1'000;  // of one message
  std::uint32_t tools_max = 128;
  std::size_t tools_bytes_max = 256 << 10;
  std::size_t user_bytes_max = 512;
  std::size_t salt_bytes_max = 256;
};

enum class Endpoint : std::uint8_t {
  chat,         // /v1/chat/completions
  completions,  // /v1/completions
  messages,     // /v1/messages: a chat, asked and answered in the shapes of Anthropic's API
};

struct TextPrompt {
  std::string text;
};
struct TokenPrompt {
  std::vector<TokenId> tokens;
};
/// Which calls of tools an answer may have.
struct ToolUse {
  enum class Choice : std::uint8_t {
    none,       // no tools, or tool_choice none
    automatic,  // the model decides
    required,   // it begins with a call
    named,      // it is one call of `name`
  };
  Choice choice = Choice::none;
  std::string name;
  std::shared_ptr<const ToolSet> set;  // shared with the parsers of the answer; null with `none`
  bool parallel = true;                // several calls in one answer
};
/// Variables of the chat template, a JSON object: messages, tools, add_generation_prompt and so on.
struct ChatPrompt {
  std::string variables;
  ToolUse tools;
};
using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;

enum class StreamUsage : std::uint8_t { none, last_chunk, every_chunk };

struct RequestFields {
  Endpoint endpoint = Endpoint::chat;
  std::string model;
  std::vector<Prompt> prompts;  // one for chat
  std::uint32_t n = 1;          // choices a prompt

  protocol::SamplingParams sampling;        // tokens_max is 0 until the model is known; seed only if has_seed
  std::optional<std::uint32_t> tokens_max;  // as asked; absent: what fits the context (chat) or 16 (completions)
  bool has_seed = false;
  bool has_temperature = false, has_top_p = false, has_top_k = false;  // else the model's own defaults are used

  std::vector<std::string> stops;
  bool include_stop = false;                     // show the stop string itself
  bool skip_special_tokens = true;               // in the text
  bool add_special_tokens = true;                // to text prompts
  bool echo = false;                             // completions: the prompt comes first
  std::optional<std::uint32_t> logprobs;         // alternatives to show; 0: the chosen token only
  std::optional<std::uint32_t> prompt_logprobs;  // the same of the prompt's tokens, apart from its text

  bool stream = false;
  StreamUsage stream_usage = StreamUsage::none;
  std::int32_t priority = 0;
  std::string cache_salt;
  std::uint32_t unknown_fields = 0;  // ignored, and counted
};

class ValidatedRequest {
 public:
  const RequestFields& operator*() const { return fields_; }
  const RequestFields* operator->() const { return &fields_; }

 private:
  friend class RequestParser;
  explicit ValidatedRequest(RequestFields fields) : fields_(std::move(fields)) {}
  RequestFields fields_;
};

/// The body of a POST to that endpoint.
ApiResult<ValidatedRequest> parse_request(Endpoint endpoint, std::string_view body, const ApiLimits& limits);

}  // namespace penstock::router
