// What the host APIs of all GPU kernels share. Kernels only queue work on a stream: they allocate nothing, wait for
// nothing, and errors of the device itself show up at the next wait. Pointers are device memory unless they say
// otherwise, and must be aligned to 16 bytes. Any thread; a stream is used by one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.hpp"

struct CUstream_st;

namespace penstock::kernels::cuda {

using Stream = CUstream_st*;
using Bf16 = std::uint16_t;  // the bits

/// How a kernel starts behind the one before it on the stream.
enum class Start : std::uint8_t {
  ordered,     // when that one has ended
  overlapped,  // may fetch weights while that one still runs (programmatic dependent launch); results are the same
};

/// An error of the CUDA runtime as ours; `code` is a cudaError_t, 0 is success.
Result<void> check_launch(int code, std::string_view kernel);

/// invalid_argument, "kernel: why".
Error bad_shape(std::string_view kernel, std::string_view why);

}  // namespace penstock::kernels::cuda
