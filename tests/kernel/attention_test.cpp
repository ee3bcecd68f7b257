#include <algorithm>

#include "kernels/cuda/decode_attention.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/paged_world.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

class AttentionTest : public GpuTest {
 protected:
  void check(const AttentionCase& c, const std::vector<std::uint32_t>& splits) {
    Random random(c.head_dim + c.heads * 3 + c.lengths.size());
    const World world(c, 3, random);
    const auto sequences = static_cast<std::uint32_t>(c.lengths.size());
    const std::size_t count = std::size_t{sequences} * c.heads * c.head_dim;
    const Halves q = random_values(random, count, 2);
    const double scale = 1 / std::sqrt(c.head_dim);
    std::vector<double> expected, bounds;
    for (std::uint32_t s = 0; s < sequences; ++s) {
      for (std::uint32_t head = 0; head < c.heads; ++head) {
        std::vector<double> out(c.head_dim), size(c.head_dim);
        const std::uint32_t kv_head = head / (c.heads / c.kv_heads);
        const std::int32_t length = c.lengths[s];
        if (length > 0) {
          const auto query = doubles({q.data() + (std::size_t{s} * c.heads + head) * c.head_dim, c.head_dim});
          const auto keys = world.rows(s, kv_head, false, length);
          auto values = world.rows(s, kv_head, true, length);
          out = reference::attention(query, keys, values, static_cast<std::size_t>(length), scale);
          for (double& value : values) value = std::abs(value);
          size = reference::attention(query, keys, values, static_cast<std::size_t>(length), scale);
        }
        expected.insert(expected.end(), out.begin(), out.end());
        // Probabilities and the result are rounded to bf16.
        for (std::uint32_t i = 0; i < c.head_dim; ++i) {
          bounds.push_back(1.01 * bf16_step * (size[i] + std::abs(out[i])) + 1e-5 * size[i]);
        }
      }
    }
    const Guarded<Bf16> on_pool(world.values, stream_.get()), on_q(q, stream_.get());
    const Guarded<std::int32_t> on_tables(world.tables, stream_.get()), on_lengths(c.lengths, stream_.get());
    const std::uint32_t splits_max = *std::max_element(splits.begin(), splits.end());
    const std::size_t bytes = workspace_bytes(sequences, c.heads, c.head_dim, splits_max);
    const Guarded<std::uint8_t> workspace(std::vector<std::uint8_t>(bytes), stream_.get());
    DecodeAttention work;
    work.q = on_q.data();
    work.pool = world.pool;
    work.pool.base = on_pool.data();
    work.layer = World::layer;
    work.sequences = sequences;
    work.heads = c.heads;
    work.tables = on_tables.data();
    work.table_stride = world.table_stride;
    work.lengths = on_lengths.data();
    work.scale = static_cast<float>(scale);
    work.workspace = workspace.data();
    for (const std::uint32_t parts : splits) {
      const std::string what = "dim " + std::to_string(c.head_dim) + " heads " + std::to_string(c.heads) + "/" +
                               std::to_string(c.kv_heads) + " splits " + std::to_string(parts);
      work.splits = parts;
      Halves first;
      for (int round = 0; round < 2; ++round) {  // the workspace is left as it was needed
        const Guarded<Bf16> out(count, stream_.get());
        work.out = out.data();
        must(decode_attention(work, Start::ordered, stream_.get()));
        wait();
        const Halves result = out.read(what);
        expect_near(doubles(result), expected, bounds, what);
        if (HasFatalFailure()) return;
        if (round == 0) first = result;
        EXPECT_EQ(result, first) << what;
      }
    }
    workspace.read("workspace");
  }
};

const std::vector<std::int32_t> all_lengths{0, 1, 15, 16, 17, 64, 100, 1000, 2500};

TEST_F(AttentionTest, MatchesTheReferenceForAllGroupsAndSplits) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    for (const std::uint32_t group : {1u, 3u, 4u, 8u, 16u}) {
      check({head_dim, 2 * group, 2, all_lengths}, {1, 2, 7, 8, 16, 64});
    }
  }
}

