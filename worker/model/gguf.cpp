#include "worker/model/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace penstock::worker {
namespace {

using kernels::cpu::WeightFormat;

constexpr std::uint64_t metadata_max = 100'000;
constexpr std::uint64_t tensors_max = 200'000;
constexpr std::uint64_t name_bytes_max = 256;
constexpr std::uint64_t key_bytes_max = 4096;

Error bad(const std::string& why) {
  return make_error(ErrorCode::data_loss, "GGUF: " + why);
}

/// Bytes of a fixed-size type; 0 for text and array.
std::uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::text:
    case GgufType::array:
      return 0;
  }
  return 0;
}

std::string_view read_text(base::ByteReader& reader) {
  const auto size = reader.read<std::uint64_t>();
  return base::as_text(reader.take(size));
}

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

struct TypeName {
  std::uint32_t type;
  const char* name;
};
constexpr TypeName other_types[] = {{6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},
                                    {13, "Q5_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
                                    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
                                    {24, "I8"},    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},
                                    {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}};

std::optional<WeightFormat> weight_format(std::uint32_t type) {
  switch (type) {
    case 0:
      return WeightFormat::f32;
    case 1:
      return WeightFormat::f16;
    case 2:
      return WeightFormat::q4_0;
    case 3:
      return WeightFormat::q4_1;
    case 8:
      return WeightFormat::q8_0;
    case 12:
      return WeightFormat::q4_k;
    case 14:
      return WeightFormat::q6_k;
    case 30:
      return WeightFormat::bf16;
    default:
      return std::nullopt;
  }
}

std::string type_name(std::uint32_t type) {
  for (const TypeName& entry : other_types) {
    if (entry.type == type) return entry.name;
  }
  return "number " + std::to_string(type);
}

template <class T>
T load(base::BytesView bytes, std::uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

Error wrong_kind(std::string_view key, const char* wanted) {
  return make_error(ErrorCode::data_loss, "GGUF: " + std::string(key) + " must be " + wanted);
}

}  // namespace

Result<GgufFile> GgufFile::parse(base::BytesView file) {
  base::ByteReader reader(file);
  if (base::as_text(reader.take(4)) != "GGUF") return bad("the file does not start with GGUF");
  const auto version = reader.read<std::uint32_t>();
  if (!reader.ok() || (version != 2 && version != 3)) {
    return make_error(ErrorCode::unsupported, "GGUF: version " + std::to_string(version) + " is not supported");
  }
  const auto tensor_count = reader.read<std::uint64_t>();
  const auto metadata_count = reader.read<std::uint64_t>();
  if (!reader.ok()) return bad("the file ends inside its header");
  GgufFile gguf;
  PENSTOCK_TRY_VOID(gguf.read_metadata(reader, metadata_count));
  PENSTOCK_TRY_VOID(gguf.read_tensor_list(reader, tensor_count));

  PENSTOCK_TRY(const auto alignment_value, gguf.find_uint("general.alignment"));
  const std::uint64_t alignment = alignment_value.value_or(32);
  if (alignment < 8 || alignment > (1u << 20) || !std::has_single_bit(alignment)) {
    return bad("general.alignment is " + std::to_string(alignment) + ", not a power of two from 8 on");
  }
  const std::uint64_t header = file.size() - reader.left();
  const std::uint64_t data_at = (header + alignment - 1) / alignment * alignment;  // header is below 2^63
  gguf.header_ = file.first(header);
  if (data_at <= file.size()) gguf.data_ = file.subspan(data_at);
  for (const Tensor& tensor : gguf.tensors_) {
    if (tensor.offset % alignment != 0) return bad("tensor " + std::string(tensor.name) + " is not aligned");
  }
  PENSTOCK_TRY_VOID(gguf.place_tensors());
  return gguf;
}

