#include "bench/engine/kernels/model_step.hpp"

#include <algorithm>
#include <cmath>

#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"

namespace penstock::bench {
namespace {

using namespace kernels::cpu;

constexpr std::size_t partial_slots = 512;  // as the executor has them

/// Codes are random; scales are small, so that the values stay finite through all layers.
PackedMatrix random_weights(WeightFormat format, std::size_t rows, std::size_t columns, Random& random) {
  std::vector<std::byte> bytes(rows * row_bytes(format, columns));
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t value = random.next() & 0x1f1f1f1f1f1f1f1full;  // as 16-bit floats: below 0.01
    std::copy_n(reinterpret_cast<const std::byte*>(&value), 8, bytes.data() + i);
  }
  const MatrixSource source = {bytes.data(), bytes.size(), format, rows, columns, {}, {}};
  return PackedMatrix::pack(source).value();
}

PackedMatrix random_gate_up(WeightFormat format, std::size_t rows, std::size_t columns) {
  const std::vector<std::byte> bytes(rows * row_bytes(format, columns), std::byte{0x11});
  const MatrixSource source = {bytes.data(), bytes.size(), format, rows, columns, {}, {}};
  return PackedMatrix::pack_gate_up(source, source).value();
}

}  // namespace

ModelStep::ModelStep(const ModelShape& shape, std::uint32_t rows_max, std::uint32_t sequences, std::uint32_t context)
    : shape_(shape), blocks_a_sequence_((context + 15) / 16) {
  Random random(1);
  const std::uint32_t q = shape.heads * shape.head_dim;
  const std::uint32_t kv = shape.kv_heads * shape.head_dim;
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    layers_.push_back({random_weights(shape.layer_format, q + 2 * kv, shape.hidden, random),
                       random_weights(shape.layer_format, shape.hidden, q, random),
                       random_gate_up(shape.layer_format, shape.ffn, shape.hidden),
                       random_weights(shape.layer_format, shape.hidden, shape.ffn, random)});
  }
  head_ = random_weights(shape.head_format, shape.vocabulary, shape.hidden, random);
  norm_.assign(shape.hidden, 1.0f);
  hidden_.assign(std::size_t{rows_max} * shape.hidden, 0.5f);
  qkv_.resize(std::size_t{rows_max} * (q + 2 * kv));
  logits_.resize(std::size_t{sequences} * shape.vocabulary);
  last_.resize(std::size_t{sequences} * shape.hidden);
  cos_.assign(std::size_t{context} * shape.head_dim / 2, std::cos(1.0f));
  sin_.assign(cos_.size(), std::sin(1.0f));
  const ActivationForm form = layers_[0].qkv.activation_form();
  normed_ = Activations(rows_max, shape.hidden, form);
  attended_ = Activations(rows_max, q, form);
  inner_ = Activations(rows_max, shape.ffn, form);
  final_ = Activations(sequences, shape.hidden, head_.activation_form());
  partials_.resize(partial_slots * attention_slot_floats(shape.heads, shape.head_dim));
  layout_ = {shape.kv_heads, shape.layers, 16, shape.head_dim, KvType::bf16};
  pool_memory_.resize(layout_.block_bytes() * blocks_a_sequence_ * sequences);
  for (std::uint32_t i = 0; i < blocks_a_sequence_ * sequences; ++i) tables_.push_back(i);
}

std::size_t ModelStep::weight_bytes() const {
  std::size_t bytes = head_.packed_bytes();
  for (const Layer& layer : layers_) {
    for (const PackedMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      bytes += matrix->packed_bytes();
    }
  }
  return bytes;
}

double ModelStep::layer_macs() const {
  double macs = 0;
  for (const Layer& layer : layers_) {
    for (const PackedMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      macs += static_cast<double>(matrix->rows()) * static_cast<double>(matrix->columns());
    }
  }
  return macs;
}

void ModelStep::run(const Kernels& kernels, ThreadPool& pool, std::uint32_t sequences, std::uint32_t rows,
                    std::uint32_t position) {
  sequences_.clear();
  for (std::uint32_t s = 0; s < sequences; ++s) {
    sequences_.push_back({tables_.data() + s * blocks_a_sequence_, s * rows, rows, position});
  }
  std::fill(hidden_.begin(), hidden_.end(), 0.5f);
  pool.run([&](ThreadPool::Member& member) { run_member(kernels, member, sequences * rows); });
}

void ModelStep::run_member(const Kernels& kernels, ThreadPool::Member& member, std::uint32_t m) {
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) run_layer(kernels, member, layer, m);
  const std::size_t count = sequences_.size();
  const IndexRange mine = split(count, member.slice());
  for (std::size_t s = mine.begin; s < mine.end; ++s) {
    const std::size_t row = sequences_[s].first_row + sequences_[s].rows - 1;
    std::copy_n(hidden_.data() + row * shape_.hidden, shape_.hidden, last_.data() + s * shape_.hidden);
  }
  kernels.rms_norm(last_.data(), shape_.hidden, count, norm_.data(), 1e-5f, final_, member.slice());
  member.barrier();
  kernels.matmul(head_, final_, count, {.y = logits_.data(), .stride = shape_.vocabulary}, member.slice());
}

void ModelStep::run_layer(const Kernels& kernels, ThreadPool::Member& member, std::uint32_t layer, std::uint32_t m) {
  const Layer& weights = layers_[layer];
  const Slice slice = member.slice();
  const std::size_t hidden = shape_.hidden;
  const std::size_t q = std::size_t{shape_.heads} * shape_.head_dim;
  const std::size_t kv = std::size_t{shape_.kv_heads} * shape_.head_dim;
  const AttentionArgs attention = {
      .qkv = {qkv_.data(), q + 2 * kv, 0, q, q + kv, shape_.heads, shape_.kv_heads},
      .kv = {pool_memory_.data(), layout_, 0},
      .layer = layer,
      .sequences = sequences_,
      .scale = 0.125f,
      .partials = partials_.data(),
      .partial_slots = partial_slots,
  };
  const RopeTable rope = {cos_.data(), sin_.data(), static_cast<std::uint32_t>(cos_.size() * 2 / shape_.head_dim),
                          shape_.head_dim, RopeStyle::interleaved};
  const MatmulOutput to_hidden = {
      .y = hidden_.data(), .stride = hidden, .residual = hidden_.data(), .residual_stride = hidden};
  kernels.rms_norm(hidden_.data(), hidden, m, norm_.data(), 1e-5f, normed_, slice);
  member.barrier();
  kernels.matmul(weights.qkv, normed_, m, {.y = qkv_.data(), .stride = q + 2 * kv}, slice);
  member.barrier();
  kernels.rope_and_store(attention, rope, {}, slice);
  member.barrier();
  kernels.attention(attention, attended_, slice);
  if (kernels.attention_is_split(attention)) {
    member.barrier();
    kernels.merge_attention(attention, attended_, slice);
  }
  member.barrier();
  kernels.matmul(weights.output, attended_, m, to_hidden, slice);
  member.barrier();
  kernels.rms_norm(hidden_.data(), hidden, m, norm_.data(), 1e-5f, normed_, slice);
  member.barrier();
  kernels.matmul_swiglu(weights.gate_up, normed_, m, inner_, slice);
  member.barrier();
  kernels.matmul(weights.down, inner_, m, to_hidden, slice);
  member.barrier();
}

}  // namespace penstock::bench
