#include "common/protocol/ticket.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "common/base/bytes.hpp"
#include "common/base/check.hpp"

namespace penstock::protocol {
namespace {

constexpr std::uint32_t ticket_version = 1;
constexpr std::size_t claims_bytes = 4 + 16 + 4 + 16 + 16 + 8 + 8 + 4;
constexpr std::size_t ticket_bytes = claims_bytes + SHA256_DIGEST_LENGTH;
constexpr std::size_t issuers_max = 256;
constexpr std::uint64_t issued_ms_max = 1ull << 42;  // 139 years; keeps the arithmetic below from overflowing

std::string to_hex(base::BytesView bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

bool from_hex(std::string_view text, base::Bytes& out) {
  if (text.size() % 2 != 0) return false;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_value(text[i]), low = digit_value(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return true;
}

std::array<unsigned char, SHA256_DIGEST_LENGTH> sign(std::string_view key, base::BytesView claims) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> mac{};
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data() == nullptr ? "" : key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(claims.data()), claims.size(), mac.data(), &length);
  PENSTOCK_CHECK(made != nullptr && length == mac.size());
  return mac;
}

}  // namespace

std::string make_ticket(std::string_view key, const Ticket& ticket) {
  base::Bytes bytes;
  bytes.reserve(ticket_bytes);
  base::ByteWriter writer(bytes);
  writer.write(ticket_version);
  writer.write(ticket.transfer);
  writer.write(ticket.attempt);
  writer.write(ticket.prefill);
  writer.write(ticket.decode);
  writer.write(ticket.issuer);
  writer.write(ticket.issued_ms);
  writer.write(ticket.validity_seconds);
  const auto mac = sign(key, bytes);
  writer.write_bytes(std::as_bytes(std::span(mac)));
  return to_hex(bytes);
}

Result<Ticket> check_ticket(std::string_view key, std::string_view text) {
  const auto refuse = [] { return make_error(ErrorCode::unauthenticated, "the transfer ticket is not valid"); };
  if (text.size() != ticket_bytes * 2) return refuse();
  base::Bytes bytes;
  if (!from_hex(text, bytes)) return refuse();
  const base::BytesView claims = base::BytesView(bytes).first(claims_bytes);
  const auto mac = sign(key, claims);
  if (CRYPTO_memcmp(mac.data(), bytes.data() + claims_bytes, mac.size()) != 0) return refuse();
  base::ByteReader reader(claims);
  if (reader.read<std::uint32_t>() != ticket_version) return refuse();
  Ticket ticket;
  ticket.transfer = reader.read<TransferId>();
  ticket.attempt = reader.read<std::uint32_t>();
  ticket.prefill = reader.read<InstanceId>();
  ticket.decode = reader.read<InstanceId>();
  ticket.issuer = reader.read<std::uint64_t>();
  ticket.issued_ms = reader.read<std::uint64_t>();
  ticket.validity_seconds = reader.read<std::uint32_t>();
  if (!reader.ok() || ticket.issued_ms > issued_ms_max) return refuse();
  return ticket;
}

Result<void> TicketClock::admit(const Ticket& ticket, TimePoint now) {
  const Duration offset = now.time_since_epoch() - std::chrono::milliseconds(ticket.issued_ms);
  auto known = issuers_.find(ticket.issuer);
  if (known == issuers_.end()) {
    if (issuers_.size() >= issuers_max) {
      issuers_.erase(std::min_element(issuers_.begin(), issuers_.end(), [](const auto& left, const auto& right) {
        return left.second.seen < right.second.seen;
      }));
    }
    known = issuers_.emplace(ticket.issuer, Issuer{offset, now}).first;
  }
  Issuer& issuer = known->second;
  issuer.offset = std::min(issuer.offset, offset);
  issuer.seen = now;
  if (offset - issuer.offset > std::chrono::seconds(ticket.validity_seconds)) {
    return make_error(ErrorCode::permission_denied, "the transfer ticket has expired");
  }
  return {};
}

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return to_hex(std::as_bytes(std::span(digest)));
}

}  // namespace penstock::protocol
