#include "worker/engine/prefix_hasher.hpp"

#include <algorithm>
#include <stdexcept>

namespace penstock::worker {

namespace {

text::BlockHashKey key_of(const std::string& bytes) {
  if (bytes.empty()) return text::local_block_hash_key();
  text::BlockHashKey key;
  if (bytes.size() != key.size()) throw std::invalid_argument("the block hash key must have 32 bytes");
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

text::BlockExtraKeys extra_of(const EngineConfig& config) {
  text::BlockExtraKeys extra;
  if (config.hash_extra_keys.size() > 0) extra.model_revision = config.hash_extra_keys[0];
  if (config.hash_extra_keys.size() > 1) extra.kv_dtype = config.hash_extra_keys[1];
  return extra;
}

}  // namespace

BlakePrefixHasher::BlakePrefixHasher(const EngineConfig& config, std::uint32_t block_tokens)
    : key_(key_of(config.hash_key)),
      extra_(extra_of(config)),
      block_tokens_(block_tokens),
      plain_(key_, extra_, block_tokens) {}

text::BlockHasher BlakePrefixHasher::hasher(const std::string& cache_salt, const std::string& adapter) const {
  text::BlockExtraKeys extra = extra_;
  extra.tenant_salt = cache_salt;
  extra.adapter_digest = adapter;
  return text::BlockHasher(key_, extra, block_tokens_);
}

BlockHash BlakePrefixHasher::root(const std::string& cache_salt, const std::string& adapter) const {
  if (cache_salt.empty() && adapter.empty()) return plain_.root();
  return hasher(cache_salt, adapter).root();
}

std::vector<BlockHash> BlakePrefixHasher::hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const {
  return plain_.hash_blocks(parent, tokens);
}

}  // namespace penstock::worker
