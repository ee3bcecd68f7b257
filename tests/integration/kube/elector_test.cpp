// Two candidates and one Lease over the network: taking, handing over, losing.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "common/async/task_group.hpp"
#include "common/kube/client/leader_elector.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

/// The API server's part: one Lease with optimistic locking.
class LeaseState {
 public:
  Answer operator()(const http::Request& request) {
    if (broken) return stream({}, Answer::End::cut);
    if (request.method == "GET") return lease_ ? Answer(200, boost::json::serialize(*lease_)) : refuse(404, "NotFound");
    auto body = json::parse(request.body);
    if (!body) return refuse(400, "BadRequest");
    if (request.method == "POST" && lease_) return refuse(409, "AlreadyExists");
    if (request.method == "PUT" &&
        text_at(body->as_object(), {"metadata", "resourceVersion"}) != std::to_string(version_)) {
      return refuse(409, "Conflict");
    }
    body->as_object()["metadata"].as_object()["resourceVersion"] = std::to_string(++version_);
    lease_ = body->as_object();
    return Answer(200, boost::json::serialize(*lease_));
  }
  std::string holder() const {
    return lease_ ? std::string(text_at(*lease_, {"spec", "holderIdentity"}).value_or("")) : "";
  }
  bool broken = false;

 private:
  static Answer refuse(int code, const std::string& reason) {
    return Answer(code, R"({"kind":"Status","reason":")" + reason + "\"}");
  }
  std::optional<json::Object> lease_;
  std::uint64_t version_ = 0;
};

class KubeElector : public testing::Test {
 protected:
  KubeElector() : server(io, keys), tasks(io.get_executor()) {
    server.responder = [this](const http::Request& request) { return state(request); };
    client = std::make_unique<Client>(io.get_executor(), server.config(keys), quick_client(), Probe(), log::Logger());
  }
  ~KubeElector() override {
    run(io, [](async::TaskGroup& group) -> asio::awaitable<void> { co_await group.drain(Duration(0)); }(tasks));
  }

  LeaderElector& candidate(const std::string& name, LeaseOptions options = {}) {
    options.key = {"system", "operator"};
    options.identity = name;
    LeaderElector::Callbacks callbacks{[this, name] { journal += "+" + name + " "; },
                                       [this, name] { journal += "-" + name + " "; }};
    electors.push_back(
        std::make_unique<LeaderElector>(io.get_executor(), *client, options, 1, callbacks, log::Logger()));
    return *electors.back();
  }
  bool until(const std::function<bool()>& condition) { return run_until(io, condition); }

  boost::asio::io_context io;
  TestKeys keys;
  ApiServer server;
  LeaseState state;
  std::unique_ptr<Client> client;
  std::string journal;
  std::vector<std::unique_ptr<LeaderElector>> electors;  // they outlive their tasks
  async::TaskGroup tasks;
};

TEST_F(KubeElector, HandsOverInUnderTwoSeconds) {
  LeaderElector& first = candidate("a");
  LeaderElector& second = candidate("b");
  tasks.spawn("a", first.run());
  ASSERT_TRUE(until([&] { return first.leading(); }));
  tasks.spawn("b", second.run());
  ASSERT_TRUE(until([&] { return second.holder() == "a"; }));
  const TimePoint before = SteadyClock().now();
  first.release();
  EXPECT_FALSE(first.leading());
  EXPECT_EQ(journal, "+a -a ") << "told before the lease is given up";
  ASSERT_TRUE(until([&] { return second.leading(); }));
  EXPECT_LT(SteadyClock().now() - before, Duration(2s));
  EXPECT_EQ(state.holder(), "b");
  EXPECT_EQ(journal, "+a -a +b ");
  EXPECT_EQ(tasks.count(), 1u) << "the first one is done";
}

TEST_F(KubeElector, LeadsOnWhileTheWorkHoldsEveryConnection) {
  ClientOptions few = quick_client();
  few.connections_max = 1;
  client = std::make_unique<Client>(io.get_executor(), server.config(keys), few, Probe(), log::Logger());
  server.responder = [this](const http::Request& request) {
    if (request.path.find("/leases") != std::string::npos) return state(request);
    Answer slow(200, "{}");
    slow.pause = 3s;
    return slow;
  };
  LeaseOptions options;
  options.renew_deadline = 600ms;
  options.retry = options.standby_poll = 100ms;
  options.call_timeout = 200ms;
  LeaderElector& only = candidate("a", options);
  tasks.spawn("a", only.run());
  ASSERT_TRUE(until([&] { return only.leading(); }));
  tasks.spawn("work", [](Client& shared) -> asio::awaitable<void> {
    const WriteRequest slow{"list", "GET", "/api/v1/pods", "", ""};
    (void)co_await shared.call(slow, 5s);
  }(*client));
  const TimePoint begun = SteadyClock().now();
  ASSERT_TRUE(until([&] { return SteadyClock().now() - begun > Duration(1200ms); }));
  EXPECT_EQ(journal, "+a ");
}

TEST_F(KubeElector, StopsAtTheDeadlineWhenNothingAnswers) {
  LeaseOptions options;
  options.duration = 1500ms;
  options.renew_deadline = 600ms;
  options.retry = options.standby_poll = 100ms;
  options.call_timeout = 200ms;
  LeaderElector& only = candidate("a", options);
  tasks.spawn("a", only.run());
  ASSERT_TRUE(until([&] { return only.leading(); }));
  state.broken = true;
  const TimePoint before = SteadyClock().now();
  ASSERT_TRUE(until([&] { return journal == "+a -a "; }));
  EXPECT_LT(SteadyClock().now() - before, Duration(1500ms)) << "before another may take over";
  state.broken = false;
  ASSERT_TRUE(until([&] { return only.leading(); })) << "its own lease is taken up again";
}

}  // namespace
}  // namespace penstock::kube
