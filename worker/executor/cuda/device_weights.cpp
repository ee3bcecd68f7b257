#include "worker/executor/cuda/device_weights.hpp"

#include <algorithm>
#include <utility>

#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::PackedMatrix;
using kernels::cuda::Bf16;
using kernels::cuda::DeviceBuffer;
using kernels::cuda::OwnedStream;
using kernels::cuda::Stream;

/// Rows of a matrix on their way to the GPU.
class RowWriter {
 public:
  RowWriter(std::uint64_t rows, std::uint64_t columns) : columns_(columns), values_(rows * columns), row_(columns) {}

  void write(std::uint64_t to, const PackedMatrix& matrix, std::uint64_t from) {
    matrix.dequantize_row(from, row_.data());
    for (std::uint64_t i = 0; i < columns_; ++i) values_[to * columns_ + i] = kernels::cpu::f32_to_bf16(row_[i]);
  }
  Result<DeviceBuffer> upload(Stream stream) const {
    PENSTOCK_TRY(DeviceBuffer buffer, DeviceBuffer::make(values_.size() * sizeof(Bf16)));
    PENSTOCK_TRY_VOID(buffer.upload(values_.data(), buffer.bytes(), stream));
    return buffer;
  }

 private:
  std::uint64_t columns_;
  std::vector<Bf16> values_;
  std::vector<float> row_;
};

Result<DeviceBuffer> upload_matrix(const PackedMatrix& matrix, Stream stream) {
  RowWriter writer(matrix.rows(), matrix.columns());
  for (std::uint64_t row = 0; row < matrix.rows(); ++row) writer.write(row, matrix, row);
  return writer.upload(stream);
}

Result<DeviceBuffer> upload_vector(const std::vector<float>& values, Stream stream) {
  std::vector<Bf16> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(kernels::cpu::f32_to_bf16(value));
  PENSTOCK_TRY(DeviceBuffer buffer, DeviceBuffer::make(rounded.size() * sizeof(Bf16)));
  if (!rounded.empty()) PENSTOCK_TRY_VOID(buffer.upload(rounded.data(), buffer.bytes(), stream));
  return buffer;
}

/// Where row `row` of q, k and v goes: with neighbours as rotary pairs, 2i goes to i and 2i + 1 to half + i of its
/// head.
class QkvOrder {
 public:
  explicit QkvOrder(const ModelSpec& spec)
      : head_dim_(spec.head_dim),
        rotated_rows_((std::uint64_t{spec.heads} + spec.kv_heads) * spec.head_dim),
        is_interleaved_(spec.rope.style == kernels::cpu::RopeStyle::interleaved) {}
  std::uint64_t place_of(std::uint64_t row) const {
    if (!is_interleaved_ || row >= rotated_rows_) return row;
    const std::uint64_t in_head = row % head_dim_;
    return row - in_head + in_head / 2 + in_head % 2 * (head_dim_ / 2);
  }

 private:
  std::uint64_t head_dim_, rotated_rows_;
  bool is_interleaved_;
};

Result<void> upload_qkv(const ModelSpec& spec, const LayerWeights& layer, DeviceLayer& out, Stream stream) {
  const QkvOrder order(spec);
  const std::uint64_t rows = (std::uint64_t{spec.heads} + 2ull * spec.kv_heads) * spec.head_dim;
  RowWriter writer(rows, spec.hidden);
  for (const QkvPart& part : layer.qkv) {
    for (std::uint64_t row = 0; row < part.matrix.rows(); ++row) {
      writer.write(order.place_of(part.first_column + row), part.matrix, row);
    }
  }
  PENSTOCK_TRY(out.qkv, writer.upload(stream));
  std::vector<float> bias(layer.qkv_bias.size());
  for (std::uint64_t row = 0; row < bias.size(); ++row) bias[order.place_of(row)] = layer.qkv_bias[row];
  PENSTOCK_TRY(out.qkv_bias, upload_vector(bias, stream));
  return {};
}

Result<void> upload_ffn(const ModelSpec& spec, const LayerWeights& layer, DeviceLayer& out, Stream stream) {
  constexpr std::uint64_t group = 8;  // PackedMatrix::pack_gate_up: eight gate rows, then the eight up rows
  RowWriter writer(2ull * spec.ffn, spec.hidden);
  for (std::uint64_t row = 0; row < spec.ffn; ++row) {
    if (layer.gate_up.rows() > 0) {
      const std::uint64_t gate = row / group * 2 * group + row % group;
      writer.write(row, layer.gate_up, gate);
      writer.write(spec.ffn + row, layer.gate_up, gate + group);
    } else {
      writer.write(row, layer.gate, row);
      writer.write(spec.ffn + row, layer.up, row);
    }
  }
  PENSTOCK_TRY(out.gate_up, writer.upload(stream));
  PENSTOCK_TRY(out.down, upload_matrix(layer.down, stream));
  return {};
}

