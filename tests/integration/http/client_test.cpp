// The client against the server, plain and over TLS; the admin pages; framed connections over TLS.
#include <boost/asio/read_until.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <filesystem>

#include "common/async/deadline.hpp"
#include "common/async/frame_connection.hpp"
#include "common/http/admin.hpp"
#include "common/http/client.hpp"
#include "common/json/json.hpp"
#include "tests/integration/http/fixture.hpp"
#include "tests/integration/http/test_certificate.hpp"

namespace penstock::http {
namespace {

using namespace std::chrono_literals;

void run(asio::awaitable<void> task) {
  asio::io_context io;
  bool done = false;
  std::exception_ptr failure;
  asio::co_spawn(io, std::move(task), [&](const std::exception_ptr& thrown) {
    failure = thrown;
    done = true;
    io.stop();
  });
  io.run_for(10s);
  ASSERT_TRUE(done) << "the coroutine did not end in 10 s";
  if (failure) std::rethrow_exception(failure);
}

asio::awaitable<void> serve_all(Request request, ResponseWriter& writer) {
  if (request.path == "/stream" || request.path == "/cut") {
    writer.begin_stream(200, {{"content-type", "text/event-stream"}});
    for (int i = 0; i < 3; ++i) {
      std::string event;
      append_sse_event(event, std::to_string(i));
      EXPECT_TRUE(co_await writer.write(event));
    }
    if (request.path == "/cut") {
      writer.fail();
    } else {
      EXPECT_TRUE(co_await writer.end("data: [DONE]\n\n"));
    }
    co_return;
  }
  (void)co_await writer.send(text_response(200, request.method + request.path + request.body));
}

/// A folder with a certificate and its key.
struct TlsFixture {
  TlsFixture() {
    std::string pattern = "/tmp/penstock-tls-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder = pattern;
    certificate = folder / "cert.pem";
    key = folder / "key.pem";
    write_test_certificate(certificate, key);
  }
  ~TlsFixture() { std::filesystem::remove_all(folder); }
  async::TlsContextPtr server() const {
    return async::make_tls_server({.certificate_file = certificate, .key_file = key}).value();
  }
  async::TlsContextPtr client() const { return async::make_tls_client({.ca_file = certificate}).value(); }

