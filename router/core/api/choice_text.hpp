// One choice's tokens to what the client sees: text without stop strings, with the log probabilities of exactly the
// tokens whose text is shown. Owned by one call. Holds back what could still become a stop string, an unfinished
// character, and the log probabilities of tokens that wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/protocol/messages.hpp"
#include "common/text/incremental_decoder.hpp"
#include "common/text/stop_matcher.hpp"
#include "router/core/api/model_text.hpp"
#include "router/core/api/validated_request.hpp"
#include "router/core/output/output_parser.hpp"

namespace penstock::router {

enum class ChoiceFinish : std::uint8_t { stop, length, tool_calls };
std::string_view to_string(ChoiceFinish finish);

/// One token for the log probabilities; `text_offset` counts characters from the start of the choice's text.
struct ShownToken {
  TokenId token = 0;
  std::uint32_t text_offset = 0;
  std::optional<protocol::PositionLogprobs> logprobs;  // absent for the first token of an echoed prompt
};

/// What became visible.
struct ChoiceDelta {
  std::string text;
  OutputEvents output;             // instead of `text`, where calls or thoughts are looked for
  std::vector<ShownToken> tokens;  // only if log probabilities were asked for
  std::optional<ChoiceFinish> finish;
  std::optional<std::size_t> stop_string;  // index in the request's stops of the one that finished it
  void clear() {
    text.clear();
    output.clear();
    tokens.clear();
    finish.reset();
    stop_string.reset();
  }
};

class ChoiceText {
 public:
  /// `output`: with formats of neither calls nor thoughts the text stays as it is.
  ChoiceText(const ModelText& model, const RequestFields& fields, OutputOptions output = {});

  /// The echoed prompt: everything of it is shown, with the log probabilities of tokens 1 and later.
  void echo(const std::vector<TokenId>& prompt, const std::vector<protocol::PositionLogprobs>& logprobs,
            ChoiceDelta& out);
  /// Takes a step; appends to `out`. Returns the number of output tokens of this choice that count if one of them
  /// completed a stop string or the last call that may be; nothing more is taken after that.
  std::optional<std::uint32_t> push(const protocol::ChoiceStep& step, ChoiceDelta& out);
  bool is_finished() const { return is_finished_; }

 private:
  struct Waiting {
    std::size_t text_begin = 0;  // bytes of all decoded text
    std::size_t text_end = 0;
    ShownToken shown;
  };
  bool ends_choice(TokenId token) const;
  void push_token(TokenId token, const protocol::PositionLogprobs* logprobs, ChoiceDelta& out);
  void release(std::size_t shown_end, ChoiceDelta& out);
  void flush(ChoiceDelta& out);
  void finish(ChoiceFinish finish, ChoiceDelta& out);

  const ModelText& model_;
  const RequestFields& fields_;
  text::IncrementalDecoder decoder_;
  text::StopMatcher matcher_;
  std::unique_ptr<OutputParser> parser_;  // null: the text is the content
  std::vector<Waiting> waiting_;
  std::string piece_;  // reused
  std::size_t decoded_bytes_ = 0;
  std::size_t shown_bytes_ = 0;
  std::uint32_t decoded_characters_ = 0;
  std::uint32_t output_tokens_ = 0;
  bool is_finished_ = false;
};

}  // namespace penstock::router
