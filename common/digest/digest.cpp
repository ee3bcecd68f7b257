#include "common/digest/digest.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <span>

#include "common/base/check.hpp"

namespace penstock::digest {
namespace {

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

void Digest::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Digest::Digest(Algorithm algorithm) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* kind = algorithm == Algorithm::sha1 ? EVP_sha1() : EVP_sha256();
  PENSTOCK_CHECK(context_ && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
}

void Digest::add(std::string_view bytes) {
  PENSTOCK_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::hex() const {
  const std::unique_ptr<evp_md_ctx_st, Free> copy(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  PENSTOCK_CHECK(copy && EVP_MD_CTX_copy_ex(copy.get(), context_.get()) == 1 &&
                 EVP_DigestFinal_ex(copy.get(), bytes.data(), &count) == 1);
  return to_hex(std::as_bytes(std::span(bytes)).first(count));
}

std::string sha256_hex(std::string_view text) {
  Digest digest(Algorithm::sha256);
  digest.add(text);
  return digest.hex();
}

Sha256 hmac_sha256(std::string_view key, base::BytesView message) {
  Sha256 mac{};
  unsigned length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data() == nullptr ? "" : key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(mac.data()), &length);
  PENSTOCK_CHECK(made != nullptr && length == mac.size());
  return mac;
}

bool equal(base::BytesView left, base::BytesView right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string to_hex(base::BytesView bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

std::optional<base::Bytes> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  base::Bytes bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = value_of(text[i]), low = value_of(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

}  // namespace penstock::digest
