// Between experts.cpp and its kernels. Internal. All return a cudaError_t.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct ExpertSizes {
  std::int32_t experts, chosen, hidden, ffn, tokens;
};

struct ExpertArguments {
  ExpertSizes sizes;
  const std::uint16_t* router;
  const std::uint16_t* gate_up;
  const std::uint16_t* down;
  const std::uint16_t* x;
  const float* norm_squares;
  std::int32_t norm_parts;
  float norm_epsilon;
  bool scales_all;
  std::uint32_t* arrived;
  std::int32_t* experts;
  float* choice_weights;
  float* scales;
  float* logits;
  std::int32_t* first;
  std::int32_t* order;
  std::uint16_t* activated;
  std::uint16_t* outputs;
  std::uint16_t* y;
  const std::uint16_t* gain;
  std::uint16_t* gained;
  float* squares;
};
int start_routing(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);
int start_few(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);

int start_order(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);
int start_many_gate_up(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);
int start_many_down(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);
int start_combine(const ExpertArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
