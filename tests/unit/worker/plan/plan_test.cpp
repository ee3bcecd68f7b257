// Plans of known models. The expected numbers are worked by hand from the published shapes, as the comments say.
#include "worker/core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/plan/shapes.hpp"
#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

DeviceKind device(std::string_view name = "h200") {
  return find_device_kind(name).value();
}

PlanOptions on(std::uint32_t devices) {
  PlanOptions options;
  options.devices = devices;
  return options;
}

RankLayout layout(const AxisSizes& sizes) {
  return RankLayout::make(sizes).value();
}

std::vector<std::uint64_t> sizes_of(const Linear& linear) {
  return {linear.rows, linear.columns, linear.copies};
}

using Sizes = std::vector<std::uint64_t>;

TEST(Linears, OfADenseLayer) {
  const auto all = linears_of_layer(shape(llama_8b), RankLayout(), WeightFormat::bf16);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(sizes_of(all[0]), (Sizes{6144, 4096, 1}));  // (32 + 2 x 8) x 128
  EXPECT_EQ(sizes_of(all[1]), (Sizes{4096, 4096, 1}));
  EXPECT_EQ(sizes_of(all[2]), (Sizes{28672, 4096, 1}));
  EXPECT_EQ(sizes_of(all[3]), (Sizes{4096, 14336, 1}));
  EXPECT_EQ(all[2].bytes(), 234'881'024u);
}

TEST(Linears, OfTensorParallelRanks) {
  const auto all = linears_of_layer(shape(llama_8b), layout({.tensor = 4}), WeightFormat::fp8);
  EXPECT_EQ(sizes_of(all[0]), (Sizes{1536, 4096, 1}));  // (8 + 2 x 2) x 128
  EXPECT_EQ(sizes_of(all[1]), (Sizes{4096, 1024, 1}));
  EXPECT_EQ(sizes_of(all[2]), (Sizes{7168, 4096, 1}));
  EXPECT_EQ(sizes_of(all[3]), (Sizes{4096, 3584, 1}));
  EXPECT_EQ(all[3].bytes(), 4096u * 3584);
  // 4 KV heads among 8 ranks: each keeps one, twice over.
  EXPECT_EQ(sizes_of(linears_of_layer(shape(qwen3_30b), layout({.tensor = 8}), WeightFormat::bf16)[0]),
            (Sizes{768, 2048, 1}));
}

TEST(Linears, OfExpertsCutOrSpread) {
  const ModelShape moe = shape(qwen3_30b);
  const auto cut = linears_of_layer(moe, layout({.tensor = 4}), WeightFormat::bf16);
  EXPECT_EQ(sizes_of(cut[3]), (Sizes{384, 2048, 128}));
  EXPECT_EQ(sizes_of(cut[4]), (Sizes{2048, 192, 128}));
  const auto spread = linears_of_layer(moe, layout({.tensor = 4, .expert = 4}), WeightFormat::bf16);
  EXPECT_EQ(sizes_of(spread[3]), (Sizes{1536, 2048, 32}));
  EXPECT_EQ(sizes_of(spread[4]), (Sizes{2048, 768, 32}));
  EXPECT_EQ(cut[3].bytes(), spread[3].bytes());
}

TEST(Linears, WhatDoesNotDivideIsNamed) {
  const auto why = [](const std::string& config, const AxisSizes& sizes) {
    return validate_layout(shape(config), layout(sizes)).error().message;
  };
  EXPECT_EQ(why(llama_8b, {.tensor = 3}), "32 attention heads do not divide by tensor * context 3");
  EXPECT_EQ(why(llama_8b, {.pipeline = 33}), "pipeline 33 is more than the 32 layers");
  EXPECT_EQ(why(llama_8b, {.tensor = 2, .expert = 2}), "expert > 1, but the model has no experts");
  EXPECT_EQ(why(mixtral_8x7b, {.tensor = 16, .expert = 16}), "8 experts do not divide by expert 16");
}

