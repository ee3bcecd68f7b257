// What one worker is believed to have to do: its last report, plus what this router has sent since and less what has
// ended since, which the report cannot know; or this router's own books alone where there is no report or an old one.
// Counters change by paired calls only. Single owner; bounded by the requests in flight.
#pragma once

#include <cstdint>
#include <deque>

#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"

namespace penstock::router {

class LoadView {
 public:
  struct Share {  // of one dispatch at this worker
    std::uint64_t ordinal = 0;
    std::uint64_t prefill_tokens = 0;  // not known to be computed
    std::uint64_t output_tokens = 0;   // still expected
    std::uint64_t kv_blocks = 0;
    std::uint32_t sequences = 0;
  };

  /// Fills in the ordinal.
  void on_dispatched(Share& share, TimePoint now, Duration half_life);
  void on_prefilled(Share& share);
  void on_tokens(Share& share, std::uint32_t tokens, Duration half_life, TimePoint now);
  void on_done(const Share& share);
  void on_report(const protocol::Load& report, TimePoint now);

  struct Rules {
    Duration stale_after;
    Duration half_life;
    std::uint32_t output_tokens_expected = 0;  // of a sequence of another router; half of it is taken to be left
  };
  /// What a decision asks of a worker's load.
  struct Figures {
    bool is_fresh = false;      // from a fresh report; else from our own books alone
    double waiting_tokens = 0;  // prefill ahead of a new request
    double decode_tokens = 0;   // output still expected
    double recent_tokens = 0;   // work sent lately, decayed
    std::uint64_t sequences = 0;
    std::uint64_t blocks_used = 0;  // of the worker's total; cannot be evicted
  };
  Figures figures(TimePoint now, const Rules& rules) const;

  Duration age(TimePoint now) const { return is_known_ ? now - report_at_ : Duration{-1}; }
  std::uint64_t requests() const { return requests_; }

 private:
  struct Work {
    std::uint64_t prefill_tokens = 0, kv_blocks = 0, sequences = 0;
    void add(const Work& other);
    void take(const Work& other);  // at zero it stays
  };
  struct Unseen {
    std::uint64_t ordinal;
    Work work;
  };
  std::deque<Unseen>::iterator find_unseen(const Share& share);
  /// A figure of the last report less what is over since. That may be too much, where a part was over before the
  /// report, but what is ours and goes on is left at least.
  std::uint64_t left(std::uint64_t Work::* part) const;
  void settle();
  double recent(TimePoint now, Duration half_life) const;
  void add_recent(double tokens, TimePoint now, Duration half_life);

  // What figures() reads comes first, and together: it is asked of all workers for each request.
  bool is_known_ = false;  // there was a report
  TimePoint report_at_{};
  Work whole_;                // the report and our books together; changed by settle() alone
  std::uint64_t others_ = 0;  // sequences of other routers, as far as the report tells
  Work ours_;
  std::uint64_t output_ = 0;  // ours, still expected
  double recent_ = 0;
  TimePoint recent_at_{};
  Work reported_;
  Work unseen_sum_;
  Work over_;  // in the last report, and computed or ended since
  std::uint64_t dispatched_ = 0;
  std::uint64_t requests_ = 0;  // ours, in flight
  std::deque<Unseen> unseen_;   // dispatched, not in the last report
};

}  // namespace penstock::router
