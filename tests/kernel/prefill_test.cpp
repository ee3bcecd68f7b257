#include <algorithm>

#include "kernels/cuda/prefill_attention.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/paged_world.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

/// Sequences with so many tokens in the cache, of which the last `rows` are new.
struct PrefillCase {
  AttentionCase attention;
  std::vector<std::int32_t> rows;
  bool is_split = false;  // tiles of few new tokens after many cached ones
};

class PrefillTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    info_ = must(device_info());
    if (info_.compute_capability != 90) GTEST_SKIP() << "needs a Hopper GPU";
    workspace_ = must(DeviceBuffer::make(std::size_t{32} << 20));  // more than any of the cases needs
    must(workspace_.fill(0, stream_.get()));
  }

  /// Where each sequence's rows are, one row of no sequence before each of them.
  static std::vector<PrefillSequence> place(const PrefillCase& c) {
    std::vector<PrefillSequence> sequences;
    std::int32_t row = 1;
    for (std::size_t s = 0; s < c.rows.size(); ++s) {
      sequences.push_back({row, c.rows[s], c.attention.lengths[s], static_cast<std::int32_t>(s)});
      row += c.rows[s] + 1;
    }
    return sequences;
  }
  PrefillAttention work_of(const World& world, const AttentionCase& c, std::uint32_t rows, double scale) const {
    PrefillAttention work;
    work.pool = world.pool;
    work.layer = World::layer;
    work.rows = rows;
    work.heads = c.heads;
    work.table_stride = world.table_stride;
    work.scale = static_cast<float>(scale);
    work.multiprocessors = info_.multiprocessors;
    work.workspace = workspace_.data();
    return work;
  }

  void check(const PrefillCase& c) {
    const AttentionCase& shape = c.attention;
    Random random(shape.head_dim + shape.heads * 3 + c.rows.size());
    const World world(shape, 3, random);
    const auto sequences = place(c);
    const auto rows = static_cast<std::uint32_t>(sequences.back().first_row + sequences.back().rows + 1);
    const std::size_t row_values = std::size_t{shape.heads} * shape.head_dim;
    const Halves q = random_values(random, rows * row_values, 2);
    const double scale = 1 / std::sqrt(shape.head_dim);
    const PrefillShape prefill{shape.heads, shape.kv_heads, shape.head_dim, info_.multiprocessors};
    const PrefillPlan plan = plan_prefill(sequences, prefill);
    const PrefillSizes most = prefill_sizes_max(rows, static_cast<std::uint32_t>(sequences.size()), prefill);
    ASSERT_LE(plan.tiles.size(), most.tiles);
    ASSERT_LE(plan.merges.size(), most.merges);
    ASSERT_LE(most.workspace_bytes, workspace_.bytes());
    EXPECT_EQ(!plan.merges.empty(), c.is_split);
    const Guarded<Bf16> on_pool(world.values, stream_.get()), on_q(q, stream_.get());
    const Guarded<std::int32_t> on_tables(world.tables, stream_.get());
    const Guarded<PrefillSequence> on_sequences(sequences, stream_.get());
    const Guarded<PrefillTile> on_tiles(plan.tiles, stream_.get());
    const Guarded<PrefillMerge> on_merges(plan.merges, stream_.get());
    PrefillAttention work = work_of(world, shape, rows, scale);
    work.q = on_q.data();
    work.pool.base = on_pool.data();
    work.tables = on_tables.data();
    work.sequences = on_sequences.data();
    work.tiles = on_tiles.data();
    work.tile_count = static_cast<std::uint32_t>(plan.tiles.size());
    work.merges = on_merges.data();
    work.merge_count = static_cast<std::uint32_t>(plan.merges.size());
    const std::string what = "dim " + std::to_string(shape.head_dim) + " heads " + std::to_string(shape.heads) + "/" +
                             std::to_string(shape.kv_heads);
    Halves first;
    for (const std::uint32_t longest : {1u, 1'000'000u}) {  // all heads at once, one after the other
      const Guarded<Bf16> out(rows * row_values, stream_.get());
      work.out = out.data();
      work.longest = longest;
      must(prefill_attention(work, Start::ordered, stream_.get()));
      wait();
      const Halves result = out.read(what);
      if (first.empty()) {
        compare(world, c, sequences, q, scale, result, what);
        first = result;
      }
      EXPECT_EQ(result, first) << what;
      if (HasFatalFailure()) return;
    }
  }

  /// All rows of these sequences; the pool is the world's own or, if it has a base, already there.
  Halves run(const World& world, const AttentionCase& shape, const Halves& q,
             const std::vector<PrefillSequence>& sequences) {
    const PrefillPlan plan =
        plan_prefill(sequences, {shape.heads, shape.kv_heads, shape.head_dim, info_.multiprocessors});
    EXPECT_TRUE(plan.merges.empty());
    const Guarded<Bf16> on_pool(world.values, stream_.get()), on_q(q, stream_.get());
    const Guarded<std::int32_t> on_tables(world.tables, stream_.get());
    const Guarded<PrefillSequence> on_sequences(sequences, stream_.get());
    const Guarded<PrefillTile> on_tiles(plan.tiles, stream_.get());
    const Guarded<Bf16> out(q.size(), stream_.get());
    const auto rows = static_cast<std::uint32_t>(q.size() / shape.heads / shape.head_dim);
    PrefillAttention work = work_of(world, shape, rows, 0.088);
    work.q = on_q.data();
    work.out = out.data();
    if (work.pool.base == nullptr) work.pool.base = on_pool.data();
    work.tables = on_tables.data();
    work.sequences = on_sequences.data();
    work.tiles = on_tiles.data();
    work.tile_count = static_cast<std::uint32_t>(plan.tiles.size());
    must(prefill_attention(work, Start::ordered, stream_.get()));
    wait();
    return out.read();
  }

  void compare(const World& world, const PrefillCase& c, const std::vector<PrefillSequence>& sequences, const Halves& q,
               double scale, const Halves& result, const std::string& what) {
    const AttentionCase& shape = c.attention;
    const std::uint32_t group = shape.heads / shape.kv_heads;
    std::vector<bool> expected_rows(result.size() / shape.head_dim);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      for (std::uint32_t head = 0; head < shape.heads; ++head) {
        const auto keys = world.rows(s, head / group, false, sequences[s].length);
        const auto values = world.rows(s, head / group, true, sequences[s].length);
        auto sizes = values;
        for (double& value : sizes) value = std::abs(value);
        for (std::int32_t row = 0; row < sequences[s].rows; ++row) {
          const std::size_t at = std::size_t(sequences[s].first_row + row) * shape.heads + head;
          const auto count = static_cast<std::size_t>(sequences[s].length - sequences[s].rows + row + 1);
          const auto query = doubles({q.data() + at * shape.head_dim, shape.head_dim});
          const auto out = reference::attention(query, keys, values, count, scale);
          const auto size = reference::attention(query, keys, sizes, count, scale);
          std::vector<double> bounds;
          // Probabilities and the result are rounded to bf16.
          for (std::uint32_t i = 0; i < shape.head_dim; ++i) {
            bounds.push_back(1.01 * bf16_step * (size[i] + std::abs(out[i])) + 1e-5 * size[i]);
          }
          expect_near(doubles({result.data() + at * shape.head_dim, shape.head_dim}), out, bounds,
                      what + " sequence " + std::to_string(s) + " row " + std::to_string(row) + " head " +
                          std::to_string(head));
          if (HasFatalFailure()) return;
          expected_rows[at] = true;
        }
      }
    }
    for (std::size_t at = 0; at < expected_rows.size(); ++at) {
      if (!expected_rows[at]) {
        ASSERT_EQ(result[at * shape.head_dim], 0xffff) << what << ": written between sequences";
      }
    }
  }

  DeviceInfo info_;
  DeviceBuffer workspace_;
};

