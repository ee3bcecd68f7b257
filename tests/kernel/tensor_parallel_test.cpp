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
using test::Sequence;

constexpr double units_allowed = 4;  // as in executor_test.cpp

TinyModel model_of(const std::string& architecture, std::uint32_t head_dim) {
  TinyModel model = test::tiny(architecture, head_dim);
  model.kv_heads = 4;
  return model;
}

class TensorParallelTest : public test::DecodeWorld {
 protected:
  static CudaExecutorOptions options_of(std::uint32_t ranks, CudaLaunch launch = CudaLaunch::graph) {
    CudaExecutorOptions options;
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
  static std::unique_ptr<Executor> cpu(const std::shared_ptr<const LoadedModel>& model, KvDtype kv) {
    CpuExecutorOptions options;
    options.kv_blocks = 200;
    options.kv_dtype = kv;
    return must(make_cpu_executor(model, options));
  }
  /// Log-probabilities of all prompt tokens but the first ones.
  static std::vector<double> scores(Executor& executor, std::uint32_t vocabulary, std::uint32_t chunk) {
    Random random(7);
    std::vector<Sequence> sequences(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      for (std::uint32_t t = 0; t < 5 + 67 * i; ++t) {
        sequences[i].prompt.push_back(static_cast<TokenId>(random.below(vocabulary)));
      }
    }
    test::assign_blocks(sequences, 240, 16);
    test::run_sequences(executor, sequences, {.chunk = chunk, .output_tokens = 1, .score_prompt = true});
    std::vector<double> all;
    for (const Sequence& sequence : sequences) {
      EXPECT_FALSE(sequence.not_finite);
      for (const auto& token : sequence.prompt_logprobs) all.push_back(token.chosen.logprob);
    }
    return all;
  }
  static double mean_distance(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) sum += std::abs(a[i] - b[i]);
    return sum / static_cast<double>(a.size());
  }
  void check_prompts(const TinyModel& tiny, std::uint32_t count, const std::string& what) {
    const auto model = load(tiny);
    const auto exact = scores(*cpu(model, KvDtype::f32), tiny.vocabulary, 64);
    const double unit = mean_distance(scores(*cpu(model, KvDtype::bf16), tiny.vocabulary, 64), exact);
    const auto executor = ranks(model, count);
    for (const std::uint32_t chunk : {1u, 7u, 64u, 300u}) {
      const double distance = mean_distance(scores(*executor, tiny.vocabulary, chunk), exact);
      EXPECT_LT(distance, units_allowed * unit) << what << ", chunks of " << chunk;
      std::printf("%s, %u ranks, chunks of %u: %.2f units of %.4f\n", what.c_str(), count, chunk, distance / unit,
                  unit);
    }
  }
};

TEST_F(TensorParallelTest, PromptsAgreeWithTheProcessorForAllFamilies) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    check_prompts(model_of(architecture, 64), 2, architecture);
  }
  check_prompts(model_of("llama", 128), 4, "llama, heads of 128");
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
  const auto model = load(model_of("qwen3", 128));
  const auto ordered = ranks(model, 2, CudaLaunch::ordered), direct = ranks(model, 2, CudaLaunch::direct);
  const auto graph = ranks(model, 2);
  for (const std::uint32_t count : {1u, 3u, 16u}) {
    for (const float temperature : {0.0f, 0.8f}) {
      const std::string what = std::to_string(count) + " at " + std::to_string(temperature);
      auto expected = make(count, temperature);
      run(*ordered, expected, 40);
      EXPECT_EQ(expected.back().output().size(), 41u);
      for (Executor* executor : {direct.get(), graph.get()}) {
        auto actual = make(count, temperature);
        run(*executor, actual, 40);
        expect_equal(actual, expected, what);
      }
    }
  }
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
