#include <algorithm>

#include "kernels/cuda/decode_attention.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

constexpr std::uint32_t block_tokens = 16;

struct AttentionCase {
  std::uint32_t head_dim, heads, kv_heads;
  std::vector<std::int32_t> lengths;
};

/// A pool with random keys and values where the sequences' tokens are, NaN everywhere else.
struct World {
  World(const AttentionCase& c, std::uint32_t spare_blocks, Random& random) {
    for (const std::int32_t length : c.lengths) {
      const auto blocks = static_cast<std::uint32_t>((length + 15) / 16);
      table_stride = std::max(table_stride, blocks + 1);
    }
    std::vector<std::int32_t> free;
    pool = {nullptr, 0, c.kv_heads, 2, block_tokens, c.head_dim};
    for (const std::int32_t length : c.lengths) pool.blocks += static_cast<std::uint32_t>((length + 15) / 16);
    pool.blocks += spare_blocks;
    for (std::uint32_t i = 0; i < pool.blocks; ++i) free.push_back(static_cast<std::int32_t>(i));
    for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.below(i)]);
    values.assign(pool.blocks * pool.block_values(), 0xffff);
    tables.assign(c.lengths.size() * table_stride, -1);
    for (std::size_t s = 0; s < c.lengths.size(); ++s) {
      for (std::int32_t token = 0; token < c.lengths[s]; ++token) {
        std::int32_t& block = tables[s * table_stride + static_cast<std::size_t>(token) / 16];
        if (token % 16 == 0) {
          block = free.back();
          free.pop_back();
        }
        for (std::uint32_t head = 0; head < c.kv_heads; ++head) {
          for (const bool is_value : {false, true}) {
            const Halves row = random_values(random, c.head_dim, 2);
            std::copy(row.begin(), row.end(),
                      values.begin() + static_cast<std::ptrdiff_t>(place(block, head, is_value, token % 16)));
          }
        }
      }
    }
  }
  std::size_t place(std::int32_t block, std::uint32_t head, bool is_value, std::int32_t token) const {
    return static_cast<std::size_t>(block) * pool.block_values() + head * pool.head_values() +
           layer * pool.layer_values() + (is_value ? pool.plane_values() : 0) +
           static_cast<std::size_t>(token) * pool.head_dim;
  }
  std::vector<double> rows(std::size_t sequence, std::uint32_t head, bool is_value, std::int32_t length) const {
    std::vector<double> out;
    for (std::int32_t token = 0; token < length; ++token) {
      const std::size_t at =
          place(tables[sequence * table_stride + static_cast<std::size_t>(token) / 16], head, is_value, token % 16);
      for (std::uint32_t i = 0; i < pool.head_dim; ++i) out.push_back(value_of(values[at + i]));
    }
    return out;
  }

  static constexpr std::uint32_t layer = 1;
  KvPool pool;
  Halves values;
  std::vector<std::int32_t> tables;
  std::uint32_t table_stride = 1;
};

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
  EXPECT_EQ(choose_splits(1, 8, 1024, 132), 4u);  // 64 blocks of tokens, 16 each
  EXPECT_EQ(choose_splits(1, 8, 100'000, 132), 32u);
  EXPECT_EQ(choose_splits(1, 8, 16, 132), 1u);
  EXPECT_EQ(choose_splits(64, 8, 4096, 132), 1u);  // there are enough sequences
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
