// Clients as they come: silent, slow, half-closed, with much to say; and the sockets to them.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>

#include "tests/integration/router/raw_client.hpp"

namespace penstock::test {
namespace {

const std::string chat = "/v1/chat/completions";
const std::string letters = "abcdefghijklmnopqrstuvwxyz";

FakeWorkerOptions with_step_time(Duration step_time) {
  FakeWorkerOptions options;
  options.step_time = step_time;
  return options;
}

struct Sockets {
  std::size_t connected = 0;
  std::size_t delayed = 0;  // without TCP_NODELAY
};

// All of this process: router to worker, worker to router, client to router, router to client.
Sockets count_sockets() {
  Sockets count;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int file = std::stoi(entry.path().filename().string());
    int kind = 0, no_delay = 0;
    socklen_t size = sizeof kind;
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    if (getsockopt(file, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_STREAM) continue;
    if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 || peer.ss_family == AF_UNIX) continue;
    ++count.connected;
    size = sizeof no_delay;
    if (getsockopt(file, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size) != 0 || no_delay == 0) ++count.delayed;
  }
  return count;
}

TEST(Clients, EverySocketOfACallHasNoDelay) {
  Cluster cluster({with_step_time(std::chrono::milliseconds(10)), with_step_time(std::chrono::milliseconds(10))});
  const auto running = cluster.post_later(chat, chat_body(R"(,"max_tokens":20)"));
  ASSERT_TRUE(cluster.run_until(
      [&] { return !cluster.workers[0]->generates().empty() || !cluster.workers[1]->generates().empty(); }));
  const Sockets sockets = count_sockets();
  EXPECT_GE(sockets.connected, 6u);  // both ends of two workers' connections and of the client's
  EXPECT_EQ(sockets.delayed, 0u);
  EXPECT_TRUE(cluster.run_until([&] { return *running == 200; }));
}

TEST(Clients, ASilentStreamIsKeptAlive) {
  router::RouterConfig config;
  config.limits.heartbeat = std::chrono::milliseconds(40);
  Cluster cluster({with_step_time(std::chrono::milliseconds(300))}, config);
  RawClient client(cluster);
  ASSERT_TRUE(client.send(raw_post(chat, chat_body(R"(,"stream":true,"max_tokens":2)"))));
  ASSERT_TRUE(client.read_until("[DONE]"));
  const std::string& text = client.received();
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200"));
  EXPECT_NE(text.find("text/event-stream"), std::string::npos);
  const std::size_t first_data = text.find("data: {"), first_comment = text.find(": waiting\n\n");
  ASSERT_NE(first_comment, std::string::npos);
  EXPECT_LT(first_comment, first_data);                                  // already while the prompt is computed
  EXPECT_NE(text.find(": waiting\n\n", first_data), std::string::npos);  // and between tokens
}

TEST(Clients, ASilenceBetweenTokensRepeatsNothing) {
  router::RouterConfig config;
  config.limits.heartbeat = std::chrono::milliseconds(40);
  Cluster cluster({with_step_time(std::chrono::milliseconds(200))}, config);
  const auto chunks = cluster.stream(chat, chat_body(R"(,"stream":true,"max_tokens":4)"));
  EXPECT_EQ(content(chunks), "abcd");
  for (const std::string path : {"/v1/completions", "/v1/messages"}) {
    RawClient client(cluster);
    const std::string prompt =
        path == "/v1/messages" ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
    ASSERT_TRUE(client.send(raw_post(path, R"({"model":"fake",)" + prompt + R"(,"stream":true,"max_tokens":4})")));
    ASSERT_TRUE(client.read_until(path == "/v1/messages" ? "message_stop" : "[DONE]")) << path;
    std::string text;
    const std::string& got = client.received();
    ASSERT_NE(got.find(": waiting\n\n", got.find("\"text\":\"a\"")), std::string::npos) << got;
    for (std::size_t at = 0; (at = got.find("\"text\":\"", at)) != std::string::npos;) {
      at += 8;
      text += got.substr(at, got.find('"', at) - at);
    }
    EXPECT_EQ(text, "abcd") << path;
  }
}

TEST(Clients, AnErrorAfterTheHeartbeatComesInTheStream) {
  FakeFaults faults;
  faults.stalls_before = 1;
  FakeWorkerOptions stalled = with_step_time(std::chrono::milliseconds(100));
  stalled.faults = faults;
  router::RouterConfig config;
  config.limits.heartbeat = std::chrono::milliseconds(20);
  config.limits.no_progress_decode = std::chrono::milliseconds(300);
  config.limits.migrations = 0;
  Cluster cluster({stalled}, config);
  const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"max_tokens":5)"));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "broken");
  const auto error = parsed(events[events.size() - 2]).at("error");
  EXPECT_EQ(error.at("type").as_string(), "server_error");
  EXPECT_FALSE(error.at("message").as_string().empty());
}

