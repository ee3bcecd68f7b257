// Reads of a peer's pool through UCX, by gets or messages; those by copy are queued here and done in ucx_lanes.cpp.
#include <cstring>

#include "worker/transfer/ucx/ucx_transport_impl.hpp"

namespace penstock::worker::transfer {

Result<void> UcxTransport::post_read(EndpointId id, ReadId read, std::span<const ReadRun> runs) {
  Endpoint* endpoint = open(id);
  if (endpoint == nullptr) return make_error(ErrorCode::unavailable, "the endpoint is closed");
  if (runs.empty()) return make_error(ErrorCode::internal, "an empty read");
  for (const ReadRun& run : runs) {
    const bool inside = run.bytes > 0 && run.bytes <= bytes_ && run.local_offset <= bytes_ - run.bytes &&
                        run.bytes <= endpoint->peer.pool_bytes &&
                        run.remote_offset <= endpoint->peer.pool_bytes - run.bytes;
    if (!inside) return make_error(ErrorCode::internal, "the read is out of bounds");
  }
  if (!endpoint->lane) choose_lane(*endpoint);
  switch (*endpoint->lane) {
    case KvLane::gets:
      return read_by_gets(*endpoint, read, runs);
    case KvLane::messages:
      return read_by_messages(*endpoint, read, runs);
    case KvLane::device_copy:
      return read_by_device_copy(*endpoint, read, runs);
    case KvLane::mapped:
    case KvLane::process_copy:
    case KvLane::in_process:
      break;
  }
  host_reads_.push_back({id, read, {runs.begin(), runs.end()}});
  return {};
}

Result<void> UcxTransport::read_by_gets(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  PendingRead& pending = reads_[read];
  pending.endpoint = &endpoint;
  pending.gets = 1;  // ours, so that it doesn't end before all are posted
  for (const ReadRun& run : runs) {
    auto get = std::make_unique<Get>(Get{this, &endpoint, read});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = &UcxTransport::on_get;
    param.user_data = get.get();
    void* request = ucp_get_nbx(endpoint.ep, base_ + run.local_offset, run.bytes,
                                endpoint.peer.pool_base + run.remote_offset, endpoint.rkey, &param);
    if (UCS_PTR_IS_PTR(request)) {
      ++pending.gets;
      ++endpoint.operations;
      get.release();  // on_get() frees it
    } else if (UCS_PTR_IS_ERR(request)) {
      pending.status = UCS_PTR_STATUS(request);
      break;
    }
  }
  ++endpoint.operations;
  get_done({this, &endpoint, read}, UCS_OK);
  return {};
}

void UcxTransport::on_get(void* request, ucs_status_t status, void* user_data) {
  std::unique_ptr<Get> get(static_cast<Get*>(user_data));
  ucp_request_free(request);
  get->self->get_done(*get, status);
}

void UcxTransport::get_done(const Get& get, ucs_status_t status) {
  --get.endpoint->operations;
  PendingRead& pending = reads_.at(get.read);
  if (status != UCS_OK) pending.status = status;
  if (--pending.gets == 0) reads_done_.emplace_back(get.read, get.endpoint->id);
}

Result<void> UcxTransport::read_by_messages(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  PendingRead pending;
  pending.endpoint = &endpoint;
  pending.runs.assign(runs.begin(), runs.end());
  for (const ReadRun& run : runs) pending.bytes_missing += run.bytes;
  if (device_ == nullptr) {
    PENSTOCK_TRY_VOID(ask(endpoint, read, runs));
  } else {
    if (pending.bytes_missing > arrival_slots_.slot_bytes()) {
      return make_error(ErrorCode::internal, "the read is larger than what stages it");
    }
    unasked_.push_back(read);
  }
  reads_[read] = std::move(pending);
  if (device_ != nullptr) ask_staged();
  return {};
}

Result<void> UcxTransport::ask(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  auto sending = std::make_unique<Sending>();
  base::ByteWriter writer(sending->bytes);
  writer.write(ReadRequestHeader{id_, read, static_cast<std::uint32_t>(runs.size())});
  for (const ReadRun& run : runs) {
    writer.write(run.remote_offset);
    writer.write(run.bytes);
  }
  const void* data = sending->bytes.data();
  const std::size_t bytes = sending->bytes.size();
  const ucs_status_t status = post(endpoint, am_read_request, std::move(sending), data, bytes);
  if (status != UCS_OK) return ucx_error("a read request can't be sent", status);
  return {};
}

/// It has ended: progress() tells so, and what it took comes back.
void UcxTransport::end_read(ReadId read, PendingRead& pending, ucs_status_t status) {
  pending.status = status;
  pending.bytes_missing = 0;
  pending.slot.reset();
  reads_done_.emplace_back(read, pending.endpoint->id);
}

ucs_status_t UcxTransport::on_am_request(void* argument, const void*, size_t, void* data, size_t bytes,
                                         const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxTransport*>(argument);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && bytes <= kv_message_bytes_max) {
    const auto* begin = static_cast<const std::byte*>(data);
    self->requests_.emplace_back(begin, begin + bytes);
  }
  return UCS_OK;
}

