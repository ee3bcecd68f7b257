// Pools in the memory of a device: reads by a copy from the peer's, and host memory between the device and messages.
// Why so: docs/adr/0011-kv-between-gpus.md.
#include <utility>

#include "worker/transfer/ucx/ucx_transport_impl.hpp"

namespace penstock::worker::transfer {

Result<void> UcxTransport::register_device(DevicePool& device) {
  if (options_.bulk == UcxBulk::gets || options_.bulk == UcxBulk::process_copy) {
    return make_error(ErrorCode::unsupported, "KV in a GPU's memory is read by device copies or by messages only");
  }
  PENSTOCK_TRY(arrival_slots_, PinnedSlots::make(device, arrival_slots, arrival_slot_bytes));
  PENSTOCK_TRY(departure_slots_, PinnedSlots::make(device, departure_slots, departure_slot_bytes));
  device_ = &device;
  return {};
}

std::string UcxTransport::describe_device() const {
  if (device_ == nullptr) return {};
  constexpr std::uint64_t staged = arrival_slots * arrival_slot_bytes + departure_slots * departure_slot_bytes;
  return "; pool on " + device_->describe() +
         ": device copies from GPUs that it reaches on this host, all else through " + std::to_string(staged >> 20) +
         " MiB of pinned host memory (no GPUDirect: that needs a UCX with CUDA, which Debian's is not)";
}

/// Where either pool is on a device. Opening may wait for the driver, so only who reads does it.
void UcxTransport::choose_device_lane(Endpoint& endpoint) {
  endpoint.lane = KvLane::messages;
  if (device_ == nullptr || endpoint.peer.device.empty()) {
    endpoint.lane_reason = "only one of the two pools is on a GPU";
    return;
  }
  if (tcp_only_ || options_.bulk != UcxBulk::automatic) {
    endpoint.lane_reason = "asked for by the settings";
    return;
  }
  if (endpoint.peer.host != host_) {
    endpoint.lane_reason = "the peer is on another host, or in another IPC namespace";
    return;
  }
  auto opened = device_->open(endpoint.peer.device, endpoint.peer.pool_bytes);
  if (!opened) {
    endpoint.lane_reason = opened.error().message;
    return;
  }
  endpoint.device_peer = std::move(*opened);
  endpoint.lane = KvLane::device_copy;
}

std::string UcxTransport::lane_reason(EndpointId id) const {
  auto found = endpoints_.find(id);
  return found == endpoints_.end() ? std::string() : found->second->lane_reason;
}

Result<void> UcxTransport::read_by_device_copy(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  PENSTOCK_TRY(const CopyId copy, device_->copy_from_peer(*endpoint.device_peer, runs));
  reads_[read].endpoint = &endpoint;
  copies_.emplace_back(read, copy);
  return {};
}

/// Reads by messages ask for their bytes when they have a slot.
void UcxTransport::ask_staged() {
  while (!unasked_.empty()) {
    const ReadId read = unasked_.front();
    const auto found = reads_.find(read);
    const bool is_wanted = found != reads_.end() && found->second.bytes_missing > 0;
    if (is_wanted) {
      PendingRead& pending = found->second;
      pending.slot = arrival_slots_.take();
      if (!pending.slot) return;
      auto places = arrivals(pending.slot.get(), arrival_slots_.slot_bytes(), pending.runs);
      if (!places || !ask(*pending.endpoint, read, pending.runs)) end_read(read, pending, UCS_ERR_IO_ERROR);
      if (places) pending.places = std::move(*places);
    }
    unasked_.pop_front();
  }
}

/// All bytes of a read are in its slot.
void UcxTransport::land(ReadId read, PendingRead& pending) {
  const auto copy = device_->copy_in(pending.places);
  if (!copy) return end_read(read, pending, UCS_ERR_IO_ERROR);
  copies_.emplace_back(read, *copy);
}

/// Copies into our pool that have ended: their reads have, too.
std::size_t UcxTransport::end_copies() {
  std::size_t ended = 0;
  std::erase_if(copies_, [&](const auto& entry) {
    const auto done = device_->is_done(entry.second);
    if (done && !*done) return false;
    ++ended;
    PendingRead& pending = reads_.at(entry.first);
    if (!done) errors_.emplace_back(pending.endpoint->id, done.error());
    end_read(entry.first, pending, done ? pending.status : UCS_ERR_IO_ERROR);
    return true;
  });
  return ended;
}

/// Starts to fetch from the device what the peer may have now.
void UcxTransport::stage_owed(Endpoint& endpoint) {
  while (!endpoint.closed && !endpoint.owed.empty() &&
         endpoint.posted_bytes + endpoint.staged_bytes < posted_bytes_max) {
    Departure departure;
    departure.endpoint = endpoint.id;
    departure.slot = departure_slots_.take();
    if (!departure.slot) return;
    const auto runs = pack(departure, endpoint.owed, departure_slots_.slot_bytes(), piece_bytes_max);
    endpoint.owed_bytes -= departure.bytes;
    const auto copy = device_->copy_out(runs);
    if (!copy) {
      errors_.emplace_back(endpoint.id, copy.error());
      return;
    }
    departure.copy = *copy;
    endpoint.staged_bytes += departure.bytes;
    departures_.push_back(std::move(departure));
  }
}

/// Posts what has come from the device. Returns how many pieces.
std::size_t UcxTransport::send_staged() {
  std::size_t pieces = 0;
  std::erase_if(departures_, [&](const Departure& departure) {
    const auto done = device_->is_done(departure.copy);
    if (done && !*done) return false;
    Endpoint* const endpoint = open(departure.endpoint);
    if (endpoint == nullptr) return true;
    endpoint->staged_bytes -= departure.bytes;
    if (!done) errors_.emplace_back(endpoint->id, done.error());
    if (done) pieces += post_departure(*endpoint, departure);
    return true;
  });
  return pieces;
}

std::size_t UcxTransport::post_departure(Endpoint& endpoint, const Departure& departure) {
  const std::byte* data = departure.slot.get();
  for (const OwedPiece& piece : departure.pieces) {
    if (post_piece(endpoint, piece, data, departure.slot) != UCS_OK) break;  // the endpoint's error comes by itself
    data += piece.bytes;
  }
  return departure.pieces.size();
}

}  // namespace penstock::worker::transfer
