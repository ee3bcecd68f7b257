// The model as data: rope tables against their definitions, and the limits of tensor parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/model/model_spec.hpp"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

RopeSpec rope_of(RopeScaling scaling) {
  RopeSpec rope;
  rope.rotary_dim = 64;
  rope.scaling = scaling;
  rope.factor = 4;
  rope.original_context = 128;
  return rope;
}

/// The frequency of a pair, from the angles at position 1.
double frequency(const RopeTables& tables, const RopeSpec& rope, std::size_t pair) {
  const std::size_t at = rope.rotary_dim / 2 + pair;
  return std::atan2(tables.sin[at], tables.cos[at]);
}

TEST(RopeTables, UnscaledFrequenciesFallGeometrically) {
  const RopeSpec rope = rope_of(RopeScaling::none);
  const RopeTables tables = make_rope_tables(rope, 3);
  ASSERT_EQ(tables.cos.size(), 3u * 32);
  for (std::size_t pair = 0; pair < 32; ++pair) {
    EXPECT_EQ(tables.cos[pair], 1) << "position 0";
    EXPECT_NEAR(frequency(tables, rope, pair), std::pow(10000, -static_cast<double>(pair) / 32), 1e-6);
    EXPECT_NEAR(tables.sin[2 * 32 + pair], std::sin(2 * std::pow(10000, -static_cast<double>(pair) / 32)), 1e-6);
  }
}

TEST(RopeTables, LinearScalingDividesEveryFrequency) {
  const RopeSpec plain = rope_of(RopeScaling::none), linear = rope_of(RopeScaling::linear);
  const RopeTables base = make_rope_tables(plain, 2), scaled = make_rope_tables(linear, 2);
  for (std::size_t pair = 0; pair < 32; ++pair) {
    EXPECT_NEAR(frequency(scaled, linear, pair) * 4, frequency(base, plain, pair), 1e-6);
  }
}

TEST(RopeTables, Llama3AndYarnKeepShortWavesAndStretchLongOnes) {
  for (const RopeScaling scaling : {RopeScaling::llama3, RopeScaling::yarn}) {
    const RopeSpec plain = rope_of(RopeScaling::none), rope = rope_of(scaling);
    const RopeTables base = make_rope_tables(plain, 2), scaled = make_rope_tables(rope, 2);
    double last = 1;  // ratios fall from 1 to 1/4
    for (std::size_t pair = 0; pair < 32; ++pair) {
      const double ratio = frequency(scaled, rope, pair) / frequency(base, plain, pair);
      EXPECT_LE(ratio, last + 1e-3);
      EXPECT_NEAR(std::max(ratio, 0.25), ratio, 1e-3);
      if (pair == 0 || pair > 27) {
        EXPECT_NEAR(ratio, pair == 0 ? 1 : 0.25, 1e-3);
      }
      last = ratio;
    }
  }
}

TEST(RopeTables, YarnScalesTheRotationByItsAttentionFactor) {
  RopeSpec rope = rope_of(RopeScaling::yarn);
  EXPECT_FLOAT_EQ(make_rope_tables(rope, 1).cos[0], static_cast<float>(1 + 0.1 * std::log(4.0)));
  rope.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(make_rope_tables(rope, 1).cos[0], 1.5f);
}

TEST(RopeTables, DivisorsOfTheFileApply) {
  const RopeSpec plain = rope_of(RopeScaling::none);
  RopeSpec divided = plain;
  divided.frequency_divisors.assign(32, 1);
  divided.frequency_divisors[5] = 8;
  const RopeTables base = make_rope_tables(plain, 2), scaled = make_rope_tables(divided, 2);
  EXPECT_NEAR(frequency(scaled, divided, 5) * 8, frequency(base, plain, 5), 1e-6);
  EXPECT_EQ(scaled.cos[32 + 6], base.cos[32 + 6]);
}

ModelSpec good_spec() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.layers = 2;
  spec.hidden = 64;
  spec.heads = 8;
  spec.kv_heads = 4;
  spec.head_dim = 16;
  spec.ffn = 96;
  spec.vocabulary = 100;
  spec.context_tokens = 128;
  spec.rope.rotary_dim = 16;
  return spec;
}

TEST(ModelSpec, TensorParallelRanksMustDivideEveryCount) {
  const ModelSpec spec = good_spec();
  ASSERT_TRUE(validate(spec));
  for (const std::uint32_t ranks : {1u, 2u, 4u}) EXPECT_TRUE(validate_tensor_parallel(spec, ranks)) << ranks;
  EXPECT_THAT(validate_tensor_parallel(spec, 3).error().message, HasSubstr("attention heads 8 cannot be divided"));
  EXPECT_THAT(validate_tensor_parallel(spec, 8).error().message, HasSubstr("key/value heads 4 cannot be divided"));
  EXPECT_THAT(validate_tensor_parallel(spec, 0).error().message, HasSubstr("0 tensor-parallel ranks"));
  ModelSpec narrow = spec;
  narrow.ffn = 24;
  EXPECT_THAT(validate_tensor_parallel(narrow, 2).error().message, HasSubstr("no multiple of 8"));
}

TEST(ModelSpec, RopeThatCannotBeIsNamed) {
  const auto refused = [](auto&& change) {
    ModelSpec spec = good_spec();
    change(spec.rope);
    const auto valid = validate(spec);
    return valid ? std::string("valid") : valid.error().message;
  };
  EXPECT_THAT(refused([](RopeSpec& rope) { rope.theta = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("rope theta"));
  EXPECT_THAT(refused([](RopeSpec& rope) { rope.rotary_dim = 17; }), HasSubstr("rope over 17 of 16"));
  EXPECT_THAT(refused([](RopeSpec& rope) { rope.factor = 0.5; }), HasSubstr("rope factor"));
  EXPECT_THAT(refused([](RopeSpec& rope) { rope.frequency_divisors.assign(3, 1); }), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(refused([](RopeSpec& rope) { rope.frequency_divisors.assign(8, 0); }), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(refused([](RopeSpec& rope) {
                rope.scaling = RopeScaling::yarn;
                rope.original_context = 0;
              }),
              HasSubstr("original context"));
}

}  // namespace
}  // namespace penstock::worker
