#include "worker/executor/cuda/decode_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/decode_attention.hpp"
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

constexpr std::uint32_t block_tokens = 16;
// A sequence gets a block every 16 steps; more at once come with sequences whose prompt was computed elsewhere in the
// pool. What is beyond is copied row by row.
constexpr std::size_t changes_max = 16384;
constexpr Turn turns = 2;

}  // namespace

std::uint32_t decode_rows(std::uint32_t count) {
  if (count > fused_rows_max) {
    const std::uint32_t step = count <= 128 ? 8 : 32;
    return (count + step - 1) / step * step;
  }
  std::uint32_t rows = 1;
  while (rows < count) rows *= 2;
  return rows;
}

std::size_t DecodeStep::input_bytes(std::uint32_t rows) {
  return rows * (sizeof(cuda::SampleRow) + sizeof(TokenId) + 2 * sizeof(std::int32_t));
}

DecodeInputs DecodeStep::inputs_in(std::byte* memory, std::uint32_t rows) {
  const auto take = [&]<class T>(std::span<T>& out) {
    out = {reinterpret_cast<T*>(memory), rows};
    memory += rows * sizeof(T);
  };
  DecodeInputs inputs;
  take(inputs.samples);
  take(inputs.tokens);
  take(inputs.lengths);
  take(inputs.table_of);
  return inputs;
}

Result<DecodeStep> DecodeStep::make(const DecodeModel& model, const DecodeLimits& limits, Stream stream) {
  DecodeStep step;
  step.model_ = model;
  step.table_stride_ = (limits.sequence_tokens_max + block_tokens - 1) / block_tokens;
  step.adjustments_max_ = limits.adjustments_max;
  step.rows_max_ = decode_rows(std::min(limits.step_sequences_max, decode_rows_most));
  PENSTOCK_TRY_VOID(step.allocate(limits, stream));
  return step;
}

Result<void> DecodeStep::allocate(const DecodeLimits& limits, Stream stream) {
  const ModelSpec& spec = *model_.spec;
  const std::uint64_t rows = rows_max_, q = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t tables = std::uint64_t{limits.sequences_max} * table_stride_ * sizeof(std::int32_t);
  const std::uint64_t adjustments = std::uint64_t{limits.adjustments_max} * sizeof(cuda::LogitAdjustment);
  // choose_splits() splits only while rows * kv_heads * splits stay below three for each multiprocessor; a row that is
  // not split needs no room.
  const std::uint32_t split_rows = 3 * model_.multiprocessors / spec.kv_heads + 1;
  const std::pair<DeviceBuffer*, std::uint64_t> buffers[] = {
      {&device_inputs_, input_bytes(rows_max_)},
      {&device_adjustments_, adjustments},
      {&device_tables_, tables},
      {&device_changes_, changes_max * sizeof(cuda::WordChange)},
      {&drawn_, turns * rows * sizeof(std::uint32_t)},
      {&x_, rows * spec.hidden * sizeof(Bf16)},
      {&normed_, rows * spec.hidden * sizeof(Bf16)},
      {&gained_, rows * spec.hidden * sizeof(Bf16)},
      {&squares_, rows * (spec.hidden + 15ull) / 16 * sizeof(float)},
      {&share_, model_.peers == nullptr ? 0 : rows * spec.hidden * sizeof(Bf16)},
      {&qkv_, rows * (q + 2ull * spec.kv_heads * spec.head_dim) * sizeof(Bf16)},
      {&attended_, rows * q * sizeof(Bf16)},
      {&activated_, rows * spec.ffn * sizeof(Bf16)},
      {&logits_, rows * spec.vocabulary * sizeof(float)},
      {&workspace_, cuda::workspace_bytes(split_rows, spec.heads, spec.head_dim, 1)},
  };
  for (const auto& [buffer, bytes] : buffers) {
    PENSTOCK_TRY(*buffer, DeviceBuffer::make(bytes));
    bytes_ += bytes;
  }
  PENSTOCK_TRY(host_inputs_, PinnedBuffer::make(turns * input_bytes(rows_max_)));
  PENSTOCK_TRY(host_adjustments_, PinnedBuffer::make(turns * adjustments));
  PENSTOCK_TRY(host_tables_, PinnedBuffer::make(tables));
  PENSTOCK_TRY(host_changes_, PinnedBuffer::make(turns * changes_max * sizeof(cuda::WordChange)));
  PENSTOCK_TRY(results_, PinnedBuffer::make(turns * rows * sizeof(cuda::SampledToken)));
  std::fill_n(host_tables_.as<std::int32_t>(), tables / sizeof(std::int32_t), -1);
  PENSTOCK_TRY_VOID(device_tables_.fill(0xff, stream));
  // Steps that are only recorded have no rows.
  PENSTOCK_TRY_VOID(device_inputs_.fill(0, stream));
  PENSTOCK_TRY_VOID(drawn_.fill(0, stream));
  return workspace_.fill(0, stream);
}

