// Models with experts: what becomes of each container's settings and tensors, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/half.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/model/support.hpp"
#include "worker/model/mxfp4.hpp"
#include "worker/model/shape.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::PackedMatrix;
using penstock::test::TinyModel;
using penstock::test::TinyTensor;
using ::testing::HasSubstr;

TinyModel tiny_of(const std::string& architecture) {
  TinyModel tiny;
  tiny.architecture = architecture;
  tiny.format = kernels::cpu::WeightFormat::bf16;
  tiny.layers = 2;
  tiny.ffn = 48;
  tiny.experts = 11;  // "10" sorts before "2"
  tiny.experts_per_token = 3;
  return tiny;
}

class Experts : public ::testing::Test {
 protected:
  LoadedModel load_folder(const TinyModel& tiny, std::uint32_t shards = 1, std::uint32_t ranks = 1) {
    std::filesystem::remove_all(folder_ / "m");  // files of other shards
    penstock::test::write_tiny_folder(tiny, folder_ / "m", shards);
    return load(folder_ / "m", ranks);
  }
  LoadedModel load_gguf(const TinyModel& tiny) {
    penstock::test::write_tiny_gguf(tiny, folder_ / "m.gguf");
    return load(folder_ / "m.gguf", 1);
  }
  std::string refusal_with(TinyModel tiny, const std::map<std::string, std::string>& config) {
    tiny.extra_config = config;
    penstock::test::write_tiny_folder(tiny, folder_ / "refused", 1);
    return refusal(folder_ / "refused");
  }
  static LoadedModel load(const std::filesystem::path& path, std::uint32_t ranks) {
    LoadOptions options;
    options.tensor_parallel = ranks;
    auto model = load_model(path, options);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
  }

  TestFolder folder_;
};

void expect_row(const PackedMatrix& matrix, std::size_t row, const TinyTensor& tensor, std::size_t tensor_row) {
  std::vector<float> values(matrix.columns());
  matrix.dequantize_row(row, values.data());
  const auto expected = tensor.values.begin() + static_cast<std::ptrdiff_t>(tensor_row * tensor.columns);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), expected)) << "row " << tensor_row;
}

/// Every row of every expert of rank `rank` is where weights.hpp says.
void expect_weights(const TinyModel& tiny, const ModelWeights& weights, std::size_t rank) {
  const auto tensors = penstock::test::tiny_tensors(tiny);
  const auto names = penstock::test::expert_names(tiny);
  const std::size_t ffn = tiny.ffn / weights.ranks.size(), hidden = tiny.hidden / weights.ranks.size();
  for (std::size_t l = 0; l < tiny.layers; ++l) {
    const LayerWeights& layer = weights.ranks[rank].layers[l];
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    ASSERT_EQ(layer.experts.size(), tiny.experts);
    EXPECT_EQ(layer.gate_up.rows() + layer.gate.rows() + layer.down.rows(), 0u);
    for (std::size_t e = 0; e < tiny.experts; ++e) {
      expect_row(layer.router, e, tensors.at(prefix + names.router + ".weight"), e);
      const std::string expert = prefix + names.each + std::to_string(e) + ".";
      ASSERT_EQ(layer.experts[e].gate_up.rows(), 2 * ffn);
      for (std::size_t row = 0; row < ffn; ++row) {
        const std::size_t packed = row / 8 * 16 + row % 8;
        expect_row(layer.experts[e].gate_up, packed, tensors.at(expert + names.gate + ".weight"), rank * ffn + row);
        expect_row(layer.experts[e].gate_up, packed + 8, tensors.at(expert + names.up + ".weight"), rank * ffn + row);
      }
      ASSERT_EQ(layer.experts[e].down.rows(), hidden);
      for (std::size_t row = 0; row < hidden; ++row) {
        expect_row(layer.experts[e].down, row, tensors.at(expert + names.down + ".weight"), rank * hidden + row);
      }
    }
  }
}

TEST_F(Experts, OfMixtralAndQwenComeFromEveryContainer) {
  for (const std::string architecture : {"llama", "qwen3"}) {
    SCOPED_TRACE(architecture);
    const TinyModel tiny = tiny_of(architecture);
    for (const LoadedModel& model : {load_folder(tiny), load_folder(tiny, 3), load_gguf(tiny)}) {
      ASSERT_TRUE(model.spec.experts);
      EXPECT_EQ(model.spec.ffn, 0u);
      EXPECT_EQ(model.spec.experts->count, 11u);
      EXPECT_EQ(model.spec.experts->per_token, 3u);
      EXPECT_EQ(model.spec.experts->ffn, 48u);
      EXPECT_TRUE(model.spec.experts->renormalises);
      EXPECT_EQ(model.spec.qk_norm, architecture == "qwen3");
      expect_weights(tiny, model.weights, 0);
    }
  }
}

