#include "worker/executor/cuda/products.hpp"

#include "kernels/cuda/elementwise.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::Start;

namespace {

cuda::SkinnyProduct skinny(const Product& product, std::uint32_t tokens, const DeviceBuffer& y) {
  cuda::SkinnyProduct p;
  p.weights = product.weights.as<Bf16>();
  p.x = product.x.as<Bf16>();
  p.y = y.data();
  p.rows = product.rows;
  p.columns = product.columns;
  p.tokens = tokens;
  p.x_stride = product.columns;
  p.y_stride = p.residual_stride = product.rows;
  p.bias = product.bias;
  return p;
}

cuda::GemmProduct wide(const Product& product, std::uint32_t tokens, const DeviceBuffer& y) {
  cuda::GemmProduct p;
  p.weights = product.weights.as<Bf16>();
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

}  // namespace

Result<Products> Products::make(std::uint32_t tokens_max, std::uint32_t gate_up_rows) {
  Products products;
  if (tokens_max <= cuda::skinny_tokens_max) return products;
  PENSTOCK_TRY(products.gemm_, cuda::Gemm::make());
  PENSTOCK_TRY(products.gate_up_, DeviceBuffer::make(std::size_t{tokens_max} * gate_up_rows * sizeof(Bf16)));
  return products;
}

Result<void> Products::multiply(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                cuda::OutputType output, const DeviceBuffer* residual, cuda::Stream stream) {
  const Bf16* const added = residual != nullptr ? residual->as<Bf16>() : nullptr;
  if (tokens > cuda::skinny_tokens_max) {
    cuda::GemmProduct p = wide(product, tokens, y);
    p.output = output;
    p.residual = added;
    return gemm_.run(p, stream);
  }
  cuda::SkinnyProduct p = skinny(product, tokens, y);
  p.output = output;
  p.residual = added;
  return skinny_gemm(p, cuda::choose_skinny(p.rows, p.columns, tokens), Start::overlapped, stream);
}

Result<void> Products::multiply_swiglu(const Product& product, std::uint32_t tokens, const DeviceBuffer& y,
                                       cuda::Stream stream) {
  if (tokens > cuda::skinny_tokens_max) {
    PENSTOCK_TRY_VOID(gemm_.run(wide(product, tokens, gate_up_), stream));
    return swiglu({gate_up_.as<Bf16>(), y.as<Bf16>(), tokens, product.rows / 2}, Start::overlapped, stream);
  }
  cuda::SkinnyProduct p = skinny(product, tokens, y);
  p.y_stride = product.rows / 2;
  return skinny_gemm_swiglu(p, cuda::choose_skinny(p.rows, p.columns, tokens), Start::overlapped, stream);
}

}  // namespace penstock::worker
