#include "worker/executor/cuda/device_weights.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/check.hpp"
#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::PackedMatrix;
using kernels::cuda::Bf16;
using kernels::cuda::DeviceBuffer;
using kernels::cuda::Fp8Scales;
using kernels::cuda::OwnedStream;
using kernels::cuda::Stream;

/// Rows of a matrix, or some columns of them, on their way to the GPU.
class RowWriter {
 public:
  RowWriter(std::uint64_t rows, std::uint64_t columns, std::uint64_t first_column = 0)
      : columns_(columns), first_column_(first_column), values_(rows * columns) {}

  void write(std::uint64_t to, const PackedMatrix& matrix, std::uint64_t from) {
    row_.resize(matrix.columns());
    matrix.dequantize_row(from, row_.data());
    for (std::uint64_t i = 0; i < columns_; ++i) {
      values_[to * columns_ + i] = kernels::cpu::f32_to_bf16(row_[first_column_ + i]);
    }
  }
  Result<DeviceMatrix> upload(Stream stream) const {
    DeviceMatrix matrix;
    PENSTOCK_TRY(matrix.values, DeviceBuffer::make(bytes()));
    PENSTOCK_TRY_VOID(upload(matrix, 0, stream));
    return matrix;
  }
  /// As part `index` of a matrix of equal ones.
  Result<void> upload(DeviceMatrix& matrix, std::uint64_t index, Stream stream) const {
    return matrix.values.upload(values_.data(), bytes(), stream, index * bytes());
  }
  std::uint64_t bytes() const { return values_.size() * sizeof(Bf16); }

 private:
  std::uint64_t columns_, first_column_;
  std::vector<Bf16> values_;
  std::vector<float> row_;
};

/// The share's columns of a matrix whose input is cut, for all rows.
Result<DeviceMatrix> upload_columns(const PackedMatrix& matrix, const TensorShare& share, Stream stream) {
  const std::uint64_t columns = matrix.columns() / share.ranks;
  RowWriter writer(matrix.rows(), columns, columns * share.rank);
  for (std::uint64_t row = 0; row < matrix.rows(); ++row) writer.write(row, matrix, row);
  return writer.upload(stream);
}

Result<DeviceMatrix> upload_matrix(const PackedMatrix& matrix, Stream stream) {
  return upload_columns(matrix, {}, stream);
}

Result<DeviceBuffer> upload_vector(const std::vector<float>& values, Stream stream) {
  std::vector<Bf16> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(kernels::cpu::f32_to_bf16(value));
  PENSTOCK_TRY(DeviceBuffer buffer, DeviceBuffer::make(rounded.size() * sizeof(Bf16)));
  if (!rounded.empty()) PENSTOCK_TRY_VOID(buffer.upload(rounded.data(), buffer.bytes(), stream));
  return buffer;
}

/// Where row `row` of q, k and v goes, or that another rank has it: with neighbours as rotary pairs, 2i goes to i and
/// 2i + 1 to half + i of its head.
class QkvOrder {
 public:
  QkvOrder(const ModelSpec& spec, const TensorShare& share)
      : head_dim_(spec.head_dim),
        q_heads_(spec.heads / share.ranks),
        kv_heads_(spec.kv_heads / share.ranks),
        share_(share),
        is_interleaved_(spec.rope.style == kernels::cpu::RopeStyle::interleaved) {}
  std::uint64_t rows() const { return (q_heads_ + 2 * kv_heads_) * head_dim_; }
  std::optional<std::uint64_t> place_of(std::uint64_t row) const {
    std::uint64_t head = row / head_dim_, first = 0, in_head = row % head_dim_;
    const std::uint64_t counts[] = {q_heads_, kv_heads_, kv_heads_};  // of each rank
    std::size_t part = 0;
    for (; head >= counts[part] * share_.ranks; ++part) {
      head -= counts[part] * share_.ranks;
      first += counts[part];
    }
    if (head / counts[part] != share_.rank) return std::nullopt;
    const bool is_rotated = part < 2;
    if (is_interleaved_ && is_rotated) in_head = in_head / 2 + in_head % 2 * (head_dim_ / 2);
    return (first + head % counts[part]) * head_dim_ + in_head;
  }

