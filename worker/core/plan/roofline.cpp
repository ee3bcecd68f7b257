#include "worker/core/plan/roofline.hpp"

#include <algorithm>
#include <cmath>

#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

// Measured between dependent kernels of a graph on an H200.
constexpr double kernel_gap = 0.55e-6;
constexpr double dense_layer_kernels = 5, expert_layer_kernels = 7, head_kernels = 3;

// One-shot reduction over peer memory on two H200: 2.8 us at 8 KB, 8.8 us at 1 MB; more ranks cost about 0.15 us each
// in figures published for four and eight.
constexpr double reduce_latency = 2.75e-6, reduce_rank_latency = 0.15e-6, link_bytes_per_second = 175e9;
// Published for dispatch or combine of few tokens among eight GPUs; bandwidth at 128 tokens.
constexpr double exchange_latency = 9e-6, exchange_bytes_per_second = 215e9;
constexpr double hop_latency = 5e-6;  // an allowance for a message from one stage to the next

double all_reduce_time(std::uint32_t ranks, double bytes) {
  if (ranks == 1) return 0;
  const double moved = bytes * 2 * (ranks - 1) / ranks;
  return reduce_latency + reduce_rank_latency * (ranks - 2) + moved / link_bytes_per_second;
}

bool exchanges_tokens(const RankLayout& layout) {
  return layout.sizes().expert > layout.stage_ranks();
}

double matrix_time(const DeviceKind& device, const Linear& linear, double copies_read, double tokens) {
  const double bytes = copies_read * static_cast<double>(linear.bytes_of_one());
  const double work = 2 * tokens * static_cast<double>(linear.rows) * static_cast<double>(linear.columns);
  const bool is_fp8 = linear.format == WeightFormat::fp8;
  const double rate = is_fp8 ? device.fp8_flops_per_second : device.bf16_flops_per_second;
  return std::max(bytes / device.read_bytes_per_second, work / rate);
}

double layer_time(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device, WeightFormat format,
                  double tokens) {
  const AxisSizes& sizes = layout.sizes();
  const double shared_tokens = tokens * (exchanges_tokens(layout) ? sizes.data : 1);
  double time = 0;
  for (const Linear& linear : linears_of_layer(shape, layout, format)) {
    if (linear.use == LinearUse::every_token) {
      time += matrix_time(device, linear, 1, tokens);
    } else {
      const double rows = shared_tokens * shape.experts_per_token / sizes.expert;
      time += matrix_time(device, linear, experts_read(shape, layout, shared_tokens), rows);
    }
  }
  return time;
}

double layer_collectives(const ModelShape& shape, const RankLayout& layout, double tokens) {
  const double row_bytes = 2.0 * shape.hidden;
  const double reduce = all_reduce_time(layout.stage_ranks(), tokens * row_bytes);
  if (!exchanges_tokens(layout)) return 2 * reduce;
  const double moved = tokens * shape.experts_per_token * row_bytes;
  return reduce + 2 * (exchange_latency + moved / exchange_bytes_per_second);
}

}  // namespace

double experts_read(const ModelShape& shape, const RankLayout& layout, double tokens) {
  const double missed = std::pow(1 - static_cast<double>(shape.experts_per_token) / shape.experts, tokens);
  const double distinct = shape.experts * (1 - missed);
  const double ranks = layout.sizes().expert;
  if (ranks == 1) return distinct;
  const double mean = distinct / ranks;
  return std::min({mean + std::sqrt(mean * (1 - 1 / ranks)), shape.experts / ranks, distinct});
}

StepTime decode_step_time(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device,
                          const MemoryOptions& options, std::uint32_t sequences, std::uint32_t sequence_tokens) {
  const AxisSizes& sizes = layout.sizes();
  const double tokens = std::ceil(static_cast<double>(sequences) / (sizes.data * sizes.pipeline));
  const double layers = share_of(shape.layers, sizes.pipeline, 0).count;
  const double stages = sizes.pipeline;
  const RankMemory memory = memory_of(shape, layout, device, options);
  StepTime time;
  // Every micro-batch passes every stage; the head is the last one's.
  time.weights_seconds = stages * layers * layer_time(shape, layout, device, options.weights, tokens) +
                         matrix_time(device, head_of(shape, layout), 1, tokens);
  const double kv_read = tokens * sequence_tokens * static_cast<double>(memory.kv_token_bytes) / sizes.context;
  time.kv_seconds = stages * kv_read / device.read_bytes_per_second;
  const double layer_kernels = shape.experts == 0 ? dense_layer_kernels : expert_layer_kernels;
  time.launch_seconds = kernel_gap * (stages * layers * layer_kernels + head_kernels);
  time.collective_seconds = stages * layers * layer_collectives(shape, layout, tokens);
  if (sizes.pipeline > 1) {
    time.collective_seconds += stages * (hop_latency + tokens * 2.0 * shape.hidden / link_bytes_per_second);
  }
  return time;
}

}  // namespace penstock::worker::plan
