// One prompt of a call, from admission to its end: its state machine, where it stands in the fleet, when things
// happened. Owner: the call; the dispatcher keeps pointers to those that live. Thread: the router's I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "router/backend/served_model.hpp"
#include "router/core/migration/request_state.hpp"
#include "router/proxy/decision_log.hpp"

namespace penstock::router {

class Sequence;

/// The call, as the dispatcher sees it. Nothing may be destroyed from within these.
class SequenceSink {
 public:
  virtual void on_tokens(Sequence& sequence, protocol::ChoiceStep&& step) = 0;
  virtual void on_ended(Sequence& sequence, const Ended& ended) = 0;

 protected:
  ~SequenceSink() = default;
};

class Sequence {
 public:
  Sequence(SequenceSink& sequence_sink, ServedModel& served, RequestState machine)
      : sink(sequence_sink), model(served), state(std::move(machine)) {}

  SequenceSink& sink;
  ServedModel& model;
  RequestState state;
  std::uint32_t index = 0;  // of the prompt in its call
  std::string client_request_id;
  std::string tenant;
  std::int32_t priority = 0;
  std::vector<BlockHash> blocks;  // of the prompt
  TimePoint arrived{};
  std::optional<TimePoint> deadline;
  std::optional<TimePoint> last_step;
  std::optional<WantPlace> wanted;  // while it waits for a place
  std::uint64_t queue_id = 0;       // while it is queued; 0: it is not
  DispatchId dispatch = 0;
  DecisionPtr route;  // the first one that placed it
};

}  // namespace penstock::router
