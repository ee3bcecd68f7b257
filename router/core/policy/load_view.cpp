#include "router/core/policy/load_view.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::router {

namespace {
double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}
}  // namespace

void LoadView::on_dispatched(Share& share, TimePoint now, Duration half_life) {
  share.ordinal = ++dispatched_;
  ++requests_;
  sequences_ += share.sequences;
  prefill_ += share.prefill_tokens;
  output_ += share.output_tokens;
  blocks_ += share.kv_blocks;
  unseen_.push_back({share.ordinal, share.prefill_tokens, share.kv_blocks, share.sequences});
  unseen_prefill_ += share.prefill_tokens;
  unseen_blocks_ += share.kv_blocks;
  unseen_sequences_ += share.sequences;
  add_recent(static_cast<double>(share.prefill_tokens), now, half_life);
}

void LoadView::on_prefilled(Share& share) {
  prefill_ = less(prefill_, share.prefill_tokens);
  for (Unseen& unseen : unseen_) {
    if (unseen.ordinal != share.ordinal) continue;
    unseen_prefill_ = less(unseen_prefill_, unseen.prefill_tokens);
    unseen.prefill_tokens = 0;
    break;
  }
  share.prefill_tokens = 0;
}

void LoadView::on_tokens(Share& share, std::uint32_t tokens, Duration half_life, TimePoint now) {
  const std::uint64_t counted = std::min<std::uint64_t>(tokens, share.output_tokens);
  share.output_tokens -= counted;
  output_ = less(output_, counted);
  add_recent(tokens, now, half_life);
}

void LoadView::on_done(const Share& share) {
  --requests_;
  sequences_ -= share.sequences;
  prefill_ = less(prefill_, share.prefill_tokens);
  output_ = less(output_, share.output_tokens);
  blocks_ = less(blocks_, share.kv_blocks);
  auto at = std::find_if(unseen_.begin(), unseen_.end(),
                         [&](const Unseen& unseen) { return unseen.ordinal == share.ordinal; });
  if (at == unseen_.end()) return;
  unseen_prefill_ = less(unseen_prefill_, at->prefill_tokens);
  unseen_blocks_ = less(unseen_blocks_, at->kv_blocks);
  unseen_sequences_ = less(unseen_sequences_, at->sequences);
  unseen_.erase(at);
}

void LoadView::on_report(const protocol::Load& report, TimePoint now) {
  report_ = report;
  report_at_ = now;
  while (!unseen_.empty() && unseen_.front().ordinal <= report.requests_seen) {
    unseen_prefill_ = less(unseen_prefill_, unseen_.front().prefill_tokens);
    unseen_blocks_ = less(unseen_blocks_, unseen_.front().kv_blocks);
    unseen_sequences_ = less(unseen_sequences_, unseen_.front().sequences);
    unseen_.pop_front();
  }
}

double LoadView::waiting_tokens(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return static_cast<double>(prefill_);
  return static_cast<double>(report_->waiting_prefill_tokens + unseen_prefill_);
}

double LoadView::decode_tokens(TimePoint now, Duration stale_after, std::uint32_t expected) const {
  double tokens = static_cast<double>(output_);
  if (is_fresh(now, stale_after)) {
    const std::uint64_t others =
        less(std::uint64_t{report_->running} + report_->waiting, less(sequences_, unseen_sequences_));
    tokens += static_cast<double>(others) * expected / 2;
  }
  return tokens;
}

std::uint64_t LoadView::sequences(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return sequences_;
  return std::max(sequences_, std::uint64_t{report_->running} + report_->waiting + unseen_sequences_);
}

std::uint64_t LoadView::blocks_used(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return blocks_;
  return less(report_->kv_blocks_total, report_->kv_blocks_free) + unseen_blocks_;
}

double LoadView::recent(TimePoint now, Duration half_life) const {
  if (recent_ == 0) return 0;
  return recent_ * std::exp2(-seconds(now - recent_at_) / seconds(half_life));
}

void LoadView::add_recent(double tokens, TimePoint now, Duration half_life) {
  recent_ = recent(now, half_life) + tokens;
  recent_at_ = now;
}

}  // namespace penstock::router
