#include "worker/executor/cuda/device_model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/rope.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::Start;

namespace {

constexpr std::uint32_t block_tokens = 16;

template <class T>
Result<void> copy_in(DeviceBuffer& to, const std::vector<T>& from, cuda::Stream stream) {
  return to.upload(from.data(), from.size() * sizeof(T), stream);
}

}  // namespace

Result<void> check_kernels(const ModelSpec& spec) {
  const auto refuse = [](const std::string& why) {
    return make_error(ErrorCode::unsupported, "the CUDA executor has no kernels for " + why);
  };
  if (spec.head_dim != 64 && spec.head_dim != 128) return refuse("head_dim " + std::to_string(spec.head_dim));
  if (spec.rope.rotary_dim != spec.head_dim) return refuse("partial rotary embeddings");
  if (spec.heads / spec.kv_heads > 16) return refuse("more than 16 heads to a KV head");
  if (!spec.windows.empty()) return refuse("sliding windows");
  if (spec.attention_sinks || spec.output_bias) return refuse("attention sinks and biases of attention's output");
  const std::uint32_t ffn = spec.experts ? spec.experts->ffn : spec.ffn;
  if (spec.hidden % 8 != 0 || ffn % 8 != 0) return refuse("hidden or ffn that are no multiple of 8");
  if (!spec.experts) return {};
  if (spec.experts->biases || spec.experts->activation != kernels::cpu::GatedActivation::silu)
    return refuse("experts with biases or another activation than SiLU");
  if (spec.experts->count > cuda::experts_max) return refuse("more than 256 experts");
  if (spec.experts->per_token > cuda::chosen_experts_max) return refuse("more than 16 experts to a token");
  return {};
}

Result<DeviceModel> DeviceModel::make(const ModelSpec& spec, DeviceWeights weights, const DeviceModelLimits& limits,
                                      const RankEnd& end) {
  PENSTOCK_TRY_VOID(check_kernels(spec));
  DeviceModel model;
  model.spec_ = spec;
  model.limits_ = limits;
  model.end_ = end;
  PENSTOCK_TRY(model.device_, cuda::device_info());
  PENSTOCK_TRY(model.stream_, cuda::OwnedStream::make());
  model.weights_ = std::move(weights);
  model.pool_ = {nullptr, limits.kv_blocks, spec.kv_heads, spec.layers, block_tokens, spec.head_dim};
  model.table_stride_ = (limits.sequence_tokens_max + block_tokens - 1) / block_tokens;
  PENSTOCK_TRY_VOID(model.allocate());
  return model;
}

Result<void> DeviceModel::allocate() {
  const std::uint64_t rows = padded_tokens(limits_.rows_max), hidden = spec_.hidden;
  const std::uint64_t q = std::uint64_t{spec_.heads} * spec_.head_dim;
  const std::uint64_t qkv = q + 2ull * spec_.kv_heads * spec_.head_dim;
  const RopeTables tables = make_rope_tables(spec_.rope, limits_.sequence_tokens_max);
  const std::pair<DeviceBuffer*, std::uint64_t> sizes[] = {
      {&pool_memory_, pool_.blocks * pool_.block_values() * sizeof(Bf16) + kv_tail_bytes},
      {&cos_, tables.cos.size() * sizeof(float)},
      {&sin_, tables.sin.size() * sizeof(float)},
      {&tokens_, rows * sizeof(TokenId)},
      {&positions_, rows * sizeof(std::int32_t)},
      {&slots_, rows * sizeof(std::int64_t)},
      {&lengths_, rows * sizeof(std::int32_t)},
      {&table_of_, rows * sizeof(std::int32_t)},
      {&tables_, std::uint64_t{limits_.sequences_max} * table_stride_ * sizeof(std::int32_t)},
      {&pairs_, sizeof(cuda::BlockPair)},
      {&logits_rows_, std::uint64_t{limits_.logits_rows_max} * sizeof(std::uint32_t)},
      {&x_, rows * hidden * sizeof(Bf16)},
      {&normed_, rows * hidden * sizeof(Bf16)},
      {&share_, end_.peers == nullptr ? 0 : rows * hidden * sizeof(Bf16)},
      {&qkv_, rows * qkv * sizeof(Bf16)},
      {&q_, rows * q * sizeof(Bf16)},
      {&attended_, rows * q * sizeof(Bf16)},
      {&activated_, rows * spec_.ffn * sizeof(Bf16)},
      {&last_, limits_.logits_rows_max * hidden * sizeof(Bf16)},
      {&logits_, std::uint64_t{limits_.logits_rows_max} * spec_.vocabulary * sizeof(float)},
  };
  for (const auto& [buffer, bytes] : sizes) {
    PENSTOCK_TRY(*buffer, DeviceBuffer::make(bytes));
  }
  pool_.base = pool_memory_.as<Bf16>();
  const std::uint32_t product_rows = std::max(limits_.rows_max, decode_rows(decoded_max()));
  const ProductLimits products{product_rows, 2 * spec_.ffn,
                               std::max({spec_.hidden, spec_.heads * spec_.head_dim, spec_.ffn}),
                               weights_.widened_bytes()};
  PENSTOCK_TRY(products_, Products::make(products, stream_.get()));
  PENSTOCK_TRY(experts_, StepExperts::make(spec_, product_rows, stream_.get()));
  const AttentionLimits attention{limits_.rows_max, limits_.sequences_max, spec_.heads, table_stride_};
  PENSTOCK_TRY(attention_, StepAttention::make(device_, pool_, attention, stream_.get()));
  PENSTOCK_TRY_VOID(copy_in(cos_, tables.cos, stream_.get()));
  return copy_in(sin_, tables.sin, stream_.get());
}

