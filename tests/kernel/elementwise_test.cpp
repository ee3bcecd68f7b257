#include "kernels/cuda/elementwise.hpp"

#include "kernels/cuda/sampler_types.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

class ElementwiseTest : public GpuTest {};

TEST_F(ElementwiseTest, SwiGluMatchesTheReference) {
  for (const std::uint32_t columns : {8u, 264u, 14336u}) {
    for (const std::uint32_t tokens : {1u, 5u}) {
      Random random(columns + tokens);
      const Halves x = random_values(random, std::size_t{2} * tokens * columns, 4);
      const Guarded<Bf16> on_x(x, stream_.get()), y(std::size_t{tokens} * columns, stream_.get());
      must(swiglu({on_x.data(), y.data(), tokens, columns}, Start::ordered, stream_.get()));
      wait();
      std::vector<double> expected;
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t i = 0; i < columns; ++i) {
          const std::size_t gate = 2 * t * columns + i;
          expected.push_back(reference::silu(value_of(x[gate])) * value_of(x[gate + columns]));
        }
      }
      expect_close(doubles(y.read()), expected, 1.02 * bf16_step, 1e-6, std::to_string(columns));
    }
  }
}

TEST_F(ElementwiseTest, EmbeddingRowsAreCopiedAndUnknownIdsAreZero) {
  constexpr std::uint32_t columns = 72, vocabulary = 11;
  Random random(1);
  const Halves table = random_values(random, columns * vocabulary);
  const std::vector<std::uint32_t> ids{0, 10, 3, 3, 11, 0xffffffffu};
  const Guarded<Bf16> on_table(table, stream_.get()), y(ids.size() * columns, stream_.get());
  const Guarded<std::uint32_t> on_ids(ids, stream_.get());
  must(gather_embedding({on_table.data(), on_ids.data(), y.data(), 6, columns, vocabulary}, Start::ordered,
                        stream_.get()));
  wait();
  Halves expected;
  for (const std::uint32_t id : ids) {
    for (std::uint32_t i = 0; i < columns; ++i) expected.push_back(id < vocabulary ? table[id * columns + i] : Bf16{0});
  }
  EXPECT_EQ(y.read(), expected);
}

TEST_F(ElementwiseTest, EmbeddingRowsOfDrawnTokensAreThoseOfTheirIds) {
  constexpr std::uint32_t columns = 72, vocabulary = 11;
  Random random(3);
  const Halves table = random_values(random, columns * vocabulary);
  const std::vector<std::uint32_t> ids{drawn_bit | 2, 4, drawn_bit | 0, drawn_bit | 1}, drawn{7, 99, 10};
  const std::vector<std::uint32_t> meant{10, 4, 7, 99};
  const Guarded<Bf16> on_table(table, stream_.get()), y(ids.size() * columns, stream_.get());
  const Guarded<std::uint32_t> on_ids(ids, stream_.get()), on_drawn(drawn, stream_.get());
  must(gather_embedding({on_table.data(), on_ids.data(), y.data(), 4, columns, vocabulary, on_drawn.data()},
                        Start::ordered, stream_.get()));
  wait();
  Halves expected;
  for (const std::uint32_t id : meant) {
    for (std::uint32_t i = 0; i < columns; ++i) expected.push_back(id < vocabulary ? table[id * columns + i] : Bf16{0});
  }
  EXPECT_EQ(y.read(), expected);
}

TEST_F(ElementwiseTest, BlocksAreCopiedAndOthersStay) {
  KvPool pool{nullptr, 9, 3, 5, 16, 64};
  Random random(2);
  Halves values = random_values(random, pool.blocks * pool.block_values());
  const Guarded<Bf16> on_pool(values, stream_.get());
  pool.base = on_pool.data();
  const std::vector<std::uint32_t> pairs{0, 8, 3, 1, 9, 2, 4, 9};  // the last two name a block that is not there
  const Guarded<std::uint32_t> on_pairs(pairs, stream_.get());
  must(copy_blocks({pool, reinterpret_cast<const BlockPair*>(on_pairs.data()), 4}, Start::ordered, stream_.get()));
  wait();
  const auto block = static_cast<std::ptrdiff_t>(pool.block_values());
  std::copy_n(values.begin(), block, values.begin() + 8 * block);
  std::copy_n(values.begin() + 3 * block, block, values.begin() + block);
  EXPECT_EQ(on_pool.read(), values);
}

