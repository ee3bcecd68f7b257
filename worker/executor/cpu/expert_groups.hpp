// Which rows of a step go to which expert. Rows choose experts; grouped by expert, in rows' order, so that each
// expert's weights are read once for all rows that chose it. Owner: RankExecutor; everything is allocated at
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/kernels.hpp"

namespace penstock::worker {

class ExpertGroups {
 public:
  ExpertGroups() = default;
  ExpertGroups(std::size_t experts, std::size_t per_token, std::size_t rows_max);

  /// [rows][per_token] each, as Kernels::route() writes them.
  std::uint32_t* chosen() { return chosen_.data(); }
  float* weights() { return weights_.data(); }

  /// From what the first `rows` rows chose.
  void group(std::size_t rows);
  kernels::cpu::ExpertRows rows_of(std::size_t expert) const;

 private:
  std::size_t per_token_ = 0;
  std::vector<std::uint32_t> chosen_;
  std::vector<float> weights_;
  std::vector<std::uint32_t> begins_;  // [experts + 1], into the next two
  std::vector<std::uint32_t> rows_;
  std::vector<float> row_weights_;
};

}  // namespace penstock::worker
