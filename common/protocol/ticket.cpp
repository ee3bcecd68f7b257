#include "common/protocol/ticket.hpp"

#include <algorithm>

#include "common/base/bytes.hpp"
#include "common/digest/digest.hpp"

namespace penstock::protocol {
namespace {

constexpr std::uint32_t ticket_version = 1;
constexpr std::size_t claims_bytes = 4 + 16 + 4 + 16 + 16 + 8 + 8 + 4;
constexpr std::size_t ticket_bytes = claims_bytes + sizeof(digest::Sha256);
constexpr std::size_t issuers_max = 256;
constexpr std::uint64_t issued_ms_max = 1ull << 42;  // 139 years; keeps the arithmetic below from overflowing

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
  writer.write_bytes(digest::hmac_sha256(key, bytes));
  return digest::to_hex(bytes);
}

Result<Ticket> check_ticket(std::string_view key, std::string_view text) {
  const auto refuse = [] { return make_error(ErrorCode::unauthenticated, "the transfer ticket is not valid"); };
  if (text.size() != ticket_bytes * 2) return refuse();
  const auto bytes = digest::from_hex(text);
  if (!bytes) return refuse();
  const base::BytesView claims = base::BytesView(*bytes).first(claims_bytes);
  if (!digest::equal(digest::hmac_sha256(key, claims), base::BytesView(*bytes).subspan(claims_bytes))) return refuse();
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

}  // namespace penstock::protocol
