// Which way a peer's pool is read, and the two ways that copy on this host. Why these: docs/adr/0007.
#include <utility>

#include "worker/transfer/ucx/stream_copy.hpp"
#include "worker/transfer/ucx/ucx_transport_impl.hpp"

namespace penstock::worker::transfer {

/// The best way that works. A mapping may wait for the peer's answer, so only who reads asks for one.
void UcxTransport::choose_lane(Endpoint& endpoint) {
  if (device_ != nullptr || !endpoint.peer.device.empty()) return choose_device_lane(endpoint);
  const bool may_map = !tcp_only_ && options_.bulk == UcxBulk::automatic;
  const bool may_trace = may_map || options_.bulk == UcxBulk::process_copy;
  if (may_map) {
    if (auto mapping = map_shared_pool(endpoint.peer.share, endpoint.peer.pool_bytes)) {
      endpoint.mapping.emplace(std::move(*mapping));
      endpoint.lane = KvLane::mapped;
      return;
    }
  }
  const bool traces = may_trace && endpoint.peer.host == host_ && can_read_from(endpoint.peer.process);
  const bool gets = options_.bulk == UcxBulk::gets;
  endpoint.lane = traces ? KvLane::process_copy : gets ? KvLane::gets : KvLane::messages;
}

KvLane UcxTransport::lane(EndpointId id) const {
  auto found = endpoints_.find(id);
  return found == endpoints_.end() ? KvLane::messages : found->second->lane.value_or(KvLane::messages);
}

/// One read a call, so that messages pass between them.
std::size_t UcxTransport::copy_from_host(KvTransportEvents& events) {
  if (host_reads_.empty()) return 0;
  const HostRead read = std::move(host_reads_.front());
  host_reads_.pop_front();
  Result<void> result = make_error(ErrorCode::aborted, "the endpoint was closed");
  if (Endpoint* endpoint = open(read.endpoint)) result = read_by_copy(*endpoint, read.runs);
  events.on_read_done(read.endpoint, read.read, result);
  return 1;
}

Result<void> UcxTransport::read_by_copy(Endpoint& endpoint, std::span<const ReadRun> runs) {
  if (!endpoint.mapping) return read_from(endpoint.peer.process, endpoint.peer.pool_base, base_, runs);
  const SharedMapping& pool = *endpoint.mapping;
  endpoint.mapping_touched = true;
  for (const ReadRun& run : runs) {
    // Checked when it was posted against what the peer said; this is what is really there.
    if (run.bytes > pool.bytes() || run.remote_offset > pool.bytes() - run.bytes) {
      return make_error(ErrorCode::internal, "the read is outside the peer's memory file");
    }
    stream_copy(base_ + run.local_offset, pool.data() + run.remote_offset, run.bytes);
  }
  return {};
}

/// When there is nothing to do: what was read of the peers' pools no longer counts as ours.
void UcxTransport::drop_mapped_pages() {
  for (auto& [id, endpoint] : endpoints_) {
    if (std::exchange(endpoint->mapping_touched, false)) endpoint->mapping->drop_pages();
  }
}

}  // namespace penstock::worker::transfer
