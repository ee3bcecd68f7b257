// What a simulated run is made of, and the mistakes that can be built into its shell to prove that the checkers see
// them. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/id.hpp"
#include "common/time/clock.hpp"
#include "router/core/migration/request_state.hpp"
#include "worker/core/transfer/options.hpp"
#include "worker/executor/fake/fake_executor.hpp"

namespace penstock::sim {

/// One mistake of the shell; production code has no such switches.
enum class Bug : std::uint8_t {
  none,
  positions_ignored,    // router: a step is taken for the next one, whatever its position says
  stale_accepted,       // router: steps of older attempts and of other workers count
  abort_lost,           // router: ABORT is never sent
  done_ack_believed,    // decode worker: every DONE_ACK is read as valid
  freed_while_reading,  // decode worker: a cancelled transfer's blocks are freed at once
  pin_leaked,           // prefill worker: the end of a send does not reach the engine
  cache_events_lost,    // worker: an event message is lost and the sequence hides it
  salt_ignored,         // worker: the tenant's salt is not part of the block identity
  session_leak,         // worker: requests of a router that has gone are not aborted
  deadlines_ignored,    // router: requests have no deadlines
  queue_unbounded,      // router: the queue takes any number of requests
  retries_unbounded,    // router: a request is retried and migrated again and again
  reconnect_lost,       // router: a worker once lost is not looked for again
  event_order_ignored,  // router: cache events are applied whatever their sequence says
  epoch_ignored,        // router: cache events are applied whatever their epoch says
  sequences_unbounded,  // worker: steps have more sequences than allowed
  slow_reader_kept,     // worker: a router that does not read is sent more and more
};
std::string_view to_string(Bug bug);

/// How far a worker's clock may run from the others': hundreds of times what real ones do.
inline constexpr double clock_skew_max = 0.02;

struct RequestPlan {
  TimePoint at{};
  std::uint32_t router = 0;
  std::vector<TokenId> prompt;
  std::string salt;
  std::uint32_t choices = 1;
  std::uint32_t tokens_max = 16;
  std::uint32_t tokens_min = 0;
  std::uint64_t seed = 0;
  float temperature = 1.0f;
  std::int32_t priority = 0;
  Duration deadline{};            // zero: none
  bool must_complete = false;     // sent when all is well again: nothing may keep it from completing
  Duration gone_after{};          // zero: the client stays
  std::uint32_t gone_tokens = 0;  // leaves after so many tokens of choice 0; 0: stays
  std::uint32_t stop_after = 0;   // a stop string is complete after so many tokens of choice 0; 0: none
};

enum class FaultKind : std::uint8_t {
  crash,        // kill -9; another instance starts at the same address
  freeze,       // SIGSTOP, SIGCONT
  slow,         // steps take longer
  reset,        // the connection of a router and a worker breaks
  blackhole,    // ... or carries nothing any more, and nobody is told
  partition,    // two workers' fabric carries nothing
  drain,        // the worker drains, ends, and starts again
  epoch,        // the worker's event stream begins again under a new epoch, perhaps in the middle of a snapshot
  slow_reader,  // the router reads nothing from the worker for a while
  router_crash,
};
std::string_view to_string(FaultKind kind);

struct FaultPlan {
  TimePoint at{};
  FaultKind kind = FaultKind::crash;
  std::uint32_t worker = 0;
  std::uint32_t other = 0;  // router, or second worker
  Duration length{};
};

struct WorkerPlan {
  protocol::Role role = protocol::Role::unified;
  std::uint32_t blocks = 64;
  std::uint32_t sequences_max = 8;
  float pinned_share_max = 0.75f;
  double clock_rate = 1;  // seconds of its clock in one of the world's
  Duration clock_offset{};
};

struct FabricPlan {
  double drop = 0;
  double repeat = 0;
  double late = 0;  // by up to late_max, overtaken by others
  Duration late_max = std::chrono::milliseconds(100);
  double read_slow = 0;  // a read takes up to read_max
  Duration read_max = std::chrono::milliseconds(200);
  bool one_sided = true;  // a frozen peer's memory can be read
};

/// What happens to cache events between a worker's engine and its routers.
struct EventPlan {
  double repeat = 0;  // a message comes twice
  double swap = 0;    // ... after the next one
};

struct Plan {
  std::uint64_t seed = 0;
  Bug bug = Bug::none;
  std::uint32_t routers = 1;
  std::vector<WorkerPlan> workers;
  std::vector<RequestPlan> requests;
  std::vector<FaultPlan> faults;
  FabricPlan fabric;
  EventPlan cache_events;
  std::uint32_t wire_messages_max = 200;  // waiting for a router that does not read
  std::uint32_t block_tokens = 4;
  std::uint32_t context_tokens = 256;
  std::uint32_t queue_max = 64;
  std::uint32_t split_tokens_min = 8;
  worker::FakeModel model;
  worker::transfer::TransferOptions transfer;
  router::MigrationLimits migration;
  TimePoint quiet_at{};  // after it nothing new happens

  bool is_faulty() const { return !faults.empty() || fabric.drop > 0; }
};

/// The same seed gives the same plan.
Plan make_plan(std::uint64_t seed, Bug bug);
std::string describe(const Plan& plan);

}  // namespace penstock::sim
