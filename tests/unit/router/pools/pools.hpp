// Routers over workers whose KV pools are small: a fleet a router, real KV caches, and a model of a worker's queue that
// is enough for what load and cache do to each other. Clients run in a closed loop; their prompts have one of a few
// long prefixes and an end of their own. Everything is decided by the seed.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/time/random.hpp"
#include "router/core/fleet.hpp"
#include "worker/core/kv/kv_cache.hpp"

namespace penstock::router {

struct PoolsOptions {
  std::size_t workers = 2, routers = 1, clients = 16;
  std::uint64_t groups = 64;
  std::uint32_t prefix_blocks = 300, own_blocks = 32;
  std::uint32_t pool_blocks = 12288;  // a worker's
  std::size_t requests = 2000;
  double tokens_per_second = 1e6;  // prefill of a worker
  Duration step_time = std::chrono::microseconds(300);
  Duration join_gap{};  // between one worker and the next; the clients start with the first
  FleetSettings fleet;
};

struct PoolsResult {
  double hit_share = 0;   // of all prompt tokens
  double hit_late = 0;    // of those of the last half of the requests
  double imbalance = 0;   // the most work of a worker over the mean, in the last half
  double latency_ms = 0;  // mean
};

class Pools {
 public:
  Pools(PoolsOptions options, std::uint64_t seed) : options_(std::move(options)), random_(seed) {
    for (std::size_t i = 0; i < options_.routers; ++i) {
      fleets_.push_back(std::make_unique<Fleet>(options_.fleet, random_.next()));
    }
    for (std::size_t i = 0; i < options_.workers; ++i) {
      const auto join = [this, i] {
        workers_.push_back(std::make_unique<Worker>(*this, i));
        workers_.back()->report();
      };
      options_.join_gap == Duration::zero() ? join() : at(options_.join_gap * static_cast<long>(i), join);
    }
  }

  PoolsResult run() {
    for (std::size_t client = 0; client < options_.clients; ++client) send_soon(client);
    while (finished_ < options_.requests) {
      const auto next = events_.begin();
      now_ = next->first;
      const auto act = std::move(next->second);
      events_.erase(next);
      act();
    }
    double cached = 0, tokens = 0, cached_late = 0, tokens_late = 0, most = 0, work = 0;
    for (const Done& one : done_) {
      cached += one.cached, tokens += one.tokens;
      if (one.number < options_.requests / 2) continue;
      cached_late += one.cached, tokens_late += one.tokens;
    }
    for (const auto& worker : workers_) work += worker->work_late, most = std::max(most, worker->work_late);
    return {cached / tokens, cached_late / tokens_late, most / work * static_cast<double>(options_.workers),
            waited_ms_ / static_cast<double>(options_.requests)};
  }

 private:
  struct Done {
    std::size_t number;
    double cached, tokens;
  };
  struct Job {
    std::size_t number = 0, client = 0, router = 0;
    DispatchId dispatch = 0;
    TimePoint sent{};
    std::vector<BlockHash> hashes;
    std::vector<TokenId> tokens;        // one stands for a block
    std::vector<BlockIndex> held;       // once admitted
    std::size_t cached = 0, ready = 0;  // blocks
  };

  /// Takes what waits in order, up to a budget of tokens a step; blocks enter the cache as they are computed.
  class Worker {
   public:
    Worker(Pools& pools, std::size_t number) : pools_(pools), cache_(pools.options_.pool_blocks, 1) {
      protocol::Welcome welcome;
      welcome.instance = {pools.random_.next(), number + 1};
      welcome.epoch = 1;
      welcome.kv_blocks = pools.options_.pool_blocks;
      welcome.sequences_max = 256;
      welcome.card.context_tokens = 1u << 20;
      for (auto& fleet : pools.fleets_) {
        refs_.push_back(fleet->on_welcome(welcome, "worker", {}, pools.now_).worker);
        fleet->on_snapshot(refs_.back(), {1, 0, 0, true, {}}, pools.now_);
      }
      seen_.resize(refs_.size());
    }
    bool is(std::size_t router, WorkerRef ref) const { return refs_[router] == ref; }
    void take(Job job) {
      ++seen_[job.router];
      jobs_.push_back(std::move(job));
      if (!is_stepping_) step();
    }
    void report() {
      protocol::Load load;
      for (const Job& job : jobs_) {
        const std::size_t known = job.held.empty() ? cache_.count_cached(job.hashes) : job.ready;
        load.waiting_prefill_tokens += (job.hashes.size() - known) * block_tokens;
        ++(job.held.empty() ? load.waiting : load.running);
      }
      load.kv_blocks_total = cache_.blocks();
      load.kv_blocks_free = cache_.available();
      for (std::size_t router = 0; router < refs_.size(); ++router) {
        load.requests_seen = seen_[router];
        pools_.fleets_[router]->on_load(refs_[router], load, pools_.now_);
        pools_.fleets_[router]->tick(pools_.now_);
      }
      pools_.at(report_interval, [this] { report(); });
    }

    double work_late = 0;  // tokens

   private:
    static constexpr std::uint32_t block_tokens = 16;
    static constexpr std::size_t step_blocks = 2048 / block_tokens;
    static constexpr Duration report_interval = std::chrono::milliseconds(100);

