// Leader election: step by step, then several candidates against a model API server with slow, lost and doubled answers
// and clocks that run at different speeds. Never two leaders.
#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "common/kube/core/lease_machine.hpp"
#include "common/kube/model/object_meta.hpp"
#include "tests/support/seed.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;
using Call = LeaseRequest::Call;

ApiStatus status_of(int code, std::string reason = "") {
  ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  return status;
}

/// The Lease as the API server keeps it.
class LeaseServer {
 public:
  ApiResult<json::Value> handle(const LeaseRequest& request) {
    switch (request.call) {
      case Call::get:
        if (!lease_) return status_of(404, "NotFound");
        return json::Value(*lease_);
      case Call::create:
        if (lease_) return status_of(409, "AlreadyExists");
        return store(request.body);
      case Call::update:
        if (!lease_) return status_of(404, "NotFound");
        if (text_at(request.body, {"metadata", "resourceVersion"}) != std::to_string(version_)) {
          return status_of(409, "Conflict");
        }
        return store(request.body);
    }
    return status_of(500);
  }
  std::string holder() const {
    return lease_ ? std::string(text_at(*lease_, {"spec", "holderIdentity"}).value_or("")) : "";
  }
  std::int64_t transitions() const { return integer_at(*lease_, {"spec", "leaseTransitions"}).value_or(-1); }

 private:
  ApiResult<json::Value> store(json::Object body) {
    body["metadata"].get_object()["resourceVersion"] = std::to_string(++version_);
    lease_ = body;
    return json::Value(std::move(body));
  }
  std::optional<json::Object> lease_;
  std::uint64_t version_ = 0;
};

LeaseOptions options_for(std::string identity) {
  LeaseOptions options;
  options.key = {"system", "penstock-operator"};
  options.identity = std::move(identity);
  return options;
}

/// Runs one machine against the server, without delays, until the given time.
void run_until(LeaseMachine& machine, LeaseServer& server, TimePoint& now, TimePoint end) {
  for (int i = 0; i < 10'000 && now < end; ++i) {
    LeaseStep step = machine.next(now, Timestamp::from_seconds(1'000'000));
    if (const auto* request = std::get_if<LeaseRequest>(&step)) {
      machine.on_answer(server.handle(*request), now);
    } else if (const auto* wait = std::get_if<LeaseWait>(&step)) {
      now = std::min(wait->until, end);
    } else {
      return;
    }
  }
}

TEST(LeaseMachine, TakesALeaseThatDoesNotExist) {
  LeaseServer server;
  LeaseMachine machine(options_for("a"), 1);
  TimePoint now{1h};
  run_until(machine, server, now, now + 1ms);
  EXPECT_TRUE(machine.leading(now));
  EXPECT_EQ(server.holder(), "a");
  EXPECT_EQ(server.transitions(), 0);
}

TEST(LeaseMachine, RenewsEveryTwoSeconds) {
  LeaseServer server;
  LeaseMachine machine(options_for("a"), 1);
  TimePoint now{1h};
  int writes = 0;
  const TimePoint end = now + 60s;
  for (int i = 0; i < 1000 && now < end; ++i) {
    LeaseStep step = machine.next(now, {});
    if (const auto* request = std::get_if<LeaseRequest>(&step)) {
      writes += request->call == Call::get ? 0 : 1;
      machine.on_answer(server.handle(*request), now);
    } else {
      now = std::get<LeaseWait>(step).until;
    }
  }
  EXPECT_TRUE(machine.leading(now));
  EXPECT_GE(writes, 24);
  EXPECT_LE(writes, 31);
}

TEST(LeaseMachine, StopsLeadingAtTheDeadlineWithoutAnswers) {
  LeaseServer server;
  LeaseMachine machine(options_for("a"), 1);
  TimePoint now{1h};
  run_until(machine, server, now, now + 1ms);
  EXPECT_TRUE(machine.leading(now + 7s));
  EXPECT_FALSE(machine.leading(now + 8s)) << "by the clock alone: nothing needs to run";
}

