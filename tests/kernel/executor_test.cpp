// The CUDA executor against the one for processors: log-probabilities of every token of a prompt, for models of each
// architecture, in one piece, in chunks and among others. The unit of agreement is what keeping KV as bf16 alone does
// to the processor's results: random models are sensitive, with log-probabilities around -26.
#include "worker/executor/cuda/cuda_executor.hpp"

#include "tests/kernel/model_world.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"
#include "worker/executor/cuda/step_attention.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::must;
using penstock::test::TinyModel;
using test::Sequence;

class CudaExecutorTest : public test::ModelWorld {
 protected:
  static std::unique_ptr<Executor> gpu(const std::shared_ptr<const LoadedModel>& model) {
    CudaExecutorOptions options;
    options.kv_blocks = 200;
    return must(make_cuda_executor(model, options));
  }
  /// Four sequences: steps of chunks longer than 1 have more than 16 rows, which are allowed `wide_units`.
  void check(const TinyModel& tiny, const std::string& what, double wide_units = test::units_allowed) {
    const auto model = load(tiny);
    const auto exact = scores(*cpu(model, KvDtype::f32), tiny.vocabulary, 64);
    const double unit = mean_distance(scores(*cpu(model, KvDtype::bf16), tiny.vocabulary, 64), exact);
    ASSERT_GT(unit, 0) << what;
    const auto on_gpu = load(tiny, Fp8Loading::keep);
    for (const std::uint32_t chunk : {1u, 7u, 33u, 64u, 300u}) {
      const double distance = mean_distance(scores(*gpu(on_gpu), tiny.vocabulary, chunk), exact);
      EXPECT_LT(distance, (chunk > 1 ? wide_units : test::units_allowed) * unit) << what << ", chunks of " << chunk;
      std::printf("%s, chunks of %u: %.2f units of %.4f\n", what.c_str(), chunk, distance / unit, unit);
    }
  }
};

TEST_F(CudaExecutorTest, AgreesWithTheProcessorForAllFamiliesAndChunks) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    for (const std::uint32_t head_dim : {64u, 128u}) {
      check(test::tiny(architecture, head_dim), architecture + " head_dim " + std::to_string(head_dim));
    }
  }
}

TEST_F(CudaExecutorTest, AgreesForModelsWithExperts) {
  check(test::tiny_with_experts("llama", 64), "llama with experts");
  check(test::tiny_with_experts("qwen3", 128), "qwen3 with experts");
}

TEST_F(CudaExecutorTest, AgreesForQuantisedWeightsAndASeparateHead) {
  TinyModel tiny = test::tiny("llama", 64);
  tiny.format = kernels::cpu::WeightFormat::q4_1;
  tiny.tied = false;
  check(tiny, "q4_1, untied");
}

// FP8 weights with every kind of scales: few tokens are bf16, more e4m3, which is rounded in steps 16 times as large.
TEST_F(CudaExecutorTest, AgreesForFp8Weights) {
  for (const std::string kind : {"tensor", "row", "block"}) {
    TinyModel tiny = test::tiny(kind == "row" ? "llama" : "qwen3", kind == "row" ? 64 : 128);
    tiny.fp8 = kind;
    ASSERT_NE(load(tiny, Fp8Loading::keep)->weights.ranks[0].layers[0].fp8, nullptr);
    check(tiny, "fp8, a scale for each " + kind, 10 * test::units_allowed);
  }
}

// A shared block is copied before the step that writes to it.
TEST_F(CudaExecutorTest, CopiedBlocksHoldWhatTheirSourcesHeld) {
  const TinyModel tiny = test::tiny("llama", 64);
  const auto executor = gpu(load(tiny));
  auto sequences = prompts(1, tiny.vocabulary);
  sequences[0].prompt.resize(10, 5);
  const std::vector<TokenId> first(sequences[0].prompt.begin(), sequences[0].prompt.end() - 1);
  const auto step = [&](std::span<const TokenId> tokens, std::uint32_t position, BlockIndex block, bool copies) {
    static const protocol::SamplingParams greedy = [] {
      protocol::SamplingParams params;
      params.temperature = 0;
      return params;
    }();
    const std::vector<BlockIndex> table{block};
    StepBatch batch;
    if (copies) batch.copies.push_back({0, block});
    SequenceStep part;
    part.position = position;
    part.tokens = tokens;
    part.blocks = table;
    part.sample.emplace();
    part.sample->params = &greedy;
    batch.sequences.push_back(part);
    executor->launch(batch);
    return must(executor->collect()).sequences.at(0).token;
  };
  const std::span<const TokenId> last(&sequences[0].prompt.back(), 1);
  step(first, 0, 0, false);
  const auto in_place = step(last, 9, 0, false);
  const std::vector<TokenId> other{200, 3, 77, 150, 31, 90, 12, 250, 60};
  step(other, 0, 7, false);
  EXPECT_NE(step(last, 9, 7, false), in_place);  // what is there without the copy
  EXPECT_EQ(step(last, 9, 7, true), in_place);
}

