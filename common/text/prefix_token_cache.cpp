#include "common/text/prefix_token_cache.hpp"

namespace penstock::text {

namespace {
// List node, index node and bucket, shared vector and its control block, as measured sizes of libstdc++.
constexpr std::size_t piece_overhead_bytes = 200;

std::size_t cost_of(const std::vector<TokenId>& ids) {
  return ids.capacity() * sizeof(TokenId) + piece_overhead_bytes;
}

void append(std::vector<TokenId>& to, const std::vector<TokenId>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}
}  // namespace

PrefixTokenCache::PrefixTokenCache(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  base::random_bytes(key_.data(), key_.size());
}

Result<std::vector<TokenId>> PrefixTokenCache::encode(std::string_view text, const EncodeOptions& options) {
  const bool cached = options_.bytes_max > 0 && text.size() >= options_.text_bytes_min && tokenizer_->is_segmentable();
  if (!cached) return tokenizer_->encode(text, options);
  PENSTOCK_TRY(const Pieces pieces, tokenizer_->segments(text, options.special_text, key_));
  PENSTOCK_TRY(std::vector<TokenId> ids, encode_pieces(text, pieces, options));
  if (options.add_special == AddSpecial::yes) {
    ids.insert(ids.begin(), tokenizer_->prefix_ids().begin(), tokenizer_->prefix_ids().end());
    append(ids, tokenizer_->suffix_ids());
  }
  return ids;
}

Result<std::vector<TokenId>> PrefixTokenCache::encode_pieces(std::string_view text, const Pieces& pieces,
                                                             const EncodeOptions& options) {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  std::uint64_t start = 0, hit_bytes = 0;
  const EncodeOptions own{AddSpecial::no, options.special_text, options.work};
  for (const Tokenizer::Segment& piece : pieces) {
    const std::string_view part = text.substr(start, piece.end - start);
    start = piece.end;
    const Key key{piece.digest_high, piece.digest_low};
    if (const auto known = find(key)) {
      append(ids, *known);
      hit_bytes += part.size();
      continue;
    }
    PENSTOCK_TRY(auto fresh, tokenizer_->encode(part, own));
    append(ids, fresh);
    insert(key, std::make_shared<const std::vector<TokenId>>(std::move(fresh)));
  }
  const std::lock_guard lock(mutex_);
  stats_.hit_bytes += hit_bytes;
  stats_.miss_bytes += text.size() - hit_bytes;
  return ids;
}

std::shared_ptr<const std::vector<TokenId>> PrefixTokenCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->ids;
}

void PrefixTokenCache::insert(const Key& key, std::shared_ptr<const std::vector<TokenId>> ids) {
  const std::lock_guard lock(mutex_);
  const std::size_t cost = cost_of(*ids);
  if (cost > options_.bytes_max || index_.contains(key)) return;
  while (stats_.bytes + cost > options_.bytes_max) {
    stats_.bytes -= cost_of(*entries_.back().ids);
    index_.erase(entries_.back().key);
    entries_.pop_back();
    ++stats_.evictions;
  }
  entries_.push_front({key, std::move(ids)});
  index_.emplace(key, entries_.begin());
  stats_.bytes += cost;
}

PrefixTokenCache::Stats PrefixTokenCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.pieces = entries_.size();
  return stats;
}

}  // namespace penstock::text