TEST(LeaseMachine, WaitsForTheHoldersTimeOnItsOwnClock) {
  LeaseServer server;
  LeaseMachine first(options_for("a"), 1), second(options_for("b"), 2);
  TimePoint now{1h};
  run_until(first, server, now, now + 1ms);
  const TimePoint start = now;
  run_until(second, server, now, start + 11900ms);
  EXPECT_FALSE(second.leading(now));
  EXPECT_EQ(second.holder(), "a");
  run_until(second, server, now, start + 12100ms);
  EXPECT_TRUE(second.leading(now));
  EXPECT_EQ(server.transitions(), 1);
}

/// The holder promises more than we would wait: an older version of this program, say.
TEST(LeaseMachine, WaitsForWhatTheHolderPromised) {
  LeaseServer server;
  LeaseOptions longer = options_for("a");
  longer.duration = 15s;
  LeaseMachine first(longer, 1), second(options_for("b"), 2);
  TimePoint now{1h};
  run_until(first, server, now, now + 1ms);
  const TimePoint start = now;
  run_until(second, server, now, start + 14900ms);
  EXPECT_FALSE(second.leading(now));
  run_until(second, server, now, start + 15100ms);
  EXPECT_TRUE(second.leading(now));
}

/// Seconds from the crash of a leader to the lead of a standby, whose calls take `call` each.
Duration take_over(std::uint64_t seed, Duration crash_after, Duration call) {
  LeaseServer server;
  LeaseMachine first(options_for("a"), seed), second(options_for("b"), seed + 1);
  TimePoint now{1h};
  run_until(first, server, now, now + 1ms);
  const TimePoint crash = now + crash_after;
  TimePoint ahead = now;  // of the leader: turn by turn with the standby, each at its own next step
  while (now < crash + 60s) {
    run_until(first, server, ahead, std::min(now, crash));
    LeaseStep step = second.next(now, {});
    if (const auto* request = std::get_if<LeaseRequest>(&step)) {
      ApiResult<json::Value> answer = server.handle(*request);
      now += call;
      second.on_answer(answer, now);
      if (second.leading(now)) return now - crash;
    } else {
      now = std::min(std::get<LeaseWait>(step).until, now + 10ms);
    }
  }
  return now - crash;
}

TEST(LeaseMachine, ADeadLeaderIsFollowedWithinFifteenSeconds) {
  Duration longest{0};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    for (Duration crash_after = 10s; crash_after < Duration(13s); crash_after += 100ms) {
      const Duration took = take_over(seed, crash_after, 200ms);
      ASSERT_LT(took, Duration(15s)) << "seed " << seed << ", after " << crash_after.count() / 1'000'000 << " ms";
      longest = std::max(longest, took);
    }
  }
  EXPECT_GT(longest, Duration(13s)) << "the worst case was among them";
}

TEST(LeaseMachine, HandsOverInUnderTwoSeconds) {
  LeaseServer server;
  LeaseMachine first(options_for("a"), 1), second(options_for("b"), 2);
  TimePoint now{1h};
  run_until(first, server, now, now + 1ms);
  TimePoint later = now;
  run_until(second, server, later, now + 5s);
  first.release();
  EXPECT_FALSE(first.leading(later));
  TimePoint released = later;
  run_until(first, server, released, later + 1s);
  EXPECT_EQ(server.holder(), "");
  EXPECT_TRUE(std::holds_alternative<LeaseDone>(first.next(released, {})));
  const TimePoint before = later;
  run_until(second, server, later, before + 1900ms);
  EXPECT_TRUE(second.leading(later));
}

TEST(LeaseMachine, AStandbyHasNothingToRelease) {
  LeaseServer server;
  LeaseMachine first(options_for("a"), 1), second(options_for("b"), 2);
  TimePoint now{1h};
  run_until(first, server, now, now + 1ms);
  run_until(second, server, now, now + 1s);
  second.release();
  EXPECT_TRUE(std::holds_alternative<LeaseDone>(second.next(now, {})));
  EXPECT_EQ(server.holder(), "a");
}

