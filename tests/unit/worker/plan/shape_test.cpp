// Shapes from config.json, and their parameter counts against those of the model cards.
#include <gtest/gtest.h>

#include "tests/unit/worker/plan/shapes.hpp"
#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string refusal(const std::string& config) {
  const auto shape = shape_from_config(config);
  return shape ? "" : shape.error().message;
}

// Of a Llama-3.1-8B layer: q and o 4096 x 4096 each, k and v 1024 x 4096 each, three of 14336 x 4096, two norms of
// 4096: 218,112,000. 32 of them, two tables of 128256 x 4096 and a norm: 8,030,261,248, as published.
TEST(ModelShape, CountsTheParametersOfLlama8b) {
  EXPECT_EQ(parameters_of(shape(llama_8b)), 8'030'261'248u);
  EXPECT_EQ(parameters_read_by_token(shape(llama_8b)), 8'030'261'248u - 128'256ull * 4096);
}

TEST(ModelShape, CountsTheParametersOfLlama70b) {
  EXPECT_EQ(parameters_of(shape(llama_70b)), 70'553'706'496u);
}

// One table serves as embedding and head; q times o is wider than the hidden size; norms over q and k heads.
TEST(ModelShape, CountsTiedTablesAndHeadNorms) {
  EXPECT_EQ(parameters_of(shape(qwen3_06b)), 596'049'920u);
}

// A layer: 18,874,368 of attention, 262,144 of router, 128 x 3 x 768 x 2048 of experts, 4,352 of norms.
TEST(ModelShape, CountsExperts) {
  EXPECT_EQ(parameters_of(shape(qwen3_30b)), 30'532'122'624u);
  EXPECT_EQ(parameters_of(shape(mixtral_8x7b)), 46'702'792'704u);
  // 8 of 128 experts: 48 x (18,874,368 + 262,144 + 37,748,736 + 4,352) + the head + a norm.
  EXPECT_EQ(parameters_read_by_token(shape(qwen3_30b)), 3'041'867'776u);
}

TEST(ModelShape, ReadsFormats) {
  const auto with = [](const std::string& quantised) {
    return replaced(llama_8b, "\"hidden_size\"", "\"quantization_config\": " + quantised + ", \"hidden_size\"");
  };
  EXPECT_EQ(shape(llama_8b).weights, WeightFormat::bf16);
  EXPECT_EQ(shape(with(R"({"quant_method": "fp8"})")).weights, WeightFormat::fp8);
  EXPECT_EQ(shape(with(R"({"quant_method": "compressed-tensors", "format": "float-quantized"})")).weights,
            WeightFormat::fp8);
  EXPECT_EQ(shape(with(R"({"quant_method": "awq", "bits": 4, "group_size": 128})")).weights, WeightFormat::int4);
  EXPECT_NE(refusal(with(R"({"quant_method": "gptq", "bits": 3, "group_size": 128})")).find("gptq"), std::string::npos);
  EXPECT_NE(refusal(with(R"({"quant_method": "hqq"})")).find("\"hqq\" is not supported"), std::string::npos);
}

TEST(ModelShape, RefusesByName) {
  EXPECT_NE(refusal(replaced(llama_8b, "LlamaFor", "GemmaFor")).find("\"GemmaForCausalLM\""), std::string::npos);
  EXPECT_NE(refusal(replaced(llama_8b, "\"hidden_size\"", "\"size\"")).find("hidden_size is missing"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(llama_8b, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 0")).find("key_value"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(llama_8b, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5")).find("divide"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(qwen3_30b, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]")).find("mlp_only_layers"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(llama_8b, "\"hidden_size\": 4096", "\"hidden_size\": 4000000000")).find("hidden_size"),
            std::string::npos);
  EXPECT_NE(refusal("{").find("no valid JSON"), std::string::npos);
}

}  // namespace
}  // namespace penstock::worker::plan
