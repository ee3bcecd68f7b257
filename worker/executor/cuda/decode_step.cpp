#include "worker/executor/cuda/decode_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/sampler.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::PinnedBuffer;
using cuda::SkinnyProduct;
using cuda::Start;
using cuda::Stream;

namespace {

constexpr std::uint32_t block_tokens = 16, splits_max = 64;

Result<void> run(const SkinnyProduct& product, Start start, Stream stream) {
  return skinny_gemm(product, cuda::choose_skinny(product.rows, product.columns, product.tokens), start, stream);
}

}  // namespace

Result<DecodeStep> DecodeStep::make(const DecodeModel& model, const DecodeLimits& limits, Stream stream) {
  DecodeStep step;
  step.model_ = model;
  step.table_stride_ = (limits.sequence_tokens_max + block_tokens - 1) / block_tokens;
  PENSTOCK_TRY_VOID(step.allocate(limits, stream));
  return step;
}

Result<void> DecodeStep::allocate(const DecodeLimits& limits, Stream stream) {
  const ModelSpec& spec = *model_.spec;
  const std::uint64_t rows = decode_rows_max, q = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t tables = std::uint64_t{limits.sequences_max} * table_stride_ * sizeof(std::int32_t);
  const std::uint64_t adjustments = std::uint64_t{limits.adjustments_max} * sizeof(cuda::LogitAdjustment);
  const std::pair<DeviceBuffer*, std::uint64_t> buffers[] = {
      {&device_inputs_, sizeof(DecodeInputs)},
      {&device_adjustments_, adjustments},
      {&device_tables_, tables},
      {&x_, rows * spec.hidden * sizeof(Bf16)},
      {&normed_, rows * spec.hidden * sizeof(Bf16)},
      {&gained_, rows * spec.hidden * sizeof(Bf16)},
      {&squares_, rows * (spec.hidden + 15ull) / 16 * sizeof(float)},
      {&share_, model_.peers == nullptr ? 0 : rows * spec.hidden * sizeof(Bf16)},
      {&qkv_, rows * (q + 2ull * spec.kv_heads * spec.head_dim) * sizeof(Bf16)},
      {&attended_, rows * q * sizeof(Bf16)},
      {&activated_, rows * spec.ffn * sizeof(Bf16)},
      {&logits_, rows * spec.vocabulary * sizeof(float)},
      {&workspace_, cuda::workspace_bytes(decode_rows_max, spec.heads, spec.head_dim, splits_max)},
  };
  for (const auto& [buffer, bytes] : buffers) {
    PENSTOCK_TRY(*buffer, DeviceBuffer::make(bytes));
    bytes_ += bytes;
  }
  PENSTOCK_TRY(host_inputs_, PinnedBuffer::make(sizeof(DecodeInputs)));
  PENSTOCK_TRY(host_adjustments_, PinnedBuffer::make(adjustments));
  PENSTOCK_TRY(host_tables_, PinnedBuffer::make(tables));
  PENSTOCK_TRY(results_, PinnedBuffer::make(rows * sizeof(cuda::SampledToken)));
  inputs() = DecodeInputs();
  std::fill_n(host_tables_.as<std::int32_t>(), tables / sizeof(std::int32_t), -1);
  PENSTOCK_TRY_VOID(device_tables_.fill(0xff, stream));
  return workspace_.fill(0, stream);
}

Result<void> DecodeStep::queue_table(std::uint32_t row, std::span<const BlockIndex> blocks, Stream stream) {
  std::int32_t* const known = host_tables_.as<std::int32_t>() + std::size_t{row} * table_stride_;
  const std::size_t count = std::min<std::size_t>(blocks.size(), table_stride_);
  std::size_t first = 0;
  while (first < count && known[first] == static_cast<std::int32_t>(blocks[first])) ++first;
  if (first == count) return {};
  for (std::size_t i = first; i < count; ++i) known[i] = static_cast<std::int32_t>(blocks[i]);
  const std::size_t offset = (std::size_t{row} * table_stride_ + first) * sizeof(std::int32_t);
  return device_tables_.queue_upload(known + first, (count - first) * sizeof(std::int32_t), stream, offset);
}

Result<void> DecodeStep::queue_adjustments(std::size_t count, Stream stream) {
  if (count == 0) return {};
  return device_adjustments_.queue_upload(adjustments(), count * sizeof(cuda::LogitAdjustment), stream);
}

Result<void> DecodeStep::queue(std::uint32_t rows, std::uint32_t splits, Start start, Stream stream) {
  const ModelSpec& spec = *model_.spec;
  PENSTOCK_TRY_VOID(device_inputs_.queue_upload(&inputs(), sizeof(DecodeInputs), stream));
  const cuda::EmbeddingRows ids{model_.weights->embedding.as<Bf16>(),
                                input<TokenId>(offsetof(DecodeInputs, tokens)),
                                x_.as<Bf16>(),
                                rows,
                                spec.hidden,
                                spec.vocabulary};
  // In order: what later kernels read before they wait is older than this one.
  PENSTOCK_TRY_VOID(gather_embedding(ids, Start::ordered, stream));
  const cuda::RmsNorm norm{x_.as<Bf16>(),      nullptr, model_.weights->layers.front().attention_norm.as<Bf16>(),
                           normed_.as<Bf16>(), rows,    spec.hidden,
                           spec.norm_epsilon};
  PENSTOCK_TRY_VOID(rms_norm(norm, start, stream));
  for (std::uint32_t index = 0; index < spec.layers; ++index) {
    PENSTOCK_TRY_VOID(queue_layer(index, rows, splits, start, stream));
  }
  return queue_head(rows, start, stream);
}

