// How the devices of one model share its work, as a value: five axes, and the arithmetic between a rank and its
// coordinates. Pure values; any thread. Bounds: at most ranks_max ranks.
//
//   tensor    splits heads and columns of every layer
//   context   splits the KV of a sequence by blocks; its ranks split columns further where no KV is involved
//   data      replicas of attention, each with its own sequences
//   pipeline  splits the layers
//   expert    lies across the others: it says over how many ranks of a stage whole experts are spread. 1: each expert
//             is cut like a dense layer; tensor * context: whole experts within a replica; tensor * context * data:
//             across replicas, with an exchange of tokens. It adds no ranks.
//
// rank = ((pipeline * data_count + data) * context_count + context) * tensor_count + tensor: neighbours in tensor are
// neighbours in rank, since they talk most.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace penstock::worker {

enum class Axis : std::uint8_t { tensor, context, data, pipeline, expert };
constexpr std::array<Axis, 5> all_axes{Axis::tensor, Axis::context, Axis::data, Axis::pipeline, Axis::expert};
std::string_view to_string(Axis axis);

/// Ranks along each axis, or a rank's place on each.
struct AxisSizes {
  std::uint32_t tensor = 1;
  std::uint32_t context = 1;
  std::uint32_t data = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t expert = 1;
  std::uint32_t of(Axis axis) const;
  friend bool operator==(const AxisSizes&, const AxisSizes&) = default;
};
using Coordinates = AxisSizes;

/// A contiguous part [first, first + count).
struct Share {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const Share&, const Share&) = default;
};

/// Part `index` of `parts` of `total` things; parts differ by one at most, the first ones are larger.
Share share_of(std::uint32_t total, std::uint32_t parts, std::uint32_t index);

class RankLayout {
 public:
  static constexpr std::uint32_t ranks_max = 1024;

  /// One rank.
  RankLayout() = default;
  /// Errors (unsupported, invalid_argument) name the axis or the product that this build does not do.
  static Result<RankLayout> make(const AxisSizes& sizes);

  const AxisSizes& sizes() const { return sizes_; }
  std::uint32_t ranks() const { return sizes_.tensor * sizes_.context * sizes_.data * sizes_.pipeline; }
  /// Ranks that hold one copy of a stage's dense layers.
  std::uint32_t stage_ranks() const { return sizes_.tensor * sizes_.context; }

  /// `rank` < ranks().
  Coordinates coordinates(std::uint32_t rank) const;
  /// The expert coordinate follows from the others and is not read.
  std::uint32_t rank_of(const Coordinates& at) const;
  /// The ranks that differ from `rank` on this axis only, in order of their place on it; `rank` is at its own place.
  /// On the expert axis: the ranks of one stage that hold different experts.
  std::vector<std::uint32_t> group(Axis axis, std::uint32_t rank) const;

  /// "tp=2 dp=4 ep=8", without axes of 1; "single" for one rank.
  std::string to_string() const;
  friend bool operator==(const RankLayout&, const RankLayout&) = default;

 private:
  explicit RankLayout(const AxisSizes& sizes) : sizes_(sizes) {}
  AxisSizes sizes_;
};

}  // namespace penstock::worker
