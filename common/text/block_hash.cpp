#include "common/text/block_hash.hpp"

#include "common/base/check.hpp"
#include "common/text/ffi.hpp"

namespace penstock::text {

namespace {

using Digest = std::array<std::uint8_t, 16>;
static_assert(sizeof(Digest) == sizeof(BlockHash));

// A hash prints as the digest's bytes do, so its halves are big-endian.
std::uint64_t read_half(const std::uint8_t* bytes) {
  std::uint64_t half = 0;
  for (int i = 0; i < 8; ++i) half = half << 8 | bytes[i];
  return half;
}

BlockHash to_hash(const Digest& digest) {
  return {read_half(digest.data()), read_half(digest.data() + 8)};
}

Digest to_digest(BlockHash hash) {
  Digest digest;
  for (int i = 0; i < 8; ++i) {
    digest[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(hash.high >> (56 - 8 * i));
    digest[static_cast<std::size_t>(i) + 8] = static_cast<std::uint8_t>(hash.low >> (56 - 8 * i));
  }
  return digest;
}

void put_u32(std::string& out, std::size_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put_part(std::string& out, std::string_view part) {
  put_u32(out, part.size());
  out += part;
}

BlockHash keyed(const BlockHashKey& key, std::string_view message) {
  detail::Receiver received;
  const auto status = detail::penstock_text_keyed_digest(key.data(), detail::slice(message), received.sink());
  PENSTOCK_CHECK(status == detail::Status::ok, received.take_text());
  return to_hash(received.take<Digest>().at(0));
}

constexpr std::string_view root_label("penstock.block.root.1\0", 22);
constexpr std::string_view media_label("penstock.block.media.1\0", 23);
constexpr std::string_view check_label("penstock.block.check.1\0", 23);

}  // namespace

const BlockHashKey& local_block_hash_key() {
  // The ASCII characters of a fixed sentence; nothing about it is secret.
  static constexpr BlockHashKey key = {'p', 'e', 'n', 's', 't', 'o', 'c', 'k', ' ', 'l', 'o', 'c', 'a', 'l', ' ', 'm',
                                       'o', 'd', 'e', ' ', 'b', 'l', 'o', 'c', 'k', ' ', 'k', 'e', 'y', ' ', 'v', '1'};
  return key;
}

BlockHasher::BlockHasher(const BlockHashKey& key, const BlockExtraKeys& extra, std::uint32_t block_tokens)
    : key_(key), block_tokens_(block_tokens) {
  PENSTOCK_CHECK(block_tokens > 0, "block_tokens", block_tokens);
  std::string message(root_label);
  put_u32(message, block_tokens);
  put_part(message, extra.model_revision);
  put_part(message, extra.kv_dtype);
  put_part(message, extra.adapter_digest);
  put_part(message, extra.tenant_salt);
  root_ = keyed(key_, message);
}

std::vector<BlockHash> BlockHasher::hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const {
  std::vector<BlockHash> hashes(tokens.size() / block_tokens_);
  if (hashes.empty()) return hashes;
  const Digest start = to_digest(parent);
  detail::penstock_text_hash_blocks(key_.data(), start.data(), tokens.data(), tokens.size(), block_tokens_,
                                    hashes.data());
  for (BlockHash& hash : hashes) {
    Digest digest;
    std::memcpy(digest.data(), &hash, sizeof digest);
    hash = to_hash(digest);
  }
  return hashes;
}

BlockHash BlockHasher::extend(BlockHash parent, std::span<const TokenId> block) const {
  PENSTOCK_CHECK(block.size() == block_tokens_, "block of", block.size(), "tokens, not", block_tokens_);
  const Digest start = to_digest(parent);
  Digest digest;
  detail::penstock_text_hash_blocks(key_.data(), start.data(), block.data(), block.size(), block_tokens_,
                                    digest.data());
  return to_hash(digest);
}

BlockHash BlockHasher::with_media(BlockHash parent, std::string_view media_digest) const {
  std::string message(media_label);
  const Digest start = to_digest(parent);
  message.append(reinterpret_cast<const char*>(start.data()), start.size());
  put_part(message, media_digest);
  return keyed(key_, message);
}

std::string BlockHasher::scheme_name() const {
  return "penstock-blake3-128-v1/" + std::to_string(block_tokens_);
}

std::uint64_t BlockHasher::key_check() const {
  const Digest root = to_digest(root_);
  std::string message(check_label);
  message.append(reinterpret_cast<const char*>(root.data()), root.size());
  return keyed(key_, message).high;
}

}  // namespace penstock::text