TEST_F(AttentionTest, MatchesTheReferenceOverALongContext) {
  check({128, 8, 1, {20'000}}, {1, 33, 256});
}

TEST_F(AttentionTest, OneTokenGivesItsValue) {
  check({128, 4, 1, {1}}, {1, 16});
}

// Blocks beyond 2^31 values: a pool of 4.4 GB whose last block is read.
TEST_F(AttentionTest, ReadsBeyondTwoToTheThirtyOneValues) {
  const AttentionCase c{128, 8, 8, {16}};
  Random random(3);
  World world(c, 0, random);
  KvPool pool = world.pool;
  pool.layers = 32;
  pool.blocks = 2'100;
  auto memory = must(DeviceBuffer::make(pool.blocks * pool.block_values() * 2));
  const std::uint64_t last = (pool.blocks - 1) * pool.block_values();
  ASSERT_GT(last, std::uint64_t{1} << 31);
  for (std::uint32_t head = 0; head < 8; ++head) {
    const std::uint64_t to = last + head * pool.head_values() + World::layer * pool.layer_values();
    must(memory.upload(world.values.data() + world.place(0, head, false, 0), pool.layer_values() * 2, stream_.get(),
                       to * 2));
  }
  const Halves q = random_values(random, 8 * 128);
  const std::vector<std::int32_t> table{2'099}, length{16};
  const Guarded<Bf16> on_q(q, stream_.get()), out(8 * 128, stream_.get());
  const Guarded<std::int32_t> on_table(table, stream_.get()), on_length(length, stream_.get());
  const Guarded<std::uint8_t> workspace(std::vector<std::uint8_t>(workspace_bytes(1, 8, 128, 1)), stream_.get());
  DecodeAttention work;
  work.q = on_q.data();
  work.out = out.data();
  work.pool = pool;
  work.pool.base = memory.as<Bf16>();
  work.layer = World::layer;
  work.sequences = 1;
  work.heads = 8;
  work.tables = on_table.data();
  work.table_stride = 1;
  work.lengths = on_length.data();
  work.scale = 0.1f;
  work.workspace = workspace.data();
  must(decode_attention(work, Start::ordered, stream_.get()));
  wait();
  std::vector<double> expected;
  for (std::uint32_t head = 0; head < 8; ++head) {
    const auto one = reference::attention(doubles({q.data() + head * 128, 128}), world.rows(0, head, false, 16),
                                          world.rows(0, head, true, 16), 16, 0.1);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  expect_close(doubles(out.read()), expected, 2 * bf16_step, 0.03, "last block");
}

TEST(DecodeAttention, RefusesShapesByName) {
  DecodeAttention work;
  const auto message = [&] { return decode_attention(work, Start::ordered, nullptr).error().message; };
  work.pool = {nullptr, 1, 1, 1, 16, 80};
  EXPECT_NE(message().find("head_dim"), std::string::npos);
  work.pool.head_dim = 64;
  work.pool.block_tokens = 32;
  EXPECT_NE(message().find("16 tokens"), std::string::npos);
  work.pool.block_tokens = 16;
  work.heads = 17;
  EXPECT_NE(message().find("more than 16 heads"), std::string::npos);
}

TEST(ChooseSplits, FillsTheDeviceAndKeepsSplitsLong) {
  EXPECT_EQ(choose_splits(1, 8, 1024, 132), 8u);  // 64 blocks of tokens, 8 each: a block for half of the processors
  EXPECT_EQ(choose_splits(1, 8, 192, 132), 2u);   // no fewer than one block of tokens a warp
  EXPECT_EQ(choose_splits(4, 8, 1024, 132), 4u);  // 16 each once there are more
  EXPECT_EQ(choose_splits(1, 8, 100'000, 132), 32u);
  EXPECT_EQ(choose_splits(1, 8, 16, 132), 1u);
  EXPECT_EQ(choose_splits(64, 8, 4096, 132), 1u);  // there are enough sequences
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
