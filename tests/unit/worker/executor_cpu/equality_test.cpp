// Tiny random models of every architecture and format: the executor against a plain double-precision forward, and
// against itself with other chunks, batches, threads and ranks, where the tokens must be identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "kernels/reference/dequantize.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/executor_cpu/runner.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::WeightFormat;
using penstock::test::TinyModel;
using Vector = std::vector<double>;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-tiny-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The textbook forward of one sequence, without a cache.
class Plain {
 public:
  Plain(const TinyModel& model, const RopeSpec& rope) : model_(model) {
    const std::string router = penstock::test::expert_names(model).router + ".weight";
    for (auto& [name, tensor] : penstock::test::tiny_tensors(model)) {
      const bool is_exact = tensor.rows == 1 || name.ends_with(router);  // f32 in GGUF, dense in a folder
      weights_[name] = decode(tensor, is_exact ? WeightFormat::f32 : model.format);
    }
    tables_ = make_rope_tables(rope, model.context);
  }

  /// Log-probabilities of every next token, [tokens][vocabulary].
  std::vector<Vector> run(const std::vector<TokenId>& tokens) const {
    std::vector<Vector> x;
    const Vector& embedding = weights_.at("model.embed_tokens.weight");
    for (const TokenId token : tokens) {
      const auto at = embedding.begin() + static_cast<std::ptrdiff_t>(token * model_.hidden);
      x.emplace_back(at, at + model_.hidden);
    }
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      attend(x, prefix, model_.architecture != "gptoss" || layer % 2 == 0 ? model_.window : 0);
      for (Vector& row : x) {
        const Vector in = norm(row, prefix + "post_attention_layernorm.weight");
        if (model_.experts > 0) {
          add_experts(row, in, prefix);
        } else {
          add(row, feed_forward(in, prefix + "mlp.gate_proj", prefix + "mlp.up_proj", prefix + "mlp.down_proj"));
        }
      }
    }
    for (Vector& row : x) {
      row = times(model_.tied ? "model.embed_tokens" : "lm_head", norm(row, "model.norm.weight"));
      double sum = 0;
      for (const double value : row) sum += std::exp(value);
      for (double& value : row) value -= std::log(sum);
    }
    return x;
  }

 private:
  static Vector decode(const penstock::test::TinyTensor& tensor, WeightFormat format) {
    const std::string bytes = penstock::test::encode_tensor(tensor, format);
    const std::size_t row_bytes = bytes.size() / tensor.rows;
    Vector out;
    for (std::uint64_t row = 0; row < tensor.rows; ++row) {
      const auto* at = reinterpret_cast<const std::byte*>(bytes.data()) + row * row_bytes;
      for (const float value : kernels::reference::dequantize_row(format, at, tensor.columns)) out.push_back(value);
    }
    return out;
  }
  static void add(Vector& to, const Vector& what) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }
  Vector times(const std::string& name, const Vector& in) const {
    const Vector& matrix = weights_.at(name + ".weight");
    Vector out(matrix.size() / in.size());
    for (std::size_t row = 0; row < out.size(); ++row) {
      for (std::size_t i = 0; i < in.size(); ++i) out[row] += matrix[row * in.size() + i] * in[i];
    }
    const auto bias = weights_.find(name + ".bias");
    if (bias != weights_.end()) add(out, bias->second);
    return out;
  }
  Vector feed_forward(const Vector& in, const std::string& gate, const std::string& up, const std::string& down) const {
    Vector inner = times(gate, in);
    const Vector factors = times(up, in);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i] = model_.architecture == "gptoss" ? kernels::reference::clamped_swiglu(inner[i], factors[i])
                                                 : kernels::reference::silu(inner[i]) * factors[i];
    }
    return times(down, inner);
  }
  /// As the papers have it: a softmax over all experts, of which the largest are kept.
  void add_experts(Vector& row, const Vector& in, const std::string& prefix) const {
    const auto names = penstock::test::expert_names(model_);
    Vector share = times(prefix + names.router, in);
    double sum = 0, kept = 0;
    for (double& value : share) sum += value = std::exp(value);
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < share.size(); ++e) order.push_back(e);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return share[a] > share[b]; });
    order.resize(model_.experts_per_token);
    for (const std::size_t e : order) kept += share[e] / sum;
    for (const std::size_t e : order) {
      const std::string expert = prefix + names.each + std::to_string(e) + ".";
      Vector out = feed_forward(in, expert + names.gate, expert + names.up, expert + names.down);
      for (double& value : out) value *= share[e] / sum / (model_.renormalises ? kept : 1);
      add(row, out);
    }
  }
  Vector norm(const Vector& in, const std::string& name) const {
    double sum = 0;
    for (const double value : in) sum += value * value;
    Vector out = in;
    const Vector& weight = weights_.at(name);
    const double scale = 1 / std::sqrt(sum / static_cast<double>(in.size()) + 1e-5);
    for (std::size_t i = 0; i < in.size(); ++i) out[i] *= scale * weight[i];
    return out;
  }
  /// Splits into heads, norms them if the model does, and rotates halves.
  std::vector<Vector> heads(const Vector& in, const std::string& norm_name, std::size_t position) const {
    std::vector<Vector> out;
    const std::size_t half = model_.head_dim / 2;
    for (std::size_t at = 0; at < in.size(); at += model_.head_dim) {
      const auto begin = in.begin() + static_cast<std::ptrdiff_t>(at);
      Vector head(begin, begin + model_.head_dim);
      if (model_.architecture == "qwen3") head = norm(head, norm_name);
      for (std::size_t i = 0; i < half; ++i) {
        const double cos = tables_.cos[position * half + i], sin = tables_.sin[position * half + i];
        const double a = head[i], b = head[i + half];
        head[i] = a * cos - b * sin;
        head[i + half] = a * sin + b * cos;
      }
      out.push_back(std::move(head));
    }
    return out;
  }
  void attend(std::vector<Vector>& x, const std::string& prefix, std::size_t window) const {
    const std::size_t dim = model_.head_dim, group = model_.heads / model_.kv_heads;
    std::vector<std::vector<Vector>> keys;
    std::vector<Vector> values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Vector in = norm(x[t], prefix + "input_layernorm.weight");
      const auto queries = heads(times(prefix + "self_attn.q_proj", in), prefix + "self_attn.q_norm.weight", t);
      keys.push_back(heads(times(prefix + "self_attn.k_proj", in), prefix + "self_attn.k_norm.weight", t));
      values.push_back(times(prefix + "self_attn.v_proj", in));
      Vector out(queries.size() * dim);
      for (std::size_t h = 0; h < queries.size(); ++h) {
        Vector weight(t + 1);
        const auto sinks = weights_.find(prefix + "self_attn.sinks");
        double sum = sinks == weights_.end() ? 0 : std::exp(sinks->second[h]);
        const std::size_t first = window == 0 || t < window ? 0 : t + 1 - window;
        for (std::size_t s = first; s <= t; ++s) {
          double dot = 0;
          for (std::size_t i = 0; i < dim; ++i) dot += queries[h][i] * keys[s][h / group][i];
          sum += weight[s] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < dim; ++i) out[h * dim + i] += weight[s] / sum * values[s][h / group * dim + i];
        }
      }
      add(x[t], times(prefix + "self_attn.o_proj", out));
    }
  }

  TinyModel model_;
  std::map<std::string, Vector> weights_;
  RopeTables tables_;
};

