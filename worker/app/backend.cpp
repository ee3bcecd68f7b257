#include "worker/app/backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "common/time/block.hpp"
#include "kernels/cpu/cpu_share.hpp"
#include "worker/executor/cpu/cpu_executor.hpp"
#ifdef PENSTOCK_CUDA
#include "worker/core/plan/device_budget.hpp"
#include "worker/core/plan/roofline.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"
#include "worker/model/shape.hpp"
#include "worker/transfer/cuda/cuda_pool.hpp"
#endif
#include "worker/executor/fake/fake_executor.hpp"

namespace penstock::worker {
namespace {

constexpr std::uint32_t block_tokens = 16;

/// A bar on a terminal, nothing on a pipe.
void show_progress(std::uint64_t done, std::uint64_t total) {
  if (isatty(STDERR_FILENO) == 0 || total == 0) return;
  std::fprintf(stderr, "\rloading %3d %%%s", static_cast<int>(done * 100 / total), done == total ? "\r\033[K" : "");
}

std::uint32_t blocks_of(const WorkerConfig& config, std::size_t block_bytes) {
  const std::uint64_t blocks = config.kv_pool.bytes / block_bytes;
  if (blocks == 0) {
    throw std::runtime_error("--kv-pool " + config::format_byte_size(config.kv_pool) +
                             " does not hold a single KV block of " + std::to_string(block_bytes) + " bytes");
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, 0x7fffffff));
}

std::unique_ptr<Executor> make_cpu(const WorkerConfig& config, const std::shared_ptr<const LoadedModel>& model) {
  CpuExecutorOptions options;
  options.step_tokens_max = config.step_tokens;
  options.sequences_max = config.sequences;
  options.sequence_tokens_max = config.context_tokens;
  options.block_tokens = block_tokens;
  options.kv_dtype = config.kv_dtype;
  options.kv_blocks = blocks_of(config, kv_block_bytes(model->spec, block_tokens, config.kv_dtype));
  const std::uint32_t cores = kernels::cpu::available_cpus();
  const std::uint32_t threads = config.threads != 0 ? config.threads : cores;
  options.threads = std::max(1u, threads / config.tensor_parallel);
  if (config.pin_threads) {
    for (std::uint32_t i = 0; i < options.threads; ++i) options.cpus.push_back(static_cast<int>(i % cores));
  }
  auto executor = make_cpu_executor(model, options);
  if (!executor) throw std::runtime_error(executor.error().message);
  return std::move(*executor);
}

#ifdef PENSTOCK_CUDA
constexpr bool has_cuda = true;

CudaLaunch launch_of(CudaLaunchKind kind) {
  switch (kind) {
    case CudaLaunchKind::graph:
      return CudaLaunch::graph;
    case CudaLaunchKind::direct:
      return CudaLaunch::direct;
    case CudaLaunchKind::ordered:
      return CudaLaunch::ordered;
  }
  return CudaLaunch::graph;
}

plan::MemoryOptions plan_options(const WorkerConfig& config, const plan::ModelShape& shape) {
  plan::MemoryOptions options;
  // Every other format is widened to bf16, and so is this one where GPUs share it.
  const bool keeps_fp8 = shape.weights == plan::WeightFormat::fp8 && config.tensor_parallel == 1;
  options.weights = keeps_fp8 ? plan::WeightFormat::fp8 : plan::WeightFormat::bf16;
  options.step_tokens = config.step_tokens;
  options.sequences = config.sequences;
  return options;
}

/// Of GPUs of a kind that plans know.
DecodeLimit decode_limit_of(const WorkerConfig& config) {
  const auto device = find_cuda_device();
  const auto shape = read_model_shape(config.model);
  AxisSizes sizes;
  sizes.tensor = config.tensor_parallel;
  const auto layout = RankLayout::make(sizes);
  if (!device || !shape || !layout) return {};
  std::string name = device->name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  for (const plan::DeviceKind& kind : plan::device_kinds()) {
    if (name.find(kind.name) == std::string::npos) continue;
    return [kind, shape = *shape, layout = *layout, options = plan_options(config, *shape)](std::uint32_t sequences,
                                                                                            std::uint64_t tokens) {
      const auto each = static_cast<std::uint32_t>(tokens / std::max(sequences, 1u));
      const double limit = plan::decode_step_time(shape, layout, kind, options, sequences, each).total();
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(limit));
    };
  }
  return {};
}

void check_gpu(const WorkerConfig& config, const log::Logger& logger) {
  const auto device = find_cuda_device();
  if (!device) throw std::runtime_error("--executor cuda: the CUDA executor has " + device.error().message);
  const auto shape = read_model_shape(config.model);
  if (!shape) throw std::runtime_error(shape.error().message);
  const plan::DeviceBudget budget =
      budget_of(*shape, {device->name, device->memory_bytes, device->memory_free_bytes}, plan_options(config, *shape),
                config.kv_pool.bytes, config.tensor_parallel);
  if (!budget.fits()) throw std::runtime_error(budget.refusal());
  logger.info("GPU memory", {{"device", budget.device},
                             {"devices", config.tensor_parallel},
                             {"free_bytes", budget.free_bytes},
                             {"weights_bytes", budget.memory.weights_bytes},
                             {"workspace_bytes", budget.memory.workspace_bytes},
                             {"reserved_bytes", budget.memory.reserved_bytes},
                             {"kv_pool_bytes", budget.kv_pool_bytes}});
}

