// Decode steps of the CUDA executor: as graphs, kernel by kernel and in order they give the same tokens, whatever batch
// a sequence is in; the processor's executor gives the same ones as long as no two tokens are close; and a broken
// device ends the step with an error.
#include <gtest/gtest.h>

#include "kernels/cuda/elementwise.hpp"
#include "tests/kernel/decode_world.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::must;
using penstock::test::TinyModel;

using test::Running;
using test::tiny;

class CudaDecodeTest : public test::DecodeWorld {};

TEST_F(CudaDecodeTest, GraphsGiveTheTokensOfSingleKernels) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const auto model = load(tiny(architecture, architecture == "qwen3" ? 128 : 64));
    const auto ordered = gpu(model, CudaLaunch::ordered), direct = gpu(model, CudaLaunch::direct);
    const auto graph = gpu(model, CudaLaunch::graph);
    expect_same_tokens(*ordered, {direct.get(), graph.get()}, {1, 2, 3, 7, 16}, architecture);
  }
}

// Up to 64 sequences each token's experts are read in one kernel, beyond tokens are sorted by expert.
TEST_F(CudaDecodeTest, GraphsOfModelsWithExpertsToo) {
  for (const std::string architecture : {"llama", "qwen3"}) {
    const auto model = load(test::tiny_with_experts(architecture, architecture == "qwen3" ? 128 : 64));
    const auto ordered = gpu(model, CudaLaunch::ordered), direct = gpu(model, CudaLaunch::direct);
    const auto graph = gpu(model, CudaLaunch::graph);
    for (const std::uint32_t count : {1u, 2u, 5u, 16u, 17u, 64u, 65u, 130u}) {
      auto expected = make(count, count % 2 == 0 ? 0.0f : 0.8f, 1);
      run(*ordered, expected, 12);
      EXPECT_EQ(expected.back().output().size(), 13u);
      for (Executor* executor : {direct.get(), graph.get()}) {
        auto actual = make(count, count % 2 == 0 ? 0.0f : 0.8f, 1);
        run(*executor, actual, 12);
        expect_equal(actual, expected, architecture + " with experts, " + std::to_string(count));
      }
    }
  }
}

TEST_F(CudaDecodeTest, GraphsWithFp8WeightsToo) {
  for (const std::string kind : {"row", "block"}) {
    TinyModel shape = tiny("qwen3", 128);
    shape.fp8 = kind;
    const auto model = load(shape, Fp8Loading::keep);
    const auto ordered = gpu(model, CudaLaunch::ordered), graph = gpu(model, CudaLaunch::graph);
    for (const std::uint32_t count : {1u, 5u, 16u, 40u, 100u}) {
      auto expected = make(count, 0, 3), actual = make(count, 0, 3);
      run(*ordered, expected, 20);
      run(*graph, actual, 20);
      expect_equal(actual, expected, kind + ", " + std::to_string(count));
    }
  }
}

// Above 16 sequences a step has other kernels; above 128 a graph is recorded when its size comes a second time.
TEST_F(CudaDecodeTest, GraphsOfManySequencesToo) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const auto model = load(tiny(architecture, architecture == "qwen3" ? 128 : 64));
    const auto ordered = gpu(model, CudaLaunch::ordered), direct = gpu(model, CudaLaunch::direct);
    const auto graph = gpu(model, CudaLaunch::graph);
    for (const std::uint32_t count : {17u, 40u, 128u, 129u, test::sequences_max}) {
      const float temperature = count % 2 == 0 ? 0.0f : 0.8f;
      auto expected = make(count, temperature, 1);
      run(*ordered, expected, 12);
      EXPECT_EQ(expected.back().output().size(), 13u);
      for (Executor* executor : {direct.get(), graph.get()}) {
        auto actual = make(count, temperature, 1);
        run(*executor, actual, 12);
        expect_equal(actual, expected, architecture + ", " + std::to_string(count));
      }
    }
  }
}

// Contexts for which attention cuts sequences into 1, 2, 4 and more parts.
TEST_F(CudaDecodeTest, LongContextsHaveGraphsOfTheirOwn) {
  const auto model = load(tiny("llama", 64));
  const auto ordered = gpu(model, CudaLaunch::ordered), graph = gpu(model, CudaLaunch::graph);
  auto expected = make(4, 0, 480), actual = make(4, 0, 480);
  run(*ordered, expected, 30, true);
  run(*graph, actual, 30, true);
  expect_equal(actual, expected, "one by one");
}

