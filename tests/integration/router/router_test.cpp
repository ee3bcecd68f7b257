// The router over real sockets: streams, choices, stops, failures of workers, clients that leave.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "tests/integration/router/cluster.hpp"

namespace penstock::test {
namespace {

const std::string chat = "/v1/chat/completions";
const std::string letters = "abcdefghijklmnopqrstuvwxyz";

FakeWorkerOptions plain() {
  return {};
}
FakeWorkerOptions faulty(FakeFaults faults) {
  FakeWorkerOptions options;
  options.faults = std::move(faults);
  return options;
}

TEST(Router, AnswersWhole) {
  Cluster cluster({plain()});
  const auto answer = cluster.post(chat, chat_body(R"(,"max_tokens":5)"));
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->status, 200) << answer->body;
  EXPECT_TRUE(answer->headers.find("x-request-id"));
  const auto body = parsed(answer->body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "abcde");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 5);
}

TEST(Router, FetchesTheTextOnce) {
  Cluster cluster({plain(), plain(), plain()});
  std::uint32_t asked = 0;
  for (const auto& worker : cluster.workers) asked += worker->blobs_asked();
  EXPECT_EQ(asked, 2u);  // tokenizer and template
}

TEST(Router, FetchesTheTextElsewhereWhenItsSourceIsLost) {
  FakeWorkerOptions dropping = plain();
  dropping.faults.blob_drops = 1;
  Cluster cluster({dropping, dropping});
  const auto answer = cluster.post(chat, chat_body(R"(,"max_tokens":5)"));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200) << answer->body;
}

TEST(Router, StreamsWithUsage) {
  FakeWorkerOptions options;
  options.ends_at = 4;
  options.cached_tokens = 16;
  Cluster cluster({options});
  const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(content(events), "abcd");
  const auto usage = parsed(events[events.size() - 2]);
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens").as_int64(), 5);
  EXPECT_EQ(usage.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 16);
  std::size_t finishes = 0;
  for (const auto& event : events) finishes += event.find(R"("finish_reason":"stop")") != std::string::npos ? 1 : 0;
  EXPECT_EQ(finishes, 1u);
}

TEST(Router, GivesEveryChoice) {
  Cluster cluster({plain()});
  const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"n":3,"max_tokens":4)"));
  EXPECT_EQ(content(events, 0), "abcd");
  EXPECT_EQ(content(events, 1), "defg");
  EXPECT_EQ(content(events, 2), "ghij");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Router, StopStringEndsTheChoiceAndTellsTheWorker) {
  Cluster cluster({plain()});
  const auto answer = cluster.post(chat, chat_body(R"(,"max_tokens":20,"stop":["ef"])"));
  const auto body = parsed(answer->body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "abcd");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 6);
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->aborts().empty(); }));
  EXPECT_EQ(cluster.workers[0]->aborts()[0].tokens_kept, 6u);
}

TEST(Router, CompletionsEchoWithLogprobs) {
  Cluster cluster({plain()});
  const auto answer = cluster.post("/v1/completions",
                                   R"({"model":"fake","prompt":["xy","z"],"max_tokens":2,"echo":true,"logprobs":1})");
  ASSERT_EQ(answer->status, 200) << answer->body;
  const auto body = parsed(answer->body);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "xyab");
  EXPECT_EQ(body.at("choices").at(1).at("text").as_string(), "zab");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("tokens").as_array().size(), 4u);
}

TEST(Router, MigratesWhenAWorkerDiesInTheMiddle) {
  for (std::uint32_t position : {1u, 7u, 19u}) {
    FakeFaults faults;
    faults.dies_before = position;
    Cluster cluster({faulty(faults), faulty(faults)});
    // Whichever is chosen dies; the other would too at the same position, unless it starts beyond it.
    const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"max_tokens":20)"));
    // The second worker dies before the same position: with nobody left the stream ends with an error, not [DONE].
    EXPECT_EQ(content(events), letters.substr(0, position)) << position;
    EXPECT_NE(events.back(), "[DONE]");
  }
}

/// A prompt of its own for each letter, since a prompt goes where it was before.
std::string own_body(char letter, const std::string& more) {
  return R"({"model":"fake","messages":[{"role":"user","content":")" + std::string(1, letter) + R"(ello"}])" + more +
         "}";
}

TEST(Router, ContinuesElsewhereWithoutRepeatOrLoss) {
  for (std::uint32_t position : {1u, 7u, 19u}) {
    FakeFaults faults;
    faults.dies_before = position;
    Cluster cluster({faulty(faults), plain()});
    // Several, so that the faulty one is met.
    std::size_t migrated = 0;
    for (char letter = 'a'; letter <= 'p' && migrated == 0; ++letter) {
      const auto events = cluster.stream(chat, own_body(letter, R"(,"stream":true,"n":2,"max_tokens":20)"));
      ASSERT_EQ(events.back(), "[DONE]") << position;
      EXPECT_EQ(content(events, 0), letters.substr(0, 20)) << position;
      EXPECT_EQ(content(events, 1), letters.substr(3, 20)) << position;
      for (const auto& generate : cluster.workers[1]->generates()) migrated += generate.spec.attempt > 0 ? 1 : 0;
    }
    EXPECT_EQ(migrated, 1u) << position;
  }
}

TEST(Router, RetriesBeforeTheFirstToken) {
  FakeFaults faults;
  faults.refuses = 100;
  Cluster cluster({faulty(faults), plain()});
  for (char letter = 'a'; letter <= 'p' && cluster.workers[0]->generates().empty(); ++letter) {
    const auto answer = cluster.post(chat, own_body(letter, R"(,"max_tokens":3)"));
    ASSERT_EQ(answer->status, 200) << answer->body;
    EXPECT_EQ(parsed(answer->body).at("choices").at(0).at("message").at("content").as_string(), "abc");
  }
  EXPECT_FALSE(cluster.workers[0]->generates().empty()) << "the one that refuses was asked";
}

