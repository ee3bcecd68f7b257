// Kernels that do the work of two: held to the two, bit by bit where the arithmetic is the same, else to the reference.
#include <algorithm>

#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/rope.hpp"
#include "kernels/cuda/skinny_fp8.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

struct NewTokenCase {
  std::uint32_t head_dim, heads, kv_heads, splits;
  bool has_norms;
};

class FusedAttentionTest : public GpuTest {
 protected:
  static constexpr std::uint32_t positions = 700, layers = 2, layer = 1, stride = 44;
  const std::vector<std::int32_t> lengths_{1, 16, 17, 0, 300, 699, 64};

  void check(const NewTokenCase& c) {
    const auto sequences = static_cast<std::uint32_t>(lengths_.size());
    const std::string what = "head_dim " + std::to_string(c.head_dim) + ", heads " + std::to_string(c.heads) + "/" +
                             std::to_string(c.kv_heads) + ", splits " + std::to_string(c.splits);
    Random random(c.head_dim + c.heads * 7 + c.splits);
    const KvPool shape{nullptr, sequences * stride, c.kv_heads, layers, 16, c.head_dim};
    const Halves pool = random_values(random, shape.blocks * shape.block_values());
    const std::uint32_t qkv_width = (c.heads + 2 * c.kv_heads) * c.head_dim;
    const Guarded<Bf16> qkv(random_values(random, std::size_t{sequences} * qkv_width), stream_.get());
    const Guarded<Bf16> q_norm(random_values(random, c.head_dim), stream_.get());
    const Guarded<Bf16> k_norm(random_values(random, c.head_dim), stream_.get());
    std::vector<float> cos, sin;
    for (std::uint32_t i = 0; i < positions * c.head_dim / 2; ++i) {
      cos.push_back(static_cast<float>(std::cos(0.37 * i)));
      sin.push_back(static_cast<float>(std::sin(0.37 * i)));
    }
    const Guarded<float> on_cos(cos, stream_.get()), on_sin(sin, stream_.get());
    std::vector<std::int32_t> tables, at;
    std::vector<std::int64_t> slots;
    for (std::uint32_t s = 0; s < sequences; ++s) {
      for (std::uint32_t b = 0; b < stride; ++b) tables.push_back(static_cast<std::int32_t>(b * sequences + s));
      const std::int32_t last = lengths_[s] - 1;
      at.push_back(last);
      slots.push_back(last < 0 ? -1 : std::int64_t{tables[s * stride + last / 16]} * 16 + last % 16);
    }
    const Guarded<std::int32_t> on_tables(tables, stream_.get()), on_at(at, stream_.get());
    const Guarded<std::int32_t> on_lengths(lengths_, stream_.get());
    const Guarded<std::int64_t> on_slots(slots, stream_.get());
    const std::size_t count = std::size_t{sequences} * c.heads * c.head_dim;
    const std::size_t bytes = workspace_bytes(sequences, c.heads, c.head_dim, c.splits);
    const Guarded<std::uint8_t> workspace(std::vector<std::uint8_t>(bytes), stream_.get());

    DecodeAttention work;
    work.pool = shape;
    work.layer = layer;
    work.sequences = sequences;
    work.heads = c.heads;
    work.tables = on_tables.data();
    work.table_stride = stride;
    work.lengths = on_lengths.data();
    work.scale = 0.09f;
    work.splits = c.splits;
    work.workspace = workspace.data();

    const Guarded<Bf16> two_pool(pool, stream_.get()), two_out(count, stream_.get()), q(count, stream_.get());
    RopeAndStore rope;
    rope.qkv = qkv.data();
    rope.qkv_stride = qkv_width;
    rope.q = q.data();
    rope.pool = work.pool;
    rope.pool.base = two_pool.data();
    rope.layer = layer;
    rope.heads = c.heads;
    rope.tokens = sequences;
    rope.positions = on_at.data();
    rope.slots = on_slots.data();
    rope.cos = on_cos.data();
    rope.sin = on_sin.data();
    rope.table_positions = positions;
    rope.q_norm = c.has_norms ? q_norm.data() : nullptr;
    rope.k_norm = c.has_norms ? k_norm.data() : nullptr;
    must(rope_and_store(rope, Start::ordered, stream_.get()));
    work.pool.base = two_pool.data();
    work.q = q.data();
    work.out = two_out.data();
    must(decode_attention(work, Start::ordered, stream_.get()));

    const Guarded<Bf16> one_pool(pool, stream_.get()), one_out(count, stream_.get());
    const NewTokens fresh{qkv.data(), qkv_width,   on_cos.data(), on_sin.data(),
                          positions,  rope.q_norm, rope.k_norm,   rope.epsilon};
    work.pool.base = one_pool.data();
    work.q = nullptr;
    work.out = one_out.data();
    must(decode_attention(work, fresh, Start::overlapped, stream_.get()));
    wait();
    EXPECT_EQ(one_pool.read(what), two_pool.read(what)) << what;
    EXPECT_EQ(one_out.read(what), two_out.read(what)) << what;
  }
};