TEST_F(CudaExecutorTest, GreedyOutputRepeats) {
  const TinyModel tiny = test::tiny("qwen3", 128);
  const auto model = load(tiny);
  std::vector<std::vector<TokenId>> outputs;
  for (int round = 0; round < 2; ++round) {
    auto sequences = prompts(3, tiny.vocabulary);
    test::run_sequences(*gpu(model), sequences, {.chunk = 64, .output_tokens = 20});
    for (const Sequence& sequence : sequences) outputs.push_back(sequence.output);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outputs[i].size(), 20u);
    EXPECT_EQ(outputs[i], outputs[i + 3]);
  }
}

// Whatever way a prompt is cut: a row at a time, below and above what the kernels for prompts are for, in one piece.
// The processor's greedy tokens are the GPU's too, but for a few that are nearly as likely as the first.
TEST_F(CudaExecutorTest, GreedyTokensAreTheProcessorsForAllChunks) {
  constexpr std::uint32_t output_tokens = 16;
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const TinyModel tiny = test::tiny(architecture, 128);
    const auto model = load(tiny);
    const double unit = mean_distance(scores(*cpu(model, KvDtype::bf16), tiny.vocabulary, 64),
                                      scores(*cpu(model, KvDtype::f32), tiny.vocabulary, 64));
    auto continued = prompts(4, tiny.vocabulary);
    test::run_sequences(*cpu(model, KvDtype::f32), continued, {.chunk = 64, .output_tokens = output_tokens});
    for (const std::uint32_t chunk : {1u, 16u, 17u, 50u, 300u}) {
      auto sequences = prompts(4, tiny.vocabulary);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const auto& output = continued[i].output;
        sequences[i].prompt.insert(sequences[i].prompt.end(), output.begin(), output.end());
      }
      test::run_sequences(*gpu(model), sequences, {.chunk = chunk, .output_tokens = 1, .score_prompt = true});
      std::size_t same = 0, all = 0;
      for (const Sequence& sequence : sequences) {
        ASSERT_GE(sequence.prompt_logprobs.size(), output_tokens);
        const auto outputs = std::span(sequence.prompt_logprobs).last(output_tokens);
        for (const auto& token : outputs) {
          ++all;
          same += token.rank == 1 ? 1 : 0;
          EXPECT_LT(token.top.at(0).logprob - token.chosen.logprob, 10 * unit)
              << architecture << ", chunks of " << chunk;
        }
      }
      EXPECT_GE(10 * same, 8 * all) << architecture << ", chunks of " << chunk;
      std::printf("%s, chunks of %u: %zu of %zu greedy tokens are the same\n", architecture.c_str(), chunk, same, all);
    }
  }
}

TEST(SplitRows, PromptsAndDecodedRowsGoTheirOwnWays) {
  DeviceStep step;
  const auto add = [&](std::int32_t table, std::int32_t rows, std::int32_t length) {
    for (std::int32_t row = 0; row < rows; ++row) {
      step.tokens.push_back(1);
      step.table_of.push_back(table);
      step.lengths.push_back(length - rows + row + 1);
    }
  };
  add(0, 1, 100);
  add(1, 2, 900);
  add(2, 17, 17);
  add(3, 40, 400);
  add(4, 16, 16);
  const SplitRows split = split_rows(step, 16);
  EXPECT_EQ(split.runs, (std::vector<DecodeRun>{{0, 3, 900}, {60, 16, 16}}));
  ASSERT_EQ(split.prompts.size(), 2u);
  EXPECT_EQ(split.prompts[0].first_row, 3);
  EXPECT_EQ(split.prompts[0].rows, 17);
  EXPECT_EQ(split.prompts[1].first_row, 20);
  EXPECT_EQ(split.prompts[1].length, 400);
  EXPECT_EQ(split.prompts[1].table, 3);
  EXPECT_TRUE(split_rows(step, 1000).prompts.empty());
}

TEST_F(CudaExecutorTest, SizesWithoutKernelsAreRefusedByName) {
  TinyModel tiny = test::tiny("llama", 32);
  const auto made = make_cuda_executor(load(tiny), {.kv_blocks = 10});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("head_dim 32"), std::string::npos);
}

}  // namespace
}  // namespace penstock::worker
