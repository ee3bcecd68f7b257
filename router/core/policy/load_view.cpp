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

void LoadView::Work::add(const Work& other) {
  prefill_tokens += other.prefill_tokens;
  kv_blocks += other.kv_blocks;
  sequences += other.sequences;
}

void LoadView::Work::take(const Work& other) {
  prefill_tokens = less(prefill_tokens, other.prefill_tokens);
  kv_blocks = less(kv_blocks, other.kv_blocks);
  sequences = less(sequences, other.sequences);
}

std::deque<LoadView::Unseen>::iterator LoadView::find_unseen(const Share& share) {
  return std::find_if(unseen_.begin(), unseen_.end(),
                      [&](const Unseen& unseen) { return unseen.ordinal == share.ordinal; });
}

void LoadView::on_dispatched(Share& share, TimePoint now, Duration half_life) {
  share.ordinal = ++dispatched_;
  ++requests_;
  output_ += share.output_tokens;
  const Work work{share.prefill_tokens, share.kv_blocks, share.sequences};
  ours_.add(work);
  unseen_.push_back({share.ordinal, work});
  unseen_sum_.add(work);
  add_recent(static_cast<double>(share.prefill_tokens), now, half_life);
}

void LoadView::on_prefilled(Share& share) {
  const Work computed{.prefill_tokens = share.prefill_tokens};
  ours_.take(computed);
  if (auto unseen = find_unseen(share); unseen != unseen_.end()) {
    unseen->work.take(computed);
    unseen_sum_.take(computed);
  } else {
    over_.add(computed);
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
  output_ = less(output_, share.output_tokens);
  const Work work{share.prefill_tokens, share.kv_blocks, share.sequences};
  ours_.take(work);
  if (auto unseen = find_unseen(share); unseen != unseen_.end()) {
    unseen_sum_.take(unseen->work);
    unseen_.erase(unseen);
  } else {
    over_.add(work);
  }
}

void LoadView::on_report(const protocol::Load& report, TimePoint now) {
  report_ = report;
  report_at_ = now;
  over_ = {};
  while (!unseen_.empty() && unseen_.front().ordinal <= report.requests_seen) {
    unseen_sum_.take(unseen_.front().work);
    unseen_.pop_front();
  }
}

std::uint64_t LoadView::left(std::uint64_t reported, std::uint64_t Work::* part) const {
  const std::uint64_t ours = less(ours_.*part, unseen_sum_.*part);
  return std::max(less(reported, over_.*part), std::min(reported, ours));
}

double LoadView::waiting_tokens(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return static_cast<double>(ours_.prefill_tokens);
  return static_cast<double>(left(report_->waiting_prefill_tokens, &Work::prefill_tokens) + unseen_sum_.prefill_tokens);
}

std::uint64_t LoadView::reported_sequences() const {
  return left(std::uint64_t{report_->running} + report_->waiting, &Work::sequences);
}

double LoadView::decode_tokens(TimePoint now, Duration stale_after, std::uint32_t expected) const {
  double tokens = static_cast<double>(output_);
  if (is_fresh(now, stale_after)) {
    const std::uint64_t others = less(reported_sequences(), less(ours_.sequences, unseen_sum_.sequences));
    tokens += static_cast<double>(others) * expected / 2;
  }
  return tokens;
}

std::uint64_t LoadView::sequences(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return ours_.sequences;
  return std::max(ours_.sequences, reported_sequences() + unseen_sum_.sequences);
}

std::uint64_t LoadView::blocks_used(TimePoint now, Duration stale_after) const {
  if (!is_fresh(now, stale_after)) return ours_.kv_blocks;
  return left(less(report_->kv_blocks_total, report_->kv_blocks_free), &Work::kv_blocks) + unseen_sum_.kv_blocks;
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
