// Remembers the token ids of pieces of text, so that a prompt that repeats or extends an earlier one costs a hash and
// a copy instead of tokenising. Pieces end where no token can reach across (after a special token, or between a letter
// and a space), hence the ids are exactly those of Tokenizer::encode; tests hold it to that. Pieces are known by a
// keyed 128-bit BLAKE3 digest with a key of this process, which a client can neither guess nor collide.
// Any number of threads may call at once. Bounded by bytes_max; the least recently used pieces go first.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "common/text/tokenizer.hpp"

namespace penstock::text {

class PrefixTokenCache {
 public:
  struct Options {
    std::size_t bytes_max = std::size_t{64} << 20;  // of ids and bookkeeping, 0: off
    std::size_t text_bytes_min = 1024;              // shorter texts are simply encoded
  };
  struct Stats {
    std::uint64_t hit_bytes = 0;   // text found
    std::uint64_t miss_bytes = 0;  // text encoded
    std::uint64_t evictions = 0;   // pieces dropped
    std::size_t bytes = 0;         // held now
    std::size_t pieces = 0;
  };

  explicit PrefixTokenCache(std::shared_ptr<const Tokenizer> tokenizer)
      : PrefixTokenCache(std::move(tokenizer), Options{}) {}
  PrefixTokenCache(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  /// Exactly what Tokenizer::encode gives; what is known costs no work.
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {});

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Stats stats() const;

 private:
  using Key = Id128<struct PieceTag>;
  struct Entry {
    Key key;
    std::shared_ptr<const std::vector<TokenId>> ids;  // shared with an encode() that is copying it
  };
  using Pieces = std::vector<Tokenizer::Segment>;
  Result<std::vector<TokenId>> encode_pieces(std::string_view text, const Pieces& pieces, const EncodeOptions& options);
  std::shared_ptr<const std::vector<TokenId>> find(const Key& key);
  void insert(const Key& key, std::shared_ptr<const std::vector<TokenId>> ids);

  std::shared_ptr<const Tokenizer> tokenizer_;  // shared with the model's registry, which may replace it
  const Options options_;
  std::array<std::uint8_t, 32> key_;
  mutable std::mutex mutex_;  // guards all below
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator> index_;
  Stats stats_;
};

}  // namespace penstock::text
