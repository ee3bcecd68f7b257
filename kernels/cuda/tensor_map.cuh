// Descriptions of dense bf16 tensors for box copies. Host code of .cu files only.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace penstock::kernels::cuda {

struct TensorShape {
  const std::uint16_t* values;
  std::array<std::uint64_t, 3> sizes;  // of columns first
  unsigned dimensions;                 // 2 or 3
};

using EncodeTensor = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, found once; null if the driver is too old.
inline EncodeTensor encode_tensor() {
  static const EncodeTensor function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTensor>(found)
                                                                         : nullptr;
  }();
  return function;
}

/// Boxes of a tensor, their rows of 128 bytes swizzled; outside of it are zeros.
inline cudaError_t map_tensor(const TensorShape& shape, const std::array<unsigned, 3>& box, CUtensorMap& map) {
  const EncodeTensor encode = encode_tensor();
  if (encode == nullptr) return cudaErrorNotSupported;
  const std::uint64_t row_bytes = shape.sizes[0] * sizeof(std::uint16_t);
  const std::uint64_t strides[2] = {row_bytes, row_bytes * shape.sizes[1]};
  const unsigned element_strides[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, shape.dimensions, const_cast<std::uint16_t*>(shape.values),
             shape.sizes.data(), strides, box.data(), element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Whether the current device has what kernels for sm_90a need.
inline cudaError_t check_hopper() {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return error;
  return major == 9 && minor == 0 ? cudaSuccess : cudaErrorNotSupported;
}

}  // namespace penstock::kernels::cuda
