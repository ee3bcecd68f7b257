#include "tests/sim/fabric.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::sim {

using namespace std::chrono_literals;

void Fabric::calm() {
  plan_ = {};
}

SimTransport::SimTransport(Fabric& fabric, std::uint32_t slot, TransportHooks hooks)
    : fabric_(fabric),
      events_(fabric.events_),
      slot_(slot),
      hooks_(std::move(hooks)),
      life_(events_),
      id_(fabric.next_++) {
  fabric_.members_[id_] = this;
}

SimTransport::~SimTransport() {
  fabric_.members_.erase(id_);
}

Result<void> SimTransport::register_pool(const worker::PoolMemory& pool) {
  base_ = pool.base;
  bytes_ = pool.bytes;
  return {};
}

Result<base::Bytes> SimTransport::local_address() {
  base::Bytes address;
  base::ByteWriter(address).write(id_);
  return address;
}

Result<void> SimTransport::connect(worker::EndpointId endpoint, base::BytesView peer_address) {
  base::ByteReader reader(peer_address);
  const auto peer = reader.read<std::uint64_t>();
  if (!reader.ok()) return make_error(ErrorCode::data_loss, "not an address");
  endpoints_[endpoint] = peer;
  return {};
}

SimTransport* SimTransport::peer_of(worker::EndpointId endpoint) {
  const auto known = endpoints_.find(endpoint);
  if (known == endpoints_.end()) return nullptr;
  const auto peer = fabric_.members_.find(known->second);
  return peer == fabric_.members_.end() ? nullptr : peer->second;
}

Result<void> SimTransport::send(worker::EndpointId endpoint, base::BytesView message) {
  const auto known = endpoints_.find(endpoint);
  if (known == endpoints_.end()) return {};  // closed meanwhile
  const FabricPlan& plan = fabric_.plan_;
  const std::uint32_t copies = events_.chance(plan.drop) ? 0 : events_.chance(plan.repeat) ? 2 : 1;
  for (std::uint32_t i = 0; i < copies; ++i) {
    const bool is_late = events_.chance(plan.late);
    const Duration delay = events_.between(20us, 200us) + (is_late ? events_.between(0us, plan.late_max) : Duration{});
    deliver(known->second, endpoint, {message.begin(), message.end()}, delay);
  }
  return {};
}

void SimTransport::deliver(std::uint64_t peer, worker::EndpointId endpoint, base::Bytes message, Duration delay) {
  // The network's task: a message outlives the process that sent it.
  events_.after(delay, [&fabric = fabric_, sender = id_, from = slot_, peer, endpoint, message = std::move(message)] {
    const auto found = fabric.members_.find(peer);
    if (found != fabric.members_.end()) {
      if (fabric.is_cut(from, found->second->slot_)) return;
      found->second->inbox_.push_back(message);
      found->second->hooks_.wake();
      return;
    }
    const auto self = fabric.members_.find(sender);
    if (self != fabric.members_.end()) self->second->break_later(endpoint);
  });
}

void SimTransport::break_later(worker::EndpointId endpoint) {
  life_.after(events_.between(1ms, 20ms), [this, endpoint] {
    if (!endpoints_.contains(endpoint)) return;
    broken_.push_back(endpoint);
    hooks_.wake();
  });
}

Result<void> SimTransport::post_read(worker::EndpointId endpoint, worker::ReadId read,
                                     std::span<const worker::ReadRun> runs) {
  if (!endpoints_.contains(endpoint)) return make_error(ErrorCode::unavailable, "the endpoint is closed");
  Pending pending{endpoint, {}, 0};
  for (const auto& run : runs) {
    // Each run in two halves, so that what happens between them is seen.
    const std::uint64_t half = run.bytes / 16 * 8;
    for (const auto& [begin, end] : {std::pair{std::uint64_t{0}, half}, std::pair{half, run.bytes}}) {
      if (begin == end) continue;
      const worker::ReadRun part{run.remote_offset + begin, run.local_offset + begin, end - begin};
      pending.pieces.push_back({part, hooks_.generation(part.local_offset)});
    }
  }
  const bool is_slow = events_.chance(fabric_.plan_.read_slow);
  reads_.emplace(read, std::move(pending));
  go_on(read, events_.between(20us, 300us) + (is_slow ? events_.between(0us, fabric_.plan_.read_max) : Duration{}));
  return {};
}

void SimTransport::go_on(worker::ReadId read, Duration delay) {
  life_.after(delay, [this, read] { copy_piece(read); });
}

void SimTransport::copy_piece(worker::ReadId read) {
  const auto found = reads_.find(read);
  if (found == reads_.end()) return;
  Pending& pending = found->second;
  SimTransport* peer = peer_of(pending.endpoint);
  if (peer == nullptr) {
    break_later(pending.endpoint);
    return finish(read, make_error(ErrorCode::unavailable, "the peer is dead"));
  }
  const bool waits = fabric_.is_cut(slot_, peer->slot_) || (!fabric_.plan_.one_sided && peer->hooks_.is_frozen());
  if (waits) return go_on(read, 10ms);
  if (pending.next == pending.pieces.size()) return finish(read, {});
  const Piece& piece = pending.pieces[pending.next++];
  const worker::ReadRun& run = piece.run;
  const bool is_inside = run.bytes <= bytes_ && run.local_offset <= bytes_ - run.bytes && run.bytes <= peer->bytes_ &&
                         run.remote_offset <= peer->bytes_ - run.bytes;
  if (!is_inside) return finish(read, make_error(ErrorCode::internal, "the read is out of bounds"));
  hooks_.on_write(run.local_offset, run.bytes, piece.generation);
  std::memcpy(base_ + run.local_offset, peer->base_ + run.remote_offset, run.bytes);
  const bool is_slow = events_.chance(fabric_.plan_.read_slow / 4);
  go_on(read, events_.between(1us, 50us) + (is_slow ? events_.between(0us, fabric_.plan_.read_max) : Duration{}));
}

void SimTransport::finish(worker::ReadId read, Result<void> result) {
  const auto found = reads_.find(read);
  if (found == reads_.end()) return;
  done_.push_back({found->second.endpoint, read, std::move(result)});
  reads_.erase(found);
  hooks_.wake();
}

void SimTransport::force_close(worker::EndpointId endpoint) {
  endpoints_.erase(endpoint);
  std::vector<worker::ReadId> cancelled;
  for (const auto& [read, pending] : reads_) {
    if (pending.endpoint == endpoint) cancelled.push_back(read);
  }
  for (const worker::ReadId read : cancelled) finish(read, make_error(ErrorCode::aborted, "the endpoint was closed"));
}

std::size_t SimTransport::progress(worker::KvTransportEvents& events) {
  std::size_t work = 0;
  for (auto inbox = std::exchange(inbox_, {}); auto& message : inbox) {
    if (hooks_.on_arrival) hooks_.on_arrival(message);
    events.on_message(message);
    ++work;
  }
  for (auto done = std::exchange(done_, {}); auto& one : done) {
    events.on_read_done(one.endpoint, one.read, std::move(one.result));
    ++work;
  }
  for (auto broken = std::exchange(broken_, {}); const auto endpoint : broken) {
    if (!endpoints_.contains(endpoint)) continue;
    events.on_endpoint_error(endpoint, make_error(ErrorCode::unavailable, "the peer is dead"));
    ++work;
  }
  return work;
}

}  // namespace penstock::sim
