// Paged attention against double precision over the values that the pool holds, and equality of bits however a prompt
// is cut, batched and sliced.
#include <gtest/gtest.h>

#include <optional>

#include "kernels/cpu/kernels.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/unit/kernels/builders.hpp"

namespace penstock::kernels::test {
namespace {

using namespace cpu;

struct Shape {
  std::uint32_t heads = 9;
  std::uint32_t kv_heads = 3;
  std::uint32_t head_dim = 64;
  std::uint32_t block_tokens = 16;
  KvType type = KvType::bf16;
  RopeStyle style = RopeStyle::interleaved;
  std::uint32_t window = 0;
  bool has_sinks = false;
};

/// One sequence of `tokens` positions with a pool of its own, in scattered blocks.
class Model {
 public:
  Model(const Shape& shape, std::size_t tokens, std::uint64_t seed) : shape_(shape), tokens_(tokens) {
    layout_ = {shape.kv_heads, 2, shape.block_tokens, shape.head_dim, shape.type};
    const std::size_t blocks = (tokens + shape.block_tokens - 1) / shape.block_tokens;
    for (std::size_t i = 0; i < blocks; ++i) table_.push_back(static_cast<BlockIndex>((i * 7 + 3) % (blocks + 7)));
    if ((blocks + 7) % 7 == 0) {
      for (std::size_t i = 0; i < blocks; ++i) table_[i] = static_cast<BlockIndex>(blocks - 1 - i);
    }
    pool_.resize((blocks + 7) * layout_.block_bytes(), std::byte{0xff});  // NaN in every type
    Random random(seed);
    stride_ = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    input_ = normals(random, tokens * stride_);
    for (float& value : input_) value *= 1.5f;
    weight_ = normals(random, shape.head_dim);
    if (shape.has_sinks) sinks_ = normals(random, shape.heads);
    for (std::size_t i = 0; i < tokens * shape.head_dim / 2; ++i) {
      const double angle = static_cast<double>(i / (shape.head_dim / 2)) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i % (shape.head_dim / 2)) / shape.head_dim);
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
  }

  RopeTable rope() const {
    return {cos_.data(), sin_.data(), static_cast<std::uint32_t>(tokens_), shape_.head_dim, shape_.style};
  }
  std::size_t columns() const { return std::size_t{shape_.heads} * shape_.head_dim; }

  AttentionArgs args(std::vector<float>& qkv, std::span<const AttentionSequence> sequences) {
    AttentionArgs args;
    args.qkv = {qkv.data(),   stride_,        0, columns(), columns() + shape_.kv_heads * shape_.head_dim,
                shape_.heads, shape_.kv_heads};
    args.kv = {pool_.data(), layout_, 0};
    args.layer = 1;
    args.sequences = sequences;
    args.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    args.window = shape_.window;
    args.sinks = sinks_.empty() ? nullptr : sinks_.data();
    return args;
  }

  /// Runs positions in chunks of the given sizes (the last repeats) and returns all outputs.
  std::vector<float> run(const Kernels& kernels, std::vector<std::size_t> chunks, std::uint32_t slices, QkNorm norm) {
    std::vector<float> result;
    std::size_t position = 0;
    for (std::size_t i = 0; position < tokens_; ++i) {
      const std::size_t count = std::min(chunks[std::min(i, chunks.size() - 1)], tokens_ - position);
      std::vector<float> qkv(input_.begin() + static_cast<std::ptrdiff_t>(position * stride_),
                             input_.begin() + static_cast<std::ptrdiff_t>((position + count) * stride_));
      const AttentionSequence sequence = {table_.data(), 0, static_cast<std::uint32_t>(count),
                                          static_cast<std::uint32_t>(position)};
      AttentionArgs call = args(qkv, {&sequence, 1});
      partials_.assign(slots * attention_slot_floats(shape_.heads, shape_.head_dim), std::nanf(""));
      call.partials = partials_.data();
      call.partial_slots = slots;
      Activations out(count, columns(), ActivationForm::f32);
      for (std::size_t r = 0; r < count; ++r) std::fill_n(out.f32(r), columns(), std::nanf(""));
      for (std::uint32_t s = 0; s < slices; ++s) kernels.rope_and_store(call, rope(), norm, {s, slices});
      for (std::uint32_t s = 0; s < slices; ++s) kernels.attention(call, out, {s, slices});
      if (kernels.attention_is_split(call)) {
        ++split_rows;
        for (std::uint32_t s = 0; s < slices; ++s) kernels.merge_attention(call, out, {s, slices});
      }
      for (std::size_t r = 0; r < count; ++r) result.insert(result.end(), out.f32(r), out.f32(r) + columns());
      rotated_.insert(rotated_.end(), qkv.begin(), qkv.end());
      position += count;
    }
    return result;
  }

