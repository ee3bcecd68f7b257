// What the router knows about one worker connection, as plain values. A WorkerRef names one connection of one instance:
// its slot may be used again, its generation never, so that a late message about a lost worker changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/id.hpp"
#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "router/core/membership/transfer_groups.hpp"

namespace penstock::router {

struct WorkerRef {
  std::uint32_t slot = 0;        // dense, below the highest number of workers known at once
  std::uint32_t generation = 0;  // 0 is no worker
  bool is_none() const { return generation == 0; }
  friend bool operator==(const WorkerRef&, const WorkerRef&) = default;
};

enum class WorkerState : std::uint8_t {
  joining,   // welcomed, no load report yet; takes no requests until one comes or the join grace is over
  ready,     // takes requests
  suspect,   // silent or its probes fail; takes no new requests, running ones go on
  draining,  // said so itself or was told to; takes no new requests
  refused,   // connected but must not be used; Refusal says why
  gone,      // disconnected
};
std::string_view to_string(WorkerState state);

/// Why a connected worker is not used. Shown by /readyz and counted by a metric: never a silent zero hit rate.
enum class Refusal : std::uint8_t {
  none,
  protocol_version,
  block_size,         // differs from the fleet's
  hash_scheme,        // differs from the router's
  hash_probe,         // same scheme by name, other hashes: key, revision or dtype differ
  model,              // serves another model or revision than the fleet
  capacity,           // has no KV blocks or takes no sequences
  duplicate_instance  // the same instance is connected already
};
std::string_view to_string(Refusal refusal);

/// What a worker is, from its WELCOME; only the transfer groups change later, with the labels of its pod.
struct WorkerInfo {  // what every decision reads comes first
  InstanceId instance;
  protocol::Role role = protocol::Role::unified;
  std::uint32_t sequences_max = 0;
  std::uint32_t context_tokens = 0;
  std::uint32_t tensor_parallel = 1;
  std::uint64_t kv_blocks = 0;
  std::string address;  // as the shell dialled it; for people and for logs
  std::string kv_address;
  std::string kv_layout_fingerprint;
  TransferGroups transfer_groups;
};

struct WorkerView {  // for /readyz, metrics and /debug
  WorkerRef worker;
  WorkerInfo info;
  WorkerState state = WorkerState::joining;
  Refusal refusal = Refusal::none;
  std::uint64_t blocks_indexed = 0;
  std::uint64_t requests_in_flight = 0;
  bool index_synced = false;    // false: a snapshot is on its way, the index may be behind
  Duration load_age{};          // of the last load report; negative if there was none
  Duration cache_events_age{};  // of the last cache message; negative if there was none
  Duration index_stale_for{};   // since when it is not synced; zero if it is
};

}  // namespace penstock::router
