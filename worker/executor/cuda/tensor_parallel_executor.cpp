#include "worker/executor/cuda/tensor_parallel_executor.hpp"

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.hpp"
#include "kernels/cuda/peer_group.hpp"
#include "worker/comm/thread_group.hpp"
#include "worker/executor/cuda/device_executor.hpp"

namespace penstock::worker {
namespace {

namespace cuda = kernels::cuda;

class TensorParallelExecutor final : public Executor {
 public:
  TensorParallelExecutor(cuda::PeerGroup peers, const CudaExecutorOptions& options)
      : peers_(std::move(peers)),
        threads_(peers_.ranks(), options.collective_deadline),
        crew_({peers_.ranks(), {}, {}}),
        ranks_(peers_.ranks()),
        results_(peers_.ranks()) {}

  Result<void> prepare(const std::shared_ptr<const LoadedModel>& model, const WeightSource& source,
                       const CudaExecutorOptions& options) {
    std::vector<Result<void>> made(peers_.ranks());
    crew_.run([&](kernels::cpu::ThreadPool::Member& member) {
      made[member.index()] = make_rank(member.index(), model, source, options);
    });
    for (Result<void>& result : made) PENSTOCK_TRY_VOID(std::move(result));
    return {};
  }

  const ExecutorLimits& limits() const override { return ranks_.front()->limits(); }
  KvPoolView kv_pool() override {
    KvPoolView pool = ranks_.front()->kv_pool();
    pool.device = {};  // each GPU has the heads of its rank only
    return pool;
  }

  /// Of steps that meet in threads; those in graphs have their own deadline.
  std::string state() const override { return threads_.state(); }

  void launch(const StepBatch& batch) override {
    crew_.run([&](kernels::cpu::ThreadPool::Member& member) { ranks_[member.index()]->launch(batch); });
  }

  Result<StepResult> collect() override {
    crew_.run([&](kernels::cpu::ThreadPool::Member& member) {
      results_[member.index()].emplace(ranks_[member.index()]->collect());
    });
    // Who was missing says more than what then went wrong elsewhere.
    for (std::uint32_t rank = 0; rank < peers_.ranks(); ++rank) PENSTOCK_TRY_VOID(peers_.check(rank));
    for (const auto& result : results_) {
      if (!*result) return result->error();
    }
    return std::move(*results_.front());
  }

 private:
  /// On the rank's thread, whose device is the rank's from now on.
  Result<void> make_rank(std::uint32_t rank, const std::shared_ptr<const LoadedModel>& model,
                         const WeightSource& source, const CudaExecutorOptions& options) {
    PENSTOCK_TRY_VOID(cuda::use_device(peers_.device(rank)));
    const TensorShare share{rank, peers_.ranks()};
    PENSTOCK_TRY(DeviceWeights weights, source(model->spec, share));
    PENSTOCK_TRY(ranks_[rank], make_device_executor(model, spec_of_share(model->spec, share.ranks), std::move(weights),
                                                    options, {&peers_.rank(rank), &threads_.rank(rank)}));
    return {};
  }

  cuda::PeerGroup peers_;
  ThreadGroup threads_;
  kernels::cpu::ThreadPool crew_;
  std::vector<std::unique_ptr<Executor>> ranks_;
  std::vector<std::optional<Result<StepResult>>> results_;
};

/// The GPUs asked for, or the first ones; all of one kind, since ranks that differ would cut their work differently.
Result<std::vector<int>> devices_of(const CudaExecutorOptions& options) {
  std::vector<int> devices = options.devices;
  const std::uint32_t count = cuda::device_count();
  if (devices.empty()) {
    if (count < options.tensor_parallel) {
      return make_error(ErrorCode::unavailable, std::to_string(options.tensor_parallel) +
                                                    " tensor-parallel ranks need as many GPUs; there are " +
                                                    std::to_string(count));
    }
    devices.resize(options.tensor_parallel);
    std::iota(devices.begin(), devices.end(), 0);
  }
  if (devices.size() != options.tensor_parallel) {
    return make_error(ErrorCode::invalid_argument, "devices must be as many as tensor-parallel ranks");
  }
  const cuda::OnDevice restore;
  std::string first;
  for (const int device : devices) {
    PENSTOCK_TRY_VOID(cuda::use_device(device));
    PENSTOCK_TRY(const cuda::DeviceInfo info, cuda::device_info());
    if (first.empty()) first = info.name;
    if (info.name == first) continue;
    return make_error(ErrorCode::unsupported, "GPU " + std::to_string(device) + " is a " + info.name + ", GPU " +
                                                  std::to_string(devices.front()) + " a " + first +
                                                  "; ranks of one instance need GPUs of one kind");
  }
  return devices;
}

}  // namespace

Result<std::unique_ptr<Executor>> make_tensor_parallel_executor(std::shared_ptr<const LoadedModel> model,
                                                                const WeightSource& source,
                                                                const CudaExecutorOptions& options) {
  PENSTOCK_TRY_VOID(validate_tensor_parallel(model->spec, options.tensor_parallel));
  PENSTOCK_TRY(const std::vector<int> devices, devices_of(options));
  PENSTOCK_TRY(cuda::PeerGroup peers, cuda::PeerGroup::make(devices, options.collective_deadline));
  auto executor = std::make_unique<TensorParallelExecutor>(std::move(peers), options);
  PENSTOCK_TRY_VOID(executor->prepare(model, source, options));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace penstock::worker
