// From a seed to a run: who works, what is asked, what breaks.
#include <algorithm>

#include "common/time/random.hpp"
#include "tests/sim/options.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;
using protocol::Role;

namespace {

constexpr TimePoint begin{std::chrono::hours(1)};
// A worker gives an idle black hole up after 5 s, a router connects again within 1 s.
constexpr Duration probe_delay = 7s;

class Maker {
 public:
  Maker(std::uint64_t seed, Bug bug) : random_(seed * 0x9E3779B97F4A7C15ull + 7) {
    plan_.seed = seed;
    plan_.bug = bug;
  }

  Plan make() {
    const bool has_faults = plan_.seed % 4 != 0;
    make_limits();
    make_workers();
    // One mistake can only show where leases run out under a reader.
    const bool is_fabric_bad = plan_.bug == Bug::done_ack_believed;
    if (has_faults && (chance(0.5) || is_fabric_bad)) make_fabric(is_fabric_bad);
    if (has_faults && chance(0.4)) plan_.cache_events = {.repeat = 0.1, .swap = 0.1};
    make_requests();
    if (has_faults) make_faults();
    plan_.quiet_at = begin + 10s;
    make_probes();
    return std::move(plan_);
  }

 private:
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + random_.below(high - low + 1); }
  bool chance(double probability) { return random_.uniform() < probability; }
  Duration time_between(Duration low, Duration high) {
    return low + Duration(static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>((high - low).count()))));
  }

  void make_limits() {
    plan_.routers = chance(0.25) ? 2 : 1;
    plan_.queue_max = chance(0.2) ? static_cast<std::uint32_t>(between(1, 4)) : 64;
    plan_.model.geometry = {.kv_heads = 1, .layers = 1, .block_tokens = plan_.block_tokens, .head_dim = 4};
    plan_.model.limits = {.step_tokens_max = 64,
                          .sequences_max = 8,
                          .sequence_tokens_max = plan_.context_tokens,
                          .vocabulary_size = 1000};
    plan_.model.eos_token = 999;
    plan_.model.eos_per_million = chance(0.5) ? 10'000 : 0;
    plan_.model.step_time = time_between(1ms, 8ms);
    plan_.model.token_time = 50us;
    auto& transfer = plan_.transfer;
    transfer.lease = chance(0.5) ? 500ms : 200ms;
    transfer.max_pin = 1500ms;
    transfer.tombstone = 3s;
    transfer.heartbeat = 200ms;
    transfer.no_progress = 800ms;
    transfer.handshake = 500ms;
    transfer.backoff_max = 500ms;
    transfer.dial_give_up = 1s;
    transfer.reject_cache = 1s;
    transfer.resend = 50ms;
    transfer.reserve_give_up = 1s;
    transfer.receive_max = 10s;
    plan_.migration.no_progress_decode = 1s;  // less than a router takes to give a silent worker up
    plan_.migration.no_progress_prefill = 4s;
  }

  void make_workers() {
    static const std::vector<std::vector<Role>> shapes{
        {Role::unified, Role::unified},
        {Role::prefill, Role::decode, Role::decode},
        {Role::prefill, Role::prefill, Role::decode, Role::decode},
        {Role::prefill, Role::decode, Role::unified},
        {Role::prefill, Role::decode},
        {Role::prefill, Role::prefill, Role::decode, Role::decode, Role::decode},
    };
    for (const Role role : shapes[random_.below(shapes.size())]) {
      // At least one request of the whole context fits: others are refused as impossible, which is another test.
      plan_.workers.push_back({role, static_cast<std::uint32_t>(between(66, 140)),
                               static_cast<std::uint32_t>(between(2, 8)), chance(0.3) ? 0.4f : 0.75f});
      if (!chance(0.5)) continue;
      plan_.workers.back().clock_rate = 1 + clock_skew_max * (2 * random_.uniform() - 1);
      plan_.workers.back().clock_offset = time_between(0s, 24h);
    }
  }

  void make_fabric(bool is_bad) {
    if (chance(0.4) || is_bad) {
      // Leases run out behind the reader's back while its reads go on.
      plan_.fabric = {.drop = 0.4, .late = 0.2, .late_max = 300ms, .read_slow = 0.6, .read_max = 900ms};
      return;
    }
    plan_.fabric = {.drop = chance(0.5) ? 0.05 : 0.0,
                    .repeat = chance(0.5) ? 0.1 : 0.0,
                    .late = chance(0.7) ? 0.2 : 0.0,
                    .late_max = time_between(5ms, 700ms),
                    .read_slow = chance(0.6) ? 0.3 : 0.0,
                    .read_max = time_between(10ms, 900ms),
                    .one_sided = chance(0.5)};
  }

  std::vector<TokenId> tokens(std::uint64_t key, std::size_t count) {
    Random random(key);
    std::vector<TokenId> out;
    while (out.size() < count) out.push_back(static_cast<TokenId>(random.below(990)));
    return out;
  }

  void make_requests() {
    static const std::vector<std::string> salts{"", "", "a", "b"};
    const std::uint64_t count = between(10, 30);
    for (std::uint64_t i = 0; i < count; ++i) {
      RequestPlan request;
      request.at = begin + time_between(300ms, 4s);
      request.router = static_cast<std::uint32_t>(random_.below(plan_.routers));
      // Prompts share beginnings, also across tenants.
      request.prompt = tokens(between(1, 4), between(0, 100));
      const auto tail = tokens(chance(0.3) ? between(5, 8) : random_.next(), between(1, 30));
      request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
      request.salt = salts[random_.below(salts.size())];
      request.choices = chance(0.2) ? static_cast<std::uint32_t>(between(2, 3)) : 1;
      request.tokens_max = static_cast<std::uint32_t>(chance(0.2) ? between(1, 4) : between(5, 80));
      request.tokens_min = chance(0.2) ? static_cast<std::uint32_t>(between(1, request.tokens_max)) : 0;
      request.seed = random_.next();
      request.temperature = chance(0.3) ? 0.0f : 1.0f;
      request.priority = chance(0.2) ? static_cast<std::int32_t>(between(0, 2)) - 1 : 0;
      if (chance(0.15)) request.deadline = time_between(50ms, 3s);
      if (chance(0.12)) {
        request.gone_after = time_between(1ms, 1s);
        request.tokens_max = 120;
      } else if (chance(0.12)) {
        request.gone_tokens = static_cast<std::uint32_t>(between(1, 20));
        request.tokens_max = 120;
      } else if (chance(0.12)) {
        request.stop_after = static_cast<std::uint32_t>(between(1, 20));
      }
      plan_.requests.push_back(std::move(request));
    }
    std::sort(plan_.requests.begin(), plan_.requests.end(),
              [](const RequestPlan& a, const RequestPlan& b) { return a.at < b.at; });
  }

  // When the last fault is long over, each router is asked for something that it must be able to do.
  void make_probes() {
    for (std::uint32_t router = 0; router < plan_.routers; ++router) {
      for (int i = 0; i < 2; ++i) {
        RequestPlan request;
        request.at = plan_.quiet_at + probe_delay + time_between(0ms, 50ms);
        request.router = router;
        request.prompt = tokens(random_.next(), between(1, 40));
        request.tokens_max = static_cast<std::uint32_t>(between(2, 8));
        request.seed = random_.next();
        request.must_complete = true;
        plan_.requests.push_back(std::move(request));
      }
    }
  }

  void make_faults() {
    static const std::vector<FaultKind> kinds{FaultKind::crash,        FaultKind::crash,     FaultKind::freeze,
                                              FaultKind::freeze,       FaultKind::slow,      FaultKind::reset,
                                              FaultKind::blackhole,    FaultKind::partition, FaultKind::drain,
                                              FaultKind::router_crash, FaultKind::epoch,     FaultKind::slow_reader};
    const std::uint64_t count = between(1, 7);
    for (std::uint64_t i = 0; i < count; ++i) {
      FaultPlan fault;
      fault.at = begin + time_between(400ms, 5s);
      fault.kind = kinds[random_.below(kinds.size())];
      fault.worker = static_cast<std::uint32_t>(random_.below(plan_.workers.size()));
      fault.other = static_cast<std::uint32_t>(random_.below(plan_.workers.size()));
      fault.length = time_between(50ms, chance(0.3) ? 4s : 800ms);
      plan_.faults.push_back(fault);
      if (fault.kind != FaultKind::crash || !chance(0.3)) continue;
      // Another worker drains while the requests of the dead one move.
      fault.kind = FaultKind::drain;
      fault.at += time_between(0ms, 300ms);
      fault.worker = (fault.worker + 1) % static_cast<std::uint32_t>(plan_.workers.size());
      plan_.faults.push_back(fault);
    }
  }

  Random random_;
  Plan plan_;
};

}  // namespace

