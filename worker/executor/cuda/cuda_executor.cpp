#include "worker/executor/cuda/cuda_executor.hpp"

#include <string>
#include <utility>

#include "kernels/cuda/device_buffer.hpp"
#include "worker/executor/cuda/device_executor.hpp"
#include "worker/executor/cuda/device_model.hpp"
#include "worker/executor/cuda/tensor_parallel_executor.hpp"

namespace penstock::worker {
namespace {

Result<void> check(const ModelSpec& spec, const CudaExecutorOptions& options) {
  const auto refuse = [](const std::string& why) { return make_error(ErrorCode::invalid_argument, why); };
  if (options.step_tokens_max == 0) return refuse("step_tokens_max must be at least 1");
  if (options.sequences_max == 0) return refuse("sequences_max must be at least 1");
  if (options.kv_blocks == 0) return refuse("kv_blocks must be at least 1");
  if (options.tensor_parallel == 0) return refuse("tensor_parallel must be at least 1");
  if (spec.experts && options.tensor_parallel > 1) {
    return make_error(ErrorCode::unsupported, "models with experts are not cut among GPUs yet");
  }
  if (options.sequence_tokens_max > spec.context_tokens) return refuse("sequence_tokens_max is beyond the context");
  return {};
}

}  // namespace

Result<CudaDevice> find_cuda_device() {
  PENSTOCK_TRY(const kernels::cuda::DeviceInfo info, kernels::cuda::device_info());
  return CudaDevice{info.name, info.memory_bytes, info.memory_free_bytes};
}

Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const CudaExecutorOptions& options) {
  if (model->weights.ranks.size() != 1) {
    return make_error(ErrorCode::invalid_argument, "the CUDA executor cuts a whole model by itself");
  }
  const WeightSource upload = [&weights = model->weights](const ModelSpec& spec, const TensorShare& share) {
    return upload_weights(spec, weights, share);
  };
  return make_cuda_executor(model, upload, options);
}

Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const WeightSource& source, const CudaExecutorOptions& options) {
  const ModelSpec& spec = model->spec;
  PENSTOCK_TRY_VOID(check(spec, options));
  PENSTOCK_TRY_VOID(check_kernels(spec));
  PENSTOCK_TRY_VOID(find_cuda_device());
  if (options.tensor_parallel > 1) return make_tensor_parallel_executor(std::move(model), source, options);
  PENSTOCK_TRY(DeviceWeights weights, source(spec, {}));
  return make_device_executor(model, spec, std::move(weights), options, {});
}

}  // namespace penstock::worker
