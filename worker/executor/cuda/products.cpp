#include "worker/executor/cuda/products.hpp"

#include <algorithm>

#include "kernels/cuda/elementwise.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::Start;
using cuda::Stream;

namespace {

/// Up to so many tokens an FP8 matrix is read once for each 16 of them: widening it writes and reads four times its
/// bytes.
constexpr std::uint32_t fp8_few_max = 48;

bool are_few(const Product& product, std::uint32_t tokens) {
  return tokens <= (product.weights.is_fp8() ? fp8_few_max : cuda::skinny_tokens_max);
}

/// Tokens [first, first + up to 16) of a product whose outputs are y_stride apart.
cuda::SkinnyProduct few(const Product& product, std::uint32_t first, std::uint32_t tokens, const DeviceBuffer& y,
                        cuda::OutputType output, std::uint64_t y_stride) {
  const std::size_t value_bytes = output == cuda::OutputType::f32 ? sizeof(float) : sizeof(Bf16);
  cuda::SkinnyProduct p;
  p.x = product.x.as<Bf16>() + std::uint64_t{first} * product.columns;
  p.y = y.as<std::byte>() + first * y_stride * value_bytes;
  p.rows = product.rows;
  p.columns = product.columns;
  p.tokens = std::min(tokens - first, cuda::skinny_tokens_max);
  p.x_stride = product.columns;
  p.y_stride = p.residual_stride = y_stride;
  p.output = output;
  p.bias = product.bias;
  return p;
}

}  // namespace

Result<void> multiply_few(const cuda::SkinnyProduct& product, const DeviceMatrix& weights, Start start, Stream stream) {
  const std::uint32_t rows = product.rows, columns = product.columns, tokens = product.tokens;
  if (weights.is_fp8()) {
    return skinny_fp8(product, weights.fp8(), cuda::choose_skinny_fp8(rows, columns, tokens), start, stream);
  }
  cuda::SkinnyProduct p = product;
  p.weights = weights.bf16();
  return skinny_gemm(p, cuda::choose_skinny(rows, columns, tokens), start, stream);
}

Result<void> multiply_few_swiglu(const cuda::SkinnyProduct& product, const DeviceMatrix& weights, Start start,
                                 Stream stream) {
  const std::uint32_t rows = product.rows, columns = product.columns, tokens = product.tokens;
  if (weights.is_fp8()) {
    return skinny_fp8_swiglu(product, weights.fp8(), cuda::choose_skinny_fp8(rows, columns, tokens), start, stream);
  }
  cuda::SkinnyProduct p = product;
  p.weights = weights.bf16();
  return skinny_gemm_swiglu(p, cuda::choose_skinny(rows, columns, tokens), start, stream);
}

std::uint32_t squares_of_few(const DeviceMatrix& weights, std::uint32_t rows, std::uint32_t columns,
                             std::uint32_t tokens) {
  return weights.is_fp8() ? cuda::squares_parts_fp8(rows, cuda::choose_skinny_fp8(rows, columns, tokens))
                          : cuda::squares_parts(rows, cuda::choose_skinny(rows, columns, tokens));
}

Result<Products> Products::make(std::uint32_t tokens_max, std::uint32_t gate_up_rows, std::uint64_t widened_bytes) {
  Products products;
  if (tokens_max <= cuda::skinny_tokens_max) return products;
  PENSTOCK_TRY(products.gemm_, cuda::Gemm::make());
  PENSTOCK_TRY(products.gate_up_, DeviceBuffer::make(std::size_t{tokens_max} * gate_up_rows * sizeof(Bf16)));
  if (tokens_max > fp8_few_max) {
    PENSTOCK_TRY(products.widened_, DeviceBuffer::make(widened_bytes));
  }
  return products;
}

Result<cuda::GemmProduct> Products::wide(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                         Start start, Stream stream) const {
  cuda::GemmProduct p;
  p.weights = product.weights.bf16();
  if (product.weights.is_fp8()) {
    p.weights = widened_.as<Bf16>();
    PENSTOCK_TRY_VOID(
        widen_weights({product.weights.fp8(), widened_.as<Bf16>(), product.rows, product.columns}, start, stream));
  }
  p.x = product.x.as<Bf16>();
  p.y = y.data();
  p.rows = product.rows;
  p.columns = product.columns;
  p.tokens = tokens;
  p.x_stride = product.columns;
  p.y_stride = product.rows;
  p.bias = product.bias;
  return p;
}

Result<void> Products::multiply(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                cuda::OutputType output, const DeviceBuffer* residual, Start start, Stream stream) {
  const Bf16* const added = residual != nullptr ? residual->as<Bf16>() : nullptr;
  if (!are_few(product, tokens)) {
    PENSTOCK_TRY(cuda::GemmProduct p, wide(product, tokens, y, start, stream));
    p.output = output;
    p.residual = added;
    return gemm_.run(p, stream);
  }
  for (std::uint32_t first = 0; first < tokens; first += cuda::skinny_tokens_max) {
    cuda::SkinnyProduct p = few(product, first, tokens, y, output, product.rows);
    if (added != nullptr) p.residual = added + std::uint64_t{first} * product.rows;
    PENSTOCK_TRY_VOID(multiply_few(p, product.weights, start, stream));
  }
  return {};
}

Result<void> Products::multiply_swiglu(const Product& product, std::uint32_t tokens, const DeviceBuffer& y, Start start,
                                       Stream stream) {
  if (!are_few(product, tokens)) {
    PENSTOCK_TRY(const cuda::GemmProduct p, wide(product, tokens, gate_up_, start, stream));
    PENSTOCK_TRY_VOID(gemm_.run(p, stream));
    return swiglu({gate_up_.as<Bf16>(), y.as<Bf16>(), tokens, product.rows / 2}, start, stream);
  }
  for (std::uint32_t first = 0; first < tokens; first += cuda::skinny_tokens_max) {
    const cuda::SkinnyProduct p = few(product, first, tokens, y, cuda::OutputType::bf16, product.rows / 2);
    PENSTOCK_TRY_VOID(multiply_few_swiglu(p, product.weights, start, stream));
  }
  return {};
}

}  // namespace penstock::worker
