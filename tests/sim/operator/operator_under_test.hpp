// The operator as the simulation runs it: the real queue, barrier and reconciles over caches that lag behind the model
// API server, with a stand-in for the shell that carries writes out. It can crash between any two writes, meet
// conflicts and lost answers, and be one of two. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "operator/reconcilers/reconcile.hpp"
#include "operator/runtime/expectations.hpp"
#include "operator/runtime/work_queue.hpp"
#include "tests/sim/operator/api_server.hpp"

namespace penstock::sim {

/// Faults, in writes out of a thousand; and the bugs that prove that the checkers see.
struct Faults {
  std::uint32_t crash = 0;
  std::uint32_t refuse = 0;       // 409, 500 or 429 without effect
  std::uint32_t lose_answer = 0;  // it happened, but nobody was told
  std::uint32_t lag = 0;          // out of a thousand turns in which a watch delivers nothing
  std::uint32_t relist = 0;       // out of a thousand turns: a watch breaks and lists anew
  bool no_barrier = false;        // bug: acts on caches that lack its own writes
  bool no_fence = false;          // bug: writes without looking at the lease
  bool no_floor = false;          // bug: sees no surge and maxUnavailable 100 %
  bool always_writes = false;     // bug: writes a status that hasn't changed
};

class OperatorUnderTest : public ctl::CacheView {
 public:
  OperatorUnderTest(ApiServer& api, std::string name, std::uint64_t seed, Faults faults);

  /// Delivers some events, and works on up to `keys` keys. `holder` is who has the lease, as the API server knows it.
  void turn(const std::string& holder, int keys);
  /// Everything that happened is delivered; every key is looked at again, as after a resync.
  void catch_up();
  bool idle() const { return services_.waiting() == 0 && groups_.waiting() == 0 && scalers_.waiting() == 0; }
  Faults& faults() { return faults_; }
  std::uint64_t crashes() const { return crashes_; }
  std::uint64_t writes() const { return writes_; }
  /// By what they were: "pods create", "workergroups.penstock.dev status", "event GroupReady".
  const std::map<std::string, std::uint64_t>& written() const { return written_; }

  std::uint64_t version(std::string_view type) const override;
  bool is_live(std::string_view type, std::string_view uid) const override;

 private:
  struct Watch {
    std::size_t at = 0;  // of the server's log
    std::uint64_t version = 0;
    std::function<void(const LogEntry&)> apply;
    std::function<void()> relist;
  };
  using Reconcile = ctl::Outcome (*)(const kube::Key&, const ctl::Stores&, const ctl::Context&);
  struct Crash {};

  void start();
  template <class T, class Parse>
  void watch(const std::string& type, kube::Store<T>& store, Parse parse);
  void deliver(Watch& watch, const std::string& type, std::uint64_t count);
  enum class News : std::uint8_t { edit, status };
  void wake(const std::string& type, const kube::ObjectMeta& meta, const kube::Key& key, News news);
  void work(ctl::WorkQueue& queue, Reconcile reconcile, const std::string& holder, int keys);
  bool carry_out(const ctl::Outcome& outcome, const std::string& owner_uid, const std::string& holder);
  void note(const kube::Write& write, const std::string& owner_uid, std::uint64_t version);
  const kube::ObjectMeta* meta_of(Reconcile reconcile, const kube::Key& key) const;
  bool chance(std::uint32_t per_mille) { return random_.below(1000) < per_mille; }
  TimePoint now() const { return TimePoint(std::chrono::microseconds(api_.now.unix_us)); }

  ApiServer& api_;
  std::string name_;
  Random random_;
  Faults faults_;
  std::unique_ptr<ctl::Stores> stores_;
  std::map<std::string, Watch> watches_;
  ctl::WorkQueue services_{1}, groups_{2}, scalers_{3};
  ctl::Expectations expectations_;
  std::map<kube::Key, ctl::WriteFailure> failures_;
  std::optional<ctl::WriteFailure> failure_;  // of the reconcile that is being carried out
  std::uint64_t crashes_ = 0, writes_ = 0;
  std::map<std::string, std::uint64_t> written_;
  bool leads_ = false;
  std::uint64_t led_since_ = 0;  // version of the server when the lease was got
};

}  // namespace penstock::sim