TEST(LeaseMachine, AReleaseThatIsNotAnsweredEnds) {
  LeaseServer server;
  LeaseMachine machine(options_for("a"), 1);
  TimePoint now{1h};
  run_until(machine, server, now, now + 1ms);
  machine.release();
  int requests = 0;
  while (std::holds_alternative<LeaseRequest>(machine.next(now, {})) && requests < 100) {
    ++requests;
    machine.on_answer(status_of(0), now);
  }
  EXPECT_LE(requests, 5);
}

TEST(LeaseMachine, ALostAnswerOfItsOwnRenewalDoesNotCostTheLease) {
  LeaseServer server;
  LeaseMachine machine(options_for("a"), 1);
  TimePoint now{1h};
  run_until(machine, server, now, now + 1ms);
  now += 3s;
  LeaseStep step = machine.next(now, {});
  (void)server.handle(std::get<LeaseRequest>(step));  // it arrived, its answer didn't
  machine.on_answer(status_of(0), now);
  run_until(machine, server, now, now + 5s);
  EXPECT_TRUE(machine.leading(now));
  EXPECT_EQ(server.transitions(), 0);
}

/// A candidate with its own clock speed and one request on its way.
struct Candidate {
  Candidate(std::string name, std::uint64_t seed, double speed_)
      : machine(std::make_unique<LeaseMachine>(options_for(std::move(name)), seed)), speed(speed_) {}
  TimePoint local(Duration world) const {
    return TimePoint(1h) + Duration(static_cast<Duration::rep>(static_cast<double>(world.count()) * speed));
  }
  std::unique_ptr<LeaseMachine> machine;
  double speed;
  Duration stopped_until{0};
  std::optional<LeaseRequest> request;  // on its way to the server
  Duration arrives{0};
  std::optional<ApiResult<json::Value>> answer;
  Duration answered{0};
};

void run_candidates(std::uint64_t seed) {
  Random random(seed);
  LeaseServer server;
  std::vector<Candidate> candidates;
  for (int i = 0; i < 3; ++i) {
    candidates.emplace_back("c" + std::to_string(i), seed * 10 + static_cast<std::uint64_t>(i),
                            0.85 + 0.3 * random.uniform());
  }
  const auto some = [&](std::uint64_t milliseconds) {
    return Duration(std::chrono::milliseconds(random.below(milliseconds)));
  };
  Duration led{0};
  for (Duration world{0}; world < Duration(180s); world += 10ms) {
    std::size_t leaders = 0;
    const bool outage = world > Duration(60s) && world < Duration(80s);
    for (Candidate& candidate : candidates) {
      const TimePoint now = candidate.local(world);
      leaders += candidate.machine->leading(now) ? 1 : 0;
      if (candidate.request && world >= candidate.arrives) {
        const bool lost = outage || random.below(12) == 0;
        ApiResult<json::Value> result =
            lost && random.below(2) == 0 ? ApiResult<json::Value>(status_of(0)) : server.handle(*candidate.request);
        if (lost) result = status_of(0);
        candidate.request.reset();
        candidate.answer = std::move(result);
        candidate.answered = world + (random.below(20) == 0 ? some(6000) : some(40));
      }
      if (world < candidate.stopped_until) continue;  // a frozen process: its clock goes on
      if (random.below(4000) == 0) candidate.stopped_until = world + some(30'000);
      if (candidate.answer && world >= candidate.answered) {
        candidate.machine->on_answer(*candidate.answer, now);
        candidate.answer.reset();
      }
      if (candidate.request || candidate.answer) continue;
      LeaseStep step = candidate.machine->next(now, {});
      if (auto* request = std::get_if<LeaseRequest>(&step)) {
        candidate.request = std::move(*request);
        candidate.arrives = world + (random.below(20) == 0 ? some(4000) : some(40));
      }
    }
    ASSERT_LE(leaders, 1u) << "at " << world.count() / 1'000'000 << " ms";
    if (leaders == 1) led += 10ms;
  }
  EXPECT_GT(led, Duration(60s)) << "somebody led most of the time";
}

TEST(LeaseMachine, NeverTwoLeaders) {
  const std::uint64_t first = first_seed();
  for (std::uint64_t seed = first; seed < first + 60; ++seed) {
    SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed));
    run_candidates(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace penstock::kube