 private:
  std::uint64_t head_dim_, q_heads_, kv_heads_;
  TensorShare share_;
  bool is_interleaved_;
};

Result<void> upload_qkv(const ModelSpec& spec, const LayerWeights& layer, const TensorShare& share, DeviceLayer& out,
                        Stream stream) {
  const QkvOrder order(spec, share);
  RowWriter writer(order.rows(), spec.hidden);
  for (const QkvPart& part : layer.qkv) {
    for (std::uint64_t row = 0; row < part.matrix.rows(); ++row) {
      const auto place = order.place_of(part.first_column + row);
      if (place) writer.write(*place, part.matrix, row);
    }
  }
  PENSTOCK_TRY(out.qkv, writer.upload(stream));
  return {};
}

Result<void> upload_bias(const ModelSpec& spec, const LayerWeights& layer, const TensorShare& share, DeviceLayer& out,
                         Stream stream) {
  const QkvOrder order(spec, share);
  std::vector<float> bias(layer.qkv_bias.size() / share.ranks);
  for (std::uint64_t row = 0; row < layer.qkv_bias.size(); ++row) {
    const auto place = order.place_of(row);
    if (place) bias[*place] = layer.qkv_bias[row];
  }
  PENSTOCK_TRY(out.qkv_bias, upload_vector(bias, stream));
  return {};
}

/// Matrices below each other; with one scale for each row where they have no blocks that fit each other, and as bf16
/// where kernels have no place for that.
class Fp8Stack {
 public:
  explicit Fp8Stack(std::initializer_list<const Fp8Matrix*> parts) : parts_(parts), columns_(parts_.front()->columns) {
    for (const Fp8Matrix* part : parts_) rows_ += part->rows;
  }
  Result<DeviceMatrix> upload(Stream stream) const {
    const auto has_blocks = [](const Fp8Matrix* part) { return part->granularity == Fp8Granularity::block; };
    const bool are_blocks = std::all_of(parts_.begin(), parts_.end(), has_blocks);
    const bool are_rows = std::none_of(parts_.begin(), parts_.end(), has_blocks);
    const auto is_whole = [](const Fp8Matrix* part) { return part->rows % 128 == 0; };
    const bool fits = are_rows || (are_blocks && std::all_of(parts_.begin(), parts_.end() - 1, is_whole));
    return fits && columns_ % 16 == 0 ? upload_codes(are_blocks, stream) : upload_widened(stream);
  }

 private:
  Result<DeviceMatrix> upload_codes(bool are_blocks, Stream stream) const {
    DeviceMatrix matrix;
    matrix.kind = are_blocks ? Fp8Scales::block : Fp8Scales::row;
    PENSTOCK_TRY(matrix.values, DeviceBuffer::make(rows_ * columns_));
    std::uint64_t offset = 0;
    std::vector<float> scales;
    for (const Fp8Matrix* part : parts_) {
      PENSTOCK_TRY_VOID(matrix.values.upload(part->codes.data(), part->codes.size(), stream, offset));
      offset += part->codes.size();
      const bool is_one = part->granularity == Fp8Granularity::tensor;
      scales.insert(scales.end(), is_one ? part->rows : part->scales.size(), part->scales.front());
      if (!is_one) std::copy(part->scales.begin(), part->scales.end(), scales.end() - std::ssize(part->scales));
    }
    PENSTOCK_TRY(matrix.scales, DeviceBuffer::make(scales.size() * sizeof(float)));
    PENSTOCK_TRY_VOID(matrix.scales.upload(scales.data(), matrix.scales.bytes(), stream));
    return matrix;
  }
  Result<DeviceMatrix> upload_widened(Stream stream) const {
    std::vector<Bf16> values(rows_ * columns_);
    Bf16* next = values.data();
    for (const Fp8Matrix* part : parts_) {
      for (std::uint64_t row = 0; row < part->rows; ++row, next += columns_) part->widen_row(row, next);
    }
    DeviceMatrix matrix;
    PENSTOCK_TRY(matrix.values, DeviceBuffer::make(values.size() * sizeof(Bf16)));
    PENSTOCK_TRY_VOID(matrix.values.upload(values.data(), matrix.values.bytes(), stream));
    return matrix;
  }

