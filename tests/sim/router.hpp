// One start of one router process: the production dispatcher, fleet, queue and request machines; a thin shell does what
// router/backend does around them, on simulated time. Its death is its destructor.
// Owner: World. Single thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "router/proxy/dispatcher.hpp"
#include "tests/sim/call.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/hasher.hpp"
#include "tests/sim/worker.hpp"

namespace penstock::sim {

/// What routers of a run share.
struct RouterContext {
  const Plan& plan;
  EventQueue& events;
  Violations& violations;
  Tally& tally;
  std::vector<std::unique_ptr<SimWorker>>& workers;  // by slot; null while dead
};

class SimRouter final : private router::WorkerSender, private router::BackendEvents {
 public:
  SimRouter(RouterContext context, std::uint32_t index, std::uint64_t start);
  ~SimRouter();

  void begin(const RequestPlan& request, std::uint32_t index);
  void cut_wire(std::uint32_t slot, CutKind kind);
  void pause_reading(std::uint32_t slot, Duration length);
  const std::vector<std::unique_ptr<SimCall>>& calls() const { return calls_; }
  /// Whether it still wants that request to be worked on, or only stopped to a moment ago.
  bool knows(RequestId request, TimePoint ended_after) const;
  bool is_connected(std::uint32_t slot) const { return links_[slot].instance.has_value(); }
  std::optional<TimePoint> connected_at(std::uint32_t slot) const;
  void check_running();
  void check_quiet();

 private:
  struct Link {
    WirePtr wire;
    std::optional<InstanceId> instance;
    router::WorkerRef ref;
    TimePoint last_frame{}, last_ping{}, connected_at{};
    Duration backoff = std::chrono::milliseconds(100);
    bool is_suspect = false;
    std::uint64_t epoch = 0, events = 0;  // for mistakes
  };

  void connect(std::uint32_t slot);
  void retry_later(std::uint32_t slot);
  void lose(std::uint32_t slot);
  void on_message(std::uint32_t slot, protocol::WorkerMessage message);
  void enter(std::uint32_t slot, const protocol::Welcome& welcome);
  void ask_snapshot(std::uint32_t slot, router::SnapshotNeed need);
  void tick();
  void look_after(std::uint32_t slot);
  InstanceId spoil(protocol::ChoiceStep& step, InstanceId worker);
  SimCall* find_call(RequestId request);
  std::string make_ticket(const router::TransferParties& parties) const;

  bool send(InstanceId instance, const protocol::RouterMessage& message) override;
  bool send(router::WorkerRef worker, const router::ServedModel& model,
            const protocol::RouterMessage& message) override;
  void on_step(InstanceId worker, protocol::Step&& step) override;
  void on_request_error(InstanceId worker, const protocol::RequestError& error) override;
  void on_transfer_status(InstanceId worker, const protocol::TransferStatus& status) override;
  void on_worker_lost(InstanceId worker) override;
  void on_capacity(router::ServedModel& model) override;

  RouterContext context_;
  const Plan& plan_;
  EventQueue& events_;
  std::uint32_t index_;
  std::uint64_t issuer_;
  TimePoint started_;
  Random random_;
  SimHasher hasher_;
  router::ModelRegistry registry_;
  router::Dispatcher dispatcher_;
  router::TicketMaker ticket_;
  std::vector<Link> links_;
  std::map<RequestId, InstanceId> decoders_;  // where each request was sent last
  std::vector<std::unique_ptr<SimCall>> calls_;
  Process process_;
};

}  // namespace penstock::sim
