// KvTransport within one process: messages and reads between transports of one LoopbackNetwork, in order, each done at
// a progress() of the reader. Deterministic; for tests and the simulator. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

class LoopbackTransport;

class LoopbackNetwork {
 public:
  /// Its transports get no more messages and give no more bytes; endpoints to it break at their next use.
  void kill(const KvTransport& transport);

 private:
  friend class LoopbackTransport;
  std::map<std::uint64_t, LoopbackTransport*> members_;
  std::uint64_t next_ = 1;
};

class LoopbackTransport final : public KvTransport {
 public:
  explicit LoopbackTransport(LoopbackNetwork& network);  // outlives the transport
  ~LoopbackTransport() override;

  std::string_view name() const override { return "loopback"; }
  Result<void> register_pool(const PoolMemory& pool) override;
  Result<base::Bytes> local_address() override;
  Result<void> connect(EndpointId endpoint, base::BytesView peer_address) override;
  Result<void> send(EndpointId endpoint, base::BytesView message) override;
  Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) override;
  void force_close(EndpointId endpoint) override;
  std::size_t progress(KvTransportEvents& events) override;
  KvLane lane(EndpointId) const override { return KvLane::in_process; }
  std::string describe() const override { return "loopback transport within one process"; }

 private:
  friend class LoopbackNetwork;
  struct PendingRead {
    EndpointId endpoint = 0;
    ReadId read = 0;
    std::vector<ReadRun> runs;
    bool cancelled = false;
  };
  LoopbackTransport* peer_of(EndpointId endpoint);
  Result<void> copy(const PendingRead& read);

  LoopbackNetwork& network_;
  std::uint64_t id_ = 0;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::map<EndpointId, std::uint64_t> endpoints_;
  std::deque<base::Bytes> inbox_;
  std::deque<PendingRead> reads_;
  std::vector<EndpointId> broken_;
};

}  // namespace penstock::worker::transfer
