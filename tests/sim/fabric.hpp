// The KV fabric between simulated workers: messages that are lost, repeated, late and overtaken, and reads that copy
// real bytes piece by piece while both sides go on. A KvTransport for the production transfer driver.
// Owner: World. Single thread. Bounds: those of the drivers that use it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/sim/event_queue.hpp"
#include "tests/sim/options.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::sim {

class SimTransport;

class Fabric {
 public:
  Fabric(EventQueue& events, FabricPlan plan) : events_(events), plan_(plan) {}

  /// No more faults of messages and reads.
  void calm();
  /// Slots of workers between which nothing passes.
  void cut(std::uint32_t a, std::uint32_t b) { cuts_.insert(std::minmax(a, b)); }
  void mend(std::uint32_t a, std::uint32_t b) { cuts_.erase(std::minmax(a, b)); }
  bool is_cut(std::uint32_t a, std::uint32_t b) const { return cuts_.contains(std::minmax(a, b)); }

 private:
  friend class SimTransport;
  EventQueue& events_;
  FabricPlan plan_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> cuts_;
  std::map<std::uint64_t, SimTransport*> members_;
  std::uint64_t next_ = 1;
};

/// What the owner of a transport wants to know.
struct TransportHooks {
  std::function<void()> wake;  // progress() has work
  /// Bytes are about to be written to our pool; `posted` is when the read was asked for.
  std::function<std::uint64_t(std::uint64_t offset)> generation;
  std::function<void(std::uint64_t offset, std::uint64_t bytes, std::uint64_t generation)> on_write;
  std::function<bool()> is_frozen;
  std::function<void(base::Bytes& message)> on_arrival;  // may change it; may be empty
};

class SimTransport final : public worker::KvTransport {
 public:
  SimTransport(Fabric& fabric, std::uint32_t slot, TransportHooks hooks);
  ~SimTransport() override;

  std::string_view name() const override { return "sim"; }
  Result<void> register_pool(const worker::PoolMemory& pool) override;
  Result<base::Bytes> local_address() override;
  Result<void> connect(worker::EndpointId endpoint, base::BytesView peer_address) override;
  Result<void> send(worker::EndpointId endpoint, base::BytesView message) override;
  Result<void> post_read(worker::EndpointId endpoint, worker::ReadId read,
                         std::span<const worker::ReadRun> runs) override;
  void force_close(worker::EndpointId endpoint) override;
  std::size_t progress(worker::KvTransportEvents& events) override;
  worker::KvLane lane(worker::EndpointId) const override { return worker::KvLane::in_process; }
  std::string describe() const override { return "simulated fabric"; }

 private:
  struct Piece {
    worker::ReadRun run;
    std::uint64_t generation = 0;
  };
  struct Pending {
    worker::EndpointId endpoint = 0;
    std::vector<Piece> pieces;
    std::size_t next = 0;
  };
  struct Done {
    worker::EndpointId endpoint = 0;
    worker::ReadId read = 0;
    Result<void> result;
  };
  SimTransport* peer_of(worker::EndpointId endpoint);
  void deliver(std::uint64_t peer, worker::EndpointId endpoint, base::Bytes message, Duration delay);
  void go_on(worker::ReadId read, Duration delay);
  void copy_piece(worker::ReadId read);
  void finish(worker::ReadId read, Result<void> result);
  void break_later(worker::EndpointId endpoint);

  Fabric& fabric_;
  EventQueue& events_;
  std::uint32_t slot_;
  TransportHooks hooks_;
  Process life_;
  std::uint64_t id_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::map<worker::EndpointId, std::uint64_t> endpoints_;
  std::map<worker::ReadId, Pending> reads_;
  std::deque<base::Bytes> inbox_;
  std::deque<Done> done_;
  std::deque<worker::EndpointId> broken_;
};

}  // namespace penstock::sim
