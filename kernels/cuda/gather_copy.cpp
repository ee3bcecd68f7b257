#include "kernels/cuda/gather_copy.hpp"

#include "kernels/cuda/gather_copy_launch.hpp"

namespace penstock::kernels::cuda {

Result<void> gather_copy(const GatherCopy& work, Start start, Stream stream) {
  constexpr std::string_view name = "gather_copy";
  if (work.count == 0) return {};
  if (work.count > 65535) return bad_shape(name, "at most 65535 pieces");
  if (work.piece_bytes_max == 0 || work.piece_bytes_max % 16 != 0) {
    return bad_shape(name, "pieces must be multiples of 16 bytes");
  }
  static_assert(sizeof(GatherPiece) == 3 * sizeof(std::uint64_t));
  const GatherArguments a{static_cast<const std::uint8_t*>(work.from), static_cast<std::uint8_t*>(work.to),
                          reinterpret_cast<const std::uint64_t*>(work.pieces),
                          static_cast<std::int64_t>(work.piece_bytes_max / 16), static_cast<std::int32_t>(work.count)};
  return check_launch(start_gather_copy(a, start == Start::overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
