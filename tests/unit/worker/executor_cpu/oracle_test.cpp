// The default model against float32 reference outputs (tests/data/smollm2-float32.json): the engine is fed the
// reference's own tokens. The argmax must agree wherever the reference's two best logits are 0.1 apart or more, and the
// logprobs of the reference's tokens must differ by at most 0.02 on average and 0.15 at most.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/json/json.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"
#include "worker/model/lazy_file.hpp"

namespace penstock::worker {
namespace {

constexpr double gap_min = 0.1;
constexpr const char* model_file = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::filesystem::path model_path() {
  if (const char* path = std::getenv("PENSTOCK_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home == nullptr ? "." : home) / ".cache";
  return base / "penstock" / "models" / model_file;
}

struct Reference {
  std::vector<TokenId> prompt, steps;
  std::vector<double> prompt_logprobs;  // from the second prompt token on
  std::vector<double> step_logprobs, gaps;
};

std::vector<Reference> references() {
  auto text = read_text_file("tests/data/smollm2-float32.json", 4u << 20);
  if (!text) throw std::runtime_error(text.error().message);
  json::Limits limits;
  limits.keys_max = 100'000;
  const json::Value document = json::parse(*text, limits).value();
  std::vector<Reference> all;
  for (const json::Value& entry : document.at("results").as_array()) {
    Reference one;
    for (const json::Value& id : entry.at("prompt_ids").as_array()) one.prompt.push_back(id.to_number<TokenId>());
    for (const json::Value& value : entry.at("prompt_logprobs").as_array()) {
      if (!value.is_null()) one.prompt_logprobs.push_back(value.to_number<double>());
    }
    for (const json::Value& step : entry.at("steps").as_array()) {
      one.steps.push_back(step.at("id").to_number<TokenId>());
      one.gaps.push_back(step.at("gap").to_number<double>());
      one.step_logprobs.push_back(step.at("top").at(0).at(1).to_number<double>());
    }
    all.push_back(std::move(one));
  }
  return all;
}

class Oracle : public ::testing::Test {
 protected:
  static std::unique_ptr<Executor> make(KvDtype dtype, std::uint32_t threads) {
    static std::shared_ptr<const LoadedModel> model = load();
    if (model == nullptr) return nullptr;
    CpuExecutorOptions options;
    options.step_tokens_max = 256;
    options.sequences_max = 16;
    options.sequence_tokens_max = 512;
    options.kv_blocks = 16 * 16;
    options.kv_dtype = dtype;
    options.threads = threads;
    return make_cpu_executor(model, options).value();
  }

 private:
  static std::shared_ptr<const LoadedModel> load() {
    auto model = load_model(model_path(), {});
    if (!model) {
      ADD_FAILURE() << model.error().message << "; set PENSTOCK_MODEL or run deploy/dependencies";
      return nullptr;
    }
    return std::make_shared<LoadedModel>(std::move(*model));
  }
};

struct Difference {
  double sum = 0;
  double largest = 0;
  std::size_t count = 0;

  void add(double a, double b) {
    sum += std::abs(a - b);
    largest = std::max(largest, std::abs(a - b));
    ++count;
  }
};

void judge_teacher_forcing(Executor& executor) {
  const std::vector<Reference> all = references();
  std::vector<test::Sequence> sequences(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sequences[i].prompt = all[i].prompt;
    sequences[i].prompt.insert(sequences[i].prompt.end(), all[i].steps.begin(), all[i].steps.end());
  }
  test::assign_blocks(sequences, 256, 16);
  test::RunOptions options;
  options.score_prompt = true;
  options.chunk = 48;
  test::run_sequences(executor, sequences, options);
  Difference prompt, steps;
  std::size_t judged = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& scores = sequences[i].prompt_logprobs;
    ASSERT_EQ(scores.size() + 1, sequences[i].prompt.size());
    const std::size_t prompt_count = all[i].prompt.size() - 1;
    for (std::size_t p = 0; p < prompt_count; ++p) prompt.add(scores[p].chosen.logprob, all[i].prompt_logprobs[p]);
    for (std::size_t s = 0; s < all[i].steps.size(); ++s) {
      const protocol::PositionLogprobs& score = scores[prompt_count + s];
      steps.add(score.chosen.logprob, all[i].step_logprobs[s]);
      if (all[i].gaps[s] < gap_min) continue;
      ++judged;
      EXPECT_EQ(score.rank, 1u) << "prompt " << i << ", step " << s << ", gap " << all[i].gaps[s];
    }
  }
  EXPECT_GT(judged, 100u);
  for (const Difference& difference : {prompt, steps}) {
    EXPECT_LE(difference.sum / static_cast<double>(difference.count), 0.02);
    EXPECT_LE(difference.largest, 0.15);
    std::printf("%zu logprobs: mean difference %.5f, largest %.5f\n", difference.count,
                difference.sum / static_cast<double>(difference.count), difference.largest);
  }
}

TEST_F(Oracle, TeacherForcingAgreesWithBf16Cache) {
  auto executor = make(KvDtype::bf16, 2);
  ASSERT_NE(executor, nullptr);
  judge_teacher_forcing(*executor);
}

TEST_F(Oracle, TeacherForcingAgreesWithF16Cache) {
  auto executor = make(KvDtype::f16, 2);
  ASSERT_NE(executor, nullptr);
  judge_teacher_forcing(*executor);
}

TEST_F(Oracle, GreedyTextIsTheSameUntilTheFirstCloseStep) {
  auto executor = make(KvDtype::bf16, 2);
  ASSERT_NE(executor, nullptr);
  const std::vector<Reference> all = references();
  std::vector<test::Sequence> sequences(all.size());
  test::RunOptions options;
  for (std::size_t i = 0; i < all.size(); ++i) {
    sequences[i].prompt = all[i].prompt;
    options.output_tokens = std::max(options.output_tokens, static_cast<std::uint32_t>(all[i].steps.size()));
  }
  test::assign_blocks(sequences, 256, 16);
  test::run_sequences(*executor, sequences, options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t s = 0; s < all[i].steps.size() && all[i].gaps[s] >= gap_min; ++s) {
      ASSERT_LT(s, sequences[i].output.size());
      ASSERT_EQ(sequences[i].output[s], all[i].steps[s]) << "prompt " << i << ", step " << s;
    }
  }
}

TEST_F(Oracle, ModelsHeadsCannotBeDividedAmongTwoRanks) {
  LoadOptions options;
  options.tensor_parallel = 2;
  const auto model = load_model(model_path(), options);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("attention heads 9"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace penstock::worker