std::shared_ptr<const LoadedModel> load(const std::filesystem::path& path, std::uint32_t ranks = 1) {
  LoadOptions options;
  options.tensor_parallel = ranks;
  auto model = load_model(path, options);
  if (!model) throw std::runtime_error(model.error().message);
  return std::make_shared<LoadedModel>(std::move(*model));
}

std::unique_ptr<Executor> executor_of(std::shared_ptr<const LoadedModel> model, std::uint32_t threads = 1,
                                      KvDtype dtype = KvDtype::f32) {
  CpuExecutorOptions options;
  options.step_tokens_max = 64;
  options.sequences_max = 4;
  options.sequence_tokens_max = 128;
  options.kv_blocks = 32;
  options.kv_dtype = dtype;
  options.threads = threads;
  return make_cpu_executor(std::move(model), options).value();
}

std::vector<TokenId> prompt(std::uint32_t count, std::uint32_t start) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back((start + i * 37) % 256);
  return tokens;
}

void compare_with_plain(const TinyModel& tiny, const std::filesystem::path& path) {
  const auto model = load(path);
  auto executor = executor_of(model);
  std::vector<test::Sequence> sequences(1);
  sequences[0].prompt = prompt(24, 5);
  test::assign_blocks(sequences, 128, 16);
  test::RunOptions options;
  options.score_prompt = true;
  test::run_sequences(*executor, sequences, options);
  const auto expected = Plain(tiny, model->spec.rope).run(sequences[0].prompt);
  ASSERT_EQ(sequences[0].prompt_logprobs.size(), 23u);
  for (std::size_t i = 0; i < 23; ++i) {
    EXPECT_NEAR(sequences[0].prompt_logprobs[i].chosen.logprob, expected[i][sequences[0].prompt[i + 1]], 0.01) << i;
  }
}

