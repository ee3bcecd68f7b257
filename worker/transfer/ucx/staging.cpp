#include "worker/transfer/ucx/staging.hpp"

#include <algorithm>
#include <utility>

namespace penstock::worker::transfer {

Result<PinnedSlots> PinnedSlots::make(DevicePool& pool, std::uint32_t count, std::uint64_t slot_bytes) {
  PinnedSlots slots;
  slots.state_ = std::make_shared<State>();
  slots.slot_bytes_ = slot_bytes;
  PENSTOCK_TRY(slots.state_->memory, pool.host_memory(count * slot_bytes));
  for (std::uint32_t i = 0; i < count; ++i) slots.state_->free.push_back(slots.state_->memory.get() + i * slot_bytes);
  return slots;
}

std::shared_ptr<std::byte> PinnedSlots::take() {
  if (!state_ || state_->free.empty()) return nullptr;
  std::byte* const slot = state_->free.back();
  state_->free.pop_back();
  return {slot, [state = state_](std::byte* back) { state->free.push_back(back); }};
}

Result<std::vector<HostRun>> arrivals(std::byte* slot, std::uint64_t slot_bytes, std::span<const ReadRun> runs) {
  std::vector<HostRun> places;
  std::uint64_t used = 0;
  for (const ReadRun& run : runs) {
    if (run.bytes > slot_bytes - used) return make_error(ErrorCode::internal, "a read is larger than what stages it");
    places.push_back({slot + used, run.local_offset, run.bytes});
    used += run.bytes;
  }
  return places;
}

std::optional<OwedPiece> next_piece(std::deque<OwedRun>& owed, std::uint64_t bytes_max) {
  if (owed.empty()) return std::nullopt;
  OwedRun& run = owed.front();
  const std::uint64_t bytes = std::min(bytes_max, run.bytes - run.sent);
  const OwedPiece piece{run.read, run.run, run.sent, run.pool_offset + run.sent, bytes};
  run.sent += bytes;
  if (run.sent == run.bytes) owed.pop_front();
  return piece;
}

std::vector<HostRun> pack(Departure& departure, std::deque<OwedRun>& owed, std::uint64_t slot_bytes,
                          std::uint64_t piece_bytes_max) {
  std::vector<HostRun> copies;
  while (departure.bytes < slot_bytes) {
    const auto piece = next_piece(owed, std::min(piece_bytes_max, slot_bytes - departure.bytes));
    if (!piece) break;
    const bool joins = !copies.empty() && copies.back().offset + copies.back().bytes == piece->pool_offset;
    if (joins) {
      copies.back().bytes += piece->bytes;
    } else {
      copies.push_back({departure.slot.get() + departure.bytes, piece->pool_offset, piece->bytes});
    }
    departure.pieces.push_back(*piece);
    departure.bytes += piece->bytes;
  }
  return copies;
}

}  // namespace penstock::worker::transfer
