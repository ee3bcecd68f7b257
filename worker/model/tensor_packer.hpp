// Takes tensors out of a TensorTable for packing, FP8 ones widened to bf16, gives their memory back and counts progress
// and packed bytes. Internal to the builders of weights; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

/// One rank's share of the rows of a matrix, and of the values of a vector.
kernels::cpu::MatrixSource share(const TensorView& tensor, std::uint32_t rank, std::uint32_t ranks);
std::vector<float> share_of(const std::vector<float>& whole, std::uint32_t rank, std::uint32_t ranks);
/// Rows [first, first + count) of a tensor.
TensorView rows_of(const TensorView& tensor, std::uint64_t first, std::uint64_t count);

class TensorPacker {
 public:
  using Progress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

  /// `progress` may be empty; both outlive the packer.
  TensorPacker(TensorTable& table, const Progress& progress);

  TensorTable& table() { return table_; }
  bool is_fp8(const std::string& name) const;
  /// NAME.weight as the file has it; FP8 weights as bf16 in memory of their own.
  Result<TensorView> take(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  Result<std::vector<float>> take_norm(const std::string& name, std::uint64_t count) {
    return table_.take_floats(name + ".weight", count);
  }
  /// After all ranks have packed their share of a tensor.
  void done_with(const TensorView& tensor);
  /// A matrix that was taken and is kept as it is.
  void kept(std::uint64_t bytes);
  Result<kernels::cpu::PackedMatrix> counted(Result<kernels::cpu::PackedMatrix> matrix);
  void finish();
  std::size_t packed_bytes() const { return packed_; }

 private:
  void add_progress(std::uint64_t bytes);

  TensorTable& table_;
  const Progress& progress_;
  std::map<const std::byte*, std::vector<std::uint16_t>> widened_;  // until they are packed
  std::uint64_t total_ = 0, done_ = 0;
  std::size_t packed_ = 0;
};

}  // namespace penstock::worker
