#include "worker/executor/cpu/expert_groups.hpp"

#include <algorithm>

namespace penstock::worker {

ExpertGroups::ExpertGroups(std::size_t experts, std::size_t per_token, std::size_t rows_max)
    : per_token_(per_token),
      chosen_(rows_max * per_token),
      weights_(rows_max * per_token),
      begins_(experts + 1),
      rows_(rows_max * per_token),
      row_weights_(rows_max * per_token) {}

/// A counting sort: begins_[e + 1] counts expert e, then says where it begins, then, all placed, where it ends.
void ExpertGroups::group(std::size_t rows) {
  const std::size_t choices = rows * per_token_;
  std::fill(begins_.begin(), begins_.end(), 0);
  for (std::size_t i = 0; i < choices; ++i) ++begins_[chosen_[i] + 1];
  std::uint32_t begin = 0;
  for (std::size_t e = 1; e < begins_.size(); ++e) {
    const std::uint32_t count = begins_[e];
    begins_[e] = begin;
    begin += count;
  }
  for (std::size_t i = 0; i < choices; ++i) {
    const std::uint32_t to = begins_[chosen_[i] + 1]++;
    rows_[to] = static_cast<std::uint32_t>(i / per_token_);
    row_weights_[to] = weights_[i];
  }
}

kernels::cpu::ExpertRows ExpertGroups::rows_of(std::size_t expert) const {
  const std::uint32_t begin = begins_[expert];
  return {rows_.data() + begin, row_weights_.data() + begin, begins_[expert + 1] - begin, begin};
}

}  // namespace penstock::worker
