// The CUDA executor with its layers cut among ranks, against one GPU and the processor: on GPUs of their own where
// there are enough, else several to a GPU. Sums over ranks round once more, so tokens may differ only where two are
// close.
#include <numeric>

#include "tests/kernel/decode_world.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::must;
using penstock::test::TinyModel;
using test::Running;

TinyModel model_of(const std::string& architecture, std::uint32_t head_dim) {
  TinyModel model = test::tiny(architecture, head_dim);
  model.kv_heads = 4;
  return model;
}

class TensorParallelTest : public test::DecodeWorld {
 protected:
  static bool has_gpus(std::uint32_t ranks) { return kernels::cuda::device_count() >= ranks; }
  /// Ranks that share a GPU start their kernels in order: one that was started early and waits for its predecessor
  /// would keep the other rank's away, which that predecessor waits for.
  static CudaExecutorOptions options_of(std::uint32_t ranks, CudaLaunch launch = CudaLaunch::graph) {
    CudaExecutorOptions options;
    if (!has_gpus(ranks)) launch = CudaLaunch::ordered;
    options.kv_blocks = 2200;
    options.sequences_max = 24;
    options.launch = launch;
    options.tensor_parallel = ranks;
    const auto devices = static_cast<int>(kernels::cuda::device_count());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) options.devices.push_back(static_cast<int>(rank) % devices);
    return options;
  }
  static std::unique_ptr<Executor> ranks(const std::shared_ptr<const LoadedModel>& model, std::uint32_t count,
                                         CudaLaunch launch = CudaLaunch::graph) {
    return must(make_cuda_executor(model, options_of(count, launch)));
  }
  void check_prompts(const TinyModel& tiny, std::uint32_t count, const std::string& what) {
    const auto model = load(tiny);
    const auto exact = scores(*cpu(model, KvDtype::f32), tiny.vocabulary, 64);
    const double unit = mean_distance(scores(*cpu(model, KvDtype::bf16), tiny.vocabulary, 64), exact);
    const auto executor = ranks(model, count);
    for (const std::uint32_t chunk : {1u, 7u, 64u, 300u}) {
      const double distance = mean_distance(scores(*executor, tiny.vocabulary, chunk), exact);
      EXPECT_LT(distance, test::units_allowed * unit) << what << ", chunks of " << chunk;
      std::printf("%s, %u ranks, chunks of %u: %.2f units of %.4f\n", what.c_str(), count, chunk, distance / unit,
                  unit);
    }
  }
};

TEST_F(TensorParallelTest, PromptsAgreeWithTheProcessorForAllFamilies) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    check_prompts(model_of(architecture, 64), 2, architecture);
  }
  // Four on one GPU wait for each other while the library loads kernels of products.
  check_prompts(model_of("llama", 128), has_gpus(2) ? 4 : 2, "llama, heads of 128");
  TinyModel quantised = model_of("llama", 64);
  quantised.format = kernels::cpu::WeightFormat::q4_1;
  quantised.tied = false;
  check_prompts(quantised, 2, "q4_1, untied");
}

// The same tokens as on one GPU, until two are closer than what rounding changes; from there on contexts differ.
TEST_F(TensorParallelTest, GreedyTokensAreThoseOfOneGpu) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const auto model = load(model_of(architecture, 64));
    const auto one = ranks(model, 1), two = ranks(model, 2);
    auto expected = make(16, 0);
    for (Running& sequence : expected) sequence.params.logprobs = 2;
    auto actual = expected;
    run(*one, expected, 24);
    run(*two, actual, 24);
    std::uint32_t compared = 0, same = 0, all = 0;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      bool is_same_context = true;
      for (std::size_t t = 0; t < expected[s].logprobs.size(); ++t, ++all) {
        const auto& top = expected[s].logprobs[t].top;
        is_same_context = is_same_context && top[0].logprob - top[1].logprob > 1;
        same += actual[s].output()[t] == expected[s].output()[t] ? 1 : 0;
        if (!is_same_context) continue;
        ASSERT_EQ(actual[s].output()[t], expected[s].output()[t]) << architecture << " " << s << " " << t;
        ++compared;
      }
    }
    EXPECT_GT(compared, 12u) << architecture;
    std::printf("%s: %u tokens compared; %u of %u the same\n", architecture.c_str(), compared, same, all);
  }
}

TEST_F(TensorParallelTest, GraphsGiveTheTokensOfSingleKernels) {
  if (!has_gpus(2)) GTEST_SKIP() << "needs two GPUs";
  const auto model = load(model_of("qwen3", 128));
  const auto ordered = ranks(model, 2, CudaLaunch::ordered), direct = ranks(model, 2, CudaLaunch::direct);
  const auto graph = ranks(model, 2);
  expect_same_tokens(*ordered, {direct.get(), graph.get()}, {1, 3, 16}, "two ranks");
}

TEST_F(TensorParallelTest, WhatCannotBeSharedIsRefusedByName) {
  TinyModel tiny = model_of("llama", 64);
  tiny.heads = tiny.kv_heads = 8;
  const auto model = load(tiny);
  const auto refused = [&](const CudaExecutorOptions& options, const std::string& why) {
    const auto made = make_cuda_executor(model, options);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find(why), std::string::npos) << made.error().message;
  };
  refused(options_of(3), "attention heads 8 cannot be divided among 3");
  CudaExecutorOptions options = options_of(8);
  options.devices.pop_back();
  refused(options, "devices must be as many");
  options.devices.clear();
  if (kernels::cuda::device_count() < 8) refused(options, "8 tensor-parallel ranks need as many GPUs; there are");
}

}  // namespace
}  // namespace penstock::worker