DecodeInputs DecodeStep::inputs(Turn turn, std::uint32_t rows) const {
  return inputs_in(host_inputs_.as<std::byte>() + turn * input_bytes(rows_max_), rows);
}

std::span<cuda::LogitAdjustment> DecodeStep::adjustments(Turn turn) const {
  return {host_adjustments_.as<cuda::LogitAdjustment>() + std::size_t{turn} * adjustments_max_, adjustments_max_};
}

const cuda::SampledToken* DecodeStep::results(Turn turn) const {
  return results_.as<cuda::SampledToken>() + result_offset(turn);
}

Result<void> DecodeStep::take_table(Turn turn, std::uint32_t row, std::span<const BlockIndex> blocks, Stream stream) {
  static_assert(sizeof(BlockIndex) == sizeof(std::int32_t));
  std::int32_t* const known = host_tables_.as<std::int32_t>() + std::size_t{row} * table_stride_;
  const std::size_t count = std::min<std::size_t>(blocks.size(), table_stride_);
  if (std::memcmp(known, blocks.data(), count * sizeof(std::int32_t)) == 0) return {};
  std::size_t first = 0;
  while (known[first] == static_cast<std::int32_t>(blocks[first])) ++first;
  const std::size_t place = std::size_t{row} * table_stride_;
  const bool fits = count - first <= changes_max - changes_;
  auto* const changes = host_changes_.as<cuda::WordChange>() + turn * changes_max;
  for (std::size_t i = first; i < count; ++i) {
    known[i] = static_cast<std::int32_t>(blocks[i]);
    if (fits) changes[changes_++] = {static_cast<std::uint32_t>(place + i), known[i]};
  }
  if (fits) return {};
  return device_tables_.queue_upload(known + first, (count - first) * sizeof(std::int32_t), stream,
                                     (place + first) * sizeof(std::int32_t));
}

Result<void> DecodeStep::queue_tables(Turn turn, Stream stream) {
  if (changes_ == 0) return {};
  const std::size_t count = std::exchange(changes_, 0);
  const cuda::WordChange* const changes = host_changes_.as<cuda::WordChange>() + turn * changes_max;
  PENSTOCK_TRY_VOID(device_changes_.queue_upload(changes, count * sizeof(cuda::WordChange), stream));
  const cuda::WordChanges work{device_tables_.as<std::int32_t>(), device_tables_.bytes() / sizeof(std::int32_t),
                               device_changes_.as<cuda::WordChange>(), static_cast<std::uint32_t>(count)};
  return change_words(work, Start::ordered, stream);
}

Result<void> DecodeStep::queue_adjustments(Turn turn, std::size_t count, Stream stream) {
  if (count == 0) return {};
  return device_adjustments_.queue_upload(adjustments(turn).data(), count * sizeof(cuda::LogitAdjustment), stream);
}

Result<void> DecodeStep::queue_inputs(Turn turn, std::uint32_t rows, Stream stream) {
  return device_inputs_.queue_upload(inputs(turn, rows).samples.data(), input_bytes(rows), stream);
}

