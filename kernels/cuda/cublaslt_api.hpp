// The part of cuBLASLt 13 that gemm.cpp calls, declared here: its header comes with 400 MB of library that no build
// needs, and the library is found when a program runs. Numbers and layouts are part of the library's binary interface,
// fixed for all of 13.x; tests/kernel/gemm_test.cpp compares them with the real header where that is. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda::cublaslt {

constexpr const char* file_name = "libcublasLt.so.13";

// Enumerations, by the names of their values.
constexpr int status_success = 0, status_not_supported = 15;
constexpr int real_32f = 0, real_16bf = 14, real_8f_e4m3 = 28, compute_32f = 68;
constexpr int transposed = 1;
constexpr int desc_transa = 3, desc_epilogue = 7, desc_bias_pointer = 8, desc_a_scale_pointer = 17,
              desc_b_scale_pointer = 18, desc_fast_accumulation = 25, desc_bias_data_type = 26, desc_a_scale_mode = 31,
              desc_b_scale_mode = 32;
constexpr int scale_of_row = 3, scale_of_128 = 4, scale_of_128_by_128 = 5;
constexpr int epilogue_default = 1, epilogue_bias = 4;
constexpr int preference_workspace_bytes = 1, preference_reduction_schemes = 3, preference_alignment_a = 5,
              preference_alignment_b = 6, preference_alignment_c = 7, preference_alignment_d = 8;
constexpr std::uint32_t reduction_in_compute_type = 2;

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

using Handle = void*;      // cublasLtHandle_t
using Layout = void*;      // cublasLtMatrixLayout_t
using Descriptor = void*;  // cublasLtMatmulDesc_t
using Preference = void*;  // cublasLtMatmulPreference_t

struct Functions {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*layout_create)(Layout*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  int (*layout_destroy)(Layout);
  int (*desc_create)(Descriptor*, int compute_type, int scale_type);
  int (*desc_destroy)(Descriptor);
  int (*desc_set)(Descriptor, int attribute, const void* value, std::size_t bytes);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, int attribute, const void* value, std::size_t bytes);
  int (*heuristic)(Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, HeuristicResult*,
                   int* found);
  int (*matmul)(Handle, Descriptor, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, std::size_t workspace_bytes,
                CUstream_st*);
};

}  // namespace penstock::kernels::cuda::cublaslt
