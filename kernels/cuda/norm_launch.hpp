// Between norm.cpp and norm.cu. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct NormArguments {
  std::uint16_t* residual;
  const std::uint16_t* x;
  const std::uint16_t* weight;
  std::uint16_t* y;
  std::int32_t tokens, columns;
  float epsilon;
};
/// Of an RmsNorm; a template, so that device code needs no header of the library.
template <class Norm>
NormArguments arguments_of(const Norm& norm) {
  return {norm.residual,
          norm.x,
          norm.weight,
          norm.y,
          static_cast<std::int32_t>(norm.tokens),
          static_cast<std::int32_t>(norm.columns),
          norm.epsilon};
}
/// Threads of a block, which has a row: pieces of eight values, at most four each.
inline unsigned norm_threads(const NormArguments& arguments) {
  const unsigned pieces = static_cast<unsigned>(arguments.columns) / 8;
  return pieces >= 1024 ? 1024 : (pieces + 31) / 32 * 32;
}
/// Returns a cudaError_t.
int start_rms_norm(const NormArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
