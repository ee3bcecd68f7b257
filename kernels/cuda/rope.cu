// A warp a head of a token.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rope.cuh"
#include "kernels/cuda/rope_launch.hpp"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int rope_warps = 4;

template <int head_dim>
__global__ void __launch_bounds__(rope_warps* warp_lanes) rope_kernel(const RopeArguments a) {
  constexpr int half = head_dim / 2, pairs = half / warp_lanes;
  const int lane = threadIdx.x % warp_lanes, first = lane * pairs;
  const int head = blockIdx.y * rope_warps + threadIdx.x / warp_lanes, token = blockIdx.x;
  if (head >= a.heads + 2 * a.kv_heads) return;
  wait_for_predecessor();
  let_successor_start();
  const std::uint16_t* from = a.qkv + token * a.qkv_stride + static_cast<std::int64_t>(head) * head_dim + first;
  HalfHead<pairs> low = read_half<pairs>(from), high = read_half<pairs>(from + half);
  const std::int64_t slot = a.slots[token];
  const int position = a.positions[token];
  const bool is_padding = slot < 0 || slot >= a.slots_end || position < 0 || position >= a.table_positions;
  const bool is_query = head < a.heads, is_value = head >= a.heads + a.kv_heads;
  if (is_padding) {
    if (!is_query) return;
    low = high = HalfHead<pairs>{};
  } else if (!is_value) {
    const std::uint16_t* weight = is_query ? a.q_norm : a.k_norm;
    if (weight != nullptr) normalise<pairs>(low, high, weight, first, a.epsilon);
    rotate<pairs>(low, high, read_angles<pairs>(a.cos, a.sin, position, first));
  }
  std::uint16_t* to;
  if (is_query) {
    to = a.q + (static_cast<std::int64_t>(token) * a.heads + head) * head_dim + first;
  } else {
    const int kv_head = head - a.heads - (is_value ? a.kv_heads : 0);
    to = a.pool + slot / a.block_tokens * a.block_values + kv_head * a.head_values + (is_value ? a.plane_values : 0) +
         slot % a.block_tokens * head_dim + first;
  }
  write_half<pairs>(to, low);
  write_half<pairs>(to + half, high);
}

}  // namespace
}  // namespace device

int start_rope(const RopeArguments& a, std::uint32_t head_dim, bool overlapped, CUstream_st* stream) {
  const int heads = a.heads + 2 * a.kv_heads;
  const dim3 grid(static_cast<unsigned>(a.tokens),
                  static_cast<unsigned>((heads + device::rope_warps - 1) / device::rope_warps));
  const LaunchShape shape{grid, device::rope_warps * device::warp_lanes, 0, 1, overlapped};
  return head_dim == 64 ? start_kernel(device::rope_kernel<64>, shape, stream, a)
                        : start_kernel(device::rope_kernel<128>, shape, stream, a);
}

}  // namespace penstock::kernels::cuda