TEST_F(ElementwiseTest, BlocksBeyondTwoToTheThirtyOneValuesAreCopied) {
  KvPool pool{nullptr, 2'100, 8, 32, 16, 128};
  auto memory = must(DeviceBuffer::make(pool.blocks * pool.block_values() * 2));
  pool.base = memory.as<Bf16>();
  Random random(4);
  const Halves block = random_values(random, pool.block_values());
  const std::size_t bytes = block.size() * 2, last = (pool.blocks - 1) * bytes;
  must(memory.upload(block.data(), bytes, stream_.get()));
  const Guarded<std::uint32_t> pairs(std::vector<std::uint32_t>{0, pool.blocks - 1}, stream_.get());
  must(copy_blocks({pool, reinterpret_cast<const BlockPair*>(pairs.data()), 1}, Start::ordered, stream_.get()));
  wait();
  Halves copied(block.size());
  must(memory.download(copied.data(), bytes, stream_.get(), last));
  EXPECT_EQ(copied, block);
}

TEST_F(ElementwiseTest, Fp8WeightsAreWidenedToTheirValuesRoundedOnce) {
  constexpr std::uint32_t rows = 261, columns = 272;
  Random random(8);
  std::vector<std::uint8_t> codes(std::size_t{rows} * columns);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127 + i % 2 * 128);
  std::vector<float> scales(rows);
  for (float& scale : scales) scale = static_cast<float>(0.001 * (1 + random.uniform()));
  const Guarded<std::uint8_t> on_codes(codes, stream_.get());
  const Guarded<float> on_scales(scales, stream_.get());
  for (const Fp8Scales kind : {Fp8Scales::tensor, Fp8Scales::row, Fp8Scales::block}) {
    const Guarded<Bf16> y(codes.size(), stream_.get());
    must(widen_weights({{on_codes.data(), on_scales.data(), kind}, y.data(), rows, columns}, Start::ordered,
                       stream_.get()));
    wait();
    Halves expected;
    for (std::uint32_t row = 0; row < rows; ++row) {
      for (std::uint32_t column = 0; column < columns; ++column) {
        const std::uint32_t block = row / 128 * 3 + column / 128;
        const std::uint32_t place = kind == Fp8Scales::row ? row : kind == Fp8Scales::block ? block : 0;
        // A product of 4 and 24 bits, first rounded to a float.
        const float value = static_cast<float>(reference::e4m3(codes[row * columns + column])) * scales[place];
        expected.push_back(rounded(value));
      }
    }
    EXPECT_EQ(y.read(), expected) << static_cast<int>(kind);
  }
}

TEST_F(ElementwiseTest, WordsChangeAndOthersStay) {
  constexpr std::uint32_t size = 1000, count = 300;
  std::vector<std::int32_t> words(size, 7);
  const Guarded<std::int32_t> on_words(words, stream_.get());
  std::vector<std::uint32_t> changes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t place = i * 4;  // the last 50 are out of range
    changes.insert(changes.end(), {place, 0xffffff00u + i});
    if (place < size) words[place] = static_cast<std::int32_t>(0xffffff00u + i);
  }
  const Guarded<std::uint32_t> on_changes(changes, stream_.get());
  must(change_words({on_words.data(), size, reinterpret_cast<const WordChange*>(on_changes.data()), count},
                    Start::ordered, stream_.get()));
  wait();
  EXPECT_EQ(on_words.read(), words);
}

TEST(Elementwise, RefusesShapesByName) {
  EXPECT_FALSE(swiglu({nullptr, nullptr, 1, 12}, Start::ordered, nullptr));
  EXPECT_FALSE(gather_embedding({nullptr, nullptr, nullptr, 1, 0, 1}, Start::ordered, nullptr));
  EXPECT_FALSE(copy_blocks({{}, nullptr, 1}, Start::ordered, nullptr));
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
