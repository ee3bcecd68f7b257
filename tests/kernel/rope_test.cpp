#include "kernels/cuda/rope.hpp"

#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

struct RopeCase {
  std::uint32_t head_dim, heads, kv_heads, tokens;
  bool with_norm;
};

class RopeTest : public GpuTest {
 protected:
  static constexpr std::uint32_t positions = 50, blocks = 7, layers = 3, layer = 1;

  void check(const RopeCase& c) {
    const std::string what = "head_dim " + std::to_string(c.head_dim) + ", heads " + std::to_string(c.heads) + "/" +
                             std::to_string(c.kv_heads) + (c.with_norm ? ", norms" : "");
    Random random(c.head_dim + c.heads * 7 + c.tokens);
    const std::uint32_t all_heads = c.heads + 2 * c.kv_heads, half = c.head_dim / 2;
    const std::size_t stride = std::size_t{all_heads} * c.head_dim + 16;
    const Halves qkv = random_values(random, c.tokens * stride);
    const Halves q_norm = random_values(random, c.head_dim), k_norm = random_values(random, c.head_dim);
    std::vector<float> cos, sin;
    for (std::uint32_t i = 0; i < positions * half; ++i) {
      cos.push_back(static_cast<float>(std::cos(0.37 * i)));
      sin.push_back(static_cast<float>(std::sin(0.37 * i)));
    }
    std::vector<std::int32_t> position;
    std::vector<std::int64_t> slot;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      position.push_back(static_cast<std::int32_t>((t * 11) % positions));
      slot.push_back(t % 5 == 3 ? -1 : static_cast<std::int64_t>((t * 13) % (blocks * 16)));
    }
    if (c.tokens > 4) slot[4] = blocks * 16;    // beyond the pool
    if (c.tokens > 5) position[5] = positions;  // beyond the table

    KvPool pool{nullptr, blocks, c.kv_heads, layers, 16, c.head_dim};
    const Guarded<Bf16> on_pool(blocks * pool.block_values(), stream_.get());
    pool.base = on_pool.data();
    const Guarded<Bf16> on_qkv(qkv, stream_.get()), q(std::size_t{c.tokens} * c.heads * c.head_dim, stream_.get());
    const Guarded<Bf16> on_q_norm(q_norm, stream_.get()), on_k_norm(k_norm, stream_.get());
    const Guarded<float> on_cos(cos, stream_.get()), on_sin(sin, stream_.get());
    const Guarded<std::int32_t> on_position(position, stream_.get());
    const Guarded<std::int64_t> on_slot(slot, stream_.get());
    RopeAndStore work;
    work.qkv = on_qkv.data();
    work.qkv_stride = stride;
    work.q = q.data();
    work.pool = pool;
    work.layer = layer;
    work.heads = c.heads;
    work.tokens = c.tokens;
    work.positions = on_position.data();
    work.slots = on_slot.data();
    work.cos = on_cos.data();
    work.sin = on_sin.data();
    work.table_positions = positions;
    work.q_norm = c.with_norm ? on_q_norm.data() : nullptr;
    work.k_norm = c.with_norm ? on_k_norm.data() : nullptr;
    must(rope_and_store(work, Start::ordered, stream_.get()));
    wait();

    std::vector<double> expected_q(std::size_t{c.tokens} * c.heads * c.head_dim);
    const double untouched = std::nan("");
    std::vector<double> expected_pool(blocks * pool.block_values(), untouched);
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      const bool is_padding = slot[t] < 0 || slot[t] >= blocks * 16 || position[t] >= static_cast<int>(positions);
      if (is_padding) continue;
      for (std::uint32_t head = 0; head < all_heads; ++head) {
        auto values = doubles({qkv.data() + t * stride + std::size_t{head} * c.head_dim, c.head_dim});
        const bool is_query = head < c.heads, is_value = head >= c.heads + c.kv_heads;
        if (!is_value) {
          if (c.with_norm) values = reference::rms_norm(values, doubles(is_query ? q_norm : k_norm), work.epsilon);
          for (std::uint32_t i = 0; i < half; ++i) {
            reference::rotate(values[i], values[half + i], 0.37 * (position[t] * half + i));
          }
        }
        const std::size_t kv_head = is_query ? 0 : head - c.heads - (is_value ? c.kv_heads : 0);
        const std::uint64_t block = slot[t] / 16, place = slot[t] % 16;
        double* const to = is_query ? expected_q.data() + (std::size_t{t} * c.heads + head) * c.head_dim
                                    : expected_pool.data() + block * pool.block_values() +
                                          kv_head * pool.head_values() + layer * pool.layer_values() +
                                          (is_value ? pool.plane_values() : 0) + place * c.head_dim;
        std::copy(values.begin(), values.end(), to);
      }
    }
    expect_close(doubles(q.read(what)), expected_q, 1.01 * bf16_step, 2e-6, what + ", q");
    const auto stored = doubles(on_pool.read(what));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (std::isnan(expected_pool[i])) {
        ASSERT_TRUE(std::isnan(stored[i])) << what << ": pool value " << i << " was written";
      } else {
        ASSERT_NEAR(stored[i], expected_pool[i], 1.01 * bf16_step * std::abs(expected_pool[i]) + 2e-6) << what << i;
      }
    }
  }
};

TEST_F(RopeTest, MatchesTheReferenceAndWritesNothingElse) {
  for (const bool with_norm : {false, true}) {
    for (const std::uint32_t tokens : {1u, 9u}) {
      check({64, 9, 3, tokens, with_norm});
      check({128, 32, 8, tokens, with_norm});
      check({128, 5, 1, tokens, with_norm});
    }
  }
}

TEST(RopeAndStore, RefusesShapesByName) {
  RopeAndStore work;
  work.pool = {nullptr, 1, 1, 1, 16, 96};
  work.heads = 1;
  const auto started = rope_and_store(work, Start::ordered, nullptr);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("head_dim"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
