#include "kernels/cuda/elementwise.hpp"

#include "kernels/cuda/elementwise_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::uint32_t columns_max = 1u << 24;

Result<void> validate_rows(std::string_view name, std::uint32_t columns) {
  if (columns != 0 && columns % 8 == 0 && columns <= columns_max) return {};
  return bad_shape(name, "columns must be a multiple of 8");
}

std::int64_t pieces_of(std::uint32_t tokens, std::uint32_t columns) {
  return static_cast<std::int64_t>(tokens) * (columns / 8);
}

}  // namespace

Result<void> swiglu(const SwiGlu& work, Start start, Stream stream) {
  PENSTOCK_TRY_VOID(validate_rows("swiglu", work.columns));
  if (work.tokens == 0) return {};
  const SwiGluArguments a{work.x, work.y, pieces_of(work.tokens, work.columns),
                          static_cast<std::int32_t>(work.columns / 8)};
  return check_launch(start_swiglu(a, start == Start::overlapped, stream), "swiglu");
}

Result<void> gather_embedding(const EmbeddingRows& work, Start start, Stream stream) {
  PENSTOCK_TRY_VOID(validate_rows("gather_embedding", work.columns));
  if (work.tokens == 0) return {};
  const EmbeddingArguments a{work.table,
                             work.ids,
                             work.drawn,
                             work.y,
                             pieces_of(work.tokens, work.columns),
                             static_cast<std::int32_t>(work.columns / 8),
                             work.vocabulary};
  return check_launch(start_embedding(a, start == Start::overlapped, stream), "gather_embedding");
}

Result<void> copy_blocks(const BlockCopies& work, Start start, Stream stream) {
  constexpr std::string_view name = "copy_blocks";
  const std::uint64_t values = work.pool.block_values();
  if (values == 0 || values % 8 != 0) return bad_shape(name, "a block must be a multiple of 16 bytes");
  if (work.count > 65535) return bad_shape(name, "at most 65535 pairs");
  if (work.count == 0) return {};
  static_assert(sizeof(BlockPair) == 2 * sizeof(std::uint32_t));
  const BlockCopyArguments a{work.pool.base, reinterpret_cast<const std::uint32_t*>(work.pairs),
                             static_cast<std::int64_t>(values / 8), static_cast<std::int32_t>(work.count),
                             work.pool.blocks};
  return check_launch(start_block_copy(a, start == Start::overlapped, stream), name);
}

Result<void> change_words(const WordChanges& work, Start start, Stream stream) {
  if (work.count == 0) return {};
  static_assert(sizeof(WordChange) == 2 * sizeof(std::uint32_t));
  const WordChangeArguments a{work.words, work.size, reinterpret_cast<const std::uint32_t*>(work.changes), work.count};
  return check_launch(start_word_changes(a, start == Start::overlapped, stream), "change_words");
}

Result<void> widen_weights(const WidenedWeights& work, Start start, Stream stream) {
  constexpr std::string_view name = "widen_weights";
  if (work.columns == 0 || work.columns % 16 != 0) return bad_shape(name, "columns must be a multiple of 16");
  if (work.weights.values == nullptr || work.weights.scales == nullptr || work.y == nullptr) {
    return bad_shape(name, "weights, scales and y are needed");
  }
  if (work.rows == 0) return {};
  const bool has_blocks = work.weights.kind == Fp8Scales::block;
  const WidenArguments a{work.weights.values,
                         work.weights.scales,
                         work.y,
                         std::int64_t{work.rows} * (work.columns / 16),
                         static_cast<std::int32_t>(work.columns / 16),
                         work.weights.kind == Fp8Scales::row ? 1 : 0,
                         has_blocks ? static_cast<std::int32_t>((work.columns + 127) / 128) : 0};
  return check_launch(start_widen(a, start == Start::overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
