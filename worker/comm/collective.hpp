// Collective operations of a fixed group of tensor-parallel ranks. All ranks call the same operations in the same
// order, each from its own thread. Results do not depend on timing: sums are taken in rank order. A rank that does not
// come within the deadline fails the operation for all, and for good: the group is broken after an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.hpp"

namespace penstock::worker {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t ranks() const = 0;

  virtual Result<void> barrier() = 0;
  /// values[i] = sum over ranks, added from rank 0 up. The same count on all ranks.
  virtual Result<void> all_reduce(std::span<float> values) = 0;
  /// out = the inputs of all ranks in rank order; out.size() == ranks() * in.size().
  virtual Result<void> all_gather(std::span<const float> in, std::span<float> out) = 0;
  /// The same for matrices cut by columns: each rank gives rows of `columns` floats, `in_stride` apart, and gets rows
  /// of all ranks' columns side by side, `out_stride` apart.
  struct ColumnGather {
    const float* in = nullptr;
    std::size_t in_stride = 0;
    float* out = nullptr;
    std::size_t out_stride = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;       // of this rank
    std::size_t first_column = 0;  // where they go in `out`
  };
  virtual Result<void> all_gather_columns(const ColumnGather& gather) = 0;
  /// out = this rank's part of the sum; in.size() == ranks() * out.size().
  virtual Result<void> reduce_scatter(std::span<const float> in, std::span<float> out) = 0;
  /// values = those of rank `root`.
  virtual Result<void> broadcast(std::span<float> values, std::uint32_t root) = 0;
};

}  // namespace penstock::worker
