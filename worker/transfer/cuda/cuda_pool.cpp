#include "worker/transfer/cuda/cuda_pool.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "common/base/id.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/gather_copy.hpp"
#include "kernels/cuda/shared_memory.hpp"

namespace penstock::worker::transfer {
namespace {

namespace cuda = kernels::cuda;

constexpr std::uint32_t handle_magic = 0x43564b50;

/// What travels: how to open the memory, and what must be found behind the pool in it.
struct CudaHandle {
  std::uint32_t magic = handle_magic;
  std::uint32_t padding = 0;
  std::uint64_t bytes = 0;  // of the pool
  cuda::MemoryHandle memory{};
  std::array<std::byte, 32> proof{};
};
static_assert(sizeof(CudaHandle) <= device_handle_bytes_max);
static_assert(sizeof(CudaHandle::proof) <= kv_tail_bytes);

Result<CudaHandle> decode(base::BytesView bytes) {
  base::ByteReader reader(bytes);
  const auto handle = reader.read<CudaHandle>();
  if (!reader.ok() || reader.left() != 0 || handle.magic != handle_magic) {
    return make_error(ErrorCode::data_loss, "the peer's GPU handle is malformed");
  }
  return handle;
}

struct CudaPeer final : DevicePeer {
  cuda::SharedMemory memory;
};

/// Below so many bytes a piece on average, one kernel copies them: starting a copy costs about 5 us.
constexpr std::uint64_t gather_piece_bytes = 1u << 20;
constexpr std::size_t gather_pieces_max = 256;  // more than the protocol puts in a read

/// What a copy under way needs; used again.
struct Ticket {
  cuda::Event end;
  cuda::PinnedBuffer pieces;  // gather_pieces_max, which the kernel reads
};

class CudaPool final : public DevicePool {
 public:
  CudaPool(std::byte* base, std::uint64_t bytes, int device) : base_(base), bytes_(bytes), device_(device) {}
  ~CudaPool() override { wait(); }

  Result<void> prepare(cuda::DeviceBuffer owned);
  std::uint64_t bytes() const override { return bytes_; }
  const base::Bytes& handle() const override { return handle_; }
  Result<std::unique_ptr<DevicePeer>> open(base::BytesView handle, std::uint64_t bytes) override;
  Result<CopyId> copy_from_peer(DevicePeer& peer, std::span<const ReadRun> runs) override;
  Result<CopyId> copy_in(std::span<const HostRun> runs) override;
  Result<CopyId> copy_out(std::span<const HostRun> runs) override;
  Result<bool> is_done(CopyId copy) override;
  void wait() override;
  Result<std::shared_ptr<std::byte>> host_memory(std::uint64_t bytes) override;
  std::string describe() const override { return name_; }

 private:
  Result<CopyId> queue(const cuda::OwnedStream& stream);
  Result<CopyId> keep(Ticket ticket, Result<void> queued, const cuda::OwnedStream& stream);
  Result<Ticket> take_ticket();
  Result<void> check_proof(const CudaPeer& peer, const CudaHandle& handle);