/// The owner's side of a read by messages. Whether the bytes are still the offered ones is for DONE to find out.
void UcxTransport::serve(base::BytesView request) {
  base::ByteReader reader(request);
  const auto header = reader.read<ReadRequestHeader>();
  if (!reader.ok() || std::uint64_t{header.runs} * 16 != reader.left()) return;
  Endpoint* endpoint = nullptr;
  for (auto& [id, candidate] : endpoints_) {
    if (candidate->peer.transport == header.requester && !candidate->closed) endpoint = candidate.get();
  }
  if (endpoint == nullptr) return;
  for (std::uint64_t run = 0; run < header.runs; ++run) {
    const auto offset = reader.read<std::uint64_t>();
    const auto bytes = reader.read<std::uint64_t>();
    if (bytes == 0 || bytes > bytes_ || offset > bytes_ - bytes || endpoint->owed_bytes + bytes > owed_bytes_max)
      return;
    endpoint->owed.push_back({header.read, run, offset, bytes});
    endpoint->owed_bytes += bytes;
  }
}

/// Posts what the peer may have now. Returns how many pieces.
std::size_t UcxTransport::send_owed(Endpoint& endpoint) {
  if (device_ != nullptr) {
    stage_owed(endpoint);
    return 0;
  }
  int pieces = 0;
  for (; pieces < pieces_max && endpoint.posted_bytes < posted_bytes_max; ++pieces) {
    const auto piece = next_piece(endpoint.owed, piece_bytes_max);
    if (!piece) break;
    endpoint.owed_bytes -= piece->bytes;
    if (endpoint.closed || post_piece(endpoint, *piece, base_ + piece->pool_offset, nullptr) != UCS_OK) {
      endpoint.owed.clear();  // the endpoint's error comes by itself
      endpoint.owed_bytes = 0;
      break;
    }
  }
  return static_cast<std::size_t>(pieces);
}

ucs_status_t UcxTransport::post_piece(Endpoint& endpoint, const OwedPiece& piece, const std::byte* data,
                                      std::shared_ptr<std::byte> slot) {
  auto sending = std::make_unique<Sending>();
  base::ByteWriter(sending->header).write(ReadDataHeader{id_, piece.read, piece.run, piece.offset});
  sending->data_bytes = piece.bytes;
  sending->slot = std::move(slot);
  return post(endpoint, am_read_data, std::move(sending), data, piece.bytes);
}

ucs_status_t UcxTransport::on_am_data(void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                                      const ucp_am_recv_param_t* param) {
  ReadDataHeader parsed;
  if (header_bytes != sizeof parsed || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  std::memcpy(&parsed, header, sizeof parsed);
  static_cast<UcxTransport*>(argument)->take_data(parsed, {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

void UcxTransport::take_data(const ReadDataHeader& header, base::BytesView data) {
  auto found = reads_.find(header.read);
  if (found == reads_.end() || found->second.bytes_missing == 0) return;  // ended meanwhile
  PendingRead& pending = found->second;
  if (pending.endpoint->peer.transport != header.owner || header.run >= pending.runs.size()) return;
  const ReadRun& run = pending.runs[header.run];
  const bool inside = !data.empty() && data.size() <= run.bytes && header.offset <= run.bytes - data.size() &&
                      data.size() <= pending.bytes_missing;
  if (!inside) return;
  if (device_ != nullptr && !pending.slot) return;  // not asked for
  std::byte* const to = pending.slot ? pending.places[header.run].host : base_ + run.local_offset;
  std::memcpy(to + header.offset, data.data(), data.size());
  pending.bytes_missing -= data.size();
  if (pending.bytes_missing > 0) return;
  if (device_ != nullptr) {
    land(header.read, pending);
  } else {
    end_read(header.read, pending, UCS_OK);
  }
}

}  // namespace penstock::worker::transfer
