// Turns a stream of events into few writes: the same event again within six minutes is counted in a series, updated at
// its second time and then at most once a minute; an object that makes too many different ones loses the excess. Pure;
// one owner. Bounded: at most 1,024 series and 1,024 objects are remembered, the oldest are forgotten first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/kube/model/timestamp.hpp"
#include "common/kube/model/write.hpp"
#include "common/time/clock.hpp"

namespace penstock::kube {

struct EventOptions {
  std::string controller = "penstock.dev/operator";  // reportingController
  std::string instance;                              // reportingInstance: the pod's name
  std::string default_namespace = "default";         // for events about cluster-scoped objects
  std::size_t series_max = 1024;
  Duration series_end = std::chrono::minutes(6);
  Duration update_every = std::chrono::minutes(1);
  double burst = 25;                            // events of one object at once
  Duration refill = std::chrono::seconds(300);  // for one more
};

class EventSeries {
 public:
  EventSeries(EventOptions options, std::uint64_t seed);

  /// What to write now for this event, if anything.
  std::optional<Write> record(const EmitEvent& event, TimePoint now, Timestamp wall);
  /// Counts that have not been written for a while; also forgets what is over. Call about every ten seconds.
  std::vector<Write> due(TimePoint now);
  std::size_t dropped() const { return dropped_; }

 private:
  using Identity = std::tuple<ObjectReference, EventType, std::string, std::string, std::string>;
  struct Series {
    Key key;  // of the Event object
    std::uint64_t count = 1;
    std::uint64_t written = 1;
    Timestamp last_seen;
    TimePoint last_seen_at{};
    TimePoint last_write_at{};
  };
  struct Bucket {
    double tokens = 0;
    TimePoint filled{};
  };

  bool admit(const ObjectReference& object, TimePoint now);
  Write create(const EmitEvent& event, const Key& key, Timestamp wall) const;
  Write update(Series& series, TimePoint now) const;
  void make_room();

  EventOptions options_;
  std::uint64_t next_suffix_;
  std::map<Identity, Series> series_;
  std::map<ObjectReference, Bucket> buckets_;
  std::size_t dropped_ = 0;
};

}  // namespace penstock::kube
