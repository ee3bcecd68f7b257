#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/plan/shapes.hpp"
#include "worker/core/plan/device_budget.hpp"

namespace penstock::worker::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t gib = 1ull << 30;

DeviceBudget budget(std::uint64_t free_bytes, std::uint64_t kv_pool_bytes) {
  const DeviceRoom room{"Some GPU", free_bytes + gib, free_bytes};
  return budget_of(shape(llama_8b), room, {.step_tokens = 512, .sequences = 64}, kv_pool_bytes);
}

// 32 layers of 436,207,616 bytes of matrices and 16,384 of norms, two tables of 1,050,673,152, one more norm.
TEST(DeviceBudget, CountsWeightsAndTokens) {
  const DeviceBudget roomy = budget(100 * gib, 16 * gib);
  EXPECT_EQ(roomy.memory.weights_bytes, 32ull * (436'207'616 + 16'384) + 2ull * 1'050'673'152 + 8'192);
  EXPECT_TRUE(roomy.fits());
  // 131,072 bytes a token.
  EXPECT_THAT(roomy.table(), HasSubstr("131072 tokens"));
  EXPECT_THAT(roomy.table(), HasSubstr("on Some GPU"));
  EXPECT_EQ(roomy.needed_bytes(),
            roomy.memory.weights_bytes + roomy.memory.workspace_bytes + roomy.memory.reserved_bytes + 16 * gib);
}

// Layers and KV are halved; tables and norms are not.
TEST(DeviceBudget, RanksShareLayersAndThePool) {
  const DeviceRoom room{"Some GPU", 101 * gib, 100 * gib};
  const DeviceBudget half = budget_of(shape(llama_8b), room, {.step_tokens = 512, .sequences = 64}, 16 * gib, 2);
  EXPECT_EQ(half.memory.weights_bytes, 32ull * (436'207'616 / 2 + 16'384) + 2ull * 1'050'673'152 + 8'192);
  EXPECT_EQ(half.kv_pool_bytes, 8 * gib);
  EXPECT_THAT(half.table(), HasSubstr("131072 tokens"));
}

TEST(DeviceBudget, SaysWhetherThePoolOrTheModelIsTooLarge) {
  const DeviceBudget pool = budget(24 * gib, 16 * gib);
  EXPECT_FALSE(pool.fits());
  EXPECT_THAT(pool.refusal(), HasSubstr("lower --kv-pool"));
  EXPECT_THAT(pool.refusal(), HasSubstr("weights"));
  const DeviceBudget model = budget(12 * gib, gib);
  EXPECT_FALSE(model.fits());
  EXPECT_THAT(model.refusal(), HasSubstr("--plan"));
  EXPECT_THAT(model.refusal(), Not(HasSubstr("lower --kv-pool")));
}

TEST(DeviceBudget, AByteDecides) {
  const DeviceBudget some = budget(100 * gib, gib);
  EXPECT_TRUE(budget(some.needed_bytes(), gib).fits());
  EXPECT_FALSE(budget(some.needed_bytes() - 1, gib).fits());
}

}  // namespace
}  // namespace penstock::worker::plan
