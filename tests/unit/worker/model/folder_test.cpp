// Hugging Face folders that must be refused, each with a sentence that names what is wrong, and what a good one gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/model/support.hpp"
#include "worker/model/safetensors.hpp"

namespace penstock::worker {
namespace {

using penstock::test::TinyModel;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* weights_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

class HuggingFaceFolder : public ::testing::Test {
 protected:
  HuggingFaceFolder() {
    tiny_.format = kernels::cpu::WeightFormat::bf16;
    tiny_.layers = 1;
    write(1);
  }
  void write(std::uint32_t shards) { penstock::test::write_tiny_folder(tiny_, folder_.path(), shards); }
  std::string refusal_now() { return refusal(folder_.path()); }
  void remove(const char* name) { std::filesystem::remove(folder_ / name); }

  TinyModel tiny_;
  TestFolder folder_;
};

TEST_F(HuggingFaceFolder, AGoodOneGivesTheModelItsCardAndItsTexts) {
  for (const std::uint32_t shards : {1u, 3u}) {
    if (shards > 1) remove(weights_file);
    write(shards);
    LoadOptions options;
    options.served_name = "tiny";
    const auto model = load_model(folder_.path(), options);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->card.name, "tiny");
    EXPECT_EQ(model->card.eos_tokens, std::vector<TokenId>{257});
    EXPECT_EQ(model->card.eos_text, "<|im_end|>");
    EXPECT_FLOAT_EQ(model->card.default_temperature.value(), 0.5f);
    EXPECT_FLOAT_EQ(model->card.default_top_p.value(), 0.9f);
    EXPECT_EQ(model->card.default_top_k.value(), 20u);
    ASSERT_EQ(model->blobs.size(), 2u);
    EXPECT_EQ(model->blobs[0].bytes, read_bytes(folder_ / "tokenizer.json"));
    EXPECT_EQ(model->blobs[1].bytes, read_bytes(folder_ / "chat_template.jinja"));
  }
}

TEST_F(HuggingFaceFolder, MissingFiles) {
  for (const char* name : {"config.json", "tokenizer.json", weights_file}) {
    write(1);
    remove(name);
    EXPECT_THAT(refusal_now(), HasSubstr(name));
  }
  write_bytes(folder_ / "pytorch_model.bin", "x");
  remove(weights_file);
  EXPECT_THAT(refusal_now(), HasSubstr("pickle files (pytorch_model.bin) are not read"));
}

TEST_F(HuggingFaceFolder, SettingsThatChangeTheArithmetic) {
  const std::pair<const char*, const char*> settings[] = {{"quantization_config", "{\"quant_method\":\"awq\"}"},
                                                          {"num_experts", "8"},
                                                          {"num_local_experts", "8"},
                                                          {"mlp_bias", "true"},
                                                          {"pretraining_tp", "2"},
                                                          {"partial_rotary_factor", "0.5"},
                                                          {"sliding_window", "4096"}};
  for (const auto& [key, value] : settings) {
    tiny_.extra_config = {{key, value}};
    write(1);
    EXPECT_THAT(refusal_now(), AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr("not supported")));
  }
  tiny_.extra_config = {{"layer_types", "[\"full_attention\",\"linear_attention\"]"}};
  write(1);
  EXPECT_THAT(refusal_now(), HasSubstr("layer type \"linear_attention\" is not supported"));
}

