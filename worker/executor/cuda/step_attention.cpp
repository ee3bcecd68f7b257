#include "worker/executor/cuda/step_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.hpp"
#include "kernels/cuda/decode_attention.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::Start;

namespace {

// A prompt's rows read their keys once for a whole tile, but one block walks over all of them: with so few rows,
// splitting the keys over blocks is faster.
constexpr std::uint32_t decoded_rows_max = 16;
constexpr std::uint32_t hopper = 90;

template <class T>
Result<void> copy_in(DeviceBuffer& to, const std::vector<T>& from, cuda::Stream stream) {
  PENSTOCK_CHECK(from.size() * sizeof(T) <= to.bytes(), "more than the most that a step can have");
  return from.empty() ? Result<void>() : to.upload(from.data(), from.size() * sizeof(T), stream);
}

}  // namespace

SplitRows split_rows(const DeviceStep& step, std::uint32_t decoded_max) {
  SplitRows split;
  const std::uint32_t rows = step.rows();
  for (std::uint32_t first = 0, next = 0; first < rows; first = next) {
    while (next < rows && step.table_of[next] == step.table_of[first]) ++next;
    const std::uint32_t count = next - first;
    const std::int32_t length = step.lengths[next - 1];
    if (count > decoded_max) {
      split.prompts.push_back(
          {static_cast<std::int32_t>(first), static_cast<std::int32_t>(count), length, step.table_of[first]});
      continue;
    }
    const bool continues = !split.runs.empty() && split.runs.back().first + split.runs.back().count == first;
    if (!continues) split.runs.push_back({first, 0, 0});
    split.runs.back().count += count;
    split.runs.back().longest = std::max(split.runs.back().longest, length);
  }
  return split;
}

Result<StepAttention> StepAttention::make(const cuda::DeviceInfo& device, const cuda::KvPool& pool,
                                          const AttentionLimits& limits, cuda::Stream stream) {
  StepAttention attention;
  attention.pool_ = pool;
  attention.limits_ = limits;
  attention.decoded_max_ =
      device.compute_capability == hopper ? decoded_rows_max : std::numeric_limits<std::uint32_t>::max();
  // choose_splits() splits only while rows * kv_heads * splits stay below three for each multiprocessor; a row that is
  // not split needs no room.
  const std::uint32_t split_rows = 3 * device.multiprocessors / pool.kv_heads + 1;
  const std::size_t workspace = cuda::workspace_bytes(split_rows, limits.heads, pool.head_dim, 1);
  attention.shape_ = {limits.heads, pool.kv_heads, pool.head_dim, device.multiprocessors};
  const cuda::PrefillSizes sizes = cuda::prefill_sizes_max(limits.rows_max, limits.sequences_max, attention.shape_);
  PENSTOCK_TRY(attention.workspace_, DeviceBuffer::make(workspace));
  PENSTOCK_TRY(attention.sequences_, DeviceBuffer::make(limits.sequences_max * sizeof(cuda::PrefillSequence)));
  PENSTOCK_TRY(attention.tiles_, DeviceBuffer::make(sizes.tiles * sizeof(cuda::PrefillTile)));
  PENSTOCK_TRY(attention.merges_, DeviceBuffer::make(sizes.merges * sizeof(cuda::PrefillMerge)));
  PENSTOCK_TRY(attention.prefill_workspace_, DeviceBuffer::make(sizes.workspace_bytes));
  PENSTOCK_TRY_VOID(attention.workspace_.fill(0, stream));
  PENSTOCK_TRY_VOID(attention.prefill_workspace_.fill(0, stream));
  return attention;
}

Result<void> StepAttention::plan(const DeviceStep& step, cuda::Stream stream) {
  rows_ = split_rows(step, decoded_max_);
  step_rows_ = step.rows();
  tile_count_ = 0;
  if (rows_.prompts.empty()) return {};
  const cuda::PrefillPlan plan = cuda::plan_prefill(rows_.prompts, shape_);
  tile_count_ = static_cast<std::uint32_t>(plan.tiles.size());
  merge_count_ = static_cast<std::uint32_t>(plan.merges.size());
  longest_prompt_ = 0;
  for (const cuda::PrefillSequence& prompt : rows_.prompts) {
    longest_prompt_ = std::max(longest_prompt_, static_cast<std::uint32_t>(prompt.length));
  }
  PENSTOCK_TRY_VOID(copy_in(sequences_, rows_.prompts, stream));
  PENSTOCK_TRY_VOID(copy_in(merges_, plan.merges, stream));
  return copy_in(tiles_, plan.tiles, stream);
}

Result<void> StepAttention::queue(std::uint32_t layer, const Inputs& inputs, cuda::Stream stream) const {
  for (const DecodeRun& run : rows_.runs) PENSTOCK_TRY_VOID(queue_run(run, layer, inputs, stream));
  return tile_count_ > 0 ? queue_prompts(layer, inputs, stream) : Result<void>();
}

Result<void> StepAttention::queue_run(const DecodeRun& run, std::uint32_t layer, const Inputs& inputs,
                                      cuda::Stream stream) const {
  const std::uint64_t offset = std::uint64_t{run.first} * limits_.heads * pool_.head_dim;
  cuda::DecodeAttention work;
  work.q = inputs.q + offset;
  work.out = inputs.out + offset;
  work.pool = pool_;
  work.layer = layer;
  work.sequences = run.count;
  work.heads = limits_.heads;
  work.tables = inputs.tables;
  work.table_of = inputs.table_of + run.first;
  work.table_stride = limits_.table_stride;
  work.lengths = inputs.lengths + run.first;
  work.scale = 1.0f / std::sqrt(static_cast<float>(pool_.head_dim));
  work.splits =
      cuda::choose_splits(run.count, pool_.kv_heads, static_cast<std::uint32_t>(run.longest), shape_.multiprocessors);
  work.workspace = workspace_.data();
  return decode_attention(work, Start::overlapped, stream);
}

Result<void> StepAttention::queue_prompts(std::uint32_t layer, const Inputs& inputs, cuda::Stream stream) const {
  cuda::PrefillAttention work;
  work.q = inputs.q;
  work.out = inputs.out;
  work.pool = pool_;
  work.layer = layer;
  work.rows = step_rows_;
  work.heads = limits_.heads;
  work.tables = inputs.tables;
  work.table_stride = limits_.table_stride;
  work.sequences = sequences_.as<cuda::PrefillSequence>();
  work.tiles = tiles_.as<cuda::PrefillTile>();
  work.tile_count = tile_count_;
  work.merges = merges_.as<cuda::PrefillMerge>();
  work.merge_count = merge_count_;
  work.longest = longest_prompt_;
  work.scale = 1.0f / std::sqrt(static_cast<float>(pool_.head_dim));
  work.multiprocessors = shape_.multiprocessors;
  work.workspace = prefill_workspace_.data();
  return prefill_attention(work, Start::overlapped, stream);
}

}  // namespace penstock::worker
