// Every timer and bound of the KV transfer protocol, with its default. Durations on the owner's monotonic clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/time/clock.hpp"

namespace penstock::worker::transfer {

struct TransferOptions {
  Duration lease = std::chrono::seconds(10);      // P: from the offer or the last RENEW; tests use 0.5 s
  Duration max_pin = std::chrono::seconds(30);    // P: of one chunk, whatever was renewed
  Duration tombstone = std::chrono::seconds(60);  // how long ended transfers are answered "invalid" or "gone"
  Duration reoffer_window = std::chrono::milliseconds(400);  // P: from the loss of D to the unpin
  Duration heartbeat = std::chrono::seconds(1);
  std::uint32_t heartbeats_missed_max = 3;
  Duration no_progress = std::chrono::seconds(5);  // D: reads in flight and none completes: force-close
  Duration handshake = std::chrono::seconds(5);
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
  Duration dial_give_up = std::chrono::seconds(5);  // D: no connection to P for so long fails the transfer
  Duration reject_cache = std::chrono::seconds(30);
  Duration resend = std::chrono::milliseconds(250);  // a DONE or WANT without an answer goes out again
  Duration reserve_retry = std::chrono::milliseconds(20);
  Duration reserve_give_up = std::chrono::seconds(8);  // D stays full for so long: RELEASE(busy)
  Duration receive_max = std::chrono::minutes(10);     // D: an EXPECT without a deadline

  std::uint64_t window_bytes = 128ull << 20;  // reads in flight a peer
  std::uint64_t quantum_bytes = 16ull << 20;  // one read; transfers take turns
  std::uint32_t transfers_max = 4096;         // each side
  std::uint32_t links_max = 1024;             // each side
  std::uint32_t chunks_max = 16384;           // a transfer

  Duration renew() const { return lease / 3; }
};

}  // namespace penstock::worker::transfer
