// What the transfer service reports. The application turns it into metrics; all calls on the service's I/O thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/time/clock.hpp"
#include "worker/core/transfer/record.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

class TransferProbe {
 public:
  virtual ~TransferProbe() = default;
  virtual void on_transfer_ended(const TransferRecord&) {}
  virtual void on_chunk_committed(Duration /*offer_to_commit*/, std::uint64_t /*bytes*/) {}
  virtual void on_reads_posted(Duration /*post*/, std::uint32_t /*descriptors*/) {}
  virtual void on_bytes_asked(KvLane /*lane*/, std::uint64_t /*bytes*/) {}
  virtual void on_heartbeat(Duration /*round_trip*/) {}
  virtual void on_self_test(double /*bytes_per_second*/) {}
  virtual void on_gauges(const TransferGauges&) {}
  /// A line worth a log entry: a link made or lost, a rejected peer.
  virtual void on_note(std::string_view /*what*/, std::string_view /*detail*/) {}
};

}  // namespace penstock::worker::transfer