TEST_F(PrefillTest, MatchesTheReferenceForAllGroups) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    for (const std::uint32_t group : {1u, 3u, 4u, 7u, 8u, 16u}) {
      check({{head_dim, 2 * group, 2, {1, 15, 17, 128, 129, 300}}, {1, 15, 17, 128, 129, 300}});
    }
  }
}

TEST_F(PrefillTest, MatchesTheReferenceForChunksAfterCachedTokens) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    check({{head_dim, 8, 2, {100, 129, 513, 700, 1025}}, {1, 2, 130, 33, 64}});
  }
}

// More tiles than the device has multiprocessors, of many lengths: every block takes several.
TEST_F(PrefillTest, MatchesTheReferenceForManySequences) {
  PrefillCase c{{128, 4, 4, {}}, {}};
  for (std::int32_t i = 0; i < 60; ++i) {
    c.attention.lengths.push_back(40 + i * 7);
    c.rows.push_back(30 + i * 3);
  }
  check(c);
}

// Few new tokens after many: their keys are several blocks' work, some of it beyond what the first rows see.
TEST_F(PrefillTest, MatchesTheReferenceOverLongContexts) {
  check({{128, 4, 1, {20'000}}, {40}, true});
  check({{64, 14, 2, {9'000, 150, 3'001}}, {37, 150, 20}, true});
  check({{128, 2, 2, {4'100}}, {128}, true});
}

// A block that is not in the pool reads as keys and values of zero, also where the last keys of a prompt would be.
TEST_F(PrefillTest, BlocksOutOfRangeReadAsZeros) {
  const AttentionCase shape{128, 4, 1, {200}};
  Random random(8);
  World world(shape, 0, random);
  for (const std::size_t block : {std::size_t{3}, std::size_t{12}}) {
    for (const bool is_value : {false, true}) {
      const std::size_t at = world.place(world.tables[block], 0, is_value, 0);
      std::fill_n(world.values.begin() + static_cast<std::ptrdiff_t>(at), 16 * 128, Bf16{0});
    }
  }
  const Halves q = random_values(random, std::size_t{200} * 4 * 128, 2);
  const auto complete = run(world, shape, q, {{0, 200, 200, 0}});
  world.tables[3] = -1;
  world.tables[12] = 1'000'000;
  EXPECT_EQ(run(world, shape, q, {{0, 200, 200, 0}}), complete);
}

// Blocks beyond 2^31 values: a pool of 4.4 GB whose last block is read.
TEST_F(PrefillTest, ReadsBeyondTwoToTheThirtyOneValues) {
  const AttentionCase shape{128, 8, 8, {16}};
  Random random(3);
  World world(shape, 0, random);
  const Halves q = random_values(random, std::size_t{16} * 8 * 128);
  const auto expected = run(world, shape, q, {{0, 16, 16, 0}});
  KvPool pool = world.pool;
  pool.layers = 32;
  pool.blocks = 2'100;
  auto memory = must(DeviceBuffer::make(pool.blocks * pool.block_values() * 2));
  must(memory.fill(0xff, stream_.get()));
  const std::uint64_t last = (pool.blocks - 1) * pool.block_values();
  ASSERT_GT(last, std::uint64_t{1} << 31);
  for (std::uint32_t head = 0; head < 8; ++head) {
    const std::uint64_t to = last + head * pool.head_values() + World::layer * pool.layer_values();
    must(memory.upload(world.values.data() + world.place(0, head, false, 0), pool.layer_values() * 2, stream_.get(),
                       to * 2));
  }
  world.pool = pool;
  world.pool.base = memory.as<Bf16>();
  world.tables[0] = 2'099;
  EXPECT_EQ(run(world, shape, q, {{0, 16, 16, 0}}), expected);
}

// The same rows whatever else is in the step, and whether or not they came in chunks that end where tiles do.
TEST_F(PrefillTest, LaterTokensDoNotMatter) {
  const AttentionCase shape{128, 4, 1, {512}};
  Random random(5);
  const World world(shape, 0, random);
  const Halves q = random_values(random, std::size_t{512} * 4 * 128, 2);
  const auto whole = run(world, shape, q, {{0, 512, 512, 0}});
  EXPECT_EQ(run(world, shape, q, {{0, 128, 128, 0}, {128, 384, 512, 0}}), whole);
}

TEST(PrefillAttention, RefusesShapesByName) {
  PrefillAttention work;
  const auto message = [&] { return prefill_attention(work, Start::ordered, nullptr).error().message; };
  work.pool = {nullptr, 1, 1, 1, 16, 80};
  EXPECT_NE(message().find("head_dim"), std::string::npos);
  work.pool.head_dim = 64;
  work.heads = 17;
  EXPECT_NE(message().find("more than 16 heads"), std::string::npos);
  work.heads = 4;
  EXPECT_NE(message().find("scale"), std::string::npos);
  work.scale = 1;
  work.multiprocessors = 1;
  EXPECT_NE(message().find("workspace"), std::string::npos);
}

TEST(PlanPrefill, LongTilesComeFirst) {
  const std::vector<PrefillSequence> sequences{{0, 70, 70, 0}, {70, 10, 500, 1}};
  const PrefillPlan plan = plan_prefill(sequences, {8, 2, 128, 132});
  ASSERT_EQ(plan.tiles.size(), 4u);  // 32 tokens each
  EXPECT_EQ(plan.tiles[0].sequence, 1);
  EXPECT_EQ(plan.tiles[0].end, 4);
  for (const PrefillTile& tile : plan.tiles) EXPECT_EQ(tile.part, -1);
  EXPECT_TRUE(plan.merges.empty());
}

TEST(PlanPrefill, PartsCoverAllKeysOnceAndKeepAllMultiprocessorsBusy) {
  const PrefillShape shape{32, 8, 128, 132};
  const PrefillPlan plan = plan_prefill(std::vector<PrefillSequence>{{0, 100, 32'768, 0}}, shape);
  ASSERT_EQ(plan.merges.size(), 4u);
  EXPECT_EQ(plan.tiles.size(), 16u);  // times 8 KV heads
  EXPECT_LE(plan.tiles.size(), prefill_sizes_max(100, 1, shape).tiles);
  for (const PrefillMerge& merge : plan.merges) {
    std::int32_t covered = 0;
    for (std::int32_t part = 0; part < merge.parts; ++part) {
      const auto tile = std::find_if(plan.tiles.begin(), plan.tiles.end(),
                                     [&](const PrefillTile& t) { return t.part == merge.part + part; });
      ASSERT_NE(tile, plan.tiles.end());
      EXPECT_EQ(tile->first, merge.first);
      EXPECT_EQ(tile->begin, covered);
      EXPECT_GT(tile->end, tile->begin);
      covered = tile->end;
    }
    EXPECT_EQ(covered, 256);  // tiles of keys
  }
}

TEST(PlanPrefill, WholePromptsAreNotSplit) {
  for (const std::int32_t length : {17, 512, 2'048, 8'192, 32'768}) {
    const PrefillPlan plan = plan_prefill(std::vector<PrefillSequence>{{0, length, length, 0}}, {32, 8, 128, 132});
    EXPECT_TRUE(plan.merges.empty()) << length;
  }
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
