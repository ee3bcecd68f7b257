#include "worker/model/tensor_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/half.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::WeightFormat;

std::string shape_text(std::uint64_t rows, std::uint64_t columns) {
  return rows == 1 ? "[" + std::to_string(columns) + "]"
                   : "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::string_view type_name(const TensorView& tensor) {
  switch (tensor.kind) {
    case TensorKind::plain:
      return to_string(tensor.format);
    case TensorKind::e4m3:
      return "f8_e4m3";
    case TensorKind::bytes:
      return "u8";
  }
  return "";
}

Result<void> TensorTable::add(std::string_view name, const TensorView& tensor) {
  if (!tensors_.emplace(std::string(name), tensor).second) {
    return make_error(ErrorCode::data_loss, "tensor " + std::string(name) + " is there twice");
  }
  return {};
}

Result<TensorView> TensorTable::take(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  PENSTOCK_TRY(const TensorView tensor, take_any(name, rows, columns));
  if (tensor.kind == TensorKind::bytes) {
    return make_error(ErrorCode::unsupported, "tensor " + name + " has type u8, which is not supported there");
  }
  return tensor;
}

Result<TensorView> TensorTable::take_bytes(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  PENSTOCK_TRY(const TensorView tensor, take_any(name, rows, columns));
  if (tensor.kind != TensorKind::bytes) {
    return make_error(ErrorCode::data_loss,
                      "tensor " + name + " has type " + std::string(type_name(tensor)) + ", expected u8");
  }
  return tensor;
}

Result<TensorView> TensorTable::take_any(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return make_error(ErrorCode::data_loss, "tensor " + name + " is missing");
  const TensorView tensor = found->second;
  if (tensor.rows != rows || tensor.columns != columns) {
    return make_error(ErrorCode::data_loss, "tensor " + name + " has shape " + shape_text(tensor.rows, tensor.columns) +
                                                ", expected " + shape_text(rows, columns));
  }
  tensors_.erase(found);
  PENSTOCK_TRY_VOID(load(tensor.bytes));
  return tensor;
}

const LazyFile* TensorTable::find_file(base::BytesView part) const {
  const auto found =
      std::find_if(files_.begin(), files_.end(), [&](const LazyFile* file) { return file->contains(part); });
  return found == files_.end() ? nullptr : *found;
}

Result<void> TensorTable::load(base::BytesView part) const {
  const LazyFile* file = find_file(part);
  if (file == nullptr) return {};
  return file->load(part);
}

void TensorTable::give_back(const TensorView& tensor) const {
  if (const LazyFile* file = find_file(tensor.bytes)) file->drop(tensor.bytes);
}

Result<std::vector<float>> TensorTable::take_floats(const std::string& name, std::uint64_t count) {
  return take_floats(name, 1, count);
}

Result<std::vector<float>> TensorTable::take_floats(const std::string& name, std::uint64_t rows,
                                                    std::uint64_t columns) {
  PENSTOCK_TRY(const TensorView tensor, take(name, rows, columns));
  if (tensor.kind == TensorKind::e4m3) {
    return make_error(ErrorCode::unsupported, "tensor " + name + " is in f8_e4m3, which only matrices may be");
  }
  std::vector<float> values(rows * columns);
  const std::byte* data = tensor.bytes.data();
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    switch (tensor.format) {
      case WeightFormat::f32:
        values[i] = read_as<float>(data + i * 4);
        break;
      case WeightFormat::f16:
        values[i] = kernels::cpu::f16_to_f32(read_as<std::uint16_t>(data + i * 2));
        break;
      case WeightFormat::bf16:
        values[i] = kernels::cpu::bf16_to_f32(read_as<std::uint16_t>(data + i * 2));
        break;
      case WeightFormat::q8_0:
      case WeightFormat::q4_0:
      case WeightFormat::q4_1:
      case WeightFormat::q4_k:
      case WeightFormat::q6_k:
        return make_error(ErrorCode::unsupported, "tensor " + name + " is a vector in " +
                                                      std::string(to_string(tensor.format)) +
                                                      "; vectors must be f32, f16 or bf16");
    }
  }
  return values;
}

void TensorTable::drop(const std::string& name) {
  tensors_.erase(name);
}

Result<void> TensorTable::expect_empty() const {
  if (tensors_.empty()) return {};
  return make_error(ErrorCode::unsupported, "tensor " + tensors_.begin()->first +
                                                " is not part of this architecture (" +
                                                std::to_string(tensors_.size()) + " such tensors in all)");
}

}  // namespace penstock::worker
