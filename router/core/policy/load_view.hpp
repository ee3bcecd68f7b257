// What one worker is believed to have to do: its last report, plus what this router has sent since and less what has
// ended since, which the report cannot know; or this router's own books alone where there is no report or an old one.
// Counters change by paired calls only. Single owner; bounded by the requests in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

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

  bool is_known() const { return report_.has_value(); }
  bool is_fresh(TimePoint now, Duration stale_after) const { return report_ && now - report_at_ <= stale_after; }
  Duration age(TimePoint now) const { return report_ ? now - report_at_ : Duration{-1}; }

  /// Prefill tokens ahead of a new request; if the report is not fresh, from our own books alone.
  double waiting_tokens(TimePoint now, Duration stale_after) const;
  /// Output tokens still expected; other routers' sequences count half of `expected` each.
  double decode_tokens(TimePoint now, Duration stale_after, std::uint32_t expected) const;
  std::uint64_t sequences(TimePoint now, Duration stale_after) const;
  /// Blocks that cannot be evicted, of the worker's total.
  std::uint64_t blocks_used(TimePoint now, Duration stale_after) const;
  double recent(TimePoint now, Duration half_life) const;
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
  std::uint64_t left(std::uint64_t reported, std::uint64_t Work::* part) const;
  std::uint64_t reported_sequences() const;
  void add_recent(double tokens, TimePoint now, Duration half_life);

  std::optional<protocol::Load> report_;
  TimePoint report_at_{};
  std::deque<Unseen> unseen_;  // dispatched, not in the last report
  Work unseen_sum_;
  Work over_;  // in the last report, and computed or ended since
  std::uint64_t dispatched_ = 0;
  std::uint64_t requests_ = 0, output_ = 0;  // ours, in flight
  Work ours_;
  double recent_ = 0;
  TimePoint recent_at_{};
};

}  // namespace penstock::router
