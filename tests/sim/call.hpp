// One client and its call, and the first checkers: every token is compared with the true stream, which is computed from
// the prompt alone; the end comes once, in time, and with the right numbers.
// Owner: SimRouter. Single thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/proxy/sequence.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/options.hpp"
#include "tests/sim/violations.hpp"

namespace penstock::router {
class Dispatcher;
}

namespace penstock::sim {

class SimCall final : public router::SequenceSink {
 public:
  SimCall(const Plan& plan, const RequestPlan& request, std::uint32_t index, EventQueue& events, Violations& violations,
          Tally& tally, router::Dispatcher& dispatcher, router::ServedModel& model, std::vector<BlockHash> blocks,
          const router::TicketMaker& ticket);

  void start();
  void leave();
  /// The router died under it: the client sees a cut connection.
  void cut();
  bool is_ended() const { return ended_at_.has_value(); }
  TimePoint ended_at() const { return *ended_at_; }
  bool is_completed() const { return is_completed_; }
  RequestId id() const { return sequence_.state.id(); }
  router::Sequence& sequence() { return sequence_; }
  /// A prefill worker was told to offer the KV again, after which a decode worker repeats tokens.
  void note_reoffer() { has_reoffer_ = true; }
  const RequestPlan& plan() const { return request_; }
  /// A call that is not over long after its deadline, or at the end of the run.
  void check_overdue(TimePoint now);
  void check_at_end();
  std::string describe() const;

  void on_tokens(router::Sequence& sequence, protocol::ChoiceStep&& step) override;
  void on_ended(router::Sequence& sequence, const router::Ended& ended) override;

 private:
  struct Stream {
    std::vector<TokenId> context;  // prompt and output
    std::uint32_t output = 0;
    std::optional<protocol::FinishReason> finish;
    bool is_stopped = false;  // by a stop string
  };
  static protocol::GenerateSpec spec_of(const Plan& plan, const RequestPlan& request, std::uint32_t index);
  TokenId true_token(const Stream& stream, std::uint32_t choice) const;
  std::uint32_t output_limit() const;
  void check_finish(const Stream& stream, std::uint32_t choice, protocol::FinishReason finish);
  void check_usage();
  void violation(const std::string& what);

  const Plan& world_;
  const RequestPlan& request_;
  std::uint32_t index_;
  EventQueue& events_;
  Violations& violations_;
  Tally& tally_;
  router::Dispatcher& dispatcher_;
  router::Sequence sequence_;
  std::vector<Stream> streams_;
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> ended_at_;
  std::string end_text_;
  bool is_completed_ = false;
  bool has_left_ = false;
  bool has_reoffer_ = false;
  Process life_;
};

}  // namespace penstock::sim
