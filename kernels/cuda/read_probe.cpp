#include "kernels/cuda/read_probe.hpp"

#include "kernels/cuda/probe_launch.hpp"

namespace penstock::kernels::cuda {

Result<void> read_probe(const void* data, std::uint64_t bytes, std::uint32_t blocks, float* sink, Start start,
                        Stream stream) {
  if (bytes % 16 != 0 || blocks == 0) return bad_shape("read_probe", "bytes must be a multiple of 16, blocks positive");
  const auto pieces = static_cast<std::int64_t>(bytes / 16);
  return check_launch(start_read_probe(data, pieces, blocks, sink, start == Start::overlapped, stream), "read_probe");
}

}  // namespace penstock::kernels::cuda
