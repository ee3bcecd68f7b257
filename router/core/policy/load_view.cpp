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
  settle();
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
  settle();
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
  settle();
}

void LoadView::on_report(const protocol::Load& report, TimePoint now) {
  reported_ = {.prefill_tokens = report.waiting_prefill_tokens,
               .kv_blocks = less(report.kv_blocks_total, report.kv_blocks_free),
               .sequences = std::uint64_t{report.running} + report.waiting};
  is_known_ = true;
  report_at_ = now;
  over_ = {};
  while (!unseen_.empty() && unseen_.front().ordinal <= report.requests_seen) {
    unseen_sum_.take(unseen_.front().work);
    unseen_.pop_front();
  }
  settle();
}

std::uint64_t LoadView::left(std::uint64_t Work::* part) const {
  const std::uint64_t ours = less(ours_.*part, unseen_sum_.*part);
  return std::max(less(reported_.*part, over_.*part), std::min(reported_.*part, ours));
}

void LoadView::settle() {
  const std::uint64_t sequences = left(&Work::sequences);
  others_ = less(sequences, less(ours_.sequences, unseen_sum_.sequences));
  whole_.prefill_tokens = left(&Work::prefill_tokens) + unseen_sum_.prefill_tokens;
  whole_.kv_blocks = left(&Work::kv_blocks) + unseen_sum_.kv_blocks;
  whole_.sequences = std::max(ours_.sequences, sequences + unseen_sum_.sequences);
}

LoadView::Figures LoadView::figures(TimePoint now, const Rules& rules) const {
  const bool is_fresh = is_known_ && now - report_at_ <= rules.stale_after;
  const Work& work = is_fresh ? whole_ : ours_;
  double decode = static_cast<double>(output_);
  if (is_fresh) decode += static_cast<double>(others_) * rules.output_tokens_expected / 2;
  return {is_fresh,      static_cast<double>(work.prefill_tokens), decode, recent(now, rules.half_life), work.sequences,
          work.kv_blocks};
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
