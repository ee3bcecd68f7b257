#include "common/kube/core/backoff.hpp"

#include <algorithm>

namespace penstock::kube {

Duration Backoff::next(TimePoint now, Random& random, std::optional<Duration> at_least) {
  if (last_ && now - *last_ >= options_.reset_after) ceiling_ = Duration(0);
  ceiling_ = ceiling_ == Duration(0) ? options_.first : std::min(ceiling_ * 2, options_.max);
  const auto drawn = Duration(static_cast<Duration::rep>(random.uniform() * static_cast<double>(ceiling_.count())));
  const Duration wait = std::max(drawn, options_.floor) + at_least.value_or(Duration(0));
  last_ = now + wait;
  return wait;
}

}  // namespace penstock::kube
