// What moves bytes between KV pools: small messages to a peer, and reads of ranges of its pool into ours. Peers never
// write into each other's pools. Implementations: worker/transfer/{ucx,loopback,faulty}.
// Thread: every call and every callback on the transfer service's I/O thread; callbacks run only inside progress().
// Bounds: a message has at most kv_message_bytes_max bytes; the caller bounds the reads in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"

namespace penstock::worker {

constexpr std::size_t kv_message_bytes_max = (64u << 10) + 256;

using EndpointId = std::uint64_t;  // chosen by the caller, never reused in a process
using ReadId = std::uint64_t;      // chosen by the caller, never reused in a process

/// A contiguous range: offsets into the peer's pool and into ours.
struct ReadRun {
  std::uint64_t remote_offset = 0;
  std::uint64_t local_offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const ReadRun&, const ReadRun&) = default;
};

namespace transfer {
class DevicePool;
}

/// A pool as memory.
struct PoolMemory {
  std::byte* base = nullptr;  // null: a device has it
  std::uint64_t bytes = 0;
  int file = -1;  // descriptor of the sealed memory file behind it, from `base` on; -1: private memory
  transfer::DevicePool* device = nullptr;  // outlives the transport
};

/// Which way reads from an endpoint go.
enum class KvLane : std::uint8_t {
  mapped,        // a copy from the peer's memory file, mapped here
  process_copy,  // process_vm_readv()
  gets,          // UCX gets
  messages,      // the peer sends what it is asked for
  in_process,    // a copy within one process
  device_copy,   // from the peer's GPU memory to ours
};
constexpr std::size_t kv_lane_count = 6;

constexpr std::string_view to_string(KvLane lane) {
  switch (lane) {
    case KvLane::mapped:
      return "mapped";
    case KvLane::process_copy:
      return "process copy";
    case KvLane::gets:
      return "gets";
    case KvLane::messages:
      return "messages";
    case KvLane::in_process:
      return "in process";
    case KvLane::device_copy:
      return "device copy";
  }
  return "unknown";
}

class KvTransportEvents {
 public:
  virtual ~KvTransportEvents() = default;
  /// The view lives until the call returns.
  virtual void on_message(base::BytesView message) = 0;
  /// Exactly once for each post_read() that returned no error. After it nothing writes to the read's local ranges.
  /// Success proves nothing about the content: the owner may have died or reused the blocks.
  virtual void on_read_done(EndpointId endpoint, ReadId read, Result<void> result) = 0;
  /// The endpoint is broken; the caller answers with force_close().
  virtual void on_endpoint_error(EndpointId endpoint, const Error& error) = 0;
};

class KvTransport {
 public:
  virtual ~KvTransport() = default;
  virtual std::string_view name() const = 0;
  /// Once, before anything else. The memory outlives the transport. The environment's faults end as an Error.
  virtual Result<void> register_pool(const PoolMemory& pool) = 0;
  /// What a peer needs for connect(): opaque, secret (it lets its holder read the pool).
  virtual Result<base::Bytes> local_address() = 0;
  virtual Result<void> connect(EndpointId endpoint, base::BytesView peer_address) = 0;
  /// Copies the message and returns; delivery isn't promised (an endpoint error tells of a broken peer).
  virtual Result<void> send(EndpointId endpoint, base::BytesView message) = 0;
  virtual Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) = 0;
  /// Fails what is in flight. Every outstanding read still gets its on_read_done(), from a later progress().
  virtual void force_close(EndpointId endpoint) = 0;
  /// Works on what is ready; returns how much there was. Zero: nothing to do now.
  virtual std::size_t progress(KvTransportEvents& events) = 0;
  /// Readable when progress() has work; -1 if there is none. Wait on it only after arm() returned true.
  virtual int event_fd() const { return -1; }
  virtual bool arm() { return true; }
  /// Of an endpoint that has been read from; which way is settled at the first read.
  virtual KvLane lane(EndpointId endpoint) const = 0;
  /// Why it isn't a faster one; empty if there is none, or nothing is known.
  virtual std::string lane_reason(EndpointId /*endpoint*/) const { return {}; }
  /// One line for the log and for start-up reports: library, version, devices.
  virtual std::string describe() const = 0;
};

using KvTransportFactory = std::function<std::unique_ptr<KvTransport>()>;

}  // namespace penstock::worker