TEST(CpuExecutor, EveryGgufArchitectureMatchesThePlainForward) {
  const Folder folder;
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyModel tiny;
    tiny.architecture = architecture;
    tiny.tied = tiny.architecture != "qwen2";
    penstock::test::write_tiny_gguf(tiny, folder.path() / "m.gguf");
    compare_with_plain(tiny, folder.path() / "m.gguf");
  }
}

TEST(CpuExecutor, EveryFormatMatchesThePlainForward) {
  const Folder folder;
  for (const WeightFormat format : {WeightFormat::f16, WeightFormat::bf16, WeightFormat::q8_0, WeightFormat::q4_0,
                                    WeightFormat::q4_1, WeightFormat::q4_k, WeightFormat::q6_k}) {
    SCOPED_TRACE(std::string(to_string(format)));
    TinyModel tiny;
    tiny.format = format;
    tiny.hidden = 256;
    tiny.layers = 1;
    penstock::test::write_tiny_gguf(tiny, folder.path() / "m.gguf");
    compare_with_plain(tiny, folder.path() / "m.gguf");
  }
}

TEST(CpuExecutor, FoldersWholeAndShardedMatchThePlainForward) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const char* scaling : {"", "llama3", "yarn", "linear"}) {
      SCOPED_TRACE(std::string(architecture) + " " + scaling);
      const Folder folder;
      TinyModel tiny;
      tiny.architecture = architecture;
      tiny.rope_scaling = scaling;
      tiny.format = WeightFormat::bf16;
      penstock::test::write_tiny_folder(tiny, folder.path(), *scaling == 0 ? 1 : 3);
      // Vectors of a folder are bf16 as well, and exactly so.
      compare_with_plain(tiny, folder.path());
    }
  }
}

TinyModel with_experts(const std::string& architecture) {
  TinyModel tiny;
  tiny.architecture = architecture;
  tiny.ffn = 64;
  tiny.experts = 12;
  tiny.experts_per_token = 3;
  return tiny;
}

TEST(CpuExecutor, ExpertsMatchThePlainForward) {
  for (const std::string architecture : {"llama", "qwen3"}) {
    SCOPED_TRACE(architecture);
    const Folder folder;
    TinyModel tiny = with_experts(architecture);
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::q8_0}) {
      tiny.format = format;
      penstock::test::write_tiny_gguf(tiny, folder.path() / "m.gguf");
      compare_with_plain(tiny, folder.path() / "m.gguf");
    }
    tiny.format = WeightFormat::bf16;
    tiny.renormalises = tiny.architecture == "llama";
    penstock::test::write_tiny_folder(tiny, folder.path(), 2);
    compare_with_plain(tiny, folder.path());
  }
}

TEST(CpuExecutor, SlidingWindowsMatchThePlainForward) {
  const Folder folder;
  for (const std::uint32_t experts : {0u, 5u}) {
    TinyModel tiny;
    tiny.window = 9;
    tiny.experts = experts;
    tiny.format = WeightFormat::bf16;
    penstock::test::write_tiny_folder(tiny, folder.path(), 1);
    compare_with_plain(tiny, folder.path());
  }
}

TinyModel gpt_oss() {
  TinyModel tiny = with_experts("gptoss");
  tiny.format = WeightFormat::bf16;
  tiny.window = 7;
  return tiny;
}

TEST(CpuExecutor, GptOssMatchesThePlainForward) {
  const Folder folder;
  penstock::test::write_tiny_folder(gpt_oss(), folder.path(), 2);
  compare_with_plain(gpt_oss(), folder.path());
}

