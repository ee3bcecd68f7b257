// Moves real bytes between two transports of this process and measures: a wrong byte or a slow lane is found before any
// request depends on it. Start-up only; the calling thread works both transports.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "common/time/clock.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

struct SelfTestReport {
  double bytes_per_second = 0;
};

/// Reads `bytes` twice (the first connects and warms), checks every byte. At most 20 s.
Result<SelfTestReport> run_self_test(KvTransport& owner, KvTransport& reader, std::uint64_t bytes, const Clock& clock);

}  // namespace penstock::worker::transfer
