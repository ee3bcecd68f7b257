// Between read_probe.cpp and read_probe.cu. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

/// Returns a cudaError_t.
int start_read_probe(const void* data, std::int64_t pieces, std::uint32_t blocks, float* sink, bool overlapped,
                     CUstream_st* stream);

}  // namespace penstock::kernels::cuda