TEST_F(Experts, WeightsOfTokensStayAsTheyAreWhereTheFileSaysSo) {
  TinyModel tiny = tiny_of("qwen3");
  tiny.renormalises = false;
  EXPECT_FALSE(load_folder(tiny).spec.experts->renormalises);
}

TEST_F(Experts, AreCutAmongRanks) {
  const TinyModel tiny = tiny_of("qwen3");
  const LoadedModel model = load_folder(tiny, 1, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) expect_weights(tiny, model.weights, rank);
  LoadOptions options;
  options.tensor_parallel = 4;
  EXPECT_THAT(refusal(folder_ / "m", options), HasSubstr("FFN size of an expert 48 gives 4 tensor-parallel ranks"));
}

TEST_F(Experts, InFp8AreWidened) {
  TinyModel tiny = tiny_of("qwen3");
  tiny.fp8 = "row";
  const LoadedModel model = load_folder(tiny);
  const LayerWeights& layer = model.weights.ranks[0].layers[1];
  EXPECT_EQ(layer.experts[10].down.format(), kernels::cpu::WeightFormat::bf16);
  const TinyTensor down = penstock::test::tiny_tensors(tiny).at("model.layers.1.mlp.experts.10.down_proj.weight");
  std::vector<float> row(down.columns);
  layer.experts[10].down.dequantize_row(5, row.data());
  for (std::size_t c = 0; c < row.size(); ++c) EXPECT_NEAR(row[c], down.values[5 * down.columns + c], 0.25 / 14);
}

TEST_F(Experts, HaveTheirShapeInAPlan) {
  const TinyModel tiny = tiny_of("qwen3");
  load_folder(tiny);
  load_gguf(tiny);
  for (const char* name : {"m", "m.gguf"}) {
    const auto shape = read_model_shape(folder_ / name);
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_EQ(shape->ffn, 0u);
    EXPECT_EQ(shape->experts, 11u);
    EXPECT_EQ(shape->experts_per_token, 3u);
    EXPECT_EQ(shape->expert_ffn, 48u);
  }
}

TEST_F(Experts, LayersAndExpertsOfOtherKindsAreRefusedByName) {
  const TinyModel tiny = tiny_of("qwen3");
  EXPECT_THAT(refusal_with(tiny, {{"n_shared_experts", "1"}}), HasSubstr("shared experts are not supported"));
  EXPECT_THAT(refusal_with(tiny, {{"shared_expert_intermediate_size", "64"}}), HasSubstr("shared experts"));
  EXPECT_THAT(refusal_with(tiny, {{"quantization_config", R"({"quant_method":"mxfp4"})"}}), HasSubstr("mxfp4"));
  penstock::test::write_tiny_folder(tiny, folder_ / "m", 1);
  replace_in(folder_ / "m" / "config.json", "\"decoder_sparse_step\":1", "\"decoder_sparse_step\":2");
  EXPECT_THAT(refusal(folder_ / "m"), HasSubstr("decoder_sparse_step"));
  penstock::test::write_tiny_folder(tiny, folder_ / "m", 1);
  replace_in(folder_ / "m" / "config.json", "\"mlp_only_layers\":[]", "\"mlp_only_layers\":[1]");
  EXPECT_THAT(refusal(folder_ / "m"), HasSubstr("mlp_only_layers"));
  penstock::test::write_tiny_folder(tiny, folder_ / "m", 1);
  replace_in(folder_ / "m" / "config.json", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM");
  EXPECT_THAT(refusal(folder_ / "m"), HasSubstr("\"DeepseekV3ForCausalLM\" is not supported"));
}

TEST_F(Experts, OfGptOssComeFromMxfp4WithTheirBiases) {
  TinyModel tiny = tiny_of("gptoss");
  tiny.ffn = 96;
  tiny.window = 5;
  const LoadedModel model = load_folder(tiny, 1, 2);
  EXPECT_TRUE(model.spec.experts->renormalises && model.spec.experts->biases);
  EXPECT_TRUE(model.spec.attention_sinks && model.spec.output_bias && model.spec.qkv_bias);
  EXPECT_EQ(model.spec.windows, (std::vector<std::uint32_t>{5, 0}));
  const auto tensors = penstock::test::tiny_tensors(tiny);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    expect_weights(tiny, model.weights, rank);
    const LayerWeights& layer = model.weights.ranks[rank].layers[1];
    EXPECT_EQ(layer.router_bias, tensors.at("model.layers.1.mlp.router.bias").values);
    EXPECT_EQ(layer.sinks[3], tensors.at("model.layers.1.self_attn.sinks").values[rank * 4 + 3]);
    EXPECT_EQ(layer.output_bias[30], tensors.at("model.layers.1.self_attn.o_proj.bias").values[rank * 32 + 30]);
    const std::string expert = "model.layers.1.mlp.experts.7.";
    for (std::size_t row : {0u, 13u, 47u}) {
      const std::size_t packed = row / 8 * 16 + row % 8;
      EXPECT_EQ(layer.experts[7].gate_up_bias[packed], tensors.at(expert + "gate_proj.bias").values[rank * 48 + row]);
      EXPECT_EQ(layer.experts[7].gate_up_bias[packed + 8], tensors.at(expert + "up_proj.bias").values[rank * 48 + row]);
    }
    EXPECT_EQ(layer.experts[7].down_bias[31], tensors.at(expert + "down_proj.bias").values[rank * 32 + 31]);
  }
}

