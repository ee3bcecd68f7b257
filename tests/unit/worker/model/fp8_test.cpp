// Checkpoints with FP8 weights: kept code by code or widened to bf16, with every kind of scales; and those that must be
// refused, each with a sentence that names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/half.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/model/support.hpp"

namespace penstock::worker {
namespace {

using penstock::test::TinyFp8;
using penstock::test::TinyModel;
using penstock::test::TinyTensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* weights_file = "model.safetensors";
constexpr const char* down = "model.layers.0.mlp.down_proj.weight";

class Fp8Folder : public ::testing::Test {
 protected:
  Fp8Folder() {
    tiny_.format = kernels::cpu::WeightFormat::bf16;
    tiny_.architecture = "qwen3";
    tiny_.layers = 2;
    tiny_.hidden = 160;  // no whole number of blocks
  }
  void write(const std::string& kind) {
    tiny_.fp8 = kind;
    penstock::test::write_tiny_folder(tiny_, folder_.path(), 1);
  }
  LoadedModel load(Fp8Loading fp8) {
    LoadOptions options;
    options.fp8 = fp8;
    auto model = load_model(folder_.path(), options);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
  }
  TinyTensor tensor(const std::string& name) const { return penstock::test::tiny_tensors(tiny_).at(name); }

  TinyModel tiny_;
  TestFolder folder_;
};

double value_of(const TinyFp8& coded, const std::string& kind, std::uint64_t row, std::uint64_t column,
                std::uint64_t columns) {
  const auto code = static_cast<std::uint8_t>(coded.codes[row * columns + column]);
  const std::uint64_t place = kind == "block" ? row / 128 * coded.scale_columns + column / 128
                              : kind == "row" ? row
                                              : 0;
  return kernels::reference::e4m3(code) * double{coded.scales[place]};
}

TEST_F(Fp8Folder, IsWidenedToTheNearestBf16) {
  for (const std::string kind : {"tensor", "row", "block"}) {
    write(kind);
    const LoadedModel model = load(Fp8Loading::widen);
    const auto& layer = model.weights.ranks[0].layers[0];
    ASSERT_EQ(layer.fp8, nullptr);
    EXPECT_EQ(layer.down.format(), kernels::cpu::WeightFormat::bf16);
    const TinyTensor original = tensor(down);
    const TinyFp8 coded = penstock::test::encode_fp8(original, kind);
    std::vector<float> row(original.columns);
    for (std::uint64_t r = 0; r < original.rows; ++r) {
      layer.down.dequantize_row(r, row.data());
      for (std::uint64_t c = 0; c < original.columns; ++c) {
        const double value = value_of(coded, kind, r, c, original.columns);
        ASSERT_NEAR(row[c], value, std::abs(value) / 255) << kind << " " << r << " " << c;
        ASSERT_NEAR(row[c], original.values[r * original.columns + c], 0.25 / 14) << kind;  // e4m3 is the checkpoint's
      }
    }
  }
}

TEST_F(Fp8Folder, IsKeptAsItIs) {
  for (const std::string kind : {"tensor", "row", "block"}) {
    write(kind);
    const LoadedModel model = load(Fp8Loading::keep);
    for (const LayerWeights& layer : model.weights.ranks[0].layers) {
      ASSERT_NE(layer.fp8, nullptr);
      EXPECT_EQ(layer.down.rows(), 0u);
      EXPECT_EQ(layer.attention_norm.size(), tiny_.hidden);
      EXPECT_EQ(layer.ffn_norm.size(), tiny_.hidden);
      EXPECT_EQ(layer.q_norm.size(), tiny_.head_dim);
      EXPECT_EQ(layer.fp8->k.rows, 128u);
      EXPECT_EQ(layer.fp8->gate.columns, tiny_.hidden);
    }
    const TinyFp8 coded = penstock::test::encode_fp8(tensor(down), kind);
    const Fp8Matrix& kept = model.weights.ranks[0].layers[0].fp8->down;
    EXPECT_EQ(std::string(kept.codes.begin(), kept.codes.end()), coded.codes) << kind;
    EXPECT_EQ(kept.scales, coded.scales) << kind;
    EXPECT_EQ(kept.scale_of(130, 129), coded.scales[kind == "tensor" ? 0 : kind == "row" ? 130 : 3]) << kind;
  }
}

TEST(E4m3, EveryCodeHasItsValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const double expected = kernels::reference::e4m3(static_cast<std::uint8_t>(code));
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, expected) << code;
    }
  }
}

TEST_F(Fp8Folder, ScalesThatAreMissingOrFitNothing) {
  write("row");
  replace_in(folder_ / weights_file, std::string(down) + "_scale\"", std::string(down) + "_scald\"");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr(std::string(down) + "_scale is missing, which FP8 weights need"));
  write("row");
  replace_in(folder_ / weights_file, "\"F32\",\"shape\":[160,1]", "\"F32\",\"shape\":[80, 2]");
  EXPECT_THAT(refusal(folder_.path()), AllOf(HasSubstr("_scale has shape [80, 2]"), HasSubstr("128 x 128")));
}

TEST_F(Fp8Folder, WeightsThatAreNoNumbers) {
  write("tensor");
  const std::string codes = penstock::test::encode_fp8(tensor(down), "tensor").codes;
  std::string broken = codes;
  broken[1000] = '\x7f';
  replace_in(folder_ / weights_file, codes, broken);
  EXPECT_THAT(refusal(folder_.path()), HasSubstr(std::string(down) + " has a weight that is NaN"));
}

TEST_F(Fp8Folder, OtherQuantisationIsRefusedByName) {
  const std::pair<const char*, const char*> settings[] = {
      {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt \"e5m2\""},
      {R"({"quant_method":"fp8","weight_block_size":[64,128]})", "weight_block_size"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "format \"pack-quantized\""},
      {R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", "quant_algo \"NVFP4\""},
      {R"({"quant_method":"bitsandbytes"})", "quant_method \"bitsandbytes\""}};
  for (const auto& [value, what] : settings) {
    tiny_.extra_config = {{"quantization_config", value}};
    write("");
    EXPECT_THAT(refusal(folder_.path()), AllOf(HasSubstr("quantization_config"), HasSubstr(what)));
  }
}

}  // namespace
}  // namespace penstock::worker