    bool admit(Job& job) {
      if (!job.held.empty()) return true;
      job.held = cache_.match({}, job.hashes, job.tokens);
      if (job.held.size() == job.hashes.size()) {  // the last token is always computed
        cache_.release(job.held.back());
        job.held.pop_back();
      }
      const std::size_t missing = job.hashes.size() - job.held.size();
      if (cache_.available() < missing) {
        for (const BlockIndex block : job.held) cache_.release(block);
        job.held.clear();
        return false;
      }
      job.cached = job.ready = job.held.size();
      while (job.held.size() < job.hashes.size()) job.held.push_back(*cache_.allocate());
      return true;
    }
    void step() {
      std::size_t left = step_blocks;
      std::vector<std::size_t> chunks;
      for (Job& job : jobs_) {
        if (left == 0 || !admit(job)) break;
        chunks.push_back(std::min(left, job.hashes.size() - job.ready));
        left -= chunks.back();
      }
      is_stepping_ = !chunks.empty();
      if (!is_stepping_) return;
      const double busy_seconds =
          static_cast<double>((step_blocks - left) * block_tokens) / pools_.options_.tokens_per_second;
      const auto computing = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(busy_seconds));
      pools_.at(pools_.options_.step_time + computing, [this, chunks] { end_step(chunks); });
    }
    void end_step(const std::vector<std::size_t>& chunks) {
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        Job& job = jobs_[i];
        for (const std::size_t end = job.ready + chunks[i]; job.ready < end; ++job.ready) {
          const std::size_t at = job.ready;
          const BlockHash parent = at == 0 ? BlockHash{} : job.hashes[at - 1];
          const auto before = at == 0 ? std::nullopt : std::optional(job.held[at - 1]);
          const auto entered =
              cache_.commit(job.held[at], {job.hashes[at], parent, before, static_cast<std::uint32_t>(at)},
                            std::span(job.tokens).subspan(at, 1));
          if (entered) job.held[at] = *entered;
        }
        if (job.number >= pools_.options_.requests / 2) work_late += static_cast<double>(chunks[i] * block_tokens);
      }
      tell();
      std::deque<Job> jobs;
      std::swap(jobs, jobs_);
      for (Job& job : jobs) {
        if (job.ready < job.hashes.size()) {
          jobs_.push_back(std::move(job));
          continue;
        }
        for (auto block = job.held.rbegin(); block != job.held.rend(); ++block) cache_.release(*block);
        pools_.on_done(job);
      }
      step();
    }
    void tell() {
      const auto events = cache_.take_events();
      if (events.empty()) return;
      ++sequence_;
      for (std::size_t router = 0; router < refs_.size(); ++router) {
        pools_.fleets_[router]->on_cache_events(refs_[router], {1, sequence_, events}, pools_.now_);
      }
    }

    Pools& pools_;
    worker::KvCache cache_;
    std::vector<WorkerRef> refs_;      // by router
    std::vector<std::uint64_t> seen_;  // by router
    std::deque<Job> jobs_;             // those of the running step first
    std::uint64_t sequence_ = 0;
    bool is_stepping_ = false;
  };

  void at(Duration later, std::function<void()> act) { events_.emplace(now_ + later, std::move(act)); }
  /// The way through client and router differs from time to time.
  void send_soon(std::size_t client) {
    at(std::chrono::microseconds(100 + random_.below(900)), [this, client] { send(client); });
  }
  void send(std::size_t client) {
    Job job;
    job.number = sent_++;
    job.client = client;
    job.router = client % fleets_.size();
    job.sent = now_;
    const std::uint64_t group = random_.below(options_.groups);
    for (std::uint32_t i = 0; i < options_.prefix_blocks; ++i) job.hashes.push_back({group + 1, i + 1});
    for (std::uint32_t i = 0; i < options_.own_blocks; ++i) job.hashes.push_back({1'000'000 + job.number, i + 1});
    for (const BlockHash& hash : job.hashes) job.tokens.push_back(static_cast<TokenId>(hash.high));
    PlacementRequest request;
    request.prompt_tokens = static_cast<std::uint32_t>(job.hashes.size() * options_.fleet.block_tokens + 5);
    request.blocks = job.hashes;
    request.output_tokens_max = 1;
    Fleet& fleet = *fleets_[job.router];
    const Placement placement = fleet.choose(request, now_);
    if (placement.outcome != Outcome::placed) throw std::runtime_error("not placed: " + std::string(placement.why));
    job.dispatch = fleet.on_dispatched(request, placement, now_);
    for (auto& worker : workers_) {
      if (worker->is(job.router, placement.worker)) return worker->take(std::move(job));
    }
  }
  void on_done(const Job& job) {
    fleets_[job.router]->on_first_token(job.dispatch, std::nullopt);
    fleets_[job.router]->on_finished(job.dispatch);
    waited_ms_ += std::chrono::duration<double, std::milli>(now_ - job.sent).count();
    done_.push_back({job.number, static_cast<double>(job.cached), static_cast<double>(job.hashes.size())});
    ++finished_;
    send_soon(job.client);
  }

  PoolsOptions options_;
  Random random_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<std::unique_ptr<Fleet>> fleets_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::multimap<TimePoint, std::function<void()>> events_;  // equal times in order of entry
  std::vector<Done> done_;
  std::size_t sent_ = 0, finished_ = 0;
  double waited_ms_ = 0;
};

}  // namespace penstock::router
