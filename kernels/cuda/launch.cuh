// Starts a kernel with its attributes. Host code of .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace penstock::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;  // dynamic; the caller has raised the kernel's limit if it is above 48 KB
  unsigned cluster = 1;          // blocks along x that share memory
  bool overlapped = false;       // programmatic dependent launch
};

template <class... Parameters, class... Arguments>
cudaError_t start_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                         const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim = {shape.cluster, 1, 1};
    ++config.numAttrs;
  }
  if (shape.overlapped) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    ++config.numAttrs;
  }
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

/// Lets a kernel use `bytes` of dynamic shared memory. Cheap enough for every launch, and safe from any thread.
template <class Kernel>
cudaError_t allow_shared(Kernel* kernel, std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace penstock::kernels::cuda
