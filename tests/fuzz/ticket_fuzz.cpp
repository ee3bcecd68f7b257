// Tickets of KV transfers: no bytes pass as a ticket except those that the key's owner made, and these say what was put
// in.
#include <cstring>
#include <string>

#include "common/base/check.hpp"
#include "common/protocol/ticket.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace penstock;  // NOLINT: one file
constexpr std::string_view key = "a key that both sides share";

template <class Id>
Id read_id(fuzz::Input& input) {
  Id id{};
  const std::string_view bytes = input.text(sizeof id);
  // An empty input has a null pointer, which memcpy() may not get.
  if (!bytes.empty()) std::memcpy(static_cast<void*>(&id), bytes.data(), bytes.size());
  return id;
}

protocol::Ticket read_ticket(fuzz::Input& input) {
  protocol::Ticket ticket;
  ticket.transfer = read_id<TransferId>(input);
  ticket.prefill = read_id<InstanceId>(input);
  ticket.decode = read_id<InstanceId>(input);
  ticket.attempt = input.number();
  ticket.issuer = input.number();
  ticket.issued_ms = input.number() * 0x1000193ull;
  ticket.validity_seconds = input.number();
  return ticket;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view raw(reinterpret_cast<const char*>(data), size);
  PENSTOCK_CHECK(!protocol::check_ticket(key, raw), raw);

  fuzz::Input input(data, size);
  const protocol::Ticket ticket = read_ticket(input);
  std::string text = protocol::make_ticket(key, ticket);
  const auto checked = protocol::check_ticket(key, text);
  PENSTOCK_CHECK(checked && *checked == ticket, text);
  PENSTOCK_CHECK(!protocol::check_ticket("another key", text), text);
  protocol::TicketClock clock;
  (void)clock.admit(*checked, TimePoint(std::chrono::seconds(input.number())));

  const std::size_t at = input.number() % text.size();
  const char changed = static_cast<char>(input.byte());
  if (text[at] == changed) return 0;
  text[at] = changed;
  PENSTOCK_CHECK(!protocol::check_ticket(key, text), text);
  return 0;
}