  std::vector<const Fp8Matrix*> parts_;
  std::uint64_t rows_ = 0, columns_;
};

Result<void> upload_fp8(const Fp8Layer& layer, DeviceLayer& out, Stream stream) {
  PENSTOCK_TRY(out.qkv, Fp8Stack({&layer.q, &layer.k, &layer.v}).upload(stream));
  PENSTOCK_TRY(out.output, Fp8Stack({&layer.output}).upload(stream));
  PENSTOCK_TRY(out.gate_up, Fp8Stack({&layer.gate, &layer.up}).upload(stream));
  PENSTOCK_TRY(out.down, Fp8Stack({&layer.down}).upload(stream));
  return {};
}

/// PackedMatrix::pack_gate_up: eight gate rows, then the eight up rows, and so on.
constexpr std::uint64_t gate_rows = 8;
constexpr std::uint64_t packed_gate(std::uint64_t row) {
  return row / gate_rows * 2 * gate_rows + row % gate_rows;
}

Result<void> upload_ffn(const ModelSpec& spec, const LayerWeights& layer, const TensorShare& share, DeviceLayer& out,
                        Stream stream) {
  const std::uint64_t rows = spec.ffn / share.ranks;
  RowWriter writer(2 * rows, spec.hidden);
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::uint64_t row = rows * share.rank + i;
    if (layer.gate_up.rows() > 0) {
      writer.write(i, layer.gate_up, packed_gate(row));
      writer.write(rows + i, layer.gate_up, packed_gate(row) + gate_rows);
    } else {
      writer.write(i, layer.gate, row);
      writer.write(rows + i, layer.up, row);
    }
  }
  PENSTOCK_TRY(out.gate_up, writer.upload(stream));
  PENSTOCK_TRY(out.down, upload_columns(layer.down, share, stream));
  return {};
}

/// Without a share: experts are not cut among GPUs yet.
Result<void> upload_experts(const ExpertSpec& experts, const LayerWeights& layer, DeviceLayer& out, Stream stream) {
  PENSTOCK_TRY(DeviceMatrix router, upload_matrix(layer.router, stream));
  out.router = std::move(router.values);
  const std::uint64_t hidden = layer.router.columns(), rows = experts.ffn;
  RowWriter gate_up(2 * rows, hidden), down(hidden, rows);
  PENSTOCK_TRY(out.gate_up.values, DeviceBuffer::make(experts.count * gate_up.bytes()));
  PENSTOCK_TRY(out.down.values, DeviceBuffer::make(experts.count * down.bytes()));
  for (std::uint64_t expert = 0; expert < experts.count; ++expert) {
    const ExpertWeights& weights = layer.experts[expert];
    for (std::uint64_t row = 0; row < rows; ++row) {
      gate_up.write(row, weights.gate_up, packed_gate(row));
      gate_up.write(rows + row, weights.gate_up, packed_gate(row) + gate_rows);
    }
    for (std::uint64_t row = 0; row < hidden; ++row) down.write(row, weights.down, row);
    PENSTOCK_TRY_VOID(gate_up.upload(out.gate_up, expert, stream));
    PENSTOCK_TRY_VOID(down.upload(out.down, expert, stream));
  }
  return {};
}

