// A KV pool in the memory of a device, as transports need it: copies to and from host memory, and from a peer's pool
// where the device reaches it. worker/transfer/cuda implements it; tests have one without a GPU.
// Thread: the transport's, for all calls. Nothing waits unless it says so: copies are queued and asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

using CopyId = std::uint64_t;  // never reused by a pool

/// A range of the pool, and host memory from DevicePool::host_memory() that it is copied from or to.
struct HostRun {
  std::byte* host = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const HostRun&, const HostRun&) = default;
};

/// A peer's pool, opened. Ends before the pool that opened it, with no copy from it under way. Ending may wait.
class DevicePeer {
 public:
  virtual ~DevicePeer() = default;
};

class DevicePool {
 public:
  virtual ~DevicePool() = default;
  virtual std::uint64_t bytes() const = 0;
  /// What a process on this host opens the pool with; opaque, secret, at most device_handle_bytes_max, never empty.
  virtual const base::Bytes& handle() const = 0;
  /// Opens a peer's pool of at least `bytes` and checks with bytes from there that it is what the handle says. Waits
  /// for that. Error: why it can't be reached; its KV must come another way.
  virtual Result<std::unique_ptr<DevicePeer>> open(base::BytesView handle, std::uint64_t bytes) = 0;

  // Each queues copies within bounds that the caller has checked. After an error nothing is under way.
  virtual Result<CopyId> copy_from_peer(DevicePeer& peer, std::span<const ReadRun> runs) = 0;
  virtual Result<CopyId> copy_in(std::span<const HostRun> runs) = 0;   // from host memory
  virtual Result<CopyId> copy_out(std::span<const HostRun> runs) = 0;  // to host memory
  /// Asked for until it says true or gives an error, which ends the copy as well. Whoever is told that it has ended may
  /// start work on the device that reads what was copied.
  virtual Result<bool> is_done(CopyId copy) = 0;
  /// Waits until no copy is under way.
  virtual void wait() = 0;

  /// Memory that the device copies from and to by itself. Error: resource_exhausted.
  virtual Result<std::shared_ptr<std::byte>> host_memory(std::uint64_t bytes) = 0;
  virtual std::string describe() const = 0;
};

constexpr std::size_t device_handle_bytes_max = 256;

/// Makes a pool of that many bytes on the device, for tests of the way there.
using DevicePoolFactory = std::function<Result<std::unique_ptr<DevicePool>>(std::uint64_t bytes)>;

/// A copy that has been queued, or the error of queueing it; waits for its end.
Result<void> wait_for(DevicePool& pool, Result<CopyId> copy);

}  // namespace penstock::worker::transfer