Result<void> DecodeStep::queue(std::uint32_t rows, std::uint32_t splits, Start start, Stream stream) {
  const ModelSpec& spec = *model_.spec;
  const cuda::EmbeddingRows ids{model_.weights->embedding.bf16(),
                                device_inputs(rows).tokens.data(),
                                x_.as<Bf16>(),
                                rows,
                                spec.hidden,
                                spec.vocabulary,
                                drawn_.as<std::uint32_t>()};
  // In order: what later kernels read before they wait is older than this one.
  PENSTOCK_TRY_VOID(gather_embedding(ids, Start::ordered, stream));
  const bool is_fused = rows <= fused_rows_max;
  if (is_fused) PENSTOCK_TRY_VOID(rms_norm(norm(model_.weights->layers.front().attention_norm, rows), start, stream));
  for (std::uint32_t index = 0; index < spec.layers; ++index) {
    PENSTOCK_TRY_VOID(is_fused ? queue_layer(index, rows, splits, start, stream)
                               : queue_wide_layer(index, rows, splits, start, stream));
  }
  PENSTOCK_TRY_VOID(queue_head(rows, start, stream));
  return queue_sampling(rows, start, stream);
}

cuda::RmsNorm DecodeStep::norm(const DeviceBuffer& gain, std::uint32_t rows) const {
  const ModelSpec& spec = *model_.spec;
  return {x_.as<Bf16>(), nullptr, gain.as<Bf16>(), normed_.as<Bf16>(), rows, spec.hidden, spec.norm_epsilon};
}

SkinnyProduct DecodeStep::product(const DeviceBuffer& x, const DeviceBuffer& y, std::uint32_t rows,
                                  std::uint32_t columns, std::uint32_t tokens) {
  SkinnyProduct p;
  p.x = x.as<Bf16>();
  p.y = y.data();
  p.rows = rows;
  p.columns = columns;
  p.tokens = tokens;
  p.x_stride = columns;
  p.y_stride = p.residual_stride = rows;
  return p;
}

void DecodeStep::apply_norm(SkinnyProduct& p, const DeviceMatrix& weights, std::uint32_t columns) const {
  if (model_.peers != nullptr) return;
  p.norm_squares = squares_.as<float>();
  p.norm_parts = squares_of_few(weights, model_.spec->hidden, columns, p.tokens);
  p.norm_epsilon = model_.spec->norm_epsilon;
}

void DecodeStep::apply_ffn_norm(SkinnyProduct& p, const DeviceLayer& before) const {
  apply_norm(p, before.down, model_.spec->ffn);
  if (model_.spec->experts) p.norm_parts = cuda::few_expert_squares(model_.spec->hidden);
}

Result<void> DecodeStep::join_experts(const DeviceLayer& layer, const DeviceBuffer& gain, std::uint32_t rows,
                                      Start start, Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  cuda::ExpertStep step;
  step.x = gained_.as<Bf16>();
  step.norm_squares = squares_.as<float>();
  step.norm_parts = squares_of_few(layer.output, spec.hidden, spec.heads * spec.head_dim, rows);
  step.norm_epsilon = spec.norm_epsilon;
  step.tokens = rows;
  step.y = x_.as<Bf16>();
  step.gain = gain.as<Bf16>();
  step.gained = gained_.as<Bf16>();
  step.squares = squares_.as<float>();
  return model_.experts->queue(step, layer, start, stream);
}

Result<void> DecodeStep::join(const DeviceMatrix& weights, const DeviceBuffer& x, std::uint32_t columns,
                              const DeviceBuffer& gain, std::uint32_t rows, Start start, Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  SkinnyProduct p = product(x, model_.peers == nullptr ? x_ : share_, spec.hidden, columns, rows);
  if (model_.peers == nullptr) {
    p.residual = x_.as<Bf16>();
    p.gain = gain.as<Bf16>();
    p.gained = gained_.as<Bf16>();
    p.squares = squares_.as<float>();
    return multiply_few(p, weights, start, stream);
  }
  PENSTOCK_TRY_VOID(multiply_few(p, weights, start, stream));
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
  SkinnyProduct p = product(is_first ? normed_ : joined(), qkv_, qkv, spec.hidden, rows);
  if (!is_first) apply_ffn_norm(p, weights.layers[index - 1]);
  if (layer.qkv_bias.bytes() > 0) p.bias = layer.qkv_bias.as<Bf16>();
  PENSTOCK_TRY_VOID(multiply_few(p, layer.qkv, start, stream));
  PENSTOCK_TRY_VOID(queue_attention(index, rows, splits, start, stream));
  PENSTOCK_TRY_VOID(join(layer.output, attended_, q, layer.ffn_norm, rows, start, stream));

  const DeviceBuffer& next = is_last ? weights.output_norm : weights.layers[index + 1].attention_norm;
  if (spec.experts) return join_experts(layer, next, rows, start, stream);
  p = product(joined(), activated_, 2 * spec.ffn, spec.hidden, rows);
  p.y_stride = spec.ffn;
  apply_norm(p, layer.output, q);
  PENSTOCK_TRY_VOID(multiply_few_swiglu(p, layer.gate_up, start, stream));
  return join(layer.down, activated_, spec.ffn, next, rows, start, stream);
}