Result<DeviceLayer> upload_layer(const ModelSpec& spec, const LayerWeights& layer, Stream stream) {
  DeviceLayer out;
  PENSTOCK_TRY(out.attention_norm, upload_vector(layer.attention_norm, stream));
  PENSTOCK_TRY(out.ffn_norm, upload_vector(layer.ffn_norm, stream));
  PENSTOCK_TRY(out.q_norm, upload_vector(layer.q_norm, stream));
  PENSTOCK_TRY(out.k_norm, upload_vector(layer.k_norm, stream));
  PENSTOCK_TRY_VOID(upload_qkv(spec, layer, out, stream));
  PENSTOCK_TRY(out.output, upload_matrix(layer.output, stream));
  PENSTOCK_TRY_VOID(upload_ffn(spec, layer, out, stream));
  return out;
}

}  // namespace

Result<DeviceWeights> upload_weights(const ModelSpec& spec, const ModelWeights& weights) {
  PENSTOCK_TRY(const OwnedStream owned, OwnedStream::make());
  const Stream stream = owned.get();
  DeviceWeights out;
  const RankWeights& rank = weights.ranks.front();
  PENSTOCK_TRY(out.embedding, upload_matrix(weights.embedding, stream));
  if (rank.head.rows() > 0) {
    PENSTOCK_TRY(out.head, upload_matrix(rank.head, stream));
  }
  PENSTOCK_TRY(out.output_norm, upload_vector(weights.output_norm, stream));
  for (const LayerWeights& layer : rank.layers) {
    PENSTOCK_TRY(DeviceLayer uploaded, upload_layer(spec, layer, stream));
    out.layers.push_back(std::move(uploaded));
  }
  return out;
}

namespace {

/// Memory full of the same few million numbers of about 0.01, each in another place.
class RandomFiller {
 public:
  explicit RandomFiller(Stream stream) : values_(std::size_t{8} << 20), stream_(stream) {
    Random random(1);
    for (Bf16& value : values_) value = static_cast<Bf16>(0x3c00u + (random.next() & 0x80ffu));
  }
  Result<void> fill(DeviceBuffer& buffer, std::uint64_t values) {
    PENSTOCK_TRY(buffer, DeviceBuffer::make(values * sizeof(Bf16)));
    for (std::uint64_t first = 0; first < values; first += values_.size()) {
      const std::uint64_t count = std::min<std::uint64_t>(values_.size(), values - first);
      PENSTOCK_TRY_VOID(buffer.upload(values_.data(), count * sizeof(Bf16), stream_, first * sizeof(Bf16)));
    }
    return {};
  }

 private:
  std::vector<Bf16> values_;
  Stream stream_;
};

}  // namespace

Result<DeviceWeights> random_weights(const ModelSpec& spec) {
  PENSTOCK_TRY(const OwnedStream owned, OwnedStream::make());
  RandomFiller filler(owned.get());
  const std::uint64_t hidden = spec.hidden, q = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t qkv = q + 2ull * spec.kv_heads * spec.head_dim;
  DeviceWeights out;
  PENSTOCK_TRY_VOID(filler.fill(out.embedding, spec.vocabulary * hidden));
  if (!spec.tied_embeddings) PENSTOCK_TRY_VOID(filler.fill(out.head, spec.vocabulary * hidden));
  PENSTOCK_TRY_VOID(filler.fill(out.output_norm, hidden));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    DeviceLayer layer;
    const std::pair<DeviceBuffer*, std::uint64_t> sizes[] = {{&layer.attention_norm, hidden},
                                                             {&layer.ffn_norm, hidden},
                                                             {&layer.qkv, qkv * hidden},
                                                             {&layer.qkv_bias, spec.qkv_bias ? qkv : 0},
                                                             {&layer.q_norm, spec.qk_norm ? spec.head_dim : 0},
                                                             {&layer.k_norm, spec.qk_norm ? spec.head_dim : 0},
                                                             {&layer.output, hidden * q},
                                                             {&layer.gate_up, 2ull * spec.ffn * hidden},
                                                             {&layer.down, hidden * spec.ffn}};
    for (const auto& [buffer, values] : sizes) PENSTOCK_TRY_VOID(filler.fill(*buffer, values));
    out.layers.push_back(std::move(layer));
  }
  return out;
}

}  // namespace penstock::worker
