// The knobs of placement, with defaults tuned on the public Mooncake traces (bench/router/traces_bench.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/time/clock.hpp"
#include "router/core/policy/placement.hpp"

namespace penstock::router {

struct PolicySettings {
  PolicyKind kind = PolicyKind::kv_aware;
  float uncached_weight = 4.0f;  // of prompt tokens that must be computed
  float home_weight = 0.5f;      // of cached tokens at their home, so that copies elsewhere can go
  float wait_weight = 1.0f;      // of prefill tokens ahead
  float decode_weight = 1.0f;    // of output tokens still expected from running requests
  float recent_weight = 0.05f;   // of decayed recent work beyond that of the worker with the least, but at most ...
  float recent_prompt_weight = 1.0f;  // ... of prompt tokens
  Duration recent_half_life = std::chrono::seconds(30);
  float barrier_tokens = 64.0f;                // times k/(1-k)
  float credit_decay = 0.1f;                   // credit / (1 + decay * excess backlog / prompt)
  float gate_relative = 2.0f;                  // hot: load above this times the mean of the eligible ...
  float gate_absolute_tokens = 16384;          // ... and above the mean by so much
  float transfer_weight = 0.05f;               // a token's KV moved within an NVLink domain, in tokens computed
  float rack_transfer_weight = 0.1f;           // added for another NVLink domain of the rack ...
  float far_transfer_weight = 0.2f;            // ... and for another rack, or where nobody knows the racks
  std::uint32_t split_tokens_min = 256;        // a smaller uncached remainder is not worth a hand-over
  std::uint32_t output_tokens_expected = 256;  // a choice, if its maximum is higher
  Duration load_stale_after = std::chrono::seconds(2);
  Duration slow_start = std::chrono::seconds(30);
  float waiting_allowance = 0.25f;  // requests beyond sequences_max that may wait at a worker, a share of it
  std::uint32_t waiting_allowance_min = 4;

  /// All problems as "key: sentence"; empty if it can be used.
  std::vector<std::string> validate() const;
};

struct FleetSettings {
  PolicySettings policy;
  std::uint32_t block_tokens = 16;
  std::string hash_scheme;                       // must equal WELCOME's; "" takes any
  std::string model;                             // must equal the card's name; "" takes that of the first worker
  std::uint64_t index_bytes_max = 256ull << 20;  // hard cap of the prefix index
  Duration predicted_life = std::chrono::seconds(4);
  std::uint32_t predicted_blocks_max = 1u << 18;
  Duration join_grace = std::chrono::seconds(1);      // ready without a load report after it
  Duration snapshot_wait = std::chrono::seconds(10);  // an unanswered snapshot request is repeated after it
  std::uint32_t workers_max = 4096;

  std::vector<std::string> validate() const;
};

}  // namespace penstock::router