Result<DeviceLayer> upload_layer(const ModelSpec& spec, const LayerWeights& layer, const TensorShare& share,
                                 Stream stream) {
  DeviceLayer out;
  PENSTOCK_TRY(out.attention_norm, upload_vector(layer.attention_norm, stream));
  PENSTOCK_TRY(out.ffn_norm, upload_vector(layer.ffn_norm, stream));
  PENSTOCK_TRY(out.q_norm, upload_vector(layer.q_norm, stream));
  PENSTOCK_TRY(out.k_norm, upload_vector(layer.k_norm, stream));
  PENSTOCK_TRY_VOID(upload_bias(spec, layer, share, out, stream));
  if (layer.fp8 != nullptr) {
    if (share.ranks > 1)
      return make_error(ErrorCode::unsupported, "FP8 weights are not cut among GPUs yet: widen them");
    PENSTOCK_CHECK(spec.rope.style == kernels::cpu::RopeStyle::half_split, "FP8 rows lie in the kernels' order");
    PENSTOCK_TRY_VOID(upload_fp8(*layer.fp8, out, stream));
    return out;
  }
  PENSTOCK_TRY_VOID(upload_qkv(spec, layer, share, out, stream));
  PENSTOCK_TRY(out.output, upload_columns(layer.output, share, stream));
  PENSTOCK_TRY_VOID(spec.experts ? upload_experts(*spec.experts, layer, out, stream)
                                 : upload_ffn(spec, layer, share, out, stream));
  return out;
}

}  // namespace

ModelSpec spec_of_share(const ModelSpec& whole, std::uint32_t ranks) {
  ModelSpec share = whole;
  share.heads /= ranks;
  share.kv_heads /= ranks;
  share.ffn /= ranks;
  return share;
}

Result<DeviceWeights> upload_weights(const ModelSpec& spec, const ModelWeights& weights, const TensorShare& share) {
  PENSTOCK_TRY(const OwnedStream owned, OwnedStream::make());
  const Stream stream = owned.get();
  DeviceWeights out;
  const RankWeights& whole = weights.ranks.front();
  PENSTOCK_TRY(out.embedding, upload_matrix(weights.embedding, stream));
  if (whole.head.rows() > 0) {
    PENSTOCK_TRY(out.head, upload_matrix(whole.head, stream));
  }
  PENSTOCK_TRY(out.output_norm, upload_vector(weights.output_norm, stream));
  for (const LayerWeights& layer : whole.layers) {
    PENSTOCK_TRY(DeviceLayer uploaded, upload_layer(spec, layer, share, stream));
    out.layers.push_back(std::move(uploaded));
  }
  return out;
}

namespace {

/// Memory full of the same few million numbers of about 0.01, each in another place.
class RandomFiller {
 public:
  static Result<RandomFiller> make(Stream stream) {
    Random random(1);
    std::vector<Bf16> values(count);
    for (Bf16& value : values) value = static_cast<Bf16>(0x3c00u + (random.next() & 0x80ffu));
    std::vector<std::uint8_t> codes(count);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(0x30u + (random.next() & 0x8fu));
    RandomFiller filler;
    filler.stream_ = stream;
    PENSTOCK_TRY(filler.values_, DeviceBuffer::make(count * sizeof(Bf16)));
    PENSTOCK_TRY(filler.codes_, DeviceBuffer::make(count));
    PENSTOCK_TRY_VOID(filler.values_.upload(values.data(), filler.values_.bytes(), stream));
    PENSTOCK_TRY_VOID(filler.codes_.upload(codes.data(), filler.codes_.bytes(), stream));
    return filler;
  }