TEST_F(FusedAttentionTest, NewTokensGiveTheBitsOfTwoKernels) {
  for (const std::uint32_t splits : {1u, 2u, 8u, 16u, 32u}) {
    check({64, 9, 3, splits, false});
    check({128, 32, 8, splits, false});
    check({128, 16, 1, splits, true});
  }
}

TEST(FusedAttention, RefusesShapesByName) {
  DecodeAttention work;
  work.pool = {nullptr, 1, 1, 1, 16, 64};
  work.heads = 1;
  NewTokens fresh;
  EXPECT_NE(decode_attention(work, fresh, Start::ordered, nullptr).error().message.find("qkv"), std::string::npos);
}

// A product that leaves what a norm needs, and one that applies it, against norm and product in double precision.
class FusedNormTest : public GpuTest {
 protected:
  /// About 0.1, as e4m3 codes with one scale and as bf16, which has the same values.
  struct Weights {
    std::vector<std::uint8_t> codes;
    Halves values;
  };
  static constexpr float scale_ = 0.125f;
  static Weights random_weights(Random& random, std::size_t count) {
    Weights weights{std::vector<std::uint8_t>(count), Halves(count)};
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = static_cast<std::uint8_t>(random.below(2) << 7 | (4 + random.below(4)) << 3 | random.below(8));
      weights.codes[i] = code;
      weights.values[i] = rounded(reference::e4m3(code) * double{scale_});
    }
    return weights;
  }
  static Result<void> multiply(const SkinnyProduct& p, const Fp8Weights& codes, SkinnyConfig config, bool is_swiglu,
                               Stream stream) {
    constexpr Start start = Start::overlapped;
    if (p.weights != nullptr) {
      return is_swiglu ? skinny_gemm_swiglu(p, config, start, stream) : skinny_gemm(p, config, start, stream);
    }
    return is_swiglu ? skinny_fp8_swiglu(p, codes, config, start, stream) : skinny_fp8(p, codes, config, start, stream);
  }

  void check(std::uint32_t hidden, std::uint32_t inner, std::uint32_t outputs, std::uint32_t tokens, bool is_swiglu,
             bool is_fp8) {
    constexpr double epsilon = 1e-5;
    Random random(hidden + tokens);
    const Weights first_weights = random_weights(random, std::size_t{hidden} * inner);
    const Weights second_weights = random_weights(random, std::size_t{outputs} * hidden);
    const Halves &first = first_weights.values, &second = second_weights.values;
    const Guarded<std::uint8_t> first_codes(first_weights.codes, stream_.get());
    const Guarded<std::uint8_t> second_codes(second_weights.codes, stream_.get());
    const Guarded<float> scales(std::vector<float>{scale_}, stream_.get());
    const Halves a = random_values(random, std::size_t{tokens} * inner), gain = random_values(random, hidden);
    const Halves residual = random_values(random, std::size_t{tokens} * hidden);
    const Guarded<Bf16> on_first(first, stream_.get()), on_second(second, stream_.get()), on_a(a, stream_.get());
    const Guarded<Bf16> on_gain(gain, stream_.get());
    for (std::uint8_t shape = 0; shape < (is_fp8 ? skinny_fp8_shapes() : skinny_shapes()).size(); ++shape) {
      for (const std::uint8_t cluster : {1, 4}) {
        const SkinnyConfig config{shape, cluster};
        const std::string what = (is_fp8 ? "fp8, " : "") + std::to_string(hidden) + ", " + std::to_string(tokens) +
                                 " tokens, shape " + std::to_string(shape) + " cluster " + std::to_string(cluster);
        const std::uint32_t parts = is_fp8 ? squares_parts_fp8(hidden, config) : squares_parts(hidden, config);
        const Guarded<Bf16> x(residual, stream_.get()), gained(std::size_t{tokens} * hidden, stream_.get());
        const Guarded<float> squares(std::size_t{tokens} * parts, stream_.get());
        SkinnyProduct p;
        p.weights = is_fp8 ? nullptr : on_first.data();
        p.x = on_a.data();
        p.y = x.data();
        p.rows = hidden;
        p.columns = p.x_stride = inner;
        p.tokens = tokens;
        p.y_stride = p.residual_stride = hidden;
        p.residual = x.data();
        p.gain = on_gain.data();
        p.gained = gained.data();
        p.squares = squares.data();
        must(multiply(p, {first_codes.data(), scales.data(), Fp8Scales::tensor}, config, false, stream_.get()));
        const std::uint32_t width = is_swiglu ? outputs / 2 : outputs;
        const Guarded<Bf16> y(std::size_t{tokens} * width, stream_.get());
        SkinnyProduct next;
        next.weights = is_fp8 ? nullptr : on_second.data();
        next.x = gained.data();
        next.y = y.data();
        next.rows = outputs;
        next.columns = next.x_stride = hidden;
        next.tokens = tokens;
        next.y_stride = width;
        next.norm_squares = squares.data();
        next.norm_parts = parts;
        next.norm_epsilon = static_cast<float>(epsilon);
        must(multiply(next, {second_codes.data(), scales.data(), Fp8Scales::tensor}, config, is_swiglu, stream_.get()));
        wait();
        const auto stored = doubles(x.read(what));
        std::vector<double> normed;
        for (std::uint32_t t = 0; t < tokens; ++t) {
          const std::span<const double> row(stored.data() + std::size_t{t} * hidden, hidden);
          const auto values = reference::rms_norm({row.begin(), row.end()}, doubles(gain), epsilon);
          normed.insert(normed.end(), values.begin(), values.end());
        }
        const auto both = reference::matmul(doubles(second), normed, outputs, hidden, tokens);
        std::vector<double> expected, bounds;
        // Every input is rounded once: errors add up as of independent numbers, at 6 standard deviations.
        const double spread = 6 * bf16_step * 0.1 * std::sqrt(hidden);
        for (std::uint32_t t = 0; t < tokens; ++t) {
          for (std::uint32_t i = 0; i < width; ++i) {
            const double* row = both.data() + std::size_t{t} * outputs;
            const double value = is_swiglu ? reference::silu(row[i]) * row[width + i] : row[i];
            const double size = is_swiglu ? 1 + std::abs(row[i]) + std::abs(row[width + i]) : 1;
            expected.push_back(value);
            bounds.push_back(1.01 * bf16_step * std::abs(value) + spread * size);
          }
        }
        expect_near(doubles(y.read(what)), expected, bounds, what);
      }
    }
  }
};

TEST_F(FusedNormTest, MatchesTheReference) {
  for (const std::uint32_t tokens : {1u, 3u, 16u}) {
    for (const bool is_fp8 : {false, true}) {
      check(576, 1024, 200, tokens, false, is_fp8);
      check(576, 1024, 200, tokens, true, is_fp8);
      check(1008, is_fp8 ? 272 : 264, 96, tokens, false, is_fp8);
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