Plan make_plan(std::uint64_t seed, Bug bug) {
  return Maker(seed, bug).make();
}

std::string_view to_string(Bug bug) {
  switch (bug) {
    case Bug::none:
      return "none";
    case Bug::positions_ignored:
      return "positions_ignored";
    case Bug::stale_accepted:
      return "stale_accepted";
    case Bug::abort_lost:
      return "abort_lost";
    case Bug::done_ack_believed:
      return "done_ack_believed";
    case Bug::freed_while_reading:
      return "freed_while_reading";
    case Bug::pin_leaked:
      return "pin_leaked";
    case Bug::cache_events_lost:
      return "cache_events_lost";
    case Bug::salt_ignored:
      return "salt_ignored";
    case Bug::session_leak:
      return "session_leak";
    case Bug::deadlines_ignored:
      return "deadlines_ignored";
    case Bug::queue_unbounded:
      return "queue_unbounded";
    case Bug::retries_unbounded:
      return "retries_unbounded";
    case Bug::reconnect_lost:
      return "reconnect_lost";
    case Bug::event_order_ignored:
      return "event_order_ignored";
    case Bug::epoch_ignored:
      return "epoch_ignored";
    case Bug::sequences_unbounded:
      return "sequences_unbounded";
    case Bug::slow_reader_kept:
      return "slow_reader_kept";
  }
  return "?";
}

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::crash:
      return "crash";
    case FaultKind::freeze:
      return "freeze";
    case FaultKind::slow:
      return "slow";
    case FaultKind::reset:
      return "reset";
    case FaultKind::blackhole:
      return "blackhole";
    case FaultKind::partition:
      return "partition";
    case FaultKind::drain:
      return "drain";
    case FaultKind::epoch:
      return "epoch";
    case FaultKind::slow_reader:
      return "slow reader";
    case FaultKind::router_crash:
      return "router crash";
  }
  return "?";
}

std::string describe(const Plan& plan) {
  std::string text = "workers:";
  for (const auto& worker : plan.workers) {
    text += worker.role == Role::prefill ? " P" : worker.role == Role::decode ? " D" : " U";
    text += std::to_string(worker.blocks);
  }
  text += "; routers: " + std::to_string(plan.routers) + "; requests: " + std::to_string(plan.requests.size());
  text += "; fabric: drop " + std::to_string(plan.fabric.drop) + " repeat " + std::to_string(plan.fabric.repeat) +
          " late " + std::to_string(plan.fabric.late) + " slow reads " + std::to_string(plan.fabric.read_slow);
  for (const auto& fault : plan.faults) {
    text += "\n  at " + std::to_string((fault.at - begin) / 1ms) + " ms " + std::string(to_string(fault.kind)) +
            " worker " + std::to_string(fault.worker) + " other " + std::to_string(fault.other) + " for " +
            std::to_string(fault.length / 1ms) + " ms";
  }
  return text;
}

}  // namespace penstock::sim
