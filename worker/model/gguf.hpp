// Reads the structure of a GGUF file (versions 2 and 3). The bytes are hostile: every count, length and offset is
// checked before use, sums and products cannot overflow, and nothing is allocated in proportion to a number that the
// file merely claims. Views point into the bytes given to parse(). Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

class GgufFile {
 public:
  static Result<GgufFile> parse(base::BytesView file);

  /// Metadata by key. Absent keys give nullopt; a value of another kind is an error that names the key.
  Result<std::optional<std::uint64_t>> find_uint(std::string_view key) const;  // any integer type, not negative
  Result<std::optional<double>> find_number(std::string_view key) const;       // any float or integer type
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_text(std::string_view key) const;
  Result<std::vector<std::string_view>> texts(std::string_view key) const;  // empty if absent
  Result<std::vector<std::int32_t>> int32s(std::string_view key) const;     // of i32 or u32; empty if absent
  Result<std::vector<float>> floats(std::string_view key) const;            // empty if absent

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  std::vector<std::string_view> keys() const;

  /// All tensors. Errors: a type that this build has no kernels for, by name.
  Result<TensorTable> tensors() const;
  /// Everything before the tensor data.
  base::BytesView header() const { return header_; }

 private:
  struct Value {
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8;  // of an array
    std::uint64_t count = 0;          // of an array
    base::BytesView payload;
  };
  struct Tensor {
    std::string_view name;
    std::array<std::uint64_t, 4> dims{1, 1, 1, 1};
    std::uint32_t dim_count = 0;
    std::uint32_t type = 0;
    std::uint64_t offset = 0;  // from the start of the data
  };
  static Result<Value> read_value(base::ByteReader& reader, std::string_view key);
  Result<void> read_metadata(base::ByteReader& reader, std::uint64_t count);
  Result<void> read_tensor_list(base::ByteReader& reader, std::uint64_t count);
  Result<void> place_tensors();
  const Value* find(std::string_view key) const;

  std::map<std::string_view, Value> values_;
  std::vector<Tensor> tensors_;
  std::vector<TensorView> views_;  // beside tensors_, once placed
  base::BytesView header_, data_;
};

}  // namespace penstock::worker
