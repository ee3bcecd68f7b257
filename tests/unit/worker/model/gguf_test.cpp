// GGUF files that must be refused, each with a sentence that names what is wrong, and what a good one gives.
#include "worker/model/gguf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/time/random.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/worker/model/support.hpp"

namespace penstock::worker {
namespace {

using penstock::test::tiny_gguf;
using penstock::test::TinyModel;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Gguf : public ::testing::Test {
 protected:
  std::string refusal_of(std::string_view bytes, const LoadOptions& options = {}) {
    write_bytes(folder_ / "m.gguf", bytes);
    return refusal(folder_ / "m.gguf", options);
  }
  TestFolder folder_;
  std::string good_ = tiny_gguf({});
};

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Where the number stands that follows a metadata key and its type.
std::size_t value_of(const std::string& file, std::string_view key) {
  return file.find(key) + key.size() + 4;
}

void set_number(std::string& file, std::string_view key, std::uint32_t value) {
  file.replace(value_of(file, key), 4, raw(value));
}

/// Where a tensor's list entry goes on behind its name: dimension count, dimensions, type, offset.
std::size_t entry_of(const std::string& file, std::string_view tensor) {
  return file.find(tensor) + tensor.size();
}

TEST_F(Gguf, AGoodFileGivesTheModelItsCardAndItsTexts) {
  LoadOptions options;
  options.context_tokens_max = 100;
  write_bytes(folder_ / "small.gguf", good_);
  const auto model = load_model(folder_ / "small.gguf", options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->card.name, "small");
  EXPECT_EQ(model->card.architecture, "llama");
  EXPECT_EQ(model->card.context_tokens, 100u);
  EXPECT_EQ(model->card.vocabulary_size, 288u);
  EXPECT_EQ(model->card.eos_tokens, std::vector<TokenId>{257});
  EXPECT_EQ(model->card.eos_text, "<|im_end|>");
  EXPECT_FALSE(model->card.add_bos);
  ASSERT_EQ(model->blobs.size(), 2u);
  for (const ModelBlob& blob : model->blobs) EXPECT_EQ(blob.digest, content_digest(blob.bytes));
  EXPECT_EQ(model->blobs[0].digest, model->card.tokenizer_digest);
  EXPECT_EQ(model->blobs[1].digest, model->card.chat_template_digest);
}

TEST_F(Gguf, AFolderWithOneFileIsThatFile) {
  write_bytes(folder_ / "small.gguf", good_);
  write_bytes(folder_ / ".record", "{}");
  EXPECT_TRUE(load_model(folder_.path(), {}));
  write_bytes(folder_ / "other.gguf", good_);
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("has 2 GGUF files and no config.json: name one"));
}

TEST_F(Gguf, TheRevisionFollowsTheWeightsAndNotTheFileName) {
  const auto revision = [&](std::string_view name, const TinyModel& tiny) {
    write_bytes(folder_ / name, tiny_gguf(tiny));
    return load_model(folder_ / name, {}).value().card.revision;
  };
  TinyModel other;
  other.seed = 2;
  EXPECT_EQ(revision("a.gguf", {}), revision("b.gguf", {}));
  EXPECT_NE(revision("a.gguf", {}), revision("c.gguf", other));
}

TEST_F(Gguf, UnknownArchitecture) {
  replace_first(good_, "llama", "gemma", good_.find("general.architecture"));
  EXPECT_THAT(refusal_of(good_), AllOf(HasSubstr("architecture \"gemma\" is not supported"), HasSubstr("m.gguf")));
}

TEST_F(Gguf, UnknownRopeScaling) {
  TinyModel tiny;
  tiny.rope_scaling = "longrope";
  EXPECT_THAT(refusal_of(tiny_gguf(tiny)), HasSubstr("rope scaling type \"longrope\" is not supported"));
}

TEST_F(Gguf, MetadataThatChangeTheArithmetic) {
  for (const char* key : {"llama.expert_gating_func", "llama.attention.sliding_window", "llama.attention.scale",
                          "llama.residual_scale", "llama.final_logit_softcapping"}) {
    TinyModel tiny;
    tiny.extra_metadata[key] = 2;
    EXPECT_THAT(refusal_of(tiny_gguf(tiny)), AllOf(HasSubstr(key), HasSubstr("not supported")));
  }
}

TEST_F(Gguf, TensorTypesWithoutKernels) {
  const std::pair<std::uint32_t, const char*> types[] = {
      {10, "Q2_K"}, {20, "IQ4_NL"}, {39, "MXFP4"}, {77, "number 77"}};
  for (const auto& [type, name] : types) {
    std::string file = good_;
    file.replace(entry_of(file, "blk.1.ffn_up.weight") + 4 + 16, 4, raw(type));
    EXPECT_THAT(refusal_of(file),
                HasSubstr("tensor blk.1.ffn_up.weight has type " + std::string(name) + ", which is not supported"));
  }
}

TEST_F(Gguf, MissingTensor) {
  replace_first(good_, "blk.1.ffn_up.weight", "blk.1.ffn_ux.weight");
  EXPECT_THAT(refusal_of(good_), HasSubstr("tensor blk.1.ffn_up.weight is missing"));
}

TEST_F(Gguf, SurplusTensors) {
  set_number(good_, "llama.block_count", 1);
  EXPECT_THAT(refusal_of(good_), AllOf(HasSubstr("tensor blk.1."), HasSubstr("is not part of this architecture")));
}

TEST_F(Gguf, WrongShape) {
  set_number(good_, "llama.feed_forward_length", 128);
  EXPECT_THAT(refusal_of(good_), HasSubstr("tensor blk.0.ffn_gate.weight has shape [256, 64], expected [128, 64]"));
}

TEST_F(Gguf, VectorOfTheWrongLength) {
  const std::size_t at = entry_of(good_, "blk.0.ffn_norm.weight");
  good_.replace(at + 4, 8, raw(std::uint64_t{32}));
  EXPECT_THAT(refusal_of(good_), HasSubstr("tensor blk.0.ffn_norm.weight has shape [32], expected [64]"));
}

TEST_F(Gguf, TensorThatIsThereTwice) {
  replace_first(good_, "blk.1.ffn_up.weight", "blk.0.ffn_up.weight");
  EXPECT_THAT(refusal_of(good_), HasSubstr("tensor blk.0.ffn_up.weight is there twice"));
}

TEST_F(Gguf, ShapesAndOffsetsThatCannotBe) {
  struct Case {
    std::size_t at;
    std::uint64_t value;
    const char* sentence;
  };
  const Case cases[] = {
      {4, 0, "is empty"},        {4, 1ull << 62, "reaches beyond the end"},  {12, ~0ull, "reaches beyond the end"},
      {24, 8, "is not aligned"}, {24, 1ull << 40, "reaches beyond the end"}, {24, 0, "overlap"}};
  for (const Case& one : cases) {
    std::string file = good_;
    file.replace(entry_of(file, "blk.1.ffn_up.weight") + one.at, 8, raw(one.value));
    EXPECT_THAT(refusal_of(file),
                AllOf(HasSubstr(one.sentence), AnyOf(HasSubstr("tensor blk.1.ffn_up.weight"), HasSubstr("overlap"))));
  }
  std::string file = good_;
  file.replace(entry_of(file, "blk.1.ffn_up.weight"), 4, raw(5u));
  EXPECT_THAT(refusal_of(file), HasSubstr("tensor blk.1.ffn_up.weight has 5 dimensions"));
}

TEST_F(Gguf, RowsThatAreNoWholeBlocks) {
  const std::size_t at = entry_of(good_, "blk.1.ffn_up.weight");
  good_.replace(at + 4, 8, raw(std::uint64_t{48}));
  good_.replace(at + 20, 4, raw(3u));  // Q4_1
  EXPECT_THAT(refusal_of(good_), HasSubstr("tensor blk.1.ffn_up.weight has rows of 48, not a multiple of 32"));
}

TEST_F(Gguf, MissingAndWrongMetadata) {
  const char* keys[] = {"llama.block_count",          "llama.embedding_length",
                        "llama.attention.head_count", "llama.feed_forward_length",
                        "llama.context_length",       "llama.attention.layer_norm_rms_epsilon"};
  for (const char* key : keys) {
    std::string file = good_;
    std::string other = key;
    other.replace(0, 5, "other");
    replace_first(file, key, other);
    EXPECT_THAT(refusal_of(file), HasSubstr("metadata " + std::string(key) + " is missing"));
    file = good_;
    file.replace(file.find(key) + std::strlen(key), 4, raw(7u));  // a boolean: the rest can no longer be read
    EXPECT_NE(refusal_of(file), "loaded");
  }
  replace_first(good_, "general.architecture", "general.architectura");
  EXPECT_THAT(refusal_of(good_), HasSubstr("general.architecture is missing"));
}

TEST_F(Gguf, SizesOutOfRangeAreNamed) {
  const std::pair<const char*, const char*> cases[] = {{"llama.attention.head_count", "attention.head_count"},
                                                       {"llama.context_length", "context"},
                                                       {"llama.block_count", "layers"},
                                                       {"llama.embedding_length", "hidden size"},
                                                       {"llama.feed_forward_length", "FFN size"},
                                                       {"llama.rope.dimension_count", "rope over 0"}};
  for (const auto& [key, name] : cases) {
    std::string file = good_;
    set_number(file, key, 0);
    EXPECT_THAT(refusal_of(file), HasSubstr(name)) << key;
  }
  set_number(good_, "llama.attention.head_count_kv", 3);
  EXPECT_THAT(refusal_of(good_), HasSubstr("8 attention heads cannot share 3 key/value heads"));
}

TEST_F(Gguf, TokenizersThatAreNotKnown) {
  std::string file = good_;
  replace_first(file, "smollm", "smallm");
  EXPECT_THAT(refusal_of(file), HasSubstr("the pre-tokenizer \"smallm\" is unknown"));
  file = good_;
  replace_first(file, "gpt2", "bert", file.find("tokenizer.ggml.model"));
  EXPECT_THAT(refusal_of(file), HasSubstr("\"bert\" is unknown"));
  file = good_;
  set_number(file, "tokenizer.ggml.eos_token_id", 999);
  EXPECT_THAT(refusal_of(file), HasSubstr("tokenizer.ggml.eos_token_id is 999, outside the vocabulary of 258"));
}

TEST_F(Gguf, AVocabularyLargerThanTheModel) {
  TinyModel tiny;
  tiny.vocabulary = 128;
  EXPECT_THAT(refusal_of(tiny_gguf(tiny)), HasSubstr("the tokenizer has 258 tokens, the model only 128"));
}

TEST_F(Gguf, ATemplateThatDoesNotCompile) {
  replace_first(good_, "endfor", "endfar");
  EXPECT_THAT(refusal_of(good_), HasSubstr("the model's chat template"));
}

TEST_F(Gguf, HeadersThatLie) {
  struct Case {
    std::size_t at;
    std::string bytes;
    const char* sentence;
  };
  const Case cases[] = {{0, "GGML", "does not start with GGUF"},
                        {4, raw(1u), "version 1 is not supported"},
                        {4, raw(0x03000000u), "version 50331648 is not supported"},
                        {8, raw(~0ull), "claims 18446744073709551615 tensors"},
                        {16, raw(1ull << 40), "claims 1099511627776 metadata entries"},
                        {24, raw(1ull << 60), "ends inside its metadata"}};
  for (const Case& one : cases) {
    std::string file = good_;
    file.replace(one.at, one.bytes.size(), one.bytes);
    EXPECT_THAT(refusal_of(file), HasSubstr(one.sentence));
  }
  std::string file = good_;
  file.replace(value_of(file, "tokenizer.ggml.tokens") + 4, 8, raw(1ull << 61));
  EXPECT_THAT(refusal_of(file), HasSubstr("ends inside metadata tokenizer.ggml.tokens"));
  file = good_;
  file.replace(value_of(file, "tokenizer.ggml.token_type") + 4, 8, raw(1ull << 62));
  EXPECT_THAT(refusal_of(file), HasSubstr("metadata tokenizer.ggml.token_type is impossibly long"));
  TinyModel odd;
  odd.extra_metadata["general.alignment"] = 48;
  EXPECT_THAT(refusal_of(tiny_gguf(odd)), HasSubstr("general.alignment is 48"));
  replace_first(good_, "llama.context_length", "llama.attention.head");  // as long as the other
  replace_first(good_, "llama.attention.head_count_kv", "llama.attention.head_count_xx");
  EXPECT_THAT(refusal_of(good_), HasSubstr("llama.attention.head"));
}

TEST_F(Gguf, CutAnywhereItIsRefused) {
  TinyModel tiny;
  tiny.layers = 1;
  const std::string file = tiny_gguf(tiny);
  const auto whole = GgufFile::parse(base::as_bytes(file));
  ASSERT_TRUE(whole) << whole.error().message;
  const std::size_t header = whole->header().size();
  std::size_t cuts = 0;
  for (std::size_t size = 0; size < file.size(); size += size < header + 64 ? 1 : 251, ++cuts) {
    const base::Bytes part(base::as_bytes(file).begin(),
                           base::as_bytes(file).begin() + static_cast<std::ptrdiff_t>(size));
    const auto parsed = GgufFile::parse(part);
    ASSERT_FALSE(parsed) << size;
    ASSERT_THAT(parsed.error().message, AnyOf(HasSubstr("does not start with GGUF"), HasSubstr("version 0"),
                                              HasSubstr("ends inside"), HasSubstr("reaches beyond the end")))
        << size;
  }
  EXPECT_GT(cuts, header);
  EXPECT_THAT(refusal_of(std::string_view(file).substr(0, file.size() - 1)), HasSubstr("reaches beyond the end"));
}

TEST_F(Gguf, DamageIsRefusedOrHarmless) {
  TinyModel tiny;
  tiny.layers = 1;
  const std::string file = tiny_gguf(tiny);
  const std::size_t header = GgufFile::parse(base::as_bytes(file)).value().header().size();
  const std::uint64_t seed = first_seed();
  SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed));
  Random random(seed);
  std::size_t refused = 0;
  constexpr std::size_t rounds = 200;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::string damaged = file;
    for (std::uint64_t left = 1 + random.below(3); left > 0; --left) {
      damaged[random.below(header)] = static_cast<char>(random.next());
    }
    refused += refusal_of(damaged) != "loaded";
  }
  EXPECT_GT(refused, rounds / 4);
}

