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

/// Up to so many tokens an FP8 matrix that would have to be widened is read once for each 16 of them: widening it
/// writes and reads four times its bytes.
constexpr std::uint32_t widened_few_max = 48;

/// Whether the matrix has a product of e4m3 with so many tokens.
bool takes_codes(const DeviceMatrix& matrix, std::uint32_t columns, std::uint32_t tokens) {
  if (!matrix.is_fp8() || tokens <= cuda::skinny_tokens_max) return false;
  const std::uint64_t rows = matrix.values.bytes() / columns;
  return rows % 16 == 0 && columns % (matrix.kind == cuda::Fp8Scales::block ? 512 : 16) == 0;
}

bool are_few(const Product& product, std::uint32_t tokens) {
  const bool is_widened = product.weights.is_fp8() && !takes_codes(product.weights, product.columns, tokens);
  return tokens <= (is_widened ? widened_few_max : cuda::skinny_tokens_max);
}

/// Tokens [first, first + up to 16) of a product whose outputs are y_stride apart.
cuda::SkinnyProduct few(const Product& product, std::uint32_t first, std::uint32_t tokens, const DeviceBuffer& y,
                        cuda::OutputType output, std::uint64_t y_stride) {
  const std::size_t value_bytes = output == cuda::OutputType::f32 ? sizeof(float) : sizeof(Bf16);
  cuda::SkinnyProduct p;
  p.x = product.x.values + std::uint64_t{first} * product.columns;
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

Result<Products> Products::make(const ProductLimits& limits, Stream stream) {
  const std::uint32_t tokens = padded_tokens(limits.tokens_max);
  Products products;
  if (limits.tokens_max <= cuda::skinny_tokens_max) return products;
  PENSTOCK_TRY(products.gemm_, cuda::Gemm::make());
  PENSTOCK_TRY(products.gate_up_, DeviceBuffer::make(std::size_t{tokens} * limits.gate_up_rows * sizeof(Bf16)));
  if (limits.widened_bytes == 0) return products;
  const std::uint64_t scales = cuda::fp8_scale_stride(tokens) * ((limits.columns_max + 127) / 128);
  PENSTOCK_TRY(products.widened_, DeviceBuffer::make(limits.widened_bytes));
  PENSTOCK_TRY(products.codes_, DeviceBuffer::make(std::size_t{tokens} * limits.columns_max));
  PENSTOCK_TRY(products.scales_, DeviceBuffer::make(scales * sizeof(float)));
  // Tokens that are none are multiplied too.
  PENSTOCK_TRY_VOID(products.codes_.fill(0, stream));
  PENSTOCK_TRY_VOID(products.scales_.fill(0, stream));
  return products;
}

cuda::Fp8Tokens Products::codes(const DeviceMatrix& next) const {
  return {codes_.as<std::uint8_t>(), scales_.as<float>(), next.kind};
}

Result<Rows> Products::norm(const cuda::RmsNorm& norm, const DeviceMatrix& next, Start start, Stream stream) {
  Rows rows;
  if (takes_codes(next, norm.columns, norm.tokens)) {
    rows.fp8 = codes(next);
    PENSTOCK_TRY_VOID(quantise_norm(norm, rows.fp8, start, stream));
  } else {
    rows.values = norm.y;
    PENSTOCK_TRY_VOID(rms_norm(norm, start, stream));
  }
  return rows;
}

Result<cuda::GemmProduct> Products::wide(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                         Start start, Stream stream) const {
  const DeviceMatrix& weights = product.weights;
  cuda::GemmProduct p;
  p.x = product.x.values;
  p.y = y.data();
  p.rows = product.rows;
  p.columns = product.columns;
  p.tokens = tokens;
  p.x_stride = product.columns;
  p.y_stride = product.rows;
  p.bias = product.bias;
  if (takes_codes(weights, product.columns, tokens)) {
    p.fp8_weights = weights.fp8();
    p.fp8_x = codes(weights);
    if (weights.kind == cuda::Fp8Scales::block) p.tokens = padded_tokens(tokens);
    if (!product.x.are_fp8()) PENSTOCK_TRY_VOID(quantise_rows({p.x, p.fp8_x, tokens, p.columns}, start, stream));
  } else if (weights.is_fp8()) {
    p.weights = widened_.as<Bf16>();
    PENSTOCK_TRY_VOID(widen_weights({weights.fp8(), widened_.as<Bf16>(), p.rows, p.columns}, start, stream));
  } else {
    p.weights = weights.bf16();
  }
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

Result<Rows> Products::multiply_swiglu(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                       const DeviceMatrix& next, Start start, Stream stream) {
  const std::uint32_t columns = product.rows / 2;
  if (!are_few(product, tokens)) {
    PENSTOCK_TRY(const cuda::GemmProduct p, wide(product, tokens, gate_up_, start, stream));
    PENSTOCK_TRY_VOID(gemm_.run(p, stream));
    if (!takes_codes(next, columns, tokens)) {
      PENSTOCK_TRY_VOID(swiglu({gate_up_.as<Bf16>(), y.as<Bf16>(), tokens, columns}, start, stream));
      return Rows(y);
    }
    Rows rows;
    rows.fp8 = codes(next);
    PENSTOCK_TRY_VOID(quantise_swiglu({gate_up_.as<Bf16>(), rows.fp8, tokens, columns}, start, stream));
    return rows;
  }
  for (std::uint32_t first = 0; first < tokens; first += cuda::skinny_tokens_max) {
    const cuda::SkinnyProduct p = few(product, first, tokens, y, cuda::OutputType::bf16, columns);
    PENSTOCK_TRY_VOID(multiply_few_swiglu(p, product.weights, start, stream));
  }
  return Rows(y);
}

}  // namespace penstock::worker
