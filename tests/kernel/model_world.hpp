// Tiny models for tests of the CUDA executors, and the log-probabilities of prompts by which they are compared. For
// tests only.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "tests/kernel/support.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"

namespace penstock::worker::test {

// In units of what keeping KV as bf16 alone does to the processor's results. The CUDA executor also rounds between
// kernels, about 20 times in three layers; a wrong row is off by 50 units or more.
constexpr double units_allowed = 4;

inline penstock::test::TinyModel tiny(const std::string& architecture, std::uint32_t head_dim) {
  penstock::test::TinyModel model;
  model.architecture = architecture;
  model.hidden = 256;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = head_dim;
  model.ffn = 512;
  model.layers = 3;
  model.context = 2048;
  model.format = kernels::cpu::WeightFormat::bf16;
  return model;
}

/// The same with experts in place of each FFN: Mixtral ("llama") and Qwen3-MoE ("qwen3").
inline penstock::test::TinyModel tiny_with_experts(const std::string& architecture, std::uint32_t head_dim) {
  penstock::test::TinyModel model = tiny(architecture, head_dim);
  model.ffn = 136;
  model.experts = 12;
  model.experts_per_token = architecture == "llama" ? 2 : 4;
  return model;
}

/// Skips where there is no GPU; has a folder for models.
class ModelWorld : public kernels::cuda::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    folder_ = std::filesystem::temp_directory_path() / ("penstock-gpu-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<const LoadedModel> load(const penstock::test::TinyModel& model, Fp8Loading fp8 = Fp8Loading::widen) {
    if (!model.fp8.empty()) {
      penstock::test::write_tiny_folder(model, folder_ / "tiny", 1);
      LoadOptions options;
      options.fp8 = fp8;
      return std::make_shared<const LoadedModel>(kernels::cuda::test::must(load_model(folder_ / "tiny", options)));
    }
    const auto path = folder_ / "tiny.gguf";
    penstock::test::write_tiny_gguf(model, path);
    return std::make_shared<const LoadedModel>(kernels::cuda::test::must(load_model(path, {})));
  }
  static std::unique_ptr<Executor> cpu(const std::shared_ptr<const LoadedModel>& model, KvDtype kv) {
    CpuExecutorOptions options;
    options.kv_blocks = 200;
    options.kv_dtype = kv;
    return kernels::cuda::test::must(make_cpu_executor(model, options));
  }
  static std::vector<Sequence> prompts(std::uint32_t count, std::uint32_t vocabulary) {
    Random random(7);
    std::vector<Sequence> sequences(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t t = 0; t < 5 + 67 * i; ++t) {
        sequences[i].prompt.push_back(static_cast<TokenId>(random.below(vocabulary)));
      }
    }
    test::assign_blocks(sequences, 240, 16);
    return sequences;
  }
  /// Log-probabilities of all prompt tokens but the first ones.
  static std::vector<double> scores(Executor& executor, std::uint32_t vocabulary, std::uint32_t chunk) {
    std::vector<Sequence> sequences = prompts(4, vocabulary);
    test::run_sequences(executor, sequences, {.chunk = chunk, .output_tokens = 1, .score_prompt = true});
    std::vector<double> all;
    for (const Sequence& sequence : sequences) {
      EXPECT_FALSE(sequence.not_finite);
      for (const auto& token : sequence.prompt_logprobs) all.push_back(token.chosen.logprob);
    }
    return all;
  }
  static double mean_distance(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) sum += std::abs(a[i] - b[i]);
    EXPECT_EQ(a.size(), b.size());
    return sum / static_cast<double>(a.size());
  }

  std::filesystem::path folder_;
};

}  // namespace penstock::worker::test
