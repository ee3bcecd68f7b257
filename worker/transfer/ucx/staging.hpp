// Host memory that KV of a device passes through on its way by messages: slots of pinned memory, and which bytes lie
// where in them. Owner: UcxTransport, on its thread. Bounds: the slots; who finds none waits for one to come back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "worker/engine/kv_transport.hpp"
#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer {

/// Equal pieces of pinned memory. A slot comes back by itself with the last copy of its pointer, also after this.
class PinnedSlots {
 public:
  static Result<PinnedSlots> make(DevicePool& pool, std::uint32_t count, std::uint64_t slot_bytes);
  PinnedSlots() = default;
  /// Null if all are in use.
  std::shared_ptr<std::byte> take();
  std::uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  struct State {
    std::shared_ptr<std::byte> memory;
    std::vector<std::byte*> free;
  };
  std::shared_ptr<State> state_;
  std::uint64_t slot_bytes_ = 0;
};

/// Where the bytes of a read's runs arrive in a slot, one run behind the other, and where they go on to. Error:
/// internal, if they don't fit.
Result<std::vector<HostRun>> arrivals(std::byte* slot, std::uint64_t slot_bytes, std::span<const ReadRun> runs);

/// What is left to send of one run of one read that a peer asked for.
struct OwedRun {
  std::uint64_t read = 0;
  std::uint64_t run = 0;
  std::uint64_t pool_offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sent = 0;
};

/// One data message's share of a run.
struct OwedPiece {
  std::uint64_t read = 0;
  std::uint64_t run = 0;
  std::uint64_t offset = 0;  // within the run
  std::uint64_t pool_offset = 0;
  std::uint64_t bytes = 0;
};
/// Takes the next piece off what is owed. Absent: nothing is.
std::optional<OwedPiece> next_piece(std::deque<OwedRun>& owed, std::uint64_t bytes_max);

/// Pieces on their way from the device: each lies in the slot from its place on, once the copy has ended.
struct Departure {
  EndpointId endpoint = 0;
  std::shared_ptr<std::byte> slot;
  std::vector<OwedPiece> pieces;
  std::uint64_t bytes = 0;
  CopyId copy = 0;
};
/// Fills a slot with pieces of what is owed; the copies to it, neighbours in the pool as one.
std::vector<HostRun> pack(Departure& departure, std::deque<OwedRun>& owed, std::uint64_t slot_bytes,
                          std::uint64_t piece_bytes_max);

}  // namespace penstock::worker::transfer