Result<GgufFile::Value> GgufFile::read_value(base::ByteReader& reader, std::string_view key) {
  const std::string at = "metadata " + std::string(key);
  Value value;
  const auto type = reader.read<std::uint32_t>();
  if (!reader.ok()) return bad("the file ends inside " + at);
  if (type > static_cast<std::uint32_t>(GgufType::f64)) return bad(at + " has unknown type " + std::to_string(type));
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::text) {
    value.payload = base::as_bytes(read_text(reader));
  } else if (value.type == GgufType::array) {
    const auto element = reader.read<std::uint32_t>();
    value.count = reader.read<std::uint64_t>();
    if (!reader.ok()) return bad("the file ends inside " + at);
    if (element > static_cast<std::uint32_t>(GgufType::f64)) return bad(at + " has unknown elements");
    value.element = static_cast<GgufType>(element);
    if (value.element == GgufType::array) return bad(at + " is an array of arrays");
    if (value.element == GgufType::text) {
      // The texts stay where they are; walking them once shows that all are there.
      base::ByteReader walk = reader;
      for (std::uint64_t i = 0; i < value.count && walk.ok(); ++i) (void)read_text(walk);
      if (!walk.ok()) return bad("the file ends inside " + at);
      value.payload = reader.take(reader.left() - walk.left());
    } else {
      std::uint64_t bytes = 0;
      if (!multiply(value.count, fixed_bytes(value.element), bytes)) return bad(at + " is impossibly long");
      value.payload = reader.take(bytes);
    }
  } else {
    value.payload = reader.take(fixed_bytes(value.type));
  }
  if (!reader.ok()) return bad("the file ends inside " + at);
  return value;
}

Result<void> GgufFile::read_metadata(base::ByteReader& reader, std::uint64_t count) {
  if (count > metadata_max) return bad("it claims " + std::to_string(count) + " metadata entries");
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view key = read_text(reader);
    if (!reader.ok()) return bad("the file ends inside its metadata");
    if (key.empty() || key.size() > key_bytes_max)
      return bad("a metadata key has " + std::to_string(key.size()) + " bytes");
    PENSTOCK_TRY(const Value value, read_value(reader, key));
    if (!values_.emplace(key, value).second) return bad("metadata " + std::string(key) + " is there twice");
  }
  return {};
}

Result<void> GgufFile::read_tensor_list(base::ByteReader& reader, std::uint64_t count) {
  if (count > tensors_max) return bad("it claims " + std::to_string(count) + " tensors");
  for (std::uint64_t i = 0; i < count; ++i) {
    Tensor tensor;
    tensor.name = read_text(reader);
    tensor.dim_count = reader.read<std::uint32_t>();
    if (!reader.ok()) return bad("the file ends inside its list of tensors");
    if (tensor.name.empty() || tensor.name.size() > name_bytes_max) {
      return bad("a tensor name has " + std::to_string(tensor.name.size()) + " bytes");
    }
    if (tensor.dim_count < 1 || tensor.dim_count > 4) {
      return bad("tensor " + std::string(tensor.name) + " has " + std::to_string(tensor.dim_count) + " dimensions");
    }
    for (std::uint32_t d = 0; d < tensor.dim_count; ++d) tensor.dims[d] = reader.read<std::uint64_t>();
    tensor.type = reader.read<std::uint32_t>();
    tensor.offset = reader.read<std::uint64_t>();
    if (!reader.ok()) return bad("the file ends inside its list of tensors");
    tensors_.push_back(tensor);
  }
  return {};
}

Result<void> GgufFile::place_tensors() {
  views_.reserve(tensors_.size());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;  // [begin, end) in the data
  for (const Tensor& tensor : tensors_) {
    const std::string name = "tensor " + std::string(tensor.name);
    const auto format = weight_format(tensor.type);
    if (!format)
      return make_error(ErrorCode::unsupported,
                        "GGUF: " + name + " has type " + type_name(tensor.type) + ", which is not supported");
    TensorView view;
    view.format = *format;
    view.columns = tensor.dims[0];
    std::uint64_t rows = 0;
    if (!multiply(tensor.dims[1], tensor.dims[2], rows) || !multiply(rows, tensor.dims[3], view.rows)) {
      return bad(name + " has impossible dimensions");
    }
    if (view.columns == 0 || view.rows == 0) return bad(name + " is empty");
    const std::uint64_t unit = kernels::cpu::block_columns(*format);
    if (view.columns % unit != 0) {
      return bad(name + " has rows of " + std::to_string(view.columns) + ", not a multiple of " + std::to_string(unit));
    }
    std::uint64_t row_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t end = 0;
    if (!multiply(view.columns / unit, kernels::cpu::block_bytes(*format), row_bytes) ||
        !multiply(row_bytes, view.rows, bytes) || __builtin_add_overflow(tensor.offset, bytes, &end) ||
        end > data_.size()) {
      return bad(name + " reaches beyond the end of the file");
    }
    view.bytes = data_.subspan(tensor.offset, bytes);
    views_.push_back(view);
    extents.emplace_back(tensor.offset, end);
  }
  std::sort(extents.begin(), extents.end());
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].first < extents[i - 1].second)
      return bad("tensors overlap at data offset " + std::to_string(extents[i].first));
  }
  return {};
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

