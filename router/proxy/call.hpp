// One client call: its prompts as sequences, their tokens as text, the answer as bytes to be written. The HTTP side
// waits on `changed` and takes what is there. Owner: the coroutine that serves the call; destroying it cancels what
// still runs. Thread: the router's I/O thread. Bounds: `output_bytes_max` of unsent stream; a client that lets more
// pile up is cut.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "router/core/api/answer_encoder.hpp"
#include "router/core/api/choice_text.hpp"
#include "router/core/api/prepare.hpp"
#include "router/core/api/validated_request.hpp"
#include "router/proxy/dispatcher.hpp"
#include "router/proxy/sequence.hpp"

namespace penstock::router {

struct CallSettings {
  MigrationLimits migration;
  TicketMaker ticket;
  std::size_t output_bytes_max = 256 << 10;
};

struct CallOrigin {
  std::string client_request_id;  // x-request-id
  std::string tenant;
  std::string cache_salt;  // the tenant's and the request's: the workers' blocks must have the hashes of the router's
  std::string trace;       // traceparent
  TimePoint arrived{};
  std::optional<TimePoint> deadline;
  std::int64_t created = 0;   // seconds since 1970
  std::uint64_t seed = 0;     // used if the client gave none
  std::uint64_t id_seed = 0;  // of the ids of calls of tools
};

class Call final : public SequenceSink {
 public:
  Call(Dispatcher& dispatcher, ServedModel& model, ValidatedRequest request, const CallSettings& settings,
       CallOrigin origin, std::function<void()> changed);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// `blocks`: the block hashes of each prompt.
  void start(PreparedRequest prepared, std::vector<std::vector<BlockHash>> blocks);
  void client_gone();

  bool is_done() const { return is_done_; }
  /// Too much was left unread; the call has been cut.
  bool is_overrun() const { return is_overrun_; }
  bool has_output() const { return !output_.empty(); }
  /// Stream bytes since the last time; swapped into `out`, whose old contents are dropped.
  void take_output(std::string& out);
  const std::optional<ApiError>& error() const { return error_; }
  /// Adds the error to the stream, in its shape.
  void append_error(std::string& out) const { encoder_->append_error(*error_, out); }
  /// The whole answer, once done without an error.
  std::string whole() const;
  ClientUsage usage() const;
  const RequestFields& fields() const { return *request_; }
  const DecisionPtr& route() const;
  std::uint32_t migrations() const;

  void on_tokens(Sequence& sequence, protocol::ChoiceStep&& step) override;
  void on_ended(Sequence& sequence, const Ended& ended) override;

 private:
  struct PromptText {
    std::vector<protocol::PositionLogprobs> logprobs;  // of tokens 1 and later, if asked for
    std::vector<bool> echoed;                          // by choice
  };
  void add_sequence(std::uint32_t index, PreparedPrompt prompt, std::vector<BlockHash> blocks,
                    const protocol::SamplingParams& sampling);
  void emit(std::uint32_t choice);
  void fail(ApiError error);
  void end();

  Dispatcher& dispatcher_;
  ServedModel& model_;
  std::shared_ptr<const ModelText> text_;  // shared: the model may get a new one while this call runs
  ValidatedRequest request_;
  const CallSettings& settings_;
  CallOrigin origin_;
  std::function<void()> changed_;
  std::unique_ptr<AnswerEncoder> encoder_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<PromptText> prompt_texts_;
  std::vector<ChoiceText> texts_;    // by index in the answer
  std::vector<ChoiceDelta> deltas_;  // stream: what is new; whole: all
  std::string output_;
  std::optional<ApiError> error_;
  std::size_t running_ = 0;
  bool is_done_ = false;
  bool is_closing_ = false;
  bool is_overrun_ = false;
};

}  // namespace penstock::router
