// Digests and signatures of bytes: SHA-256, the SHA-1 that git names files by, HMAC-SHA-256, and their hexadecimal
// text. Pure. Functions: any thread; a Digest has one owner. Holds no bytes of what it digested.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/bytes.hpp"

struct evp_md_ctx_st;

namespace penstock::digest {

enum class Algorithm { sha1, sha256 };

/// A digest of something that comes in pieces.
class Digest {
 public:
  explicit Digest(Algorithm algorithm);
  void add(std::string_view bytes);
  /// Lower-case digits, of what was added so far; adding may go on.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// 64 lower-case digits.
std::string sha256_hex(std::string_view text);

using Sha256 = std::array<std::byte, 32>;
Sha256 hmac_sha256(std::string_view key, base::BytesView message);
/// Takes the same time wherever they differ. False if the lengths do.
bool equal(base::BytesView left, base::BytesView right);

/// Two lower-case digits a byte.
std::string to_hex(base::BytesView bytes);
/// Nothing for an odd count of digits and for anything but 0-9 and a-f.
std::optional<base::Bytes> from_hex(std::string_view text);

}  // namespace penstock::digest
