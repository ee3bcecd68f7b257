// 128-bit identities. Random, never reused, printed as 32 hex digits; one type a purpose, so that a request id
// cannot be passed where a transfer id is meant.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

template <class Tag>
struct Id128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool is_zero() const { return high == 0 && low == 0; }
  friend auto operator<=>(const Id128&, const Id128&) = default;
};

using InstanceId = Id128<struct InstanceTag>;  // one process start of one worker
using RequestId = Id128<struct RequestTag>;    // one client request, made by the router
using TransferId = Id128<struct TransferTag>;  // one KV transfer, made by the router
using BlockHash = Id128<struct BlockTag>;      // identity of one KV block and all before it

namespace base {
std::string hex128(std::uint64_t high, std::uint64_t low);
bool parse_hex128(std::string_view text, std::uint64_t& high, std::uint64_t& low);
/// Reads the system's random source; throws std::system_error if it cannot.
void random_bytes(void* out, std::size_t count);
/// For a generator whose seed nobody has chosen.
std::uint64_t random_seed();
}  // namespace base

template <class Tag>
std::string to_string(const Id128<Tag>& id) {
  return base::hex128(id.high, id.low);
}

template <class Id>
std::optional<Id> parse_id(std::string_view text) {
  Id id;
  if (!base::parse_hex128(text, id.high, id.low)) return std::nullopt;
  return id;
}

template <class Id>
Id random_id() {
  Id id;
  do base::random_bytes(&id, sizeof id);
  while (id.is_zero());
  return id;
}

}  // namespace penstock

template <class Tag>
struct std::hash<penstock::Id128<Tag>> {
  std::size_t operator()(const penstock::Id128<Tag>& id) const noexcept {
    return static_cast<std::size_t>(id.high ^ (id.low * 0x9E3779B97F4A7C15ull));
  }
};
