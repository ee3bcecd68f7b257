// More asked for than there is, and the end of the program: queue, fairness between tenants, retry budget, drain.
#include <algorithm>

#include "tests/integration/router/cluster.hpp"
#include "tests/integration/router/keys.hpp"

namespace penstock::test {
namespace {

const std::string chat = "/v1/chat/completions";
const std::string letters = "abcdefghijklmnopqrstuvwxyz";

// Takes 5 requests at once: one that runs and four that may wait at the worker.
FakeWorkerOptions narrow(Duration step_time) {
  FakeWorkerOptions options;
  options.sequences_max = 1;
  options.step_time = step_time;
  return options;
}
constexpr std::size_t narrow_takes = 5;

std::size_t ended(const std::vector<std::shared_ptr<int>>& calls, int status) {
  return static_cast<std::size_t>(
      std::count_if(calls.begin(), calls.end(), [&](const auto& call) { return *call == status; }));
}
std::size_t running(const std::vector<std::shared_ptr<int>>& calls) {
  return ended(calls, 0);
}

TEST(Pressure, WhatWaitsIsServedInTurn) {
  Cluster cluster({narrow(std::chrono::milliseconds(10))});
  std::vector<std::shared_ptr<int>> calls;
  for (int i = 0; i < 15; ++i) calls.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":3)")));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.workers[0]->generates().size() == narrow_takes; }));
  ASSERT_TRUE(cluster.run_until([&] { return running(calls) == 0; }));
  EXPECT_EQ(ended(calls, 200), calls.size());
  EXPECT_EQ(cluster.metric("penstock_router_queue_seconds_count"), 15);
}

TEST(Pressure, AFullQueueRefusesWithRetryAfter) {
  router::RouterConfig config;
  config.limits.queue_requests = 3;
  Cluster cluster({narrow(std::chrono::milliseconds(100))}, config);
  std::vector<std::shared_ptr<int>> calls;
  for (std::size_t i = 0; i < narrow_takes + 3; ++i) {
    calls.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":5)")));
  }
  ASSERT_TRUE(cluster.run_until([&] { return cluster.workers[0]->generates().size() == narrow_takes; }));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.metric("penstock_router_queue_requests") == 3; }));
  const auto refused = cluster.post(chat, chat_body(R"(,"max_tokens":5)"));
  EXPECT_EQ(refused->status, 503);
  EXPECT_GE(std::stoi(std::string(refused->headers.find("retry-after").value_or("0"))), 1);
  EXPECT_FALSE(refused->headers.find("x-should-retry"));
  EXPECT_EQ(parsed(refused->body).at("error").at("type").as_string(), "server_error");
  ASSERT_TRUE(cluster.run_until([&] { return running(calls) == 0; }));
  EXPECT_EQ(ended(calls, 200), calls.size());  // nobody who was let in is hurt
}

TEST(Pressure, WaitingEndsWithATimeOut) {
  router::RouterConfig config;
  config.limits.queue_wait = std::chrono::milliseconds(200);
  Cluster cluster({narrow(std::chrono::milliseconds(500))}, config);
  std::vector<std::shared_ptr<int>> calls;
  for (std::size_t i = 0; i < narrow_takes; ++i) {
    calls.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":4)")));
  }
  ASSERT_TRUE(cluster.run_until([&] { return cluster.workers[0]->generates().size() == narrow_takes; }));
  const auto late = cluster.post(chat, chat_body(R"(,"max_tokens":4)"));
  EXPECT_EQ(late->status, 503);
  EXPECT_EQ(parsed(late->body).at("error").at("code").as_string(), "queue_timeout");
  EXPECT_TRUE(late->headers.find("retry-after"));
}

TEST(Pressure, AClientThatLeavesFreesItsPlaceInTheQueue) {
  Cluster cluster({narrow(std::chrono::milliseconds(50))});
  std::vector<std::shared_ptr<int>> calls;
  for (std::size_t i = 0; i < narrow_takes; ++i) {
    calls.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":10)")));
  }
  ASSERT_TRUE(cluster.run_until([&] { return cluster.workers[0]->generates().size() == narrow_takes; }));
  {
    http::Client impatient = cluster.client();
    http::Headers headers{{"content-type", "application/json"}};
    auto asking = [&]() -> boost::asio::awaitable<bool> {
      http::ClientRequest request("POST", chat, headers, chat_body(R"(,"max_tokens":10)"));
      co_return (co_await impatient.start(std::move(request), std::chrono::milliseconds(150))).has_value();
    };
    EXPECT_FALSE(cluster.run(asking()));
    impatient.close();
  }
  ASSERT_TRUE(cluster.run_until([&] { return running(calls) == 0; }));
  EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":1)"))->status, 200);
  EXPECT_EQ(cluster.workers[0]->generates().size(), narrow_takes + 1);
}

