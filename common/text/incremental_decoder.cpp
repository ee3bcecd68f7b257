#include "common/text/incremental_decoder.hpp"

#include <cstring>

namespace penstock::text {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t size = 0;  // bytes that belong together, at least 1
  enum class Kind { valid, invalid, unfinished } kind = Kind::invalid;
};

// Size of the character that `first` begins and the range of its second byte (Unicode, table 3-7); size 0: none.
struct Lead {
  std::size_t size = 0;
  unsigned char low = 0x80, high = 0xBF;
};

Lead lead_of(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return {.size = 2};
  if (first == 0xE0) return {.size = 3, .low = 0xA0};
  if (first == 0xED) return {.size = 3, .high = 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {.size = 3};
  if (first == 0xF0) return {.size = 4, .low = 0x90};
  if (first == 0xF4) return {.size = 4, .high = 0x8F};
  if (first >= 0xF1 && first <= 0xF3) return {.size = 4};
  return {};
}

Sequence sequence_at(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (byte(0) < 0x80) return {1, Sequence::Kind::valid};
  const Lead lead = lead_of(byte(0));
  if (lead.size == 0) return {1, Sequence::Kind::invalid};
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {i, Sequence::Kind::unfinished};
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {i, Sequence::Kind::invalid};
  }
  return {lead.size, Sequence::Kind::valid};
}

}  // namespace

std::size_t append_valid_utf8(std::string_view bytes, std::string& out) {
  std::size_t good = 0;  // bytes seen and not yet copied
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Sequence next = sequence_at(bytes.substr(at));
    switch (next.kind) {
      case Sequence::Kind::valid:
        at += next.size;
        continue;
      case Sequence::Kind::unfinished:
        out.append(bytes.substr(good, at - good));
        return bytes.size() - at;
      case Sequence::Kind::invalid:
        out.append(bytes.substr(good, at - good)).append(replacement);
        at += next.size;
        good = at;
        continue;
    }
  }
  out.append(bytes.substr(good));
  return 0;
}

IncrementalDecoder::IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, SkipSpecial skip,
                                       const std::unordered_set<TokenId>* shown)
    : tokenizer_(std::move(tokenizer)), skip_(skip), shown_(shown) {}

void IncrementalDecoder::prime(std::span<const TokenId> ids) {
  std::string unused;
  // A waiting character has at most 3 bytes, each perhaps a token of its own; special tokens may lie between.
  constexpr std::size_t tail = 16;
  if (ids.size() > tail) {
    ids = ids.subspan(ids.size() - tail);
    at_start_ = false;
  }
  for (const TokenId id : ids) push(id, unused);
}

void IncrementalDecoder::push(TokenId id, std::string& out) {
  if (!tokenizer_->contains(id)) return append("\xff", out);
  if (skip_ == SkipSpecial::yes && tokenizer_->is_special(id) && (shown_ == nullptr || !shown_->contains(id))) return;
  append(tokenizer_->token_bytes(id), out);
}

std::string IncrementalDecoder::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void IncrementalDecoder::append(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  if (at_start_) {
    at_start_ = false;
    if (tokenizer_->strips_leading_space() && bytes.front() == ' ') bytes.remove_prefix(1);
  }
  if (waiting_size_ == 0) {
    waiting_size_ = static_cast<unsigned>(append_valid_utf8(bytes, out));
    std::memcpy(waiting_, bytes.data() + bytes.size() - waiting_size_, waiting_size_);
    return;
  }
  std::string joined(waiting_, waiting_size_);
  joined += bytes;
  waiting_size_ = static_cast<unsigned>(append_valid_utf8(joined, out));
  std::memcpy(waiting_, joined.data() + joined.size() - waiting_size_, waiting_size_);
}

std::string IncrementalDecoder::flush() {
  const bool unfinished = waiting_size_ > 0;
  waiting_size_ = 0;
  return std::string(unfinished ? replacement : std::string_view{});
}

}  // namespace penstock::text