  std::byte* const base_;
  const std::uint64_t bytes_;
  const int device_;
  std::string name_;
  base::Bytes handle_;
  cuda::DeviceBuffer owned_;  // the pool, if it is nobody else's
  cuda::DeviceBuffer proof_landing_;
  cuda::PinnedBuffer proof_host_;
  cuda::OwnedStream from_peers_, in_, out_;
  std::vector<cuda::MemoryCopy> batch_;
  std::map<CopyId, Ticket> under_way_;
  std::vector<Ticket> tickets_;  // to be used again
  CopyId next_ = 1;
};

Result<void> CudaPool::prepare(cuda::DeviceBuffer owned) {
  owned_ = std::move(owned);
  PENSTOCK_TRY_VOID(cuda::use_device(device_));
  PENSTOCK_TRY(const cuda::DeviceInfo info, cuda::device_info());
  name_ = "GPU " + std::to_string(device_) + " (" + info.name + ")";
  PENSTOCK_TRY(from_peers_, cuda::OwnedStream::make());
  PENSTOCK_TRY(in_, cuda::OwnedStream::make());
  PENSTOCK_TRY(out_, cuda::OwnedStream::make());
  PENSTOCK_TRY(proof_landing_, cuda::DeviceBuffer::make(kv_tail_bytes));
  PENSTOCK_TRY(proof_host_, cuda::PinnedBuffer::make(kv_tail_bytes));
  CudaHandle handle;
  handle.bytes = bytes_;
  PENSTOCK_TRY(handle.memory, cuda::share_memory(base_));
  base::random_bytes(handle.proof.data(), handle.proof.size());
  base::ByteWriter(handle_).write(handle);
  std::memcpy(proof_host_.as<std::byte>(), handle.proof.data(), handle.proof.size());
  const HostRun proof{proof_host_.as<std::byte>(), bytes_, handle.proof.size()};
  return wait_for(*this, copy_in({&proof, 1}));
}

Result<std::unique_ptr<DevicePeer>> CudaPool::open(base::BytesView bytes_of_handle, std::uint64_t bytes) {
  PENSTOCK_TRY(const CudaHandle handle, decode(bytes_of_handle));
  PENSTOCK_TRY_VOID(cuda::use_device(device_));
  auto peer = std::make_unique<CudaPeer>();
  PENSTOCK_TRY(peer->memory, cuda::SharedMemory::open(handle.memory));
  const std::uint64_t there = peer->memory.bytes();
  if (handle.bytes < bytes || there < kv_tail_bytes || handle.bytes > there - kv_tail_bytes) {
    return make_error(ErrorCode::data_loss, "the peer's GPU memory is smaller than its pool");
  }
  PENSTOCK_TRY_VOID(check_proof(*peer, handle));
  return std::unique_ptr<DevicePeer>(std::move(peer));
}

/// Through this GPU's memory, as KV will come: what is found is not taken for the peer's pool because it can be read.
Result<void> CudaPool::check_proof(const CudaPeer& peer, const CudaHandle& handle) {
  std::byte* const found = proof_host_.as<std::byte>();
  std::memset(found, 0, handle.proof.size());
  const cuda::MemoryCopy here{proof_landing_.data(), peer.memory.data() + handle.bytes, handle.proof.size()};
  const cuda::MemoryCopy out{found, proof_landing_.data(), handle.proof.size()};
  PENSTOCK_TRY_VOID(cuda::queue_copies({&here, 1}, from_peers_.get()));
  PENSTOCK_TRY_VOID(cuda::queue_copies({&out, 1}, from_peers_.get()));
  PENSTOCK_TRY_VOID(from_peers_.wait());
  if (std::equal(handle.proof.begin(), handle.proof.end(), found)) return {};
  return make_error(ErrorCode::data_loss, "what opens as the peer's GPU memory is not its pool");
}

/// Queues batch_.
Result<CopyId> CudaPool::queue(const cuda::OwnedStream& stream) {
  PENSTOCK_TRY_VOID(cuda::use_device(device_));
  PENSTOCK_TRY(Ticket ticket, take_ticket());
  return keep(std::move(ticket), cuda::queue_copies(batch_, stream.get()), stream);
}

/// Puts an event behind what was queued.
Result<CopyId> CudaPool::keep(Ticket ticket, Result<void> queued, const cuda::OwnedStream& stream) {
  if (queued) queued = ticket.end.record(stream.get());
  if (!queued) {
    (void)stream.wait();  // the first error is told
    return queued.error();
  }
  const CopyId id = next_++;
  under_way_.emplace(id, std::move(ticket));
  return id;
}

Result<Ticket> CudaPool::take_ticket() {
  Ticket ticket;
  if (tickets_.empty()) {
    PENSTOCK_TRY(ticket.end, cuda::Event::make());
    PENSTOCK_TRY(ticket.pieces, cuda::PinnedBuffer::make(gather_pieces_max * sizeof(cuda::GatherPiece)));
    return ticket;
  }
  ticket = std::move(tickets_.back());
  tickets_.pop_back();
  return ticket;
}

bool is_for_kernel(std::span<const ReadRun> runs) {
  std::uint64_t bytes = 0;
  for (const ReadRun& run : runs) {
    if ((run.local_offset | run.remote_offset | run.bytes) % 16 != 0) return false;
    bytes += run.bytes;
  }
  return runs.size() > 1 && runs.size() <= gather_pieces_max && bytes / runs.size() < gather_piece_bytes;
}

Result<CopyId> CudaPool::copy_from_peer(DevicePeer& peer, std::span<const ReadRun> runs) {
  const std::byte* const from = static_cast<CudaPeer&>(peer).memory.data();
  if (!is_for_kernel(runs)) {
    batch_.clear();
    for (const ReadRun& run : runs) batch_.push_back({base_ + run.local_offset, from + run.remote_offset, run.bytes});
    return queue(from_peers_);
  }
  PENSTOCK_TRY_VOID(cuda::use_device(device_));
  PENSTOCK_TRY(Ticket ticket, take_ticket());
  auto* const pieces = ticket.pieces.as<cuda::GatherPiece>();
  cuda::GatherCopy work{from, base_, pieces, static_cast<std::uint32_t>(runs.size()), 0};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    pieces[i] = {runs[i].remote_offset, runs[i].local_offset, runs[i].bytes};
    work.piece_bytes_max = std::max(work.piece_bytes_max, runs[i].bytes);
  }
  return keep(std::move(ticket), cuda::gather_copy(work, cuda::Start::ordered, from_peers_.get()), from_peers_);
}

Result<CopyId> CudaPool::copy_in(std::span<const HostRun> runs) {
  batch_.clear();
  for (const HostRun& run : runs) batch_.push_back({base_ + run.offset, run.host, run.bytes});
  return queue(in_);
}

Result<CopyId> CudaPool::copy_out(std::span<const HostRun> runs) {
  batch_.clear();
  for (const HostRun& run : runs) batch_.push_back({run.host, base_ + run.offset, run.bytes});
  return queue(out_);
}

Result<bool> CudaPool::is_done(CopyId copy) {
  const auto found = under_way_.find(copy);
  PENSTOCK_CHECK(found != under_way_.end(), "copy", copy);
  auto done = found->second.end.is_done();
  if (done && !*done) return false;
  if (done) tickets_.push_back(std::move(found->second));
  under_way_.erase(found);
  return done;
}

void CudaPool::wait() {
  for (const cuda::OwnedStream* stream : {&from_peers_, &in_, &out_}) {
    if (stream->get() != nullptr) (void)stream->wait();  // is_done() tells of errors
  }
}

Result<std::shared_ptr<std::byte>> CudaPool::host_memory(std::uint64_t bytes) {
  PENSTOCK_TRY_VOID(cuda::use_device(device_));
  PENSTOCK_TRY(cuda::PinnedBuffer buffer, cuda::PinnedBuffer::make(bytes));
  auto owner = std::make_shared<cuda::PinnedBuffer>(std::move(buffer));
  return std::shared_ptr<std::byte>(owner, owner->as<std::byte>());
}

Result<std::unique_ptr<DevicePool>> make(cuda::DeviceBuffer owned, const DeviceMemoryView& memory,
                                         std::uint64_t bytes) {
  auto pool = std::make_unique<CudaPool>(static_cast<std::byte*>(memory.base), bytes, memory.device);
  PENSTOCK_TRY_VOID(pool->prepare(std::move(owned)));
  return std::unique_ptr<DevicePool>(std::move(pool));
}

}  // namespace

Result<std::unique_ptr<DevicePool>> make_cuda_pool(const DeviceMemoryView& memory, std::uint64_t bytes) {
  return make({}, memory, bytes);
}

Result<std::unique_ptr<DevicePool>> make_cuda_pool(std::uint64_t bytes, int device) {
  PENSTOCK_TRY_VOID(cuda::use_device(device));
  PENSTOCK_TRY(cuda::DeviceBuffer owned, cuda::DeviceBuffer::make(bytes + kv_tail_bytes));
  const DeviceMemoryView memory{owned.data(), device};
  return make(std::move(owned), memory, bytes);
}

}  // namespace penstock::worker::transfer