// 2880 rows fill 22.5 tiles of 128: half a tile of 23 is waste; 23 tiles leave 109 of 132 multiprocessors idle.
TEST(Linears, TileWasteCountsPaddingAndTheLastWave) {
  const TileWaste waste = tile_waste({.name = "", .rows = 2880, .columns = 4096}, 132);
  EXPECT_NEAR(waste.padding, 0.5 / 23, 1e-12);
  EXPECT_NEAR(waste.wave, 109.0 / 132, 1e-12);
  const TileWaste whole = tile_waste({.name = "", .rows = 132 * 128, .columns = 64}, 132);
  EXPECT_EQ(whole.padding, 0);
  EXPECT_EQ(whole.wave, 0);
}

// 143,771 MiB less 16,060,522,496 of weights, 484,179,968 of workspace (69,632 values of 2 bytes for each of 2,048
// tokens, 256 rows of float logits, 256 x 32 x 8 partial heads of 130 floats, 32 MiB) and 1.5 GiB.
TEST(Memory, OfLlama8bOnOneH200) {
  const RankMemory memory = memory_of(shape(llama_8b), RankLayout(), device(), {});
  EXPECT_EQ(memory.weights_bytes, 16'060'522'496u);
  EXPECT_EQ(memory.workspace_bytes, 484'179'968u);
  EXPECT_EQ(memory.kv_token_bytes, 131'072u);
  EXPECT_EQ(memory.kv_bytes, 132'599'504'896u);
  EXPECT_EQ(memory.replica_kv_tokens, 1'011'653u);
}

// FP8 halves the matrices of the layers, 6,979,321,856 parameters, and nothing else.
TEST(Memory, OfFp8Weights) {
  MemoryOptions options;
  options.weights = WeightFormat::fp8;
  options.kv_value_bytes = 1;
  const RankMemory memory = memory_of(shape(llama_8b), RankLayout(), device(), options);
  EXPECT_EQ(memory.weights_bytes, 16'060'522'496u - 6'979'321'856u);
  EXPECT_EQ(memory.kv_token_bytes, 65'536u);
}

// One table only when embedding and head are on one rank.
TEST(Memory, TiedTablesAreHeldByBothEndsOfAPipeline) {
  const std::uint64_t table = 151'936ull * 1024 * 2;
  const RankMemory whole = memory_of(shape(qwen3_06b), RankLayout(), device(), {});
  EXPECT_EQ(whole.weights_bytes, 2u * 596'049'920);
  const RankMemory stage = memory_of(shape(qwen3_06b), layout({.pipeline = 2}), device(), {});
  EXPECT_EQ(stage.weights_bytes, 14 * whole.layer_bytes + table + 2 * 1024);  // the last stage
}

// All but the embedding is read: 15,009,316,864 bytes of matrices and 1,024 x 131,072 of KV at 4.64 TB/s, and 163 gaps
// of 0.55 us.
TEST(Roofline, OfLlama8bAtBatchOne) {
  const StepTime time = decode_step_time(shape(llama_8b), RankLayout(), device(), {}, 1, 1024);
  EXPECT_NEAR(time.weights_seconds, 15'009'316'864 / 4.64e12, 1e-9);
  EXPECT_NEAR(time.kv_seconds, 134'217'728 / 4.64e12, 1e-9);
  EXPECT_NEAR(time.launch_seconds, 163 * 0.55e-6, 1e-12);
  EXPECT_EQ(time.collective_seconds, 0);
  EXPECT_NEAR(time.total(), 3.3534e-3, 1e-7);
}

// 64 all-reduces of an 8 KB row between two ranks: 2.75 us and 8,192 bytes at 175 GB/s each.
TEST(Roofline, TensorParallelHalvesReadingAndAddsReductions) {
  const StepTime one = decode_step_time(shape(llama_8b), RankLayout(), device(), {}, 1, 1024);
  const StepTime two = decode_step_time(shape(llama_8b), layout({.tensor = 2}), device(), {}, 1, 1024);
  EXPECT_NEAR(two.weights_seconds, one.weights_seconds / 2, 1e-9);
  EXPECT_NEAR(two.kv_seconds, one.kv_seconds / 2, 1e-9);
  EXPECT_NEAR(two.collective_seconds, 64 * (2.75e-6 + 8192 / 175e9), 1e-9);
}

// 788 Tflop/s at 4.64 TB/s: above 170 tokens arithmetic is the longer part of a bf16 product.
TEST(Roofline, LargeBatchesAreBoundByArithmetic) {
  const StepTime at_128 = decode_step_time(shape(llama_8b), RankLayout(), device(), {}, 128, 1024);
  const StepTime at_256 = decode_step_time(shape(llama_8b), RankLayout(), device(), {}, 256, 1024);
  EXPECT_NEAR(at_128.weights_seconds, 15'009'316'864 / 4.64e12, 1e-9);
  EXPECT_NEAR(at_256.weights_seconds, 15'009'316'864.0 * 256 / 788e12, 1e-9);
}

// One token reads its 8 experts; 16 tokens about 128 (1 - (15/16)^16) = 82.4 of them.
TEST(Roofline, ExpertsReadGrowWithTheBatch) {
  EXPECT_NEAR(experts_read(shape(qwen3_30b), RankLayout(), 1), 8, 1e-9);
  EXPECT_NEAR(experts_read(shape(qwen3_30b), RankLayout(), 16), 82.42, 0.01);
  const double busiest = experts_read(shape(qwen3_30b), layout({.tensor = 2, .expert = 2}), 1);
  EXPECT_NEAR(busiest, 4 + std::sqrt(2.0), 1e-9);
}

TEST(Plan, TakesTheOneLayoutOfOneDevice) {
  const auto plan = make_plan(shape(llama_8b), device(), on(1));
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->candidates.size(), 1u);
  EXPECT_EQ(plan->candidates.front().layout.to_string(), "single");
  const std::string text = report(*plan);
  EXPECT_NE(text.find("8.03 B parameters, 7.50 B read by a token"), std::string::npos) << text;
  EXPECT_NE(text.find("131072 bytes a token and rank, 1011653 tokens"), std::string::npos) << text;
}

TEST(Plan, AModelThatDoesNotFitNamesTheSmallestLayoutThatDoes) {
  const auto plan = make_plan(shape(llama_70b), device("h100"), on(1));  // 141 GB of weights
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(plan.error().message.find("131.4 GiB for weights"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("the smallest layout that fits is tp=2 on 2 x h100"), std::string::npos)
      << plan.error().message;
}

TEST(Plan, DevicesThatNoLayoutDividesAreRefused) {
  const auto plan = make_plan(shape(llama_8b), device(), on(37));
  // 37 data replicas, or stages for 32 layers: replicas fit.
  ASSERT_TRUE(plan);
  for (const Candidate& candidate : plan->candidates) EXPECT_EQ(candidate.layout.to_string(), "dp=37");
  EXPECT_FALSE(make_plan(shape(llama_8b), device(), on(0)));
  EXPECT_FALSE(make_plan(shape(llama_8b), device(), on(513)));
}

TEST(Plan, RoomInTheKvLimitsTheBatch) {
  PlanOptions options = on(1);
  options.sequence_tokens = 100'000;
  const auto plan = make_plan(shape(llama_8b), device(), options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->candidates.front().estimates[3].running, 10u);  // 1,011,653 tokens
}

TEST(Plan, EveryCandidateHasTheDevicesAndFits) {
  for (const std::uint32_t devices : {2u, 4u, 8u, 16u}) {
    const auto plan = make_plan(shape(qwen3_30b), device(), on(devices));
    ASSERT_TRUE(plan);
    for (const Candidate& candidate : plan->candidates) {
      EXPECT_EQ(candidate.layout.ranks(), devices);
      EXPECT_TRUE(validate_layout(plan->shape, candidate.layout));
      EXPECT_GE(candidate.memory.replica_kv_tokens, 8192u);
    }
  }
}

TEST(DeviceKind, UnknownNamesListTheKnownOnes) {
  const auto found = find_device_kind("v100");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("h200"), std::string::npos);
}

}  // namespace
}  // namespace penstock::worker::plan