Result<void> DeviceModel::copy_block(BlockIndex from, BlockIndex to) {
  const cuda::BlockPair pair{from, to};
  PENSTOCK_TRY_VOID(pairs_.upload(&pair, sizeof pair, stream_.get()));
  return copy_blocks({pool_, pairs_.as<cuda::BlockPair>(), 1}, Start::ordered, stream_.get());
}

Result<void> DeviceModel::upload(const DeviceStep& step) {
  const cuda::Stream stream = stream_.get();
  PENSTOCK_TRY_VOID(copy_in(tokens_, step.tokens, stream));
  PENSTOCK_TRY_VOID(copy_in(positions_, step.positions, stream));
  PENSTOCK_TRY_VOID(copy_in(slots_, step.slots, stream));
  PENSTOCK_TRY_VOID(copy_in(lengths_, step.lengths, stream));
  PENSTOCK_TRY_VOID(copy_in(table_of_, step.table_of, stream));
  return copy_in(tables_, step.tables, stream);
}

Result<void> DeviceModel::forward(const DeviceStep& step) {
  const std::uint32_t rows = step.rows();
  PENSTOCK_TRY_VOID(upload(step));
  PENSTOCK_TRY_VOID(attention_.plan(step, stream_.get()));
  const cuda::EmbeddingRows ids{weights_.embedding.bf16(), tokens_.as<TokenId>(), x_.as<Bf16>(), rows, spec_.hidden,
                                spec_.vocabulary};
  PENSTOCK_TRY_VOID(gather_embedding(ids, Start::ordered, stream_.get()));
  const DeviceLayer& first = weights_.layers.front();
  PENSTOCK_TRY(Rows normed, normed_for({first.attention_norm, first.qkv}, rows));
  for (std::uint32_t index = 0; index < spec_.layers; ++index) {
    PENSTOCK_TRY(normed, layer(index, normed, rows));
  }
  return {};
}

Result<Rows> DeviceModel::layer(std::uint32_t index, const Rows& normed, std::uint32_t rows) {
  const DeviceLayer& weights = weights_.layers[index];
  const std::uint32_t q = spec_.heads * spec_.head_dim;
  PENSTOCK_TRY_VOID(attend(weights, index, normed, rows));
  PENSTOCK_TRY(const Rows joined,
               join({weights.output, attended_, spec_.hidden, q}, {weights.ffn_norm, weights.gate_up}, rows));
  const bool is_last = index + 1 == spec_.layers;
  const NextProduct next = is_last
                               ? NextProduct{weights_.output_norm, weights_.output_head()}
                               : NextProduct{weights_.layers[index + 1].attention_norm, weights_.layers[index + 1].qkv};
  if (spec_.experts) {
    PENSTOCK_TRY_VOID(experts_.queue(joined.values, x_, rows, weights, Start::overlapped, stream_.get()));
    return normed_for(next, rows);
  }
  PENSTOCK_TRY(const Rows activated,
               products_.multiply_swiglu({weights.gate_up, joined, 2 * spec_.ffn, spec_.hidden}, rows, activated_,
                                         weights.down, Start::overlapped, stream_.get()));
  return join({weights.down, activated, spec_.hidden, spec_.ffn}, next, rows);
}

cuda::RmsNorm DeviceModel::norm_of(const DeviceBuffer& gain, std::uint32_t rows) const {
  return {x_.as<Bf16>(), nullptr, gain.as<Bf16>(), normed_.as<Bf16>(), rows, spec_.hidden, spec_.norm_epsilon};
}

Result<Rows> DeviceModel::normed_for(const NextProduct& next, std::uint32_t rows) {
  return products_.norm(norm_of(next.gain, rows), next.weights, Start::overlapped, stream_.get());
}

