// The tensors of a checkpoint by name, whatever file they come from, as views into lazy files. A builder takes what it
// needs, which reads it; what is left over at the end is a surplus that must be refused. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"
#include "kernels/cpu/weight_format.hpp"
#include "worker/model/lazy_file.hpp"

namespace penstock::worker {

/// What the elements of a tensor are; only plain ones are values by themselves, and of others `format` does not count.
enum class TensorKind : std::uint8_t {
  plain,
  e4m3,   // codes of a byte, which mean something with their scales
  bytes,  // codes or exponents of a format that its reader knows
};

/// Row-major. A vector has one row. `bytes` has exactly the size that shape and format ask for.
struct TensorView {
  kernels::cpu::WeightFormat format = kernels::cpu::WeightFormat::f32;
  TensorKind kind = TensorKind::plain;
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  base::BytesView bytes;
};
std::string_view type_name(const TensorView& tensor);

class TensorTable {
 public:
  /// Where the views of tensors point into; others are taken to be in memory. `file` outlives the table.
  void add_file(const LazyFile& file) { files_.push_back(&file); }
  /// Error: the name is there already.
  Result<void> add(std::string_view name, const TensorView& tensor);

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  /// Takes a tensor out, with its bytes read. Errors: it is missing, has another shape or is made of bytes, which name
  /// it; the file cannot be read.
  Result<TensorView> take(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  /// The same for a tensor that must be made of bytes.
  Result<TensorView> take_bytes(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  /// Takes a vector, or a matrix row by row, out as floats. Errors as above, or a format that is not dense.
  Result<std::vector<float>> take_floats(const std::string& name, std::uint64_t count);
  Result<std::vector<float>> take_floats(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  /// Reads some bytes of a tensor. Error: the file cannot be read.
  Result<void> load(base::BytesView part) const;
  /// Gives the memory of a taken tensor back.
  void give_back(const TensorView& tensor) const;
  /// Forgets a tensor that the model has but no use for.
  void drop(const std::string& name);
  /// Error: names a tensor that nobody took.
  Result<void> expect_empty() const;

  std::size_t size() const { return tensors_.size(); }
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }

 private:
  Result<TensorView> take_any(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  const LazyFile* find_file(base::BytesView part) const;

  std::vector<const LazyFile*> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace penstock::worker
