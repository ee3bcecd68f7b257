// One start of one worker process: the production scheduler, fake executor and transfer driver, joined by a thin shell
// that does what worker/engine, worker/server and worker/transfer/service do around them, on simulated time. Its death
// is its destructor.
// Owner: World. Single thread. Bounds: the plan's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/event_queue.hpp"
#include "tests/sim/fabric.hpp"
#include "tests/sim/hasher.hpp"
#include "tests/sim/options.hpp"
#include "tests/sim/violations.hpp"
#include "tests/sim/wire.hpp"
#include "worker/core/scheduler/scheduler.hpp"
#include "worker/engine/engine.hpp"
#include "worker/executor/fake/fake_executor.hpp"
#include "worker/transfer/driver.hpp"

namespace penstock::sim {

class SimWorker;

/// Finds processes by what the network knows of them.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  virtual SimWorker* find_worker(const std::string& kv_address) = 0;
  virtual SimWorker* find_worker(InstanceId instance) = 0;
};

/// A worker-to-worker control channel.
struct Channel {
  InstanceId dialler, acceptor;
  worker::transfer::LinkId dialler_link = 0, acceptor_link = 0;
};

struct WorkerContext {
  const Plan& plan;
  EventQueue& events;
  Fabric& fabric;
  Neighbours& neighbours;
  Violations& violations;
  Tally& tally;
};

class SimWorker final : private worker::transfer::ControlPlane, private worker::transfer::TransferProbe {
 public:
  SimWorker(WorkerContext context, std::uint32_t slot, InstanceId instance);
  ~SimWorker() override;

  static std::string kv_address_of(std::uint32_t slot) { return "worker-" + std::to_string(slot) + ":7000"; }
  InstanceId instance() const { return instance_; }
  std::uint32_t slot() const { return slot_; }
  Process& process() { return process_; }

  void accept(const WirePtr& wire);
  void set_slowness(std::uint32_t factor) { slowness_ = factor; }
  void drain();
  /// The event stream begins again.
  void renew_epoch();
  /// The same, in the middle of the next snapshot.
  void renew_epoch_in_snapshot() { renews_in_snapshot_ = true; }
  bool is_drained() const { return scheduler_.is_drained() && !is_stepping_; }

  struct Held {
    RequestId request;
    TimePoint since;
    bool is_send = false;
    bool is_cut = false;  // the connection that it came by
  };
  std::vector<Held> held() const;
  /// Whether the engine works although no router's request is here.
  bool works_for_nobody() const;
  std::uint32_t cached_blocks() const { return scheduler_.cache().cached(); }
  /// Everything is free, nothing is under way.
  void check_quiet();

  // From peers.
  void on_dialled(std::shared_ptr<Channel> channel, const base::Bytes& hello);
  void on_dial_reply(const Channel& channel, const base::Bytes& reply);
  void on_channel_closed(worker::transfer::LinkId link, const std::string& why);

 private:
  struct Taken {
    std::uint32_t attempt = 0;
    TimePoint since;
    bool is_send = false;
  };
  struct Session {
    WirePtr wire;
    std::map<RequestId, Taken> requests;
    std::uint64_t requests_seen = 0;
    bool is_welcomed = false;
  };

  // Sessions (worker_sessions.cpp).
  void on_message(std::uint64_t session, protocol::RouterMessage message);
  protocol::Welcome welcome() const;
  template <class Message>
  void take(Session& session, Message message);
  void close_session(std::uint64_t session);
  void broadcast(const protocol::WorkerMessage& message);
  void broadcast_events(const protocol::CacheEvents& events);
  void send(const Session& session, protocol::WorkerMessage message);
  void send_load();
  void end_request(RequestId request, std::uint32_t attempt);

  // Engine (worker_engine.cpp).
  void post(worker::EngineCommand command);
  void wake();
  void turn();
  void execute(worker::EngineCommand& command);
  void plan_step();
  void go_on();
  void finish_step();
  void publish();
  void publish_steps(std::vector<protocol::ChoiceStep> steps);
  void publish_cache_events();
  void send_snapshot(std::uint64_t session);
  void check_cached_tokens(const protocol::ChoiceStep& step);
  void check_batch(const worker::StepBatch& batch);
  void check_cache();

  // Transfers (worker_transfer.cpp).
  void to_driver(worker::TransferAction action);
  void perform(worker::TransferAction& action);
  void to_engine(worker::TransferEvent event);
  void poll_soon();
  void poll();
  void touched();
  void dial(worker::transfer::LinkId link, const std::string& address, base::Bytes hello) override;
  void close(worker::transfer::LinkId link) override;
  void drop_channel(worker::transfer::LinkId link, Duration lag);
  void on_transfer_ended(const worker::transfer::TransferRecord& record) override;
  void on_arrival(base::Bytes& message);
  std::uint64_t generation_at(std::uint64_t offset) const;
  void check_write(std::uint64_t offset, std::uint64_t bytes, std::uint64_t generation);
  worker::transfer::LocalNode local_node();
  void violation(const std::string& what);

  WorkerContext context_;
  const Plan& plan_;
  EventQueue& events_;
  std::uint32_t slot_;
  WorkerPlan shape_;
  SkewedClock clock_;
  InstanceId instance_;
  Process process_;
  SimHasher hasher_;
  worker::FakeExecutor executor_;
  worker::Scheduler scheduler_;
  SimTransport transport_;
  worker::transfer::TransferDriver driver_;

  std::map<std::uint64_t, Session> sessions_;
  std::map<RequestId, std::uint64_t> owners_;
  std::uint64_t next_session_ = 1;

  std::deque<worker::EngineCommand> inbox_;
  bool renews_in_snapshot_ = false;
  bool is_awake_ = false, is_stepping_ = false;
  std::uint32_t slowness_ = 1;
  std::uint64_t epoch_ = 0, event_sequence_ = 0;
  std::optional<protocol::CacheEvents> overtaken_;  // goes after the next message
  std::uint32_t turns_ = 0, preempted_ = 0;
  std::map<std::string, std::set<std::uint64_t>> seen_;  // plan indices of requests taken, by salt
  static constexpr Duration progress_interval = std::chrono::milliseconds(200);
  TimePoint progress_due_{};
  std::optional<TimePoint> deadline_wake_;

  Lane to_driver_lane_, to_engine_lane_;
  bool poll_pending_ = false;
  TimePoint poll_at_ = TimePoint::max();                                   // on its own clock
  std::map<worker::transfer::LinkId, std::shared_ptr<Channel>> channels_;  // shared with the peer's end
};

}  // namespace penstock::sim