Result<Rows> DeviceModel::join(const Product& product, const NextProduct& next, std::uint32_t rows) {
  const cuda::Stream stream = stream_.get();
  if (end_.peers == nullptr) {
    PENSTOCK_TRY_VOID(products_.multiply(product, rows, x_, cuda::OutputType::bf16, &x_, Start::overlapped, stream));
    return normed_for(next, rows);
  }
  PENSTOCK_TRY_VOID(
      products_.multiply(product, rows, share_, cuda::OutputType::bf16, nullptr, Start::overlapped, stream));
  // What comes before may be a kernel's first start, which may have to wait until nothing runs on the device. So no
  // rank waits on its device for one that is not there yet.
  PENSTOCK_TRY_VOID(end_.threads->barrier());
  cuda::RmsNorm norm = norm_of(next.gain, rows);
  norm.x = share_.as<Bf16>();
  PENSTOCK_TRY_VOID(all_reduce_norm({*end_.peers, norm}, Start::overlapped, stream));
  return Rows(normed_);
}

Result<void> DeviceModel::attend(const DeviceLayer& weights, std::uint32_t index, const Rows& normed,
                                 std::uint32_t rows) {
  const cuda::Stream stream = stream_.get();
  const std::uint32_t qkv = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim;
  Product product{weights.qkv, normed, qkv, spec_.hidden};
  if (weights.qkv_bias.bytes() > 0) product.bias = weights.qkv_bias.as<Bf16>();
  PENSTOCK_TRY_VOID(
      products_.multiply(product, rows, qkv_, cuda::OutputType::bf16, nullptr, Start::overlapped, stream));
  cuda::RopeAndStore rope;
  rope.qkv = qkv_.as<Bf16>();
  rope.qkv_stride = qkv;
  rope.q = q_.as<Bf16>();
  rope.pool = pool_;
  rope.layer = index;
  rope.heads = spec_.heads;
  rope.tokens = rows;
  rope.positions = positions_.as<std::int32_t>();
  rope.slots = slots_.as<std::int64_t>();
  rope.cos = cos_.as<float>();
  rope.sin = sin_.as<float>();
  rope.table_positions = limits_.sequence_tokens_max;
  rope.epsilon = spec_.norm_epsilon;
  if (spec_.qk_norm) {
    rope.q_norm = weights.q_norm.as<Bf16>();
    rope.k_norm = weights.k_norm.as<Bf16>();
  }
  PENSTOCK_TRY_VOID(rope_and_store(rope, Start::overlapped, stream));
  const StepAttention::Inputs inputs{q_.as<Bf16>(), attended_.as<Bf16>(), tables_.as<std::int32_t>(),
                                     table_of_.as<std::int32_t>(), lengths_.as<std::int32_t>()};
  return attention_.queue(index, inputs, stream);
}

Result<const float*> DeviceModel::queue_logits(std::span<const std::uint32_t> rows) {
  const cuda::Stream stream = stream_.get();
  const auto count = static_cast<std::uint32_t>(rows.size());
  PENSTOCK_TRY_VOID(logits_rows_.upload(rows.data(), rows.size_bytes(), stream));
  const cuda::EmbeddingRows picked{
      x_.as<Bf16>(), logits_rows_.as<std::uint32_t>(), last_.as<Bf16>(), count, spec_.hidden, limits_.rows_max};
  PENSTOCK_TRY_VOID(gather_embedding(picked, Start::ordered, stream));
  const cuda::RmsNorm norm{last_.as<Bf16>(),  nullptr, weights_.output_norm.as<Bf16>(),
                           last_.as<Bf16>(),  count,   spec_.hidden,
                           spec_.norm_epsilon};
  PENSTOCK_TRY_VOID(rms_norm(norm, Start::ordered, stream));
  PENSTOCK_TRY_VOID(products_.multiply({weights_.output_head(), last_, spec_.vocabulary, spec_.hidden}, count, logits_,
                                       cuda::OutputType::f32, nullptr, Start::overlapped, stream));
  return logits_.as<const float>();
}

Result<void> DeviceModel::download_logits(std::size_t rows, std::vector<float>& out) {
  out.resize(rows * spec_.vocabulary);
  return logits_.download(out.data(), out.size() * sizeof(float), stream_.get());
}

DecodeModel DeviceModel::for_decoding() {
  return {&spec_,           &weights_,        pool_,
          cos_.as<float>(), sin_.as<float>(), limits_.sequence_tokens_max,
          &products_,       &experts_,        device_.multiprocessors,
          end_.peers};
}

std::uint32_t DeviceModel::decoded_max() const {
  const std::uint32_t most = end_.peers == nullptr ? decode_rows_most : fused_rows_max;
  return std::min({limits_.rows_max, limits_.sequences_max, most});
}

}  // namespace penstock::worker