TEST_F(HuggingFaceFolder, SlidingWindowsAreThoseOfTheClass) {
  const auto windows = [&](const char* class_name, const std::map<std::string, std::string>& config) {
    tiny_.extra_config = config;
    write(1);
    replace_in(folder_ / "config.json", "LlamaForCausalLM", class_name);
    const auto spec = spec_from_config(read_bytes(folder_ / "config.json"));
    EXPECT_TRUE(spec) << spec.error().message;
    return spec ? spec->windows : std::vector<std::uint32_t>{99};
  };
  using List = std::vector<std::uint32_t>;
  tiny_.layers = 3;
  EXPECT_EQ(windows("MistralForCausalLM", {{"sliding_window", "100"}}), (List{100, 100, 100}));
  EXPECT_EQ(windows("MistralForCausalLM", {{"sliding_window", "512"}}), List());  // the whole context
  EXPECT_EQ(windows("MistralForCausalLM", {{"sliding_window", "null"}}), List());
  const std::map<std::string, std::string> qwen{{"sliding_window", "64"}, {"max_window_layers", "2"}};
  EXPECT_EQ(windows("Qwen2ForCausalLM", qwen), List());  // use_sliding_window is false
  auto used = qwen;
  used["use_sliding_window"] = "true";
  EXPECT_EQ(windows("Qwen2ForCausalLM", used), (List{0, 0, 64}));
  used["layer_types"] = R"(["sliding_attention","full_attention","full_attention"])";
  EXPECT_EQ(windows("Qwen3ForCausalLM", used), (List{64, 0, 0}));
  used["layer_types"] = R"(["full_attention"])";
  tiny_.extra_config = used;
  write(1);
  replace_in(folder_ / "config.json", "LlamaForCausalLM", "Qwen3ForCausalLM");
  EXPECT_THAT(refusal_now(), HasSubstr("layer_types does not name every layer"));
}

TEST_F(HuggingFaceFolder, UnknownArchitectureActivationAndRope) {
  replace_in(folder_ / "config.json", "LlamaForCausalLM", "Gemma3ForCausalLM");
  EXPECT_THAT(refusal_now(), HasSubstr("architecture \"Gemma3ForCausalLM\" is not supported"));
  write(1);
  replace_in(folder_ / "config.json", "\"silu\"", "\"gelu\"");
  EXPECT_THAT(refusal_now(), HasSubstr("hidden_act \"gelu\" is not supported"));
  tiny_.rope_scaling = "dynamic";
  write(1);
  EXPECT_THAT(refusal_now(), HasSubstr("rope scaling type \"dynamic\" is not supported"));
}

TEST_F(HuggingFaceFolder, MissingAndWrongSettings) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
                          "max_position_embeddings"}) {
    write(1);
    replace_in(folder_ / "config.json", key, "other");
    EXPECT_THAT(refusal_now(), HasSubstr(std::string(key) + " is missing"));
    write(1);
    replace_in(folder_ / "config.json", "\"" + std::string(key) + "\":", "\"" + std::string(key) + "\":\"1\",\"x\":");
    EXPECT_THAT(refusal_now(), HasSubstr(key));
  }
  write_bytes(folder_ / "config.json", "{\"architectures\":[");
  EXPECT_THAT(refusal_now(), HasSubstr("config.json: it is no valid JSON"));
}

TEST_F(HuggingFaceFolder, TensorTypesWithoutKernels) {
  replace_in(folder_ / weights_file, "\"dtype\":\"BF16\"", "\"dtype\":\"F8_X\"");
  EXPECT_THAT(refusal_now(), AllOf(HasSubstr("tensor"), HasSubstr("has type F8_X, which is not supported")));
}