TEST(Pressure, TenantsTakeTurnsByTheTokensTheyWaitWith) {
  const Folder folder;
  router::RouterConfig config;
  config.api_keys_file = folder.write("keys", key_line("heavy-key", "heavy") + key_line("light-key", "light"));
  Cluster cluster({narrow(std::chrono::milliseconds(150))}, config);
  std::vector<std::shared_ptr<int>> calls;
  for (int i = 0; i < 15; ++i) {
    // Each begins differently: what a worker has in its cache does not count.
    const std::string text = std::to_string(100 + i) + std::string(3000, 'x');
    const std::string body =
        R"({"model":"fake","max_tokens":2,"messages":[{"role":"user","content":")" + text + R"("}]})";
    calls.push_back(cluster.post_later(chat, body, bearer("heavy-key")));
  }
  ASSERT_TRUE(cluster.run_until([&] { return cluster.metric("penstock_router_queue_requests") == 10; }));
  const std::size_t before = cluster.workers[0]->generates().size();
  for (int i = 0; i < 3; ++i) {
    calls.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":2)"), bearer("light-key")));
  }
  ASSERT_TRUE(cluster.run_until([&] { return running(calls) == 0; }));
  EXPECT_EQ(ended(calls, 200), calls.size());
  std::size_t last_light = 0;
  const auto& order = cluster.workers[0]->generates();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].spec.cache_salt.find("light") != std::string::npos) last_light = i;
  }
  // They came after ten, and each round gives the other tenant two at most.
  EXPECT_LE(last_light, before + 6);
}

TEST(Pressure, RetriesEndWithTheirBudget) {
  FakeFaults faults;
  faults.refuses = 10'000;
  faults.refusal = {ErrorCode::data_loss, "scripted failure"};  // not a refusal: the attempt has failed
  FakeWorkerOptions failing;
  failing.faults = faults;
  router::RouterConfig config;
  config.limits.retry_share = 0;
  Cluster cluster({failing, failing}, config);
  for (int i = 0; i < 15; ++i) EXPECT_GE(cluster.post(chat, chat_body(R"(,"max_tokens":2)"))->status, 500);
  // Ten retries are in reserve; after them an outage is not multiplied.
  EXPECT_EQ(cluster.workers[0]->generates().size() + cluster.workers[1]->generates().size(), 15u + 10u);
}

TEST(Drain, StreamsEndWholeAndNewCallsAreRefused) {
  FakeWorkerOptions slow;
  slow.step_time = std::chrono::milliseconds(50);
  router::RouterConfig config;
  Cluster cluster({slow}, config, std::chrono::seconds(20));
  http::Client streaming = cluster.client();
  std::vector<std::string> events;
  bool is_streamed = false;
  auto reading = [&]() -> boost::asio::awaitable<void> {
    http::Headers headers{{"content-type", "application/json"}};
    http::ClientRequest request("POST", chat, headers, chat_body(R"(,"stream":true,"max_tokens":20)"));
    auto head = co_await streaming.start(std::move(request), Cluster::patience);
    while (head) {
      auto event = co_await streaming.next_event(Cluster::patience);
      if (!event || !*event) break;
      events.push_back((*event)->data);
    }
    is_streamed = true;
  };
  boost::asio::co_spawn(cluster.io, reading(), [](const std::exception_ptr&) {});
  ASSERT_TRUE(cluster.run_until([&] { return events.size() >= 2; }));
  EXPECT_EQ(cluster.admin("/readyz")->status, 200);

  bool is_over = false;
  boost::asio::co_spawn(cluster.io, cluster.app->drain(), [&](const std::exception_ptr&) { is_over = true; });
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.app->not_ready_reasons().empty(); }));
  EXPECT_EQ(cluster.admin("/readyz")->status, 503);
  EXPECT_EQ(cluster.get("/health")->status, 503);
  const auto refused = cluster.post(chat, chat_body(""));
  ASSERT_TRUE(refused) << "connections must be answered until balancers have noticed";
  EXPECT_EQ(refused->status, 503);
  EXPECT_TRUE(refused->headers.find("retry-after"));
  EXPECT_EQ(refused->headers.find("connection").value_or(""), "close");

  ASSERT_TRUE(cluster.run_until([&] { return is_over; }));
  EXPECT_TRUE(is_streamed);
  EXPECT_EQ(content(events), letters.substr(0, 20));
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(cluster.workers[0]->aborts().empty());
  EXPECT_TRUE(cluster.log->contains({"router stopped", "cancelled=0"}));
}

TEST(Drain, WhatIsLeftAfterTheGraceIsCutAndAborted) {
  FakeWorkerOptions slow;
  slow.step_time = std::chrono::milliseconds(50);
  Cluster cluster({slow}, {}, std::chrono::milliseconds(300));
  const auto call = cluster.post_later(chat, chat_body(R"(,"max_tokens":2000)"));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->generates().empty(); }));
  bool is_over = false;
  boost::asio::co_spawn(cluster.io, cluster.app->drain(), [&](const std::exception_ptr&) { is_over = true; });
  ASSERT_TRUE(cluster.run_until([&] { return is_over; }));
  EXPECT_TRUE(cluster.run_until([&] { return *call == -1; }));
  EXPECT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->aborts().empty(); }));
}

}  // namespace
}  // namespace penstock::test
