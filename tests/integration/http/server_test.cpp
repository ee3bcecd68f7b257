// The server over real sockets: faults that clients make.
#include <netinet/tcp.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "common/async/deadline.hpp"
#include "common/http/routes.hpp"
#include "tests/integration/http/fixture.hpp"

namespace penstock::http {
namespace {

using namespace std::chrono_literals;

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

asio::awaitable<void> echo(Request request, ResponseWriter& writer) {
  (void)co_await writer.send(text_response(200, request.method + " " + request.path + " " + request.body + "\n"));
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  ServerFixture server(echo);
  RawClient client(server.port);
  for (int i = 0; i < 3; ++i) {
    client.send(get("/a" + std::to_string(i), "X-Request-Id: my-id\r\n"));
    const std::string answer = client.read_until("GET /a" + std::to_string(i));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_NE(answer.find("x-request-id: my-id\r\n"), std::string::npos);
    EXPECT_EQ(answer.find("connection:"), std::string::npos);
  }
}

TEST(HttpServer, MakesAnIdWhenTheGivenOneIsUnusable) {
  ServerFixture server(echo);
  for (const std::string& given : {std::string("a b"), std::string(129, 'x'), std::string("\xC3\xA9")}) {
    RawClient client(server.port);
    client.send(get("/", "Connection: close\r\nX-Request-Id: " + given + "\r\n"));
    const std::string answer = client.read_all();
    const std::size_t at = answer.find("x-request-id: ");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(answer.substr(at + 14).find("\r\n"), 32u) << answer;
  }
}

TEST(HttpServer, EverySocketHasNoDelay) {
  ServerFixture server(echo);
  RawClient client(server.port);
  client.send(get());
  client.read_until("GET /");
  int checked = 0;
  for (int file = 3; file < 256; ++file) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        ntohs(peer.sin_port) != client.local_port())
      continue;
    int value = 0;
    size = sizeof value;
    ASSERT_EQ(getsockopt(file, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    EXPECT_EQ(value, 1);
    ++checked;
  }
  EXPECT_EQ(checked, 1);
}

// A client that reads late would get two segments at once.
std::atomic<int> segments_read = 0;
asio::awaitable<void> until_read(int segments) {
  for (int i = 0; segments_read < segments && i < 10'000; ++i) co_await async::pause(1ms);
}

asio::awaitable<void> stream_three(Request, ResponseWriter& writer) {
  writer.begin_stream(200, {{"content-type", "text/event-stream"}});
  EXPECT_TRUE(co_await writer.write("data: 1\n\n"));
  co_await until_read(1);
  EXPECT_TRUE(co_await writer.write("data: 2\n\n"));
  co_await until_read(2);
  EXPECT_TRUE(co_await writer.end("data: [DONE]\n\n"));
}

TEST(HttpServer, EachWriteIsOneSegmentAndTheFirstHasTheHeader) {
  ServerFixture server(stream_three);
  RawClient client(server.port);
  client.send(get());
  const std::string first = client.read_once();
  segments_read = 1;
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")) << first;
  EXPECT_TRUE(first.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n")) << first;
  EXPECT_EQ(client.read_once(), "9\r\ndata: 2\n\n\r\n");
  segments_read = 2;
  EXPECT_EQ(client.read_once(), "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

TEST(HttpServer, AStreamToHttp10EndsWithTheConnection) {
  ServerFixture server(stream_three);
  RawClient client(server.port);
  client.send("GET / HTTP/1.0\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n")) << answer;
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  ServerFixture server(echo);
  RawClient client(server.port);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += get("/" + std::to_string(i), i == 999 ? "Connection: close\r\n" : "");
  std::thread sender([&] { client.send(many); });
  const std::string answers = client.read_all();
  sender.join();
  EXPECT_EQ(count_of(answers, "HTTP/1.1 200 OK"), 1000u);
  std::size_t at = 0;
  for (int i = 0; i < 1000; ++i) {
    at = answers.find("GET /" + std::to_string(i) + " \n", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST(HttpServer, NothingIsParsedAfterABadRequest) {
  std::atomic<int> served = 0;
  ServerFixture server([&](Request request, ResponseWriter& writer) {
    ++served;
    return echo(std::move(request), writer);
  });
  RawClient client(server.port);
  client.send("GET / HTTP/1.1\r\nHost : a\r\n\r\n" + get("/second"));
  const std::string answer = client.read_all();
  EXPECT_EQ(count_of(answer, "HTTP/1.1 "), 1u);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 Bad Request\r\n")) << answer;
  EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos);
  EXPECT_NE(answer.find(R"("type":"invalid_request_error")"), std::string::npos);
  EXPECT_EQ(served, 0);
  EXPECT_EQ(server.probe.rejected_total.value(), 1);
}

TEST(HttpServer, ASlowHeaderIsAnsweredWith408) {
  ServerFixture server(echo, {.limits = {.header_deadline = 100ms}});
  RawClient client(server.port);
  client.send("GET / HT");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 408 "));
}

TEST(HttpServer, AnIdleConnectionIsClosedInSilence) {
  ServerFixture server(echo, {.limits = {.keep_alive_idle = 50ms}});
  RawClient client(server.port);
  client.send(get());
  client.read_until("GET /");
  EXPECT_EQ(client.read_all(), "");
}

TEST(HttpServer, ABodyThatDoesNotComeIsAnsweredWith408) {
  std::atomic<int> served = 0;
  ServerFixture server(
      [&](Request request, ResponseWriter& writer) {
        ++served;
        return echo(std::move(request), writer);
      },
      {.limits = {.body_deadline = 100ms}});
  RawClient client(server.port);
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(served, 0);
}

TEST(HttpServer, ABodyOverTheLimitIsRefusedBeforeItIsSent) {
  ServerFixture server(echo);
  RawClient client(server.port);
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\nExpect: 100-continue\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer;
}

TEST(HttpServer, AClientThatSendsTooMuchStillReadsTheRefusal) {
  ServerFixture server(echo);
  RawClient client(server.port);
  EXPECT_TRUE(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"));
  EXPECT_TRUE(client.send(std::string(10'000'000, 'x')));
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 413 "));
}

TEST(HttpServer, ExpectContinueIsAnsweredBeforeTheBody) {
  ServerFixture server(echo);
  RawClient client(server.port);
  client.send("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_once(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_TRUE(client.read_all().ends_with("POST /p abc\n"));
}

TEST(HttpServer, HeadHasTheLengthAndNoBody) {
  ServerFixture server(echo);
  RawClient client(server.port);
  client.send("HEAD /h HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("content-length: 9\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

/// A handler that waits for ever and notes how it ends.
struct Waiting {
  std::atomic<bool> entered = false, told = false, cancelled = false;
  bool streams = false;

  asio::awaitable<void> handle(Request, ResponseWriter& writer) {
    struct Note {
      std::atomic<bool>& flag;
      ~Note() { flag = true; }
    } note{cancelled};
    writer.on_disconnect([this] { told = true; });
    if (streams) {
      writer.begin_stream(200, {});
      EXPECT_TRUE(co_await writer.write("first"));
    }
    entered = true;
    co_await async::pause(1h);
    ADD_FAILURE() << "the handler was not cancelled";
  }
};

enum class Leave { close, half_close, reset };

void expect_cancelled(Leave leave, bool streams) {
  Waiting waiting;
  waiting.streams = streams;
  ServerFixture server(
      [&](Request request, ResponseWriter& writer) { return waiting.handle(std::move(request), writer); });
  RawClient client(server.port);
  client.send(get());
  ASSERT_TRUE(server.eventually([&] { return waiting.entered.load(); }));
  switch (leave) {
    case Leave::close:
      client.close();
      break;
    case Leave::half_close:
      client.shutdown_send();
      break;
    case Leave::reset:
      client.reset();
      break;
  }
  EXPECT_TRUE(server.eventually([&] { return waiting.told && waiting.cancelled; }));
  EXPECT_TRUE(server.eventually([&] { return server.server->connection_count() == 0; }));
  EXPECT_EQ(server.probe.disconnects_total.value(), 1);
  EXPECT_EQ(server.probe.requests_active.value(), 0);
}

TEST(HttpServer, AClientThatLeavesCancelsItsHandler) {
  for (Leave leave : {Leave::close, Leave::half_close, Leave::reset}) {
    SCOPED_TRACE(static_cast<int>(leave));
    expect_cancelled(leave, false);
    expect_cancelled(leave, true);
  }
}

asio::awaitable<void> answer_late(Request, ResponseWriter& writer) {
  co_await async::pause(50ms);
  (void)co_await writer.send(text_response(200, "late\n"));
}

TEST(HttpServer, AHalfClosedClientIsServedWhenThatIsChosen) {
  ServerFixture server(answer_late, {.half_close = HalfClose::keep_serving});
  RawClient client(server.port);
  client.send(get());
  client.shutdown_send();
  EXPECT_TRUE(client.read_all().ends_with("late\n"));
}

asio::awaitable<void> fail_in_the_middle(Request, ResponseWriter& writer) {
  writer.begin_stream(200, {});
  EXPECT_TRUE(co_await writer.write("part"));
  writer.fail();
}

TEST(HttpServer, AnAbnormalEndHasNoLastChunk) {
  ServerFixture server(fail_in_the_middle);
  RawClient client(server.port);
  client.send(get());
  EXPECT_TRUE(client.read_all().ends_with("4\r\npart\r\n"));
}

asio::awaitable<void> throw_error(Request, ResponseWriter&) {
  throw std::runtime_error("a secret");
  co_return;
}
asio::awaitable<void> do_nothing(Request, ResponseWriter&) {
  co_return;
}

TEST(HttpServer, AHandlerThatFailsGives500AndNothingOfWhy) {
  for (Handler handler : {Handler(throw_error), Handler(do_nothing)}) {
    ServerFixture server(handler);
    RawClient client(server.port);
    client.send(get());
    const std::string answer = client.read_until("}}");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
    EXPECT_EQ(answer.find("secret"), std::string::npos);
    client.send(get());
    EXPECT_TRUE(client.read_until("}}").starts_with("HTTP/1.1 500 "));
  }
}

TEST(HttpServer, AClientThatReadsNothingIsCut) {
  std::atomic<std::size_t> taken = 0;
  std::atomic<bool> cut = false;
  auto flood = [&](Request, ResponseWriter& writer) -> asio::awaitable<void> {
    writer.begin_stream(200, {});
    const std::string chunk(64 << 10, 'x');
    for (int i = 0; i < 3200; ++i) {  // 200 MB
      auto written = co_await writer.write(chunk);
      if (!written) {
        cut = written.error().code == ErrorCode::deadline_exceeded;
        co_return;
      }
      taken += chunk.size();
    }
  };
  ServerFixture server(flood, {.limits = {.stream_stall_max = 100ms}});
  RawClient client(server.port, 64 << 10);
  client.send(get());
  EXPECT_TRUE(server.eventually([&] { return cut.load(); }));
  EXPECT_LT(taken, 4u << 20);  // 256 KiB unsent, and what the two kernels hold in flight
  EXPECT_EQ(server.probe.stalls_total.value(), 1);
  EXPECT_TRUE(server.eventually([&] { return server.server->connection_count() == 0; }));
}

TEST(HttpServer, TheLastRequestOfAConnectionSaysSo) {
  ServerFixture server(echo, {.limits = {.requests_per_connection_max = 2}});
  RawClient client(server.port);
  client.send(get("/1"));
  EXPECT_EQ(client.read_until("GET /1").find("connection: close"), std::string::npos);
  client.send(get("/2"));
  EXPECT_NE(client.read_all().find("connection: close\r\n"), std::string::npos);
}

TEST(HttpServer, ConnectionsOverTheLimitAreClosed) {
  ServerFixture server(echo, {.limits = {.connections_max = 1}});
  RawClient first(server.port);
  first.send(get());
  first.read_until("GET /");
  RawClient second(server.port);
  EXPECT_EQ(second.read_all(), "");
  first.send(get());
  EXPECT_NE(first.read_until("GET /"), "");
}

TEST(HttpServer, AUsedPortIsOneSentence) {
  ServerFixture server(echo);
  Server other(server.io.get_executor(), {}, echo, log::Logger());
  auto listening = other.listen("127.0.0.1", server.port);
  ASSERT_FALSE(listening);
  EXPECT_TRUE(listening.error().message.starts_with("port " + std::to_string(server.port) + " is in use: "));
  EXPECT_EQ(other.listen("300.1.1.1", 1).error().code, ErrorCode::invalid_argument);
}

std::size_t drain(ServerFixture& server, Duration grace) {
  std::promise<std::size_t> cancelled;
  asio::co_spawn(server.io, server.server->drain(grace),
                 [&](const std::exception_ptr&, std::size_t count) { cancelled.set_value(count); });
  return cancelled.get_future().get();
}

TEST(HttpServer, ADrainLetsRequestsFinishAndTakesNoNewOnes) {
  ServerFixture server(answer_late);
  RawClient idle(server.port), active(server.port);
  idle.send(get());
  idle.read_until("late");
  active.send(get());
  ASSERT_TRUE(server.eventually([&] { return server.probe.requests_active.value() == 1; }));
  EXPECT_EQ(drain(server, 5s), 0u);
  const std::string answer = active.read_all();
  EXPECT_TRUE(answer.ends_with("late\n"));
  EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_FALSE(RawClient(server.port).connected);
}

TEST(HttpServer, ADrainCancelsWhatIsLeftAfterTheGrace) {
  Waiting waiting;
  ServerFixture server(
      [&](Request request, ResponseWriter& writer) { return waiting.handle(std::move(request), writer); });
  RawClient client(server.port);
  client.send(get());
  ASSERT_TRUE(server.eventually([&] { return waiting.entered.load(); }));
  EXPECT_EQ(drain(server, 20ms), 1u);
  EXPECT_TRUE(waiting.told);
  EXPECT_TRUE(waiting.cancelled);
}

TEST(HttpServer, AServerWhoseContextNeverRunsAgainFreesItsConnections) {
  const auto token = std::make_shared<int>(0);
  {
    metrics::Registry registry;
    const ServerProbe probe = make_server_probe(registry, "test");
    boost::asio::io_context io;
    Server server(
        io.get_executor(), {}, [token](Request request, ResponseWriter& writer) { return echo(request, writer); },
        log::Logger(), probe);
    RawClient client(server.listen("127.0.0.1", 0).value());
    client.send("GET / HTTP/1.1\r\n");
    for (int i = 0; i < 1000 && probe.connections.value() == 0; ++i) io.run_one_for(5ms);
    ASSERT_EQ(probe.connections.value(), 1);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(HttpRoutes, UnknownPathsAndMethods) {
  Routes routes;
  routes.add("GET", "/a", echo);
  routes.add("POST", "/a", echo);
  ServerFixture server(routes.handler());
  const auto ask = [&](std::string_view method, std::string_view path) {
    RawClient client(server.port);
    client.send(std::string(method) + " " + std::string(path) +
                " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return client.read_all();
  };
  EXPECT_TRUE(ask("GET", "/a").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(ask("HEAD", "/a?x=y").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(ask("GET", "/a/").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(ask("GET", "//a").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(ask("GET", "/b/../a").starts_with("HTTP/1.1 404 "));
  const std::string refused = ask("DELETE", "/a");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 405 ")) << refused;
  EXPECT_NE(refused.find("allow: GET, POST\r\n"), std::string::npos);
}

}  // namespace
}  // namespace penstock::http