SkinnyProduct DecodeStep::product(const DeviceBuffer& weights, const DeviceBuffer& x, const DeviceBuffer& y,
                                  std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens) const {
  SkinnyProduct p;
  p.weights = weights.as<Bf16>();
  p.x = x.as<Bf16>();
  p.y = y.data();
  p.rows = rows;
  p.columns = columns;
  p.tokens = tokens;
  p.x_stride = columns;
  p.y_stride = p.residual_stride = rows;
  return p;
}

void DecodeStep::apply_norm(SkinnyProduct& p, std::uint32_t columns) const {
  if (model_.peers != nullptr) return;
  const std::uint32_t hidden = model_.spec->hidden;
  p.norm_squares = squares_.as<float>();
  p.norm_parts = cuda::squares_parts(hidden, cuda::choose_skinny(hidden, columns, p.tokens));
  p.norm_epsilon = model_.spec->norm_epsilon;
}

Result<void> DecodeStep::join(const DeviceBuffer& weights, const DeviceBuffer& x, std::uint32_t columns,
                              const DeviceBuffer& gain, std::uint32_t rows, Start start, Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  SkinnyProduct p = product(weights, x, model_.peers == nullptr ? x_ : share_, spec.hidden, columns, rows);
  if (model_.peers == nullptr) {
    p.residual = x_.as<Bf16>();
    p.gain = gain.as<Bf16>();
    p.gained = gained_.as<Bf16>();
    p.squares = squares_.as<float>();
    return run(p, start, stream);
  }
  PENSTOCK_TRY_VOID(run(p, start, stream));
  const cuda::RmsNorm norm{x_.as<Bf16>(), share_.as<Bf16>(), gain.as<Bf16>(),  normed_.as<Bf16>(),
                           rows,          spec.hidden,       spec.norm_epsilon};
  return all_reduce_norm({*model_.peers, norm}, start, stream);
}

Result<void> DecodeStep::queue_layer(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, Start start,
                                     Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceWeights& weights = *model_.weights;
  const DeviceLayer& layer = weights.layers[index];
  const std::uint32_t q = spec.heads * spec.head_dim, qkv = q + 2 * spec.kv_heads * spec.head_dim;
  const bool is_first = index == 0, is_last = index + 1 == spec.layers;
  SkinnyProduct p = product(layer.qkv, is_first ? normed_ : joined(), qkv_, qkv, spec.hidden, rows);
  if (!is_first) apply_norm(p, spec.ffn);
  if (layer.qkv_bias.bytes() > 0) p.bias = layer.qkv_bias.as<Bf16>();
  PENSTOCK_TRY_VOID(run(p, start, stream));
  PENSTOCK_TRY_VOID(queue_attention(index, rows, splits, start, stream));
  PENSTOCK_TRY_VOID(join(layer.output, attended_, q, layer.ffn_norm, rows, start, stream));

  p = product(layer.gate_up, joined(), activated_, 2 * spec.ffn, spec.hidden, rows);
  p.y_stride = spec.ffn;
  apply_norm(p, q);
  PENSTOCK_TRY_VOID(skinny_gemm_swiglu(p, cuda::choose_skinny(p.rows, p.columns, rows), start, stream));
  const DeviceBuffer& next = is_last ? weights.output_norm : weights.layers[index + 1].attention_norm;
  return join(layer.down, activated_, spec.ffn, next, rows, start, stream);
}

Result<void> DecodeStep::queue_attention(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, Start start,
                                         Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceLayer& layer = model_.weights->layers[index];
  cuda::NewTokens fresh;
  fresh.qkv = qkv_.as<Bf16>();
  fresh.qkv_stride = (std::uint64_t{spec.heads} + 2ull * spec.kv_heads) * spec.head_dim;
  fresh.cos = model_.cos;
  fresh.sin = model_.sin;
  fresh.table_positions = model_.positions;
  fresh.epsilon = spec.norm_epsilon;
  if (spec.qk_norm) {
    fresh.q_norm = layer.q_norm.as<Bf16>();
    fresh.k_norm = layer.k_norm.as<Bf16>();
  }
  cuda::DecodeAttention work;
  work.out = attended_.as<Bf16>();
  work.pool = model_.pool;
  work.layer = index;
  work.sequences = rows;
  work.heads = spec.heads;
  work.tables = device_tables_.as<std::int32_t>();
  work.table_of = input<std::int32_t>(offsetof(DecodeInputs, table_of));
  work.table_stride = table_stride_;
  work.lengths = input<std::int32_t>(offsetof(DecodeInputs, lengths));
  work.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  work.splits = splits;
  work.workspace = workspace_.data();
  return decode_attention(work, fresh, start, stream);
}

Result<void> DecodeStep::queue_head(std::uint32_t rows, Start start, Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceWeights& weights = *model_.weights;
  const DeviceBuffer& head = weights.head.bytes() > 0 ? weights.head : weights.embedding;
  SkinnyProduct p = product(head, joined(), logits_, spec.vocabulary, spec.hidden, rows);
  p.output = cuda::OutputType::f32;
  apply_norm(p, spec.ffn);
  PENSTOCK_TRY_VOID(run(p, start, stream));
  cuda::SampleTokens sampling;
  sampling.logits = logits_.as<float>();
  sampling.rows = rows;
  sampling.vocabulary = spec.vocabulary;
  sampling.parameters = input<cuda::SampleRow>(offsetof(DecodeInputs, samples));
  sampling.adjustments = device_adjustments_.as<cuda::LogitAdjustment>();
  sampling.out = results_.as<cuda::SampledToken>();
  return sample_tokens(sampling, start, stream);
}

}  // namespace penstock::worker