TEST_F(HuggingFaceFolder, MissingSurplusAndMisshapenTensors) {
  replace_in(folder_ / weights_file, "model.layers.0.mlp.up_proj", "model.layers.0.mlp.upxproj");
  EXPECT_THAT(refusal_now(), HasSubstr("tensor model.layers.0.mlp.up_proj.weight is missing"));
  tiny_.layers = 2;
  write(1);
  replace_in(folder_ / "config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":1");
  EXPECT_THAT(refusal_now(), AllOf(HasSubstr("tensor model.layers.1."), HasSubstr("is not part of this architecture")));
  write(1);
  replace_in(folder_ / "config.json", "\"intermediate_size\":256", "\"intermediate_size\":128");
  EXPECT_THAT(refusal_now(),
              HasSubstr("tensor model.layers.0.mlp.gate_proj.weight has shape [256, 64], expected [128, 64]"));
}

TEST_F(HuggingFaceFolder, ATiedHeadMayBeStoredOnceMore) {
  tiny_.tied = false;
  write(1);
  replace_in(folder_ / "config.json", "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true");
  EXPECT_EQ(refusal_now(), "loaded");
}

TEST_F(HuggingFaceFolder, EndTokensOutsideTheVocabulary) {
  replace_in(folder_ / "generation_config.json", "[257]", "[9999]");
  EXPECT_THAT(refusal_now(), HasSubstr("eos_token_id 9999 is outside the vocabulary"));
}

TEST_F(HuggingFaceFolder, TextsThatAreBroken) {
  write_bytes(folder_ / "tokenizer.json", "{\"version\":\"1.0\"}");
  EXPECT_THAT(refusal_now(), HasSubstr("tokenizer.json"));
  write(1);
  write_bytes(folder_ / "chat_template.jinja", "{% for m in messages %}");
  EXPECT_THAT(refusal_now(), HasSubstr("the model's chat template"));
  write(1);
  write_bytes(folder_ / "generation_config.json", "{");
  EXPECT_THAT(refusal_now(), HasSubstr("generation_config.json"));
  write_bytes(folder_ / "generation_config.json", "[]");
  EXPECT_THAT(refusal_now(), HasSubstr("generation_config.json: is no JSON object"));
  write_bytes(folder_ / "generation_config.json", "{\"temperature\":-1}");
  EXPECT_THAT(refusal_now(), HasSubstr("temperature"));
}

TEST_F(HuggingFaceFolder, ShardsAndIndexThatDisagree) {
  remove(weights_file);
  write(3);
  remove("part-1.safetensors");
  EXPECT_THAT(refusal_now(), HasSubstr("part-1.safetensors"));
  write(3);
  // The embedding is the first tensor by name, so it is in part 0.
  replace_in(folder_ / index_file, "\"model.embed_tokens.weight\":\"part-0", "\"model.embed_tokens.weight\":\"part-2");
  EXPECT_THAT(refusal_now(), HasSubstr("tensor model.embed_tokens.weight is not in part-2.safetensors as the index"));
  write(3);
  replace_in(folder_ / index_file, "\"model.norm.weight\"", "\"model.other.weight\"");
  EXPECT_THAT(refusal_now(), AnyOf(HasSubstr("tensor model.other.weight is not in part-"),
                                   HasSubstr("tensor model.norm.weight of part-")));
  write(3);
  replace_in(folder_ / index_file, "\"part-0.safetensors\"", "\"../part-0.safetensors\"");
  EXPECT_THAT(refusal_now(), HasSubstr("names the file \"../part-0.safetensors\""));
  write_bytes(folder_ / index_file, "{\"weight_map\":{}}");
  EXPECT_THAT(refusal_now(), HasSubstr("the index names 0 files"));
  write_bytes(folder_ / index_file, "{}");
  EXPECT_THAT(refusal_now(), HasSubstr("weight_map"));
}

TEST_F(HuggingFaceFolder, AShardWithATensorOfAnother) {
  remove(weights_file);
  write(3);
  std::filesystem::copy_file(folder_ / "part-0.safetensors", folder_ / "part-1.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_now(), HasSubstr("tensor model.embed_tokens.weight is there twice"));
}

TEST_F(HuggingFaceFolder, CutAnywhereItIsRefused) {
  const std::string file = read_bytes(folder_ / weights_file);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  for (std::size_t size = 0; size < file.size(); size += size < header + 64 ? 1 : 251) {
    const base::Bytes part(base::as_bytes(file).begin(),
                           base::as_bytes(file).begin() + static_cast<std::ptrdiff_t>(size));
    TensorTable table;
    const auto read = read_safetensors(part, table);
    ASSERT_FALSE(read) << size;
    ASSERT_THAT(read.error().message,
                AnyOf(HasSubstr("shorter than 8 bytes"), HasSubstr("the header claims " + std::to_string(header)),
                      HasSubstr("reaches beyond the end")))
        << size;
  }
  write_bytes(folder_ / weights_file, std::string_view(file).substr(0, file.size() - 1));
  EXPECT_THAT(refusal_now(), AllOf(HasSubstr(weights_file), HasSubstr("reaches beyond the end")));
  write_bytes(folder_ / weights_file, file + "x");
  EXPECT_THAT(refusal_now(), HasSubstr("the last 1 bytes belong to no tensor"));
}

TEST_F(HuggingFaceFolder, AFileThatShrinksWhileItIsReadIsRefused) {
  LoadOptions options;
  std::uint64_t reports = 0;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    if (reports++ == 0) std::filesystem::resize_file(folder_ / weights_file, 4096);
  };
  EXPECT_THAT(refusal(folder_.path(), options), HasSubstr("model.safetensors: became shorter while it was read"));
}

}  // namespace
}  // namespace penstock::worker