TEST_F(Gguf, AFileThatShrinksWhileItIsReadIsRefused) {
  write_bytes(folder_ / "m.gguf", good_);
  LoadOptions options;
  std::uint64_t reports = 0;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    if (reports++ == 0) std::filesystem::resize_file(folder_ / "m.gguf", 4096);
  };
  const std::string path = (folder_ / "m.gguf").string();
  EXPECT_THAT(refusal(folder_ / "m.gguf", options), ::testing::StartsWith(path + ": became shorter while it was read"));
}

TEST_F(Gguf, ProgressGrowsToTheWhole) {
  write_bytes(folder_ / "m.gguf", good_);
  LoadOptions options;
  std::uint64_t last = 0, whole = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    whole = total;
  };
  ASSERT_EQ(refusal(folder_ / "m.gguf", options), "loaded");
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(last, whole);
}

// The loader reads 16 MiB at first.
TEST_F(Gguf, AHeaderLongerThanTheFirstReadIsWhole) {
  const std::string name(20u << 20, 'x');
  std::string entry = raw(std::uint64_t{15}) + "general.comment" + raw(std::uint32_t{8}) +
                      raw(static_cast<std::uint64_t>(name.size())) + name;
  entry.resize((entry.size() + 31) / 32 * 32, 'x');  // keeps the data aligned
  const std::size_t added = entry.size() - 8 - 15 - 4 - 8;
  entry.replace(8 + 15 + 4, 8, raw(static_cast<std::uint64_t>(added)));
  std::uint64_t count = 0;
  std::memcpy(&count, good_.data() + 16, sizeof count);
  good_.replace(16, 8, raw(count + 1));
  good_.insert(24, entry);
  EXPECT_EQ(refusal_of(good_), "loaded");
}

TEST_F(Gguf, FilesThatAreNone) {
  EXPECT_THAT(refusal(folder_ / "absent.gguf"), HasSubstr("absent.gguf: cannot be opened"));
  EXPECT_THAT(refusal_of(""), HasSubstr("is empty"));
  for (const char* name : {"pytorch_model.bin", "model.pt", "model.pth", "model.pkl"}) {
    write_bytes(folder_ / name, "\x80\x02");
    EXPECT_THAT(refusal(folder_ / name), HasSubstr("pickle files can run code and are not read"));
  }
}

}  // namespace
}  // namespace penstock::worker