  std::filesystem::path folder, certificate, key;
};

asio::awaitable<void> expect_all_kinds(ClientOptions options) {
  Client client(options);
  for (int i = 0; i < 3; ++i) {
    auto whole = co_await client.request(ClientRequest("POST", "/p?q", {}, std::string(300'000, 'b')), 5s);
    EXPECT_TRUE(whole);
    if (!whole) co_return;
    EXPECT_EQ(whole->status, 200);
    EXPECT_EQ(whole->body, "POST/p" + std::string(300'000, 'b'));
    auto head = co_await client.start(ClientRequest("GET", "/stream"), 5s);
    EXPECT_TRUE(head);
    if (!head) co_return;
    EXPECT_EQ(head->headers.find("content-type"), "text/event-stream");
    std::vector<std::string> data;
    while (true) {
      auto event = co_await client.next_event(5s);
      EXPECT_TRUE(event);
      if (!event || !event->has_value()) break;
      data.push_back((*event)->data);
    }
    EXPECT_EQ(data, (std::vector<std::string>{"0", "1", "2", "[DONE]"}));
    auto without_body = co_await client.request(ClientRequest("HEAD", "/h"), 5s);
    EXPECT_TRUE(without_body);
  }
}

TEST(HttpClient, WholeAndStreamedAnswersShareAConnection) {
  ServerFixture server(serve_all);
  run(expect_all_kinds({.port = server.port}));
  EXPECT_EQ(server.probe.connections_total.value(), 1);
}

TEST(HttpClient, AStreamThatIsCutIsDataLoss) {
  ServerFixture server(serve_all);
  run([](std::uint16_t port) -> asio::awaitable<void> {
    Client client({.port = port});
    auto head = co_await client.start(ClientRequest("GET", "/cut"), 5s);
    EXPECT_TRUE(head);
    ErrorCode last = ErrorCode::internal;
    for (int i = 0; i < 10; ++i) {
      auto event = co_await client.next_event(5s);
      if (!event) {
        last = event.error().code;
        break;
      }
      EXPECT_TRUE(event->has_value());
    }
    EXPECT_EQ(last, ErrorCode::data_loss);
  }(server.port));
}

// A server that sends its answers byte by byte.
asio::awaitable<void> dribble(asio::ip::tcp::acceptor& acceptor, std::vector<std::string> answers) {
  auto socket = co_await acceptor.async_accept(asio::use_awaitable);
  socket.set_option(asio::ip::tcp::no_delay(true));
  for (const std::string& answer : answers) {
    std::string request;
    co_await asio::async_read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", asio::use_awaitable);
    for (const char byte : answer) {
      co_await asio::async_write(socket, asio::buffer(&byte, 1), asio::use_awaitable);
      co_await async::pause(1ms);
    }
  }
}

TEST(HttpClient, ChunksMayComeByteByByte) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::string> bodies{"0\r\n\r\n", "1\r\n0\r\n0\r\n\r\n", "0\r\nTrailer: x\r\n\r\n",
                                        "3\r\nabc\r\n0\r\n\r\n"};
  const std::vector<std::string> texts{"", "0", "", "abc"};
  std::vector<std::string> answers;
  for (const auto& body : bodies) answers.push_back(head + body);
  run([](std::vector<std::string> given, std::vector<std::string> wanted) -> asio::awaitable<void> {
    auto executor = co_await asio::this_coro::executor;
    asio::ip::tcp::acceptor acceptor(executor, {asio::ip::address_v4::loopback(), 0});
    asio::co_spawn(executor, dribble(acceptor, given), [](const std::exception_ptr& thrown) { EXPECT_FALSE(thrown); });
    Client client({.port = acceptor.local_endpoint().port()});
    for (const std::string& text : wanted) {
      auto response = co_await client.request(ClientRequest(), 5s);
      EXPECT_TRUE(response);
      if (!response) co_return;
      EXPECT_EQ(response->body, text);
    }
  }(answers, texts));
}

TEST(HttpClient, AConnectionClosedWhileIdleIsReplaced) {
  ServerFixture server(serve_all, {.limits = {.keep_alive_idle = 20ms}});
  run([](std::uint16_t port) -> asio::awaitable<void> {
    Client client({.port = port});
    EXPECT_TRUE(co_await client.request(ClientRequest(), 5s));
    co_await async::pause(100ms);
    EXPECT_TRUE(co_await client.request(ClientRequest(), 5s));
  }(server.port));
  EXPECT_EQ(server.probe.connections_total.value(), 2);
}

asio::awaitable<void> never_answer(Request, ResponseWriter&) {
  co_await async::pause(1h);
}

TEST(HttpClient, NoAnswerInTimeIsADeadline) {
  ServerFixture server(never_answer);
  run([](std::uint16_t port) -> asio::awaitable<void> {
    Client client({.port = port});
    auto response = co_await client.request(ClientRequest(), 50ms);
    EXPECT_FALSE(response);
    EXPECT_EQ(response.error().code, ErrorCode::deadline_exceeded);
  }(server.port));
}

TEST(HttpTls, EverythingWorksEncrypted) {
  TlsFixture tls;
  ServerFixture server(serve_all, {.tls = tls.server()});
  run(expect_all_kinds({.host = "localhost", .port = server.port, .tls = tls.client()}));
}

TEST(HttpTls, APeerThatIsNotTrustedIsRefused) {
  TlsFixture tls, other;
  ServerFixture server(serve_all, {.tls = tls.server()});
  run([](std::uint16_t port, async::TlsContextPtr stranger) -> asio::awaitable<void> {
    Client client({.host = "localhost", .port = port, .tls = stranger});
    EXPECT_FALSE(co_await client.request(ClientRequest(), 5s));
  }(server.port, other.client()));
}

TEST(HttpTls, PlainTextOnATlsPortIsClosed) {
  TlsFixture tls;
  ServerFixture server(serve_all, {.tls = tls.server()});
  RawClient client(server.port);
  client.send(get());
  EXPECT_EQ(client.read_all().find("HTTP/1.1 200"), std::string::npos);
  EXPECT_TRUE(server.eventually([&] { return server.server->connection_count() == 0; }));
}

TEST(HttpTls, ALeavingClientCancelsItsHandler) {
  TlsFixture tls;
  ServerFixture server(never_answer, {.tls = tls.server()});
  run([](std::uint16_t port, async::TlsContextPtr trust) -> asio::awaitable<void> {
    Client client({.host = "localhost", .port = port, .tls = trust});
    EXPECT_FALSE(co_await client.request(ClientRequest(), 50ms));
  }(server.port, tls.client()));
  EXPECT_TRUE(server.eventually([&] { return server.server->connection_count() == 0; }));
  EXPECT_EQ(server.probe.disconnects_total.value(), 1);
}

TEST(HttpTls, UnusableFilesAreNamed) {
  TlsFixture tls, other;
  auto missing = async::make_tls_server({.certificate_file = "/none.pem", .key_file = tls.key});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("the certificate file /none.pem can't be used"), std::string::npos);
  EXPECT_FALSE(async::make_tls_server({.certificate_file = tls.certificate, .key_file = other.key}));
}

asio::awaitable<void> exchange_frames(async::TlsContextPtr server_tls, async::TlsContextPtr client_tls) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::acceptor acceptor(executor, {asio::ip::address_v4::loopback(), 0});
  std::optional<async::Stream> accepted;
  asio::co_spawn(
      executor,
      [&]() -> asio::awaitable<void> {
        async::Stream stream(co_await acceptor.async_accept(asio::use_awaitable), server_tls, "");
        EXPECT_FALSE(co_await stream.handshake(5s));
        accepted.emplace(std::move(stream));
      },
      [](const std::exception_ptr& failure) { EXPECT_FALSE(failure); });
  auto connected = co_await async::connect("localhost", acceptor.local_endpoint().port(), 5s, client_tls);
  EXPECT_TRUE(connected);
  if (!connected) co_return;
  while (!accepted) co_await async::pause(1ms);
  async::FrameConnection a{std::move(*connected)}, b{std::move(*accepted)};
  const std::string large(1 << 20, 'z');
  for (std::uint16_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a.send(i, large), async::SendResult::queued);
    EXPECT_EQ(b.send(i, "small"), async::SendResult::queued);
  }
  for (std::uint16_t i = 0; i < 5; ++i) {
    auto frame = co_await b.read(5s);
    EXPECT_TRUE(frame && frame->type == i && frame->body == large);
    EXPECT_EQ((co_await a.read(5s))->body, "small");
  }
  a.close();
  EXPECT_FALSE(co_await b.read(5s));
}

TEST(FrameConnectionTls, BothWaysAtOnce) {
  TlsFixture tls;
  run(exchange_frames(tls.server(), tls.client()));
}

asio::awaitable<void> expect_admin_pages(std::uint16_t port, bool& ready) {
  Client client({.port = port});
  const auto page = [&](std::string target) -> asio::awaitable<Response> {
    auto response = co_await client.request(ClientRequest("GET", std::move(target)), 5s);
    EXPECT_TRUE(response);
    co_return response ? *response : Response();
  };
  EXPECT_EQ((co_await page("/healthz")).body, "ok\n");
  Response metrics = co_await page("/metrics");
  EXPECT_NE(metrics.body.find("penstock_test_total 0\n"), std::string::npos) << metrics.body;
  Response waiting = co_await page("/readyz");
  EXPECT_EQ(waiting.status, 503);
  EXPECT_EQ(waiting.body, R"({"ready":false,"reasons":["no worker"]})");
  ready = true;
  EXPECT_EQ((co_await page("/readyz")).status, 200);
  EXPECT_EQ((co_await page("/config")).body, "port: 1\n");
  EXPECT_EQ((co_await page("/debug/x?n=7")).body, R"({"n":7})");
  EXPECT_EQ((co_await page("/debug/y")).status, 404);
}

TEST(HttpAdmin, PagesAnswer) {
  metrics::Registry registry;
  registry.counter("penstock_test_total", "A test.");
  bool ready = false;
  Routes routes;
  add_admin_routes(
      routes, {&registry, [&] { return ready ? std::vector<std::string>() : std::vector<std::string>{"no worker"}; },
               "port: 1\n"});
  add_json_page(routes, "/debug/x", [](const Request& request) {
    return "{\"n\":" + query_parameter(request.query, "n").value_or("0") + "}";
  });
  ServerFixture server(routes.handler());
  run(expect_admin_pages(server.port, ready));
}

}  // namespace
}  // namespace penstock::http
