// Between calls and workers: admits, chooses, sends, and gives what workers say to the state machine of the request it
// is about. Carries out the machine's actions. Thread: the router's I/O thread. Bounds: the admission queues; one entry
// for each living sequence.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"
#include "router/backend/worker_connection.hpp"
#include "router/core/admission/limits.hpp"
#include "router/proxy/probe.hpp"
#include "router/proxy/sequence.hpp"

namespace penstock::router {

class Dispatcher final : public BackendEvents {
 public:
  Dispatcher(ModelRegistry& registry, const Clock& clock, Random& random, RetrySettings retries, ProxyProbe probe,
             std::size_t decisions_max);
  /// Once, before anything else: the pool is made after this object, since it reports here.
  void set_sender(WorkerSender& sender) { sender_ = &sender; }

  void start(Sequence& sequence);
  void stop_string(Sequence& sequence, std::uint32_t choice, std::uint32_t tokens_kept);
  /// The client left, or another part of the call failed. Also right for a sequence that has ended.
  void cancel(Sequence& sequence);
  /// Every 50 ms or so: timers, queues, fleets.
  void tick();

  void on_step(InstanceId worker, protocol::Step&& step) override;
  void on_request_error(InstanceId worker, const protocol::RequestError& error) override;
  void on_transfer_status(InstanceId worker, const protocol::TransferStatus& status) override;
  void on_worker_lost(InstanceId worker) override;
  void on_capacity(ServedModel& model) override;

  std::size_t living() const { return living_.size(); }
  const DecisionLog& decisions() const { return decisions_; }

 private:
  void carry_out(Sequence& sequence, Actions& actions);
  void place(Sequence& sequence, const WantPlace& want);
  /// Asks the fleet; true if the sequence is settled (placed or refused), false if it must wait.
  bool choose(Sequence& sequence);
  void dispatch(Sequence& sequence, const PlacementRequest& request, Placement placement, Duration took);
  void refuse(Sequence& sequence, Error error, Duration retry_after);
  void enqueue(Sequence& sequence);
  void on_progress(InstanceId worker, const protocol::Progress& progress);
  void leave_queue(Sequence& sequence);
  void pump(ServedModel& model);
  void send(Sequence& sequence, const SendTo& message);
  void deliver(Sequence& sequence, protocol::ChoiceStep&& step);
  void finish(Sequence& sequence, const Ended& ended);
  Duration jittered(Duration duration);
  std::string address_of(const ServedModel& model, WorkerRef worker) const;

  ModelRegistry& registry_;
  const Clock& clock_;
  Random& random_;
  RetryBudget retry_budget_;
  ProxyProbe probe_;
  DecisionLog decisions_;
  WorkerSender* sender_ = nullptr;
  std::unordered_map<RequestId, Sequence*> living_;
  std::unordered_map<std::uint64_t, Sequence*> queued_;
  std::uint64_t next_queue_id_ = 1;
  TimePoint next_timers_{};
  bool is_pumping_ = false;  // what a placement ends must not start another round within this one
};

}  // namespace penstock::router
