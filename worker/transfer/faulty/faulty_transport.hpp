// A KvTransport that spoils what another one does, from a seed: drops, repeats, delays, reorders and cuts messages;
// fails, delays, shortens and ages reads. For tests and the simulator. Not thread-safe. Delays count progress() calls.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "common/time/random.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

/// Chances are in [0, 1], each drawn alone.
struct FaultOptions {
  std::uint64_t seed = 1;
  double drop = 0;  // of a message sent
  double repeat = 0;
  double delay = 0;      // by 1 to delay_polls_max polls; later messages overtake it
  double cut = 0;        // truncated or with a flipped bit
  double read_late = 0;  // posted after 1 to delay_polls_max polls
  double read_fail = 0;  // reported as failed, after it ran
  std::uint32_t delay_polls_max = 20;
};

class FaultyTransport final : public KvTransport {
 public:
  FaultyTransport(std::unique_ptr<KvTransport> inner, FaultOptions options);

  FaultOptions& options() { return options_; }
  /// Hung: nothing comes in or goes out until it ends. Forced closes still fail what is in flight.
  void hang() { hung_ = true; }
  void resume() { hung_ = false; }
  KvTransport& inner() { return *inner_; }

  std::string_view name() const override { return inner_->name(); }
  Result<void> register_pool(const PoolMemory& pool) override;
  Result<base::Bytes> local_address() override { return inner_->local_address(); }
  Result<void> connect(EndpointId endpoint, base::BytesView peer_address) override;
  Result<void> send(EndpointId endpoint, base::BytesView message) override;
  Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) override;
  void force_close(EndpointId endpoint) override;
  std::size_t progress(KvTransportEvents& events) override;
  KvLane lane(EndpointId endpoint) const override { return inner_->lane(endpoint); }
  std::string describe() const override { return "faulty " + inner_->describe(); }

 private:
  class Filter;
  struct LateMessage {
    std::uint64_t due = 0;
    EndpointId endpoint = 0;
    base::Bytes bytes;
  };
  struct LateRead {
    std::uint64_t due = 0;
    EndpointId endpoint = 0;
    ReadId read = 0;
    std::vector<ReadRun> runs;
  };
  bool chance(double probability) { return probability > 0 && random_.uniform() < probability; }
  std::uint64_t later() { return polls_ + 1 + random_.below(options_.delay_polls_max); }

  std::unique_ptr<KvTransport> inner_;
  FaultOptions options_;
  Random random_;
  std::uint64_t polls_ = 0;
  bool hung_ = false;
  std::vector<LateMessage> messages_;
  std::vector<LateRead> reads_;
  std::vector<std::pair<EndpointId, ReadId>> refused_;  // reported as failed at the next progress()
};

}  // namespace penstock::worker::transfer