  Result<void> fill(DeviceBuffer& buffer, std::uint64_t values) {
    return repeat(buffer, values * sizeof(Bf16), values_);
  }
  Result<void> fill(DeviceMatrix& matrix, std::uint64_t rows, std::uint64_t columns, LayerFormat format) {
    if (format == LayerFormat::bf16) return fill(matrix.values, rows * columns);
    PENSTOCK_TRY_VOID(repeat(matrix.values, rows * columns, codes_));
    const bool has_blocks = format == LayerFormat::fp8_blocks;
    matrix.kind = has_blocks ? Fp8Scales::block : Fp8Scales::row;
    const std::vector<float> scales(has_blocks ? (rows + 127) / 128 * ((columns + 127) / 128) : rows, 0.01f);
    PENSTOCK_TRY(matrix.scales, DeviceBuffer::make(scales.size() * sizeof(float)));
    return matrix.scales.upload(scales.data(), matrix.scales.bytes(), stream_);
  }

 private:
  static constexpr std::size_t count = std::size_t{8} << 20;
  RandomFiller() = default;

  Result<void> repeat(DeviceBuffer& buffer, std::uint64_t bytes, const DeviceBuffer& pattern) {
    PENSTOCK_TRY(buffer, DeviceBuffer::make(bytes));
    for (std::uint64_t first = 0; first < bytes; first += pattern.bytes()) {
      const std::uint64_t part = std::min<std::uint64_t>(pattern.bytes(), bytes - first);
      PENSTOCK_TRY_VOID(buffer.queue_copy(pattern, part, stream_, first));
    }
    return {};
  }

  DeviceBuffer values_, codes_;
  Stream stream_ = nullptr;
};

}  // namespace

std::uint64_t DeviceWeights::widened_bytes() const {
  std::uint64_t most = 0;
  for (const DeviceLayer& layer : layers) {
    for (const DeviceMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      if (matrix->is_fp8()) most = std::max<std::uint64_t>(most, matrix->values.bytes() * sizeof(Bf16));
    }
  }
  return most;
}

Result<DeviceWeights> random_weights(const ModelSpec& whole, const TensorShare& share, LayerFormat format) {
  const ModelSpec spec = spec_of_share(whole, share.ranks);
  PENSTOCK_TRY(const OwnedStream owned, OwnedStream::make());
  PENSTOCK_TRY(RandomFiller filler, RandomFiller::make(owned.get()));
  const std::uint64_t hidden = spec.hidden, q = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t qkv = q + 2ull * spec.kv_heads * spec.head_dim;
  const ExpertSpec experts = spec.experts.value_or(ExpertSpec{1, 0, spec.ffn, false});
  DeviceWeights out;
  PENSTOCK_TRY_VOID(filler.fill(out.embedding, spec.vocabulary, hidden, LayerFormat::bf16));
  if (!spec.tied_embeddings) PENSTOCK_TRY_VOID(filler.fill(out.head, spec.vocabulary, hidden, LayerFormat::bf16));
  PENSTOCK_TRY_VOID(filler.fill(out.output_norm, hidden));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    DeviceLayer layer;
    const std::pair<DeviceBuffer*, std::uint64_t> vectors[] = {{&layer.attention_norm, hidden},
                                                               {&layer.ffn_norm, hidden},
                                                               {&layer.qkv_bias, spec.qkv_bias ? qkv : 0},
                                                               {&layer.q_norm, spec.qk_norm ? spec.head_dim : 0},
                                                               {&layer.k_norm, spec.qk_norm ? spec.head_dim : 0}};
    for (const auto& [buffer, values] : vectors) PENSTOCK_TRY_VOID(filler.fill(*buffer, values));
    PENSTOCK_TRY_VOID(filler.fill(layer.qkv, qkv, hidden, format));
    PENSTOCK_TRY_VOID(filler.fill(layer.output, hidden, q, format));
    PENSTOCK_TRY_VOID(filler.fill(layer.gate_up, 2ull * experts.count * experts.ffn, hidden, format));
    PENSTOCK_TRY_VOID(filler.fill(layer.down, experts.count * hidden, experts.ffn, format));
    if (spec.experts) PENSTOCK_TRY_VOID(filler.fill(layer.router, experts.count * hidden));
    out.layers.push_back(std::move(layer));
  }
  PENSTOCK_TRY_VOID(owned.wait());
  return out;
}

}  // namespace penstock::worker