TEST(Router, GapMakesTheAttemptFailAndMigrate) {
  FakeFaults faults;
  faults.gap_before = 5;
  Cluster cluster({faulty(faults), plain()});
  for (char letter = 'a'; letter <= 'p' && cluster.workers[0]->generates().empty(); ++letter) {
    const auto events = cluster.stream(chat, own_body(letter, R"(,"stream":true,"max_tokens":12)"));
    EXPECT_EQ(content(events), letters.substr(0, 12));
    EXPECT_EQ(events.back(), "[DONE]");
  }
  EXPECT_FALSE(cluster.workers[0]->generates().empty()) << "the one with the gap was asked";
}

TEST(Router, RepeatedTokensCountOnce) {
  FakeFaults faults;
  faults.repeats_at = 3;
  Cluster cluster({faulty(faults)});
  const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"max_tokens":8)"));
  EXPECT_EQ(content(events), letters.substr(0, 8));
}

TEST(Router, EngineErrorIsThisRequestsOnly) {
  FakeFaults faults;
  faults.refuses = 1;
  faults.refusal = {ErrorCode::internal, "not finite"};
  Cluster cluster({faulty(faults)});
  const auto answer = cluster.post(chat, chat_body(R"(,"max_tokens":3)"));
  EXPECT_EQ(answer->status, 500);
  EXPECT_EQ(parsed(answer->body).at("error").at("code").as_string(), "engine_error");
  EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":3)"))->status, 200);
}

TEST(Router, SplitsBetweenPrefillAndDecode) {
  FakeWorkerOptions prefill, decode;
  prefill.role = protocol::Role::prefill;
  decode.role = protocol::Role::decode;
  router::RouterConfig config;
  config.split_tokens_min = 1;
  Cluster cluster({prefill, decode}, config);
  const std::string long_text(400, 'x');
  const auto events =
      cluster.stream(chat, R"({"model":"fake","stream":true,"max_tokens":10,"messages":[{"role":"user","content":")" +
                               long_text + R"("}]})");
  EXPECT_EQ(content(events), letters.substr(0, 10));
  EXPECT_EQ(cluster.workers[0]->prefills().size(), 1u);
  EXPECT_EQ(cluster.workers[1]->expects().size(), 1u);
}

boost::asio::awaitable<bool> read_one_event_and_leave(http::Client client, std::string body) {
  http::Headers headers;
  headers.set("content-type", "application/json");
  http::ClientRequest request("POST", chat, std::move(headers), std::move(body));
  auto head = co_await client.start(std::move(request), Cluster::patience);
  auto event = co_await client.next_event(Cluster::patience);
  client.close();
  co_return head.has_value() && event.has_value();
}

TEST(Router, ClientThatLeavesStopsTheWorker) {
  FakeWorkerOptions slow;
  slow.step_time = std::chrono::milliseconds(20);
  Cluster cluster({slow});
  ASSERT_TRUE(
      cluster.run(read_one_event_and_leave(cluster.client(), chat_body(R"(,"stream":true,"max_tokens":2000)"))));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->aborts().empty(); }));
  EXPECT_FALSE(cluster.workers[0]->aborts()[0].choice);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.log->contains({"request failed", "client_gone"}); }));
}

TEST(Router, ClientThatDoesNotReadIsCut) {
  FakeWorkerOptions fast;
  fast.context_tokens = 2'000'000;
  router::RouterConfig config;
  config.limits.stream_buffer = {16 << 10};
  config.limits.stream_stall = std::chrono::seconds(1);
  Cluster cluster({fast}, config);
  boost::asio::ip::tcp::socket socket(cluster.io);
  socket.open(boost::asio::ip::tcp::v4());
  socket.set_option(boost::asio::socket_base::receive_buffer_size(4096));
  socket.connect({boost::asio::ip::address_v4::loopback(), cluster.app->port()});
  const std::string body = chat_body(R"(,"stream":true,"max_tokens":1000000)");
  const std::string request = "POST " + chat + " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" +
                              "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  boost::asio::write(socket, boost::asio::buffer(request));
  EXPECT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->aborts().empty(); }));
}

TEST(Router, WithoutAWorkerIsUnavailable) {
  Cluster cluster({plain()});
  cluster.workers[0]->die();
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.app->not_ready_reasons().empty(); }));
  const auto answer = cluster.post(chat, chat_body(""));
  EXPECT_EQ(answer->status, 503);
  EXPECT_TRUE(answer->headers.find("retry-after"));
  EXPECT_EQ(cluster.admin("/readyz")->status, 503);
}

TEST(Router, WorkerWithOtherHashesIsRefusedAloud) {
  FakeFaults faults;
  faults.has_wrong_hashes = true;
  Cluster cluster({plain()});
  router::RouterConfig config;
  FakeWorker wrong(cluster.io.get_executor(), faulty(faults));
  config.worker = {wrong.address()};
  config.port = config.admin_port = 0;
  router::RouterApp app(cluster.io, config, log::Logger(cluster.log, log::Level::info, log::Format::logfmt));
  ASSERT_TRUE(app.start());
  EXPECT_TRUE(cluster.run_until([&] { return cluster.log->contains({"worker refused", "hash_probe"}); }));
  EXPECT_FALSE(app.not_ready_reasons().empty());
  bool is_over = false;
  boost::asio::co_spawn(cluster.io, app.drain(), [&](std::exception_ptr) { is_over = true; });
  EXPECT_TRUE(cluster.run_until([&] { return is_over; }));
  wrong.die();
  cluster.io.poll();
}

}  // namespace
}  // namespace penstock::test
