// Tickets: the router's signed word that prefill worker P may give the KV of one transfer to decode worker D. Pure.
// A ticket names (transfer, attempt, P, D, issuer, issue time, validity) under HMAC-SHA256 with a key that router and
// workers share. Clocks need not agree: `issued` is a duration since the issuing router's start, on its own monotonic
// clock; a verifier turns it into an age with TicketClock. Why that is sound: docs/contracts/kv-transfer.md, "Tickets".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/id.hpp"
#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::protocol {

struct Ticket {
  TransferId transfer;
  std::uint32_t attempt = 0;
  InstanceId prefill;
  InstanceId decode;
  std::uint64_t issuer = 0;             // random, one a router start
  std::uint64_t issued_ms = 0;          // since the issuer's start
  std::uint32_t validity_seconds = 60;  // from the issue
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

/// Printable (hex), about 220 characters; goes into TransferRoute::ticket of both PREFILL and EXPECT.
std::string make_ticket(std::string_view key, const Ticket& ticket);
/// The claims of a well-formed ticket with a right signature; unauthenticated otherwise. Constant-time compare.
Result<Ticket> check_ticket(std::string_view key, std::string_view text);

/// Ages of tickets without synchronised clocks. For each issuer it keeps the smallest (arrival here - issue there)
/// seen; a ticket's age is then at least now - offset - issued. Learn only from tickets with a right signature. One
/// owner. Bounds: the 256 issuers seen last.
class TicketClock {
 public:
  /// Learns from the ticket, then says whether it can still be in time.
  Result<void> admit(const Ticket& ticket, TimePoint now);

 private:
  struct Issuer {
    Duration offset{};
    TimePoint seen;
  };
  std::map<std::uint64_t, Issuer> issuers_;
};

}  // namespace penstock::protocol