std::vector<std::vector<TokenId>> greedy(Executor& executor, const test::RunOptions& options, std::size_t count) {
  std::vector<test::Sequence> sequences(count);
  for (std::size_t i = 0; i < count; ++i) {
    sequences[i].prompt = prompt(static_cast<std::uint32_t>(11 + 6 * i), static_cast<std::uint32_t>(3 * i));
  }
  test::assign_blocks(sequences, 128, 16);
  test::run_sequences(executor, sequences, options);
  std::vector<std::vector<TokenId>> out;
  for (const test::Sequence& sequence : sequences) out.push_back(sequence.output);
  return out;
}

class Equality : public testing::TestWithParam<std::tuple<std::string, WeightFormat>> {
 protected:
  Equality() {
    const auto& [name, format] = GetParam();
    TinyModel tiny = name == "gptoss" ? gpt_oss() : name == "experts" ? with_experts("qwen3") : TinyModel();
    tiny.format = format;
    if (name == "gptoss") {
      penstock::test::write_tiny_folder(tiny, folder_.path(), 1);
      path_ = folder_.path();
    } else {
      path_ = folder_.path() / "m.gguf";
      penstock::test::write_tiny_gguf(tiny, path_);
    }
  }

  Folder folder_;
  std::filesystem::path path_;
};

TEST_P(Equality, TokensDoNotDependOnChunksBatchThreadsOrRanks) {
  test::RunOptions options;
  options.output_tokens = 12;
  auto base = executor_of(load(path_), 1, KvDtype::bf16);
  const auto expected = greedy(*base, options, 3);
  for (const auto& output : expected) ASSERT_EQ(output.size(), 12u);
  for (std::uint32_t chunk = 1; chunk <= 24; ++chunk) {
    options.chunk = chunk;
    EXPECT_EQ(greedy(*base, options, 3), expected) << "chunk " << chunk;
  }
  options.chunk = 7;
  options.one_by_one = true;
  EXPECT_EQ(greedy(*base, options, 3), expected) << "one by one";
  options.one_by_one = false;
  for (const auto& [ranks, threads] : {std::pair{1u, 2u}, {1u, 4u}, {2u, 2u}, {4u, 2u}}) {
    auto other = executor_of(load(path_, ranks), threads, KvDtype::bf16);
    EXPECT_EQ(greedy(*other, options, 3), expected) << ranks << " ranks of " << threads << " threads";
  }
}

/// Another sequence takes over after `cut` tokens of the output: with no KV, as after a preemption, or with the whole
/// blocks that the first one left, as after a hit in the prefix cache.
TEST_P(Equality, TokensDoNotDependOnPreemptionOrCachedPrefixes) {
  auto executor = executor_of(load(path_), 2, KvDtype::bf16);
  test::RunOptions options;
  options.output_tokens = 12;
  std::vector<test::Sequence> both(2);
  both[0].prompt = prompt(27, 9);
  test::assign_blocks(both, 128, 16);
  std::vector<test::Sequence> first{both[0]};
  test::run_sequences(*executor, first, options);
  for (std::uint32_t cut = 0; cut < 12; ++cut) {
    for (const bool is_cached : {false, true}) {
      std::vector<test::Sequence> again{both[1]};
      again[0].prompt = both[0].prompt;
      again[0].output.assign(first[0].output.begin(), first[0].output.begin() + cut);
      if (is_cached) {
        again[0].computed = (27 + cut - 1) / 16 * 16;  // the last token is always computed
        std::copy_n(first[0].blocks.begin(), again[0].computed / 16, again[0].blocks.begin());
      }
      test::run_sequences(*executor, again, options);
      EXPECT_EQ(again[0].output, first[0].output) << "cut at " << cut << (is_cached ? ", cached" : "");
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::string, WeightFormat>>& instance) {
  return std::get<0>(instance.param) + "_" + std::string(to_string(std::get<1>(instance.param)));
}

INSTANTIATE_TEST_SUITE_P(DenseAndExperts, Equality,
                         testing::Combine(testing::Values("dense", "experts"),
                                          testing::Values(WeightFormat::f32, WeightFormat::q4_1)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(GptOss, Equality,
                         testing::Values(std::tuple<std::string, WeightFormat>("gptoss", WeightFormat::bf16)), name_of);

TEST(CpuExecutor, RanksThatDoNotDivideTheHeadsAreRefusedByName) {
  const Folder folder;
  penstock::test::write_tiny_gguf({}, folder.path() / "m.gguf");
  LoadOptions options;
  options.tensor_parallel = 3;
  const auto model = load_model(folder.path() / "m.gguf", options);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("attention heads 8"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace penstock::worker