Result<void> DecodeStep::queue_wide_layer(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, Start start,
                                          Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceLayer& layer = model_.weights->layers[index];
  Products& products = *model_.products;
  const std::uint32_t q = spec.heads * spec.head_dim, qkv = q + 2 * spec.kv_heads * spec.head_dim;
  PENSTOCK_TRY(Rows normed, products.norm(norm(layer.attention_norm, rows), layer.qkv, start, stream));
  Product p{layer.qkv, normed, qkv, spec.hidden};
  if (layer.qkv_bias.bytes() > 0) p.bias = layer.qkv_bias.as<Bf16>();
  PENSTOCK_TRY_VOID(products.multiply(p, rows, qkv_, cuda::OutputType::bf16, nullptr, start, stream));
  PENSTOCK_TRY_VOID(queue_attention(index, rows, splits, start, stream));
  PENSTOCK_TRY_VOID(products.multiply({layer.output, attended_, spec.hidden, q}, rows, x_, cuda::OutputType::bf16, &x_,
                                      start, stream));
  PENSTOCK_TRY(normed, products.norm(norm(layer.ffn_norm, rows), layer.gate_up, start, stream));
  if (spec.experts) return model_.experts->queue(normed.values, x_, rows, layer, start, stream);
  PENSTOCK_TRY(const Rows activated, products.multiply_swiglu({layer.gate_up, normed, 2 * spec.ffn, spec.hidden}, rows,
                                                              activated_, layer.down, start, stream));
  return products.multiply({layer.down, activated, spec.hidden, spec.ffn}, rows, x_, cuda::OutputType::bf16, &x_, start,
                           stream);
}

Result<void> DecodeStep::queue_attention(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, Start start,
                                         Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceLayer& layer = model_.weights->layers[index];
  const DecodeInputs inputs = device_inputs(rows);
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
  work.table_of = inputs.table_of.data();
  work.table_stride = table_stride_;
  work.lengths = inputs.lengths.data();
  work.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  work.splits = splits;
  work.workspace = workspace_.data();
  return decode_attention(work, fresh, start, stream);
}

Result<void> DecodeStep::queue_head(std::uint32_t rows, Start start, Stream stream) const {
  const ModelSpec& spec = *model_.spec;
  const DeviceWeights& weights = *model_.weights;
  const DeviceMatrix& head = weights.output_head();
  if (rows > fused_rows_max) {
    PENSTOCK_TRY_VOID(rms_norm(norm(weights.output_norm, rows), start, stream));
    return model_.products->multiply({head, normed_, spec.vocabulary, spec.hidden}, rows, logits_,
                                     cuda::OutputType::f32, nullptr, start, stream);
  }
  SkinnyProduct p = product(joined(), logits_, spec.vocabulary, spec.hidden, rows);
  p.output = cuda::OutputType::f32;
  apply_ffn_norm(p, weights.layers.back());
  return multiply_few(p, head, start, stream);
}

Result<void> DecodeStep::queue_sampling(std::uint32_t rows, Start start, Stream stream) const {
  cuda::SampleTokens sampling;
  sampling.logits = logits_.as<float>();
  sampling.rows = rows;
  sampling.vocabulary = model_.spec->vocabulary;
  sampling.parameters = device_inputs(rows).samples.data();
  sampling.adjustments = device_adjustments_.as<cuda::LogitAdjustment>();
  sampling.out = results_.as<cuda::SampledToken>();
  sampling.drawn = drawn_.as<std::uint32_t>();
  return sample_tokens(sampling, start, stream);
}

}  // namespace penstock::worker
