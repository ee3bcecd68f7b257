// What the protocol's state machine counts and reports, as plain values; worker/transfer/probe.hpp carries them out.
#pragma once

#include <cstdint>

#include "common/time/clock.hpp"
#include "worker/engine/kv_transfer.hpp"

namespace penstock::worker::transfer {

enum class Side : std::uint8_t { send, receive };

/// One ended transfer. Durations that do not apply are zero.
struct TransferRecord {
  Side side = Side::send;
  TransferEnd end = TransferEnd::committed;
  std::uint64_t bytes = 0;
  std::uint32_t chunks = 0;
  std::uint32_t descriptors = 0;  // runs read, after merging
  Duration wire{};                // D: first read posted to last read done
  Duration offer_to_commit{};     // D: first offer in to last chunk committed
  Duration exposed{};             // D: last offer in to last chunk committed; what decode had to wait for
};

/// Gauges and counters, published a few times a second.
struct TransferGauges {
  std::uint64_t sends_live = 0;
  std::uint64_t receives_live = 0;
  std::uint64_t links_up = 0;
  std::uint64_t pinned_bytes = 0;
  Duration oldest_pin{};
  std::uint64_t reserved_bytes = 0;
  std::uint64_t bytes_in_flight = 0;
  std::uint64_t tombstone_hits = 0;  // counters from here on
  std::uint64_t leases_expired = 0;
  std::uint64_t renewals = 0;
  std::uint64_t links_lost = 0;
  std::uint64_t messages_bad = 0;      // undecodable, or from strangers
  std::uint64_t messages_ignored = 0;  // late, duplicate or of older attempts
  std::uint64_t empty_wakes = 0;
};

}  // namespace penstock::worker::transfer