TEST(Clients, AWholeAnswerSurvivesALongSilence) {
  router::RouterConfig config;
  config.limits.heartbeat = std::chrono::milliseconds(20);
  Cluster cluster({with_step_time(std::chrono::milliseconds(200))}, config);
  const auto answer = cluster.post(chat, chat_body(R"(,"max_tokens":2)"));
  ASSERT_EQ(answer->status, 200);
  EXPECT_EQ(parsed(answer->body).at("choices").at(0).at("message").at("content").as_string(), "ab");
}

TEST(Clients, AHalfClosedClientCountsAsGone) {
  Cluster cluster({with_step_time(std::chrono::milliseconds(20))});
  RawClient client(cluster);
  ASSERT_TRUE(client.send(raw_post(chat, chat_body(R"(,"stream":true,"max_tokens":2000)"))));
  ASSERT_TRUE(client.read_until("data: {"));
  client.shutdown_send();
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->aborts().empty(); }));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.log->contains({"request failed", "client_gone"}); }));
}

TEST(Clients, HalfClosedBeforeTheBodyIsNoRequest) {
  Cluster cluster({FakeWorkerOptions{}});
  RawClient client(cluster);
  ASSERT_TRUE(client.send(raw_post(chat, R"({"model")", "content-length: 500\r\n")));
  client.shutdown_send();
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":2)"))->status, 200);
  EXPECT_EQ(cluster.workers[0]->generates().size(), 1u);
}

TEST(Clients, ABodyThatTricklesIsCutAndHurtsNobody) {
  router::RouterConfig config;
  config.limits.body_deadline = std::chrono::milliseconds(300);
  Cluster cluster({FakeWorkerOptions{}}, config);
  RawClient slow(cluster);
  ASSERT_TRUE(slow.send(raw_post(chat, R"({"model":)", "content-length: 5000\r\n")));
  EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":2)"))->status, 200);
  ASSERT_TRUE(slow.read_to_end());
  EXPECT_TRUE(slow.received().starts_with("HTTP/1.1 408")) << slow.received();
  EXPECT_NE(slow.received().find(R"("error":{"message":)"), std::string::npos);
}

TEST(Clients, ASlowReaderGetsEverything) {
  FakeWorkerOptions fast;
  fast.context_tokens = 100'000;
  router::RouterConfig config;
  config.limits.stream_stall = std::chrono::seconds(5);
  Cluster cluster({fast, fast}, config);
  RawClient client(cluster, 4096);
  ASSERT_TRUE(client.send(raw_post(chat, chat_body(R"(,"stream":true,"max_tokens":1000)"))));
  // A little at a time, with others served in between.
  for (int i = 0; i < 5; ++i) {
    client.read_some(512);
    EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":2)"))->status, 200);
  }
  ASSERT_TRUE(client.read_until("[DONE]")) << client.received().size();
  std::string text;
  for (std::size_t at = 0; (at = client.received().find(R"("content":")", at)) != std::string::npos;) {
    at += 11;
    text += client.received().substr(at, client.received().find('"', at) - at);
  }
  ASSERT_EQ(text.size(), 1000u);
  for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], letters[i % letters.size()]) << i;
}

TEST(Clients, TenMegabytesAreRefusedBeforeTheyAreSent) {
  Cluster cluster({FakeWorkerOptions{}});
  RawClient client(cluster);
  ASSERT_TRUE(client.send(raw_post(chat, "{", "content-length: 10000000\r\n")));
  ASSERT_TRUE(client.read_until("\r\n\r\n{"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 413"));
  EXPECT_NE(client.received().find("\"error\":{\"message\":"), std::string::npos);
}

TEST(Clients, TenMegabytesAreReadWhereTheyAreAllowed) {
  router::RouterConfig config;
  config.limits.body = {32u << 20};
  Cluster cluster({FakeWorkerOptions{}}, config);
  const std::string body =
      R"({"model":"fake","messages":[{"role":"user","content":")" + std::string(10'000'000, 'x') + R"("}]})";
  const auto answer = cluster.post(chat, body);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 400);
  const auto error = parsed(answer->body).at("error");
  // Read and understood; what a template may render is bounded below that.
  EXPECT_NE(error.at("code").as_string(), "invalid_json") << answer->body;
  EXPECT_EQ(error.at("param").as_string(), "messages");
  EXPECT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":2)"))->status, 200);
}

TEST(Clients, TheRequestIdComesBack) {
  Cluster cluster({FakeWorkerOptions{}});
  const http::Headers mine{{"x-request-id", "mine-1"}};
  for (const std::string& body : {chat_body(R"(,"max_tokens":2)"), std::string("{"), chat_body(R"(,"n":99)")}) {
    EXPECT_EQ(cluster.post(chat, body, mine)->headers.find("x-request-id").value_or(""), "mine-1") << body;
  }
  EXPECT_EQ(cluster.get("/nothing", mine)->headers.find("x-request-id").value_or(""), "mine-1");
  RawClient client(cluster);
  ASSERT_TRUE(client.send(raw_post(chat, chat_body(R"(,"stream":true,"max_tokens":2)"), "x-request-id: mine-2\r\n")));
  ASSERT_TRUE(client.read_until("[DONE]"));
  EXPECT_NE(client.received().find("x-request-id: mine-2\r\n"), std::string::npos);
}

}  // namespace
}  // namespace penstock::test
