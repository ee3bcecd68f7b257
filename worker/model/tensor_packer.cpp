#include "worker/model/tensor_packer.hpp"

#include <span>
#include <utility>

#include "worker/model/fp8_matrix.hpp"

namespace penstock::worker {

using kernels::cpu::MatrixSource;
using kernels::cpu::PackedMatrix;

MatrixSource share(const TensorView& tensor, std::uint32_t rank, std::uint32_t ranks) {
  MatrixSource source;
  source.data = tensor.bytes.data();
  source.bytes = tensor.bytes.size();
  source.format = tensor.format;
  source.rows = tensor.rows;
  source.columns = tensor.columns;
  source.row_range = {tensor.rows * rank / ranks, tensor.rows * (rank + 1) / ranks};
  return source;
}

std::vector<float> share_of(const std::vector<float>& whole, std::uint32_t rank, std::uint32_t ranks) {
  const auto part = static_cast<std::ptrdiff_t>(whole.size() / ranks);
  const auto begin = whole.begin() + part * static_cast<std::ptrdiff_t>(rank);
  return {begin, begin + part};
}

TensorView rows_of(const TensorView& tensor, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t row_bytes = tensor.bytes.size() / tensor.rows;
  TensorView part = tensor;
  part.rows = count;
  part.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
  return part;
}

TensorPacker::TensorPacker(TensorTable& table, const Progress& progress) : table_(table), progress_(progress) {
  for (const auto& [name, tensor] : table.tensors()) total_ += tensor.bytes.size();
}

bool TensorPacker::is_fp8(const std::string& name) const {
  const auto found = table_.tensors().find(name + ".weight");
  return found != table_.tensors().end() && found->second.kind == TensorKind::e4m3;
}

Result<TensorView> TensorPacker::take(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  if (!is_fp8(name)) return table_.take(name + ".weight", rows, columns);
  PENSTOCK_TRY(const Fp8Matrix matrix, take_fp8(table_, name, rows, columns));
  std::vector<std::uint16_t> values(rows * columns);
  for (std::uint64_t row = 0; row < rows; ++row) matrix.widen_row(row, values.data() + row * columns);
  TensorView view;
  view.format = kernels::cpu::WeightFormat::bf16;
  view.rows = rows;
  view.columns = columns;
  view.bytes = std::as_bytes(std::span(values));
  widened_.emplace(view.bytes.data(), std::move(values));
  return view;
}

void TensorPacker::done_with(const TensorView& tensor) {
  if (const auto own = widened_.find(tensor.bytes.data()); own != widened_.end()) {
    add_progress(tensor.rows * tensor.columns);
    widened_.erase(own);
    return;
  }
  table_.give_back(tensor);
  add_progress(tensor.bytes.size());
}

void TensorPacker::kept(std::uint64_t bytes) {
  packed_ += bytes;
  add_progress(bytes);
}

Result<PackedMatrix> TensorPacker::counted(Result<PackedMatrix> matrix) {
  if (matrix) packed_ += matrix->packed_bytes();
  return matrix;
}

void TensorPacker::finish() {
  if (progress_) progress_(total_, total_);
}

void TensorPacker::add_progress(std::uint64_t bytes) {
  done_ += bytes;
  if (progress_) progress_(done_, total_);
}

}  // namespace penstock::worker
