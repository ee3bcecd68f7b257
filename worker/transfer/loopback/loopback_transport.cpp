#include "worker/transfer/loopback/loopback_transport.hpp"

#include <cstring>
#include <utility>

namespace penstock::worker::transfer {

void LoopbackNetwork::kill(const KvTransport& transport) {
  std::erase_if(members_, [&](const auto& member) { return member.second == &transport; });
}

LoopbackTransport::LoopbackTransport(LoopbackNetwork& network) : network_(network), id_(network.next_++) {
  network_.members_[id_] = this;
}

LoopbackTransport::~LoopbackTransport() {
  network_.kill(*this);
}

Result<void> LoopbackTransport::register_pool(const PoolMemory& pool) {
  base_ = pool.base;
  bytes_ = pool.bytes;
  return {};
}

Result<base::Bytes> LoopbackTransport::local_address() {
  base::Bytes address;
  base::ByteWriter(address).write(id_);
  return address;
}

Result<void> LoopbackTransport::connect(EndpointId endpoint, base::BytesView peer_address) {
  base::ByteReader reader(peer_address);
  const auto peer = reader.read<std::uint64_t>();
  if (!reader.ok() || reader.left() != 0 || !network_.members_.contains(peer)) {
    return make_error(ErrorCode::unavailable, "no such loopback peer");
  }
  endpoints_[endpoint] = peer;
  return {};
}

LoopbackTransport* LoopbackTransport::peer_of(EndpointId endpoint) {
  auto known = endpoints_.find(endpoint);
  if (known == endpoints_.end()) return nullptr;
  auto peer = network_.members_.find(known->second);
  return peer == network_.members_.end() ? nullptr : peer->second;
}

Result<void> LoopbackTransport::send(EndpointId endpoint, base::BytesView message) {
  if (message.size() > kv_message_bytes_max) return make_error(ErrorCode::internal, "the message is too long");
  if (!endpoints_.contains(endpoint)) return {};  // closed meanwhile
  if (LoopbackTransport* peer = peer_of(endpoint)) {
    peer->inbox_.emplace_back(message.begin(), message.end());
  } else {
    broken_.push_back(endpoint);
  }
  return {};
}

Result<void> LoopbackTransport::post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) {
  if (!endpoints_.contains(endpoint)) return make_error(ErrorCode::unavailable, "the endpoint is closed");
  reads_.push_back({endpoint, read, {runs.begin(), runs.end()}});
  return {};
}

void LoopbackTransport::force_close(EndpointId endpoint) {
  endpoints_.erase(endpoint);
  for (PendingRead& read : reads_) {
    if (read.endpoint == endpoint) read.cancelled = true;
  }
}

Result<void> LoopbackTransport::copy(const PendingRead& read) {
  if (read.cancelled) return make_error(ErrorCode::aborted, "the endpoint was closed");
  LoopbackTransport* peer = peer_of(read.endpoint);
  if (peer == nullptr) return make_error(ErrorCode::unavailable, "the peer is dead");
  for (const ReadRun& run : read.runs) {
    const bool inside = run.bytes <= bytes_ && run.local_offset <= bytes_ - run.bytes && run.bytes <= peer->bytes_ &&
                        run.remote_offset <= peer->bytes_ - run.bytes;
    if (!inside) return make_error(ErrorCode::internal, "the read is out of bounds");
    std::memcpy(base_ + run.local_offset, peer->base_ + run.remote_offset, run.bytes);
  }
  return {};
}

std::size_t LoopbackTransport::progress(KvTransportEvents& events) {
  auto messages = std::exchange(inbox_, {});
  auto reads = std::exchange(reads_, {});
  auto broken = std::exchange(broken_, {});
  for (const auto& message : messages) events.on_message(message);
  for (const auto& read : reads) {
    auto result = copy(read);
    if (!result && !read.cancelled) broken.push_back(read.endpoint);
    events.on_read_done(read.endpoint, read.read, result);
  }
  for (EndpointId endpoint : broken) {
    if (endpoints_.contains(endpoint)) {
      events.on_endpoint_error(endpoint, make_error(ErrorCode::unavailable, "the peer is dead"));
    }
  }
  return messages.size() + reads.size() + broken.size();
}

}  // namespace penstock::worker::transfer
