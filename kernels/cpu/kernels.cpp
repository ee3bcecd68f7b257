#include "kernels/cpu/kernels.hpp"

#include <stdexcept>
#include <string>

#include "common/base/check.hpp"
#include "kernels/cpu/kernel_table.hpp"

namespace penstock::kernels::cpu {
namespace {

const KernelTable* table_for(IsaLevel level) {
  if (!is_supported(level)) {
    throw std::invalid_argument("this processor lacks what the " + std::string(to_string(level)) + " kernels need");
  }
  switch (level) {
    case IsaLevel::portable:
      return &portable_table;
#if defined(PENSTOCK_KERNELS_X86)
    case IsaLevel::avx2:
      return &avx2_table;
    case IsaLevel::avx512:
      return &avx512_table;
    case IsaLevel::avx512_vnni:
      return &avx512_vnni_table;
#else
    case IsaLevel::avx2:
    case IsaLevel::avx512:
    case IsaLevel::avx512_vnni:
      break;
#endif
  }
  return &portable_table;
}

ActivationsRef reference_to(Activations& activations) {
  ActivationsRef ref;
  ref.columns = activations.columns();
  ref.blocks = activations.blocks();
  ref.f32 = activations.f32(0);
  if (activations.has_int16()) {
    ref.q = activations.q(0);
    ref.scale = activations.scale(0);
    ref.scaled_sum = activations.scaled_sum(0);
    ref.sum = activations.sum(0);
  }
  return ref;
}

/// Kernels only read an input; one struct serves both directions.
ActivationsRef reference_to(const Activations& activations) {
  return reference_to(const_cast<Activations&>(activations));
}

ActivationsRef from_row(ActivationsRef ref, std::size_t row) {
  if (ref.f32 != nullptr) ref.f32 += row * ref.blocks * Activations::block;
  if (ref.q != nullptr) {
    ref.q += row * ref.blocks * Activations::block;
    ref.scale += row * ref.blocks;
    ref.scaled_sum += row * ref.blocks;
    ref.sum += row * ref.blocks;
  }
  return ref;
}

MatmulCall matmul_call(const PackedMatrix& weights, const Activations& x, std::size_t m) {
  PENSTOCK_CHECK(weights.rows() > 0, "empty matrix");
  PENSTOCK_CHECK(x.columns() == weights.columns(), "x", x.columns(), "weights", weights.columns());
  PENSTOCK_CHECK(m <= x.rows(), "rows", m, "of", x.rows());
  PENSTOCK_CHECK(weights.activation_form() == ActivationForm::f32 ? x.has_f32() : x.has_int16(), "form of x");
  MatmulCall call;
  call.tiles = weights.tile(0);
  call.tile_bytes = weights.tile_bytes();
  call.format = weights.format();
  call.rows = weights.rows();
  call.columns = weights.columns();
  call.x = reference_to(x);
  call.m = m;
  return call;
}

void check_attention(const AttentionArgs& args) {
  const KvLayout& layout = args.kv.layout;
  PENSTOCK_CHECK(args.qkv.kv_heads > 0 && args.qkv.heads % args.qkv.kv_heads == 0, "heads", args.qkv.heads, "kv heads",
                 args.qkv.kv_heads);
  PENSTOCK_CHECK(args.kv.first_kv_head + args.qkv.kv_heads <= layout.kv_heads, "kv heads", layout.kv_heads);
  PENSTOCK_CHECK(args.layer < layout.layers, "layer", args.layer, "of", layout.layers);
  PENSTOCK_CHECK(layout.head_dim % 8 == 0 && layout.head_dim > 0 && layout.head_dim <= 256, "head", layout.head_dim);
  PENSTOCK_CHECK(layout.block_tokens > 0, "block of no tokens");
}

}  // namespace

Kernels::Kernels(IsaLevel level) : level_(level), table_(table_for(level)) {}

void Kernels::embed(const PackedMatrix& weights, std::span<const TokenId> tokens, float* out, std::size_t stride,
                    Slice slice) const {
  const IndexRange mine = split(tokens.size(), slice);
  for (std::size_t i = mine.begin; i < mine.end; ++i) weights.dequantize_row(tokens[i], out + i * stride);
}

void Kernels::rms_norm(const float* x, std::size_t stride, std::size_t m, const float* weight, float epsilon,
                       Activations& out, Slice slice) const {
  PENSTOCK_CHECK(m <= out.rows(), "rows", m, "of", out.rows());
  table_->rms_norm({const_cast<float*>(x), nullptr, stride, m, weight, epsilon, reference_to(out)}, slice);
}

void Kernels::add_rms_norm(float* x, const float* delta, std::size_t stride, std::size_t m, const float* weight,
                           float epsilon, Activations& out, Slice slice) const {
  PENSTOCK_CHECK(m <= out.rows(), "rows", m, "of", out.rows());
  table_->rms_norm({x, delta, stride, m, weight, epsilon, reference_to(out)}, slice);
}

void Kernels::quantize(Activations& activations, std::size_t m, Slice slice) const {
  PENSTOCK_CHECK(activations.form() == ActivationForm::both, "needs both forms");
  quantize(activations.f32(0), activations.f32_stride(), m, activations, slice);
}

void Kernels::quantize(const float* x, std::size_t stride, std::size_t m, Activations& out, Slice slice) const {
  PENSTOCK_CHECK(m <= out.rows() && out.has_int16(), "rows", m, "of", out.rows());
  table_->quantize(x, stride, m, reference_to(out), slice);
}

void Kernels::matmul(const PackedMatrix& weights, const Activations& x, std::size_t m, const MatmulOutput& out,
                     Slice slice) const {
  MatmulCall call = matmul_call(weights, x, m);
  call.y = out.y;
  call.stride = out.stride;
  call.bias = out.bias;
  call.residual = out.residual;
  call.residual_stride = out.residual_stride;
  table_->matmul(call, slice);
}

void Kernels::matmul_swiglu(const PackedMatrix& weights, const Activations& x, std::size_t m, Activations& out,
                            Slice slice) const {
  PENSTOCK_CHECK(weights.is_gate_up(), "not packed by pack_gate_up");
  PENSTOCK_CHECK(out.columns() * 2 == weights.rows() && m <= out.rows(), "columns", out.columns(), "rows", out.rows());
  MatmulCall call = matmul_call(weights, x, m);
  call.swiglu_out = reference_to(out);
  table_->matmul_swiglu(call, slice);
}

void Kernels::swiglu(const float* gate, const float* up, std::size_t stride, std::size_t m, Activations& out,
                     Slice slice) const {
  PENSTOCK_CHECK(m <= out.rows(), "rows", m, "of", out.rows());
  table_->swiglu({gate, up, stride, m, reference_to(out)}, slice);
}

void Kernels::route(const float* logits, std::size_t m, const RouteOptions& options, std::uint32_t* chosen,
                    float* weights, Slice slice) const {
  PENSTOCK_CHECK(options.per_token > 0 && options.per_token <= options.experts, "experts", options.per_token, "of",
                 options.experts);
  table_->route({logits, m, options.experts, options.per_token, options.renormalises, chosen, weights}, slice);
}

void Kernels::expert_gate_up(const PackedMatrix& weights, const Activations& x, const ExpertRows& rows,
                             const ExpertOptions& options, Activations& out, Slice slice) const {
  PENSTOCK_CHECK(weights.is_gate_up(), "not packed by pack_gate_up");
  PENSTOCK_CHECK(out.columns() * 2 == weights.rows(), "columns", out.columns());
  PENSTOCK_CHECK(rows.first + rows.count <= out.rows(), "rows", rows.first + rows.count, "of", out.rows());
  MatmulCall call = matmul_call(weights, x, 0);
  call.m = rows.count;
  call.x_rows = rows.rows;
  call.bias = options.gate_up_bias;
  call.activation = options.activation;
  call.swiglu_out = from_row(reference_to(out), rows.first);
  table_->matmul_swiglu(call, slice);
}

void Kernels::expert_down(const PackedMatrix& weights, const Activations& x, const ExpertRows& rows,
                          const ExpertOptions& options, float* y, std::size_t stride, Slice slice) const {
  MatmulCall call = matmul_call(weights, x, rows.first + rows.count);
  call.m = rows.count;
  call.x = from_row(call.x, rows.first);
  call.y = y;
  call.stride = stride;
  call.bias = options.down_bias;
  call.y_rows = rows.rows;
  call.y_weights = rows.weights;
  table_->matmul(call, slice);
}

void Kernels::rope_and_store(const AttentionArgs& args, const RopeTable& rope, const QkNorm& norm, Slice slice) const {
  check_attention(args);
  PENSTOCK_CHECK(rope.rotary_dim % 2 == 0 && rope.rotary_dim <= args.kv.layout.head_dim, "rotary", rope.rotary_dim);
  for (const AttentionSequence& sequence : args.sequences) {
    PENSTOCK_CHECK(sequence.first_position + sequence.rows <= rope.positions, "positions", rope.positions);
  }
  table_->rope_and_store(args, rope, norm, slice);
}

void Kernels::attention(const AttentionArgs& args, Activations& out, Slice slice) const {
  check_attention(args);
  PENSTOCK_CHECK(out.columns() == std::size_t{args.qkv.heads} * args.kv.layout.head_dim, "columns", out.columns());
  PENSTOCK_CHECK(!out.has_int16() || args.kv.layout.head_dim % 32 == 0, "int16 form needs heads of 32 n columns");
  table_->attention(args, reference_to(out), slice);
}

bool Kernels::attention_is_split(const AttentionArgs& args) const {
  return table_->attention_is_split(args);
}

void Kernels::merge_attention(const AttentionArgs& args, Activations& out, Slice slice) const {
  table_->merge_attention(args, reference_to(out), slice);
}

std::size_t Kernels::argmax(const float* logits, std::size_t count) const {
  return table_->argmax(logits, count);
}

}  // namespace penstock::kernels::cpu
