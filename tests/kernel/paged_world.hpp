// Paged keys and values for tests of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/kv_layout.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {

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
    pool = {nullptr, 0, c.kv_heads, 2, 16, c.head_dim};
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

}  // namespace penstock::kernels::cuda::test
