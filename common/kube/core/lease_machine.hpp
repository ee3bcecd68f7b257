// Leader election over one Lease object: take it, renew it, lose it, hand it over. Times of other machines' clocks are
// never compared: a holder counts as gone when its record has not changed for the lease's duration on our own monotonic
// clock. A leader stops believing in itself (leading()) before others may take over, even if nothing answers any more.
// Pure; one owner. One request at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "common/json/json.hpp"
#include "common/kube/model/key.hpp"
#include "common/kube/model/status.hpp"
#include "common/kube/model/timestamp.hpp"
#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {

struct LeaseOptions {
  Key key;
  std::string identity;  // unique to this process start
  // A leader that dies right after a renewal is followed within duration + 1.2 standby_poll and two calls: under 15 s.
  Duration duration = std::chrono::seconds(12);
  Duration renew_deadline = std::chrono::seconds(8);  // without a renewal for so long we stop leading
  Duration retry = std::chrono::seconds(2);           // between renewals
  Duration standby_poll = std::chrono::seconds(1);    // a hand-over is seen within this, plus a fifth of jitter
  Duration call_timeout = std::chrono::seconds(3);
};

struct LeaseRequest {
  enum class Call : std::uint8_t { get, create, update };
  Call call = Call::get;
  json::Object body;  // of create and update
  Duration timeout{0};
};
struct LeaseWait {
  TimePoint until;
};
struct LeaseDone {};  // released, or given up: nothing more to do
using LeaseStep = std::variant<LeaseRequest, LeaseWait, LeaseDone>;

class LeaseMachine {
 public:
  LeaseMachine(LeaseOptions options, std::uint64_t seed);

  /// `wall` only fills the record, for people.
  LeaseStep next(TimePoint now, Timestamp wall);
  /// The answer to the request that next() gave: the Lease object, or a failure.
  void on_answer(const ApiResult<json::Value>& answer, TimePoint now);
  /// From now on hand the lease over, then be done. Not leading from this moment: stop work first.
  void release();

  bool leading(TimePoint now) const;
  /// When leading() turns false unless a renewal succeeds.
  std::optional<TimePoint> leading_until() const;
  /// Who holds the lease as far as we know; "" nobody.
  const std::string& holder() const { return record_.holder; }

 private:
  struct Record {
    std::string holder;
    std::string version;
    std::string acquired;
    std::string renewed;
    std::int64_t duration_s = 0;
    std::int64_t transitions = 0;
    bool exists = false;
    friend bool operator==(const Record&, const Record&) = default;
  };

  static Record parse(const json::Value& lease);
  void observe(Record record, TimePoint now);
  bool is_free() const;
  TimePoint free_at() const;
  LeaseRequest write(LeaseRequest::Call call, Timestamp wall, TimePoint now);
  void pause(Duration about, TimePoint now);

  LeaseOptions options_;
  Random random_;
  Record record_;
  TimePoint observed_{};              // when the record last changed, as we saw it
  std::optional<TimePoint> renewed_;  // start of the last request that made or kept us the leader
  LeaseRequest::Call call_ = LeaseRequest::Call::get;
  TimePoint call_started_{};
  TimePoint wait_until_{};
  bool known_ = false;  // the record is what the server had a moment ago: write without reading first
  bool releasing_ = false;
  unsigned release_tries_ = 0;
};

}  // namespace penstock::kube
