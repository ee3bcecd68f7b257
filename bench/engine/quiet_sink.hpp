// What an engine says, for benchmarks that only time it: errors are printed, the rest is dropped. Owner: the benchmark.
// Thread: the engine's. Bounds: holds nothing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

#include "worker/engine/engine.hpp"

namespace penstock::bench {

class QuietSink : public worker::EngineSink {
 public:
  void on_step(protocol::Step) override {}
  void on_request_error(protocol::RequestError error) override { std::puts(error.error.message.c_str()); }
  void on_transfer_status(protocol::TransferStatus) override {}
  void on_cache_events(protocol::CacheEvents) override {}
  void on_snapshot(std::uint64_t, std::vector<protocol::Snapshot>) override {}
  void on_load(const protocol::Load&) override {}
  void on_drained() override {}
  void on_broken(const Error& error) override { std::puts(error.message.c_str()); }
};

}  // namespace penstock::bench