Result<TensorTable> GgufFile::tensors() const {
  TensorTable table;
  for (std::size_t i = 0; i < tensors_.size(); ++i) PENSTOCK_TRY_VOID(table.add(tensors_[i].name, views_[i]));
  return table;
}

Result<std::optional<std::uint64_t>> GgufFile::find_uint(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<std::uint64_t>();
  std::int64_t number = 0;
  switch (value->type) {
    case GgufType::u8:
      return std::optional<std::uint64_t>(load<std::uint8_t>(value->payload));
    case GgufType::u16:
      return std::optional<std::uint64_t>(load<std::uint16_t>(value->payload));
    case GgufType::u32:
      return std::optional<std::uint64_t>(load<std::uint32_t>(value->payload));
    case GgufType::u64:
      return std::optional<std::uint64_t>(load<std::uint64_t>(value->payload));
    case GgufType::i8:
      number = load<std::int8_t>(value->payload);
      break;
    case GgufType::i16:
      number = load<std::int16_t>(value->payload);
      break;
    case GgufType::i32:
      number = load<std::int32_t>(value->payload);
      break;
    case GgufType::i64:
      number = load<std::int64_t>(value->payload);
      break;
    case GgufType::f32:
    case GgufType::f64:
    case GgufType::boolean:
    case GgufType::text:
    case GgufType::array:
      return wrong_kind(key, "an integer");
  }
  if (number < 0) return wrong_kind(key, "an integer that is not negative");
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(number));
}

Result<std::optional<double>> GgufFile::find_number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == GgufType::f32) return std::optional<double>(load<float>(value->payload));
  if (value->type == GgufType::f64) return std::optional<double>(load<double>(value->payload));
  auto whole = find_uint(key);
  if (!whole) return wrong_kind(key, "a number");
  return std::optional<double>(static_cast<double>(**whole));
}

Result<std::optional<bool>> GgufFile::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::boolean) return wrong_kind(key, "a boolean");
  return std::optional<bool>(load<std::uint8_t>(value->payload) != 0);
}

Result<std::optional<std::string_view>> GgufFile::find_text(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::text) return wrong_kind(key, "a string");
  return std::optional<std::string_view>(base::as_text(value->payload));
}

Result<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const Value* value = find(key);
  std::vector<std::string_view> out;
  if (value == nullptr) return out;
  if (value->type != GgufType::array || value->element != GgufType::text) return wrong_kind(key, "an array of strings");
  base::ByteReader reader(value->payload);
  for (std::uint64_t i = 0; i < value->count; ++i) out.push_back(read_text(reader));
  return out;
}

Result<std::vector<std::int32_t>> GgufFile::int32s(std::string_view key) const {
  const Value* value = find(key);
  std::vector<std::int32_t> out;
  if (value == nullptr) return out;
  if (value->type != GgufType::array || (value->element != GgufType::i32 && value->element != GgufType::u32)) {
    return wrong_kind(key, "an array of 32-bit integers");
  }
  out.resize(value->count);
  std::copy_n(value->payload.data(), value->payload.size(), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

Result<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const Value* value = find(key);
  std::vector<float> out;
  if (value == nullptr) return out;
  if (value->type != GgufType::array || value->element != GgufType::f32) return wrong_kind(key, "an array of floats");
  out.resize(value->count);
  std::copy_n(value->payload.data(), value->payload.size(), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

}  // namespace penstock::worker