std::unique_ptr<Executor> make_cuda(const WorkerConfig& config, const std::shared_ptr<const LoadedModel>& model) {
  CudaExecutorOptions options;
  options.step_tokens_max = config.step_tokens;
  options.sequences_max = config.sequences;
  options.sequence_tokens_max = config.context_tokens;
  options.kv_blocks = blocks_of(config, kv_block_bytes(model->spec, block_tokens, KvDtype::bf16));
  options.launch = launch_of(config.cuda_launch);
  options.tensor_parallel = config.tensor_parallel;
  auto executor = make_cuda_executor(model, options);
  if (!executor) throw std::runtime_error(executor.error().message);
  return std::move(*executor);
}

Result<std::unique_ptr<transfer::DevicePool>> pool_on(const KvPoolView& pool) {
  return transfer::make_cuda_pool(pool.device, pool.blocks * pool.geometry.block_bytes());
}
Result<std::unique_ptr<transfer::DevicePool>> pool_beside(const DeviceMemoryView& device, std::uint64_t bytes) {
  return transfer::make_cuda_pool(bytes, device.device);
}
#else
constexpr bool has_cuda = false;
void check_gpu(const WorkerConfig&, const log::Logger&) {}
DecodeLimit decode_limit_of(const WorkerConfig&) {
  return {};
}
std::unique_ptr<Executor> make_cuda(const WorkerConfig&, const std::shared_ptr<const LoadedModel>&) {
  return nullptr;  // load_backend_model() has refused it
}
Result<std::unique_ptr<transfer::DevicePool>> pool_on(const KvPoolView&) {
  return make_error(ErrorCode::unsupported, "this build has no CUDA");
}
Result<std::unique_ptr<transfer::DevicePool>> pool_beside(const DeviceMemoryView&, std::uint64_t) {
  return make_error(ErrorCode::unsupported, "this build has no CUDA");
}
#endif

std::unique_ptr<Executor> make_fake(const WorkerConfig& config, const LoadedModel& model) {
  FakeModel fake;
  fake.geometry.dtype = config.kv_dtype;
  fake.blocks = blocks_of(config, fake.geometry.block_bytes());
  fake.limits.step_tokens_max = config.step_tokens;
  fake.limits.sequences_max = config.sequences;
  fake.limits.sequence_tokens_max = config.fake.context_tokens;
  fake.limits.vocabulary_size = model.card.vocabulary_size;
  fake.step_time = config.fake.step_time;
  fake.token_time = config.fake.token_time;
  fake.fail_after_steps = config.fake.fail_after_steps;
  fake.hang_after_steps = config.fake.hang_after_steps;
  return std::make_unique<FakeExecutor>(fake, block_for);
}

}  // namespace

LoadedModel load_backend_model(const WorkerConfig& config, const log::Logger& logger, LoadProgress progress) {
  if (config.executor == ExecutorKind::cuda && !has_cuda) {
    throw std::runtime_error("--executor cuda: this build has no CUDA executor; build the cuda preset (docs/gpu.md)");
  }
  if (config.executor == ExecutorKind::cuda) check_gpu(config, logger);
  LoadOptions options;
  options.served_name = config.model_name;
  // The CUDA executor cuts a whole model by itself.
  options.tensor_parallel = config.executor == ExecutorKind::cuda ? 1 : config.tensor_parallel;
  options.context_tokens_max = config.context_tokens;
  if (config.executor == ExecutorKind::cuda && config.tensor_parallel == 1) options.fp8 = Fp8Loading::keep;
  options.progress = [progress = std::move(progress)](std::uint64_t done, std::uint64_t total) {
    progress(done, total);
    show_progress(done, total);
  };
  auto loaded = load_model(config.model, options);
  if (!loaded) throw std::runtime_error(loaded.error().message);
  return std::move(*loaded);
}

Backend make_backend(const WorkerConfig& config, LoadedModel model) {
  Backend backend;
  switch (config.executor) {
    case ExecutorKind::fake:
      model.weights = {};  // only its texts are used
      backend.executor = make_fake(config, model);
      backend.model = std::make_shared<const LoadedModel>(std::move(model));
      break;
    case ExecutorKind::cuda:
      backend.model = std::make_shared<const LoadedModel>(std::move(model));
      backend.executor = make_cuda(config, backend.model);
      backend.decode_limit = decode_limit_of(config);
      break;
    case ExecutorKind::cpu:
      backend.model = std::make_shared<const LoadedModel>(std::move(model));
      backend.executor = make_cpu(config, backend.model);
      break;
  }
  return backend;
}

std::unique_ptr<transfer::DevicePool> make_device_pool(const KvPoolView& pool) {
  if (pool.device.base == nullptr) return nullptr;
  auto made = pool_on(pool);
  if (!made) throw std::runtime_error("--kv-transfer: " + made.error().message + "; or say --kv-transfer off");
  return std::move(*made);
}

transfer::DevicePoolFactory device_pools_beside(const KvPoolView& pool) {
  if (pool.device.base == nullptr) return nullptr;
  return [device = pool.device](std::uint64_t bytes) { return pool_beside(device, bytes); };
}

}  // namespace penstock::worker
