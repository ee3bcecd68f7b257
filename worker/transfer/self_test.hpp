// Moves real bytes between two transports of this process and measures: a wrong byte or a slow lane is found before any
// request depends on it. Start-up only; the calling thread works both transports.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/result.hpp"
#include "common/time/clock.hpp"
#include "worker/engine/kv_transport.hpp"
#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer {

struct SelfTestOptions {
  std::uint64_t bytes = 16ull << 20;    // of one read
  double bytes_per_second_min = 100e6;  // no further tries once one has reached it
  std::uint32_t tries_max = 6;          // on a busy machine a single read says little
  Duration longest = std::chrono::seconds(20);
  DevicePoolFactory device_pools;  // where the worker's pool is on a device; null: in host memory
};

struct SelfTestReport {
  double bytes_per_second = 0;  // the best try's
  std::uint32_t tries = 0;
  KvLane lane = KvLane::in_process;
};

/// One read that connects and warms, then tries until the floor is reached; every byte of each is checked. Whether the
/// best try is good enough is for the caller to say. The transports end before the memory that they read and write.
Result<SelfTestReport> run_self_test(std::unique_ptr<KvTransport> owner, std::unique_ptr<KvTransport> reader,
                                     const SelfTestOptions& options, const Clock& clock);

}  // namespace penstock::worker::transfer
