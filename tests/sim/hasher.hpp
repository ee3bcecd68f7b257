// Block identities for the simulation: quick, and the same in routers and workers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/id.hpp"
#include "worker/core/scheduler/scheduler.hpp"

namespace penstock::sim {

class SimHasher final : public worker::PrefixHasher {
 public:
  enum class Salt : std::uint8_t { counts, ignored };
  explicit SimHasher(std::uint32_t block_tokens, Salt salt = Salt::counts) : block_tokens_(block_tokens), salt_(salt) {}

  BlockHash root(const std::string& cache_salt, const std::string& adapter) const override {
    const std::string text = (salt_ == Salt::counts ? cache_salt : std::string()) + "/" + adapter;
    BlockHash hash{0x9E3779B97F4A7C15ull, 0xD1B54A32D192ED03ull};
    for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
    return hash;
  }
  std::vector<BlockHash> hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const override {
    std::vector<BlockHash> hashes;
    for (std::size_t begin = 0; begin + block_tokens_ <= tokens.size(); begin += block_tokens_) {
      for (std::size_t i = begin; i < begin + block_tokens_; ++i) parent = mix(parent, tokens[i] + 1);
      hashes.push_back(parent);
    }
    return hashes;
  }

 private:
  static std::uint64_t spread(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  static BlockHash mix(BlockHash hash, std::uint64_t value) {
    return {spread(hash.high + value * 0x9E3779B97F4A7C15ull), spread(hash.low ^ (hash.high + value))};
  }
  std::uint32_t block_tokens_;
  Salt salt_;
};

}  // namespace penstock::sim