  /// Expected output of one row and head, from q as rotated in the last run and K and V as the pool has them.
  reference::Vector expected(std::size_t row, std::size_t head) const {
    const std::size_t dim = shape_.head_dim;
    const auto q = rotated_.begin() + static_cast<std::ptrdiff_t>(row * stride_ + head * dim);
    const std::size_t kv_head = head / (shape_.heads / shape_.kv_heads);
    reference::Vector keys, values;
    const std::size_t first = shape_.window == 0 || row < shape_.window ? 0 : row + 1 - shape_.window;
    for (std::size_t position = first; position <= row; ++position) {
      for (std::size_t d = 0; d < dim; ++d) {
        keys.push_back(pool_value(position, kv_head, KvPart::key, d));
        values.push_back(pool_value(position, kv_head, KvPart::value, d));
      }
    }
    return reference::attention({q, q + static_cast<std::ptrdiff_t>(dim)}, keys, values, row + 1 - first,
                                1 / std::sqrt(static_cast<double>(dim)),
                                sinks_.empty() ? std::optional<double>() : double{sinks_[head]});
  }

  double pool_value(std::size_t position, std::size_t head, KvPart part, std::size_t d) const {
    const std::byte* at = pool_.data() + table_[position / shape_.block_tokens] * layout_.block_bytes() +
                          layout_.plane_offset(static_cast<std::uint32_t>(head), 1, part) +
                          (position % shape_.block_tokens * shape_.head_dim + d) * kv_type_bytes(shape_.type);
    if (shape_.type == KvType::f32) {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    std::uint16_t half;
    std::memcpy(&half, at, 2);
    return shape_.type == KvType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
  }

  std::size_t slots = 0;       // of which a decode row may be cut
  std::size_t split_rows = 0;  // that were

  const std::vector<float>& weight() const { return weight_; }
  const std::vector<float>& input() const { return input_; }
  const std::vector<float>& rotated() const { return rotated_; }
  std::size_t stride() const { return stride_; }

 private:
  Shape shape_;
  std::size_t tokens_;
  KvLayout layout_;
  std::vector<BlockIndex> table_;
  std::vector<std::byte> pool_;
  std::size_t stride_ = 0;
  std::vector<float> input_, weight_, sinks_, cos_, sin_, rotated_, partials_;
};

class Attention : public LevelTest<IsaLevel> {
 protected:
  Attention() : LevelTest(GetParam()) {}
};

TEST_P(Attention, AgreesWithDoublePrecisionForEveryShape) {
  const Shape shapes[] = {
      {},
      {.heads = 4, .kv_heads = 4, .head_dim = 40, .block_tokens = 8, .type = KvType::f16},
      {.heads = 8, .kv_heads = 1, .head_dim = 128, .block_tokens = 32, .style = RopeStyle::half_split},
      {.heads = 2, .kv_heads = 2, .head_dim = 256, .block_tokens = 16, .type = KvType::f32},
      {.heads = 64, .kv_heads = 1, .head_dim = 8, .block_tokens = 4},
      {.window = 40},
      {.head_dim = 32, .window = 1},
      {.window = 33, .has_sinks = true},
      {.heads = 64, .kv_heads = 8, .has_sinks = true},
  };
  for (const Shape& shape : shapes) {
    Model model(shape, 75, 1);
    const std::vector<float> out = model.run(kernels_, {70, 1}, 2, {});
    for (const std::size_t row : {0u, 1u, 31u, 32u, 69u, 70u, 74u}) {
      for (std::size_t head = 0; head < shape.heads; head += 3) {
        const float* actual = out.data() + row * model.columns() + head * shape.head_dim;
        EXPECT_LT(relative_error({actual, shape.head_dim}, model.expected(row, head)), 3e-6)
            << "head_dim " << shape.head_dim << " row " << row << " head " << head;
      }
    }
  }
}

TEST_P(Attention, GivesTheSameBitsForEveryChunkingAndSlicing) {
  const auto whole = Model({}, 200, 2).run(kernels_, {200}, 1, {});
  for (const std::size_t chunk : {1u, 5u, 16u, 33u, 128u}) {
    for (const std::uint32_t slices : {1u, 2u, 5u}) {
      const auto cut = Model({}, 200, 2).run(kernels_, {3, chunk}, slices, {});
      EXPECT_TRUE(same_bits(whole, cut)) << "chunk " << chunk << " slices " << slices;
    }
  }
}

// Whole, in chunks, and row by row, where long rows are cut into parts if there is room for their slots.
TEST_P(Attention, CutsOfALongRowChangeNoBit) {
  const Shape shape = {.heads = 4, .kv_heads = 2, .head_dim = 32};
  const std::size_t tokens = 1040, prompt = 1010;
  Model reference(shape, tokens, 5);
  const auto whole = reference.run(kernels_, {tokens}, 1, {});
  for (const std::size_t row : {0u, 511u, 512u, 513u, 1023u, 1024u, 1039u}) {
    const float* actual = whole.data() + row * reference.columns() + 32;
    EXPECT_LT(relative_error({actual, 32}, reference.expected(row, 1)), 3e-6) << row;
  }
  for (const std::size_t slots : {0u, 2u, 3u}) {
    for (const std::uint32_t slices : {1u, 2u, 5u}) {
      Model model(shape, tokens, 5);
      model.slots = slots;
      const auto cut = model.run(kernels_, {prompt, 1}, slices, {});
      EXPECT_TRUE(same_bits(whole, cut)) << "slots " << slots << " slices " << slices;
      EXPECT_EQ(model.split_rows, slots == 0 ? 0u : slots == 2 ? 1024 - prompt : tokens - prompt);
    }
  }
  EXPECT_TRUE(same_bits(whole, Model(shape, tokens, 5).run(kernels_, {7, 400}, 2, {})));
}

// Windows that begin inside a tile, at the start of a part and beyond the first parts; sinks are counted once.
TEST_P(Attention, CutsOfALongRowChangeNoBitOfAWindow) {
  for (const std::uint32_t window : {1u, 100u, 500u, 600u, 1030u}) {
    const Shape shape = {.heads = 4, .kv_heads = 2, .head_dim = 32, .window = window, .has_sinks = true};
    const std::size_t tokens = 1100, prompt = 1010;
    Model reference(shape, tokens, 6);
    const auto whole = reference.run(kernels_, {tokens}, 1, {});
    for (const std::size_t row : {0u, 99u, 100u, 511u, 512u, 611u, 612u, 1023u, 1024u, 1099u}) {
      const float* actual = whole.data() + row * reference.columns() + 32;
      EXPECT_LT(relative_error({actual, 32}, reference.expected(row, 1)), 3e-6)
          << "window " << window << " row " << row;
    }
    for (const std::size_t slots : {0u, 2u, 3u}) {
      Model model(shape, tokens, 6);
      model.slots = slots;
      EXPECT_TRUE(same_bits(whole, model.run(kernels_, {prompt, 1}, 3, {})))
          << "window " << window << " slots " << slots;
    }
    EXPECT_TRUE(same_bits(whole, Model(shape, tokens, 6).run(kernels_, {7, 400}, 2, {}))) << "window " << window;
  }
}

TEST_P(Attention, BatchedSequencesDoNotDisturbEachOther) {
  // Two sequences share one pool and one batch: a decode row and a prefill chunk.
  const Shape shape;
  Model alone(shape, 64, 3);
  const auto expected = alone.run(kernels_, {40, 24}, 1, {});
  Model model(shape, 64, 3);
  std::vector<float> first(model.input().begin(),
                           model.input().begin() + static_cast<std::ptrdiff_t>(40 * model.stride()));
  std::vector<BlockIndex> table_a = {0, 1, 2, 3};
  std::vector<BlockIndex> table_b = {6, 5, 4, 7};
  const auto fill = [&](const std::vector<BlockIndex>& table) {
    std::vector<float> qkv = first;
    const AttentionSequence sequence = {table.data(), 0, 40, 0};
    kernels_.rope_and_store(model.args(qkv, {&sequence, 1}), model.rope(), {}, {});
  };
  fill(table_a);
  fill(table_b);
  std::vector<float> qkv(model.input().begin() + static_cast<std::ptrdiff_t>(40 * model.stride()), model.input().end());
  std::vector<float> batch(qkv.begin(), qkv.begin() + static_cast<std::ptrdiff_t>(model.stride()));
  batch.insert(batch.end(), qkv.begin(), qkv.end());
  const AttentionSequence sequences[] = {{table_a.data(), 0, 1, 40}, {table_b.data(), 1, 24, 40}};
  const AttentionArgs call = model.args(batch, sequences);
  Activations out(25, model.columns(), ActivationForm::both);
  kernels_.rope_and_store(call, model.rope(), {}, {});
  for (std::uint32_t s = 0; s < 3; ++s) kernels_.attention(call, out, {s, 3});
  const std::size_t columns = model.columns();
  EXPECT_TRUE(same_bits({out.f32(0), columns}, {expected.data() + 40 * columns, columns}));
  for (std::size_t r = 0; r < 24; ++r) {
    EXPECT_TRUE(same_bits({out.f32(1 + r), columns}, {expected.data() + (40 + r) * columns, columns}));
    for (std::size_t c = 0; c < columns; ++c) {
      EXPECT_NEAR(static_cast<float>(out.q(1 + r)[c]) * out.scale(1 + r)[c / 32], out.f32(1 + r)[c], 1e-4);
    }
  }
}

TEST_P(Attention, NormsHeadsBeforeRotating) {
  for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    Model model({.style = style}, 20, 4);
    const QkNorm norm = {model.weight().data(), model.weight().data(), 1e-6f};
    model.run(kernels_, {20}, 1, norm);
    const std::size_t row = 19, dim = 64;
    const auto head = model.input().begin() + static_cast<std::ptrdiff_t>(row * model.stride() + 2 * dim);
    reference::Vector q = reference::rms_norm({head, head + 64}, {model.weight().begin(), model.weight().end()}, 1e-6);
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double angle = 19.0 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 64.0);
      const bool halves = style == RopeStyle::half_split;
      reference::rotate(q[halves ? i : 2 * i], q[halves ? i + dim / 2 : 2 * i + 1], angle);
    }
    const float* actual = model.rotated().data() + row * model.stride() + 2 * dim;
    EXPECT_LT(relative_error({actual, dim}, q), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryLevel, Attention, testing::ValuesIn(all_isa_levels),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

}  // namespace
}  // namespace penstock::kernels::test