// Rows move between steps of different sizes: a table that belongs to another sequence would change tokens.
TEST_F(CudaDecodeTest, SequencesMayComeAndGo) {
  const auto model = load(tiny("llama", 64));
  const auto executor = gpu(model, CudaLaunch::graph);
  auto alone = make(9, 0), mixed = make(9, 0);
  run(*executor, alone, 24);
  const auto other = gpu(model, CudaLaunch::direct);
  for (Running& sequence : mixed) {
    while (sequence.computed < sequence.prompt) step(*other, {&sequence});
  }
  for (std::uint32_t i = 0; i < 60; ++i) {
    std::vector<Running*> some;
    for (std::size_t s = 0; s < mixed.size(); ++s) {
      if ((i + s) % 3 != 0 && mixed[s].output().size() < 25) some.push_back(&mixed[s]);
    }
    if (!some.empty()) step(*other, some);
  }
  std::size_t same = 0, total = 0;
  for (std::size_t s = 0; s < mixed.size(); ++s) {
    EXPECT_EQ(mixed[s].output().size(), 25u);
    for (std::size_t t = 0; t < 25 && t < mixed[s].output().size(); ++t, ++total) {
      same += mixed[s].output()[t] == alone[s].output()[t] ? 1 : 0;
    }
  }
  // Products of other batch sizes round otherwise, and random models have close tokens; a wrong table changes nearly
  // all.
  EXPECT_GE(same * 10, total * 8) << same << " of " << total;
}

// The processor's tokens, as long as its two likeliest are apart by more than what bf16 between kernels changes.
TEST_F(CudaDecodeTest, AgreesWithTheProcessor) {
  for (const TinyModel& shape :
       {tiny("llama", 64), tiny("qwen2", 64), tiny("qwen3", 64), test::tiny_with_experts("qwen3", 64)}) {
    const std::string architecture = shape.architecture + (shape.experts > 0 ? " with experts" : "");
    const auto model = load(shape);
    CpuExecutorOptions options;
    options.kv_blocks = 2200;
    options.sequences_max = test::sequences_max;
    const auto cpu = must(make_cpu_executor(model, options));
    const auto graph = gpu(model, CudaLaunch::graph);
    for (const std::uint32_t count : {16u, 40u}) {
      auto expected = make(count, 0, count > 16 ? 11 : 41);
      for (Running& sequence : expected) sequence.params.logprobs = 2;
      auto actual = expected;
      run(*cpu, expected, 24);
      run(*graph, actual, 24);
      std::uint32_t compared = 0;
      for (std::size_t s = 0; s < expected.size(); ++s) {
        for (std::size_t t = 0; t < expected[s].logprobs.size(); ++t) {
          const auto& top = expected[s].logprobs[t].top;
          if (top[0].logprob - top[1].logprob < 2) break;  // what follows may differ
          ASSERT_EQ(actual[s].output()[t], expected[s].output()[t]) << architecture << " " << s << " " << t;
          ++compared;
        }
      }
      EXPECT_GT(compared, 12u) << architecture;
      std::printf("%s, %u sequences: %u tokens compared\n", architecture.c_str(), count, compared);
    }
  }
}

class CudaBrokenTest : public CudaDecodeTest {
 protected:
  /// Breaks the device under an executor and ends the process with 3 if a step then gives an error.
  void break_device() {
    const auto model = load(tiny("llama", 64));
    const auto executor = gpu(model, CudaLaunch::graph);
    auto sequences = make(1, 0);
    run(*executor, sequences, 1);
    const kernels::cuda::EmbeddingRows nowhere{nullptr, nullptr, nullptr, 1, 256, 288};
    (void)gather_embedding(nowhere, kernels::cuda::Start::ordered, stream_.get());
    const std::vector<TokenId> token{1};
    StepBatch batch;
    SequenceStep part;
    part.tokens = token;
    part.blocks = sequences[0].blocks;
    part.sample.emplace().params = &sequences[0].params;
    batch.sequences.push_back(part);
    for (int i = 0; i < 100; ++i) {  // the error shows up at the next wait, or at a later one
      executor->launch(batch);
      const auto result = executor->collect();
      if (result) continue;
      std::fprintf(stderr, "step failed: %s\n", result.error().message.c_str());
      std::_Exit(3);
    }
    std::_Exit(0);
  }
};

// In a process of its own: nothing works on the device after such an error.
TEST_F(CudaBrokenTest, EndsTheStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(break_device(), testing::ExitedWithCode(3), "step failed");
}

}  // namespace
}  // namespace penstock::worker