TEST_F(Experts, OfGptOssInOtherFormsAreRefused) {
  TinyModel tiny = tiny_of("gptoss");
  tiny.ffn = 96;
  const auto refused_after = [&](const char* from, const char* to) {
    penstock::test::write_tiny_folder(tiny, folder_ / "m", 1);
    replace_in(folder_ / "m" / "config.json", from, to);
    return refusal(folder_ / "m");
  };
  EXPECT_THAT(refused_after("mxfp4", "awq"), HasSubstr("\"awq\" is not supported for gpt-oss"));
  EXPECT_THAT(refused_after("\"quantization_config\"", "\"other\""), HasSubstr("quantization_config"));
  EXPECT_THAT(refused_after("\"swiglu_limit\":7.0", "\"swiglu_limit\":6.0"), HasSubstr("swiglu_limit"));
}

TensorView bytes_of(const std::vector<std::byte>& bytes, std::uint64_t rows) {
  TensorView view;
  view.kind = TensorKind::bytes;
  view.rows = rows;
  view.columns = bytes.size() / rows;
  view.bytes = bytes;
  return view;
}

TEST(Mxfp4, EveryCodeAndScaleHasItsValue) {
  std::vector<std::byte> codes, scales{std::byte{127}, std::byte{252}, std::byte{0}};
  for (int block = 0; block < 3; ++block) {
    for (unsigned i = 0; i < 16; ++i) codes.push_back(std::byte(i | (15 - i) << 4));
  }
  const auto take = [&] {
    TensorTable table;
    EXPECT_TRUE(table.add("m_blocks", bytes_of(codes, 3)));
    EXPECT_TRUE(table.add("m_scales", bytes_of(scales, 3)));
    return take_mxfp4(table, "m", 3, 1, 32);
  };
  const auto matrix = take();
  ASSERT_TRUE(matrix) << matrix.error().message;
  const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint64_t row = 0; row < 3; ++row) {
    std::uint16_t out[32];
    matrix->widen_row(row, out);
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned code = i % 2 == 0 ? i / 2 : 15 - i / 2;
      const double value = std::ldexp(values[code & 7], std::to_integer<int>(scales[row]) - 127);
      EXPECT_EQ(double{kernels::cpu::bf16_to_f32(out[i])}, code > 7 ? -value : value) << row << " " << i;
    }
  }
  scales[1] = std::byte{253};
  const auto beyond = take();
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("m_scales holds a scale beyond"));
}

TEST(TensorTable, BytesAreNoValues) {
  const std::vector<std::byte> memory(8);
  TensorTable table;
  TensorView plain = bytes_of(memory, 1);
  plain.kind = TensorKind::plain;
  plain.columns = 2;
  ASSERT_TRUE(table.add("plain", plain));
  ASSERT_TRUE(table.add("bytes", bytes_of(memory, 2)));
  EXPECT_THAT(table.take_bytes("plain", 1, 2).error().message, HasSubstr("has type f32, expected u8"));
  EXPECT_THAT(table.take("bytes", 2, 4).error().message, HasSubstr("has type u8, which is not supported"));
}

TEST_F(Experts, CountsThatCannotBeAreRefused) {
  TinyModel tiny = tiny_of("llama");
  tiny.experts_per_token = 12;
  EXPECT_THAT(refusal_with(tiny, {}), HasSubstr("experts of a token is 12, outside 1 to 11"));
  tiny.experts_per_token = 0;
  EXPECT_THAT(refusal_with(tiny, {}), HasSubstr("experts of a token is 0"));
  tiny = tiny_of("llama");
  tiny.ffn = 52;
  EXPECT_THAT(refusal_with(tiny, {}), HasSubstr("FFN size of an expert 52 is no multiple of 8"));
}

TEST_F(Experts, OfArchitecturesWithoutThemAreRefused) {
  TinyModel tiny;
  tiny.architecture = "qwen3";
  tiny.extra_metadata["qwen3.expert_count"] = 8;
  penstock::test::write_tiny_gguf(tiny, folder_ / "m.gguf");
  EXPECT_THAT(refusal(folder_ / "m.gguf"), HasSubstr("qwen3.expert_count is set; that is not supported"));
}

}  // namespace
}  // namespace penstock::worker
