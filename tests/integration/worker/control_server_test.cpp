// A worker's control port over a real socket, with the real engine on the fake executor: what a router sees.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <numeric>
#include <optional>

#include "common/async/frame_connection.hpp"
#include "common/protocol/codec.hpp"
#include "worker/engine/engine.hpp"
#include "worker/executor/fake/fake_executor.hpp"
#include "worker/server/control_server.hpp"

namespace penstock::worker {
namespace {

using namespace std::chrono_literals;
using protocol::RouterMessage;
using protocol::WorkerMessage;
namespace asio = boost::asio;

class ControlServerTest : public testing::Test {
 public:
  ControlServerTest() {
    WorkerIdentity identity;
    identity.welcome.instance = {1, 2};
    identity.welcome.card.name = "fake";
    identity.blobs.emplace("digest", std::string(1'300'000, 'x'));
    identity.hash_probe = [](const std::vector<TokenId>& tokens) { return std::vector<BlockHash>{{tokens.size(), 7}}; };
    ControlServerOptions options;
    options.port = 0;
    server_.emplace(
        io_.get_executor(), options, std::move(identity), [this] { ++drain_requests_; },
        log::Logger(log_, log::Level::info, log::Format::logfmt));
    server_->set_engine_events([this] { drained_ = true; }, [](const Error& error) { ADD_FAILURE() << error.message; },
                               [](const StuckStep& step) { ADD_FAILURE() << "step " << step.number; });
    engine_.emplace(EngineConfig{}, executor_, nullptr, server_->sink(), clock_);
    engine_->start();
    port_ = server_->start(*engine_).value();
  }
  ~ControlServerTest() override {
    engine_->stop();
    server_.reset();
    io_.restart();
    io_.poll();
  }

  /// Runs a coroutine that talks to the server to its end, within ten seconds.
  void run(asio::awaitable<void> talk) {
    auto done = asio::co_spawn(io_, std::move(talk), asio::use_future);
    io_.restart();
    for (int i = 0; i < 10'000 && done.wait_for(0s) != std::future_status::ready; ++i) io_.run_one_for(10ms);
    ASSERT_EQ(done.wait_for(0s), std::future_status::ready) << "the conversation hangs";
    done.get();
  }

  asio::awaitable<std::unique_ptr<async::FrameConnection>> connect() {
    auto stream = co_await async::connect("127.0.0.1", port_, 5s);
    co_return std::make_unique<async::FrameConnection>(std::move(stream.value()));
  }
  static void send(async::FrameConnection& connection, const RouterMessage& message) {
    const auto encoded = protocol::encode(message);
    EXPECT_EQ(connection.send(encoded.type, encoded.body), async::SendResult::queued);
  }
  /// The next message of type Message; others are skipped.
  template <class Message>
  static asio::awaitable<std::optional<Message>> next(async::FrameConnection& connection) {
    for (int i = 0; i < 10'000; ++i) {
      auto frame = co_await connection.read(5s);
      if (!frame) co_return std::nullopt;
      auto message = protocol::decode_worker_message(frame->type, frame->body);
      EXPECT_TRUE(message) << message.error().message;
      if (auto* wanted = std::get_if<Message>(&*message)) co_return std::move(*wanted);
    }
    co_return std::nullopt;
  }
  asio::awaitable<std::unique_ptr<async::FrameConnection>> greeted() {
    auto connection = co_await connect();
    send(*connection, protocol::Hello{protocol::protocol_version, "router", "", {1, 2, 3}});
    EXPECT_TRUE(co_await next<protocol::Welcome>(*connection));
    co_return connection;
  }
  static protocol::Generate generate(RequestId request, std::uint32_t tokens_max) {
    protocol::Generate message;
    message.spec.request = request;
    message.spec.prompt.resize(40);
    std::iota(message.spec.prompt.begin(), message.spec.prompt.end(), 100);
    message.spec.choices = {{0, {}}};
    message.spec.sampling.temperature = 0;
    message.spec.sampling.tokens_max = tokens_max;
    return message;
  }
  /// Tokens of one request until its finish.
  static asio::awaitable<std::vector<TokenId>> stream_of(async::FrameConnection& connection, RequestId request) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < 100'000; ++i) {
      auto step = co_await next<protocol::Step>(connection);
      if (!step) break;
      for (const auto& choice : step->choices) {
        if (choice.request != request) continue;
        EXPECT_EQ(choice.position, tokens.size());
        tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
        if (choice.finish) co_return tokens;
      }
    }
    ADD_FAILURE() << "no finish";
    co_return tokens;
  }

  asio::io_context io_{1};
  std::shared_ptr<log::MemorySink> log_ = std::make_shared<log::MemorySink>();
  SteadyClock clock_;
  FakeExecutor executor_{FakeModel{}};
  std::optional<ControlServer> server_;
  std::optional<Engine> engine_;
  std::uint16_t port_ = 0;
  int drain_requests_ = 0;
  bool drained_ = false;
};

TEST_F(ControlServerTest, WelcomesAndAnswersTheHashProbe) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->connect();
    send(*connection, protocol::Hello{protocol::protocol_version, "router", "fake", {1, 2, 3}});
    auto welcome = co_await next<protocol::Welcome>(*connection);
    EXPECT_TRUE(welcome);
    if (welcome) {
      EXPECT_EQ(welcome->instance, (InstanceId{1, 2}));
      EXPECT_EQ(welcome->epoch, self->engine_->epoch()) << "snapshots of another epoch would be refused";
      EXPECT_EQ(welcome->hash_probe, (std::vector<BlockHash>{{3, 7}}));
    }
  }(this));
}

TEST_F(ControlServerTest, RefusesOtherVersionsModelsAndFirstMessages) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    const std::vector<RouterMessage> wrong{protocol::Hello{99, "r", "", {}},
                                           protocol::Hello{protocol::protocol_version, "r", "other", {}},
                                           protocol::Ping{1}};
    for (const auto& message : wrong) {
      auto connection = co_await self->connect();
      send(*connection, message);
      EXPECT_TRUE(co_await next<protocol::ProtocolError>(*connection));
      EXPECT_FALSE(co_await connection->read(5s));  // closed
    }
  }(this));
}

TEST_F(ControlServerTest, StreamsTheTokensOfARequest) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->greeted();
    const auto message = generate({5, 6}, 20);
    send(*connection, message);
    const auto tokens = co_await stream_of(*connection, {5, 6});
    std::vector<TokenId> context = message.spec.prompt;
    EXPECT_EQ(tokens.size(), 20u);
    for (TokenId token : tokens) {
      EXPECT_EQ(token, fake_next_token(self->executor_.model(), context));
      context.push_back(token);
    }
  }(this));
}

TEST_F(ControlServerTest, AFailedRequestIsOneLineWithItsTrace) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->greeted();
    protocol::Generate bad = generate({1, 5}, 4);
    bad.spec.prompt = {4'000'000'000};
    bad.spec.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    send(*connection, bad);
    auto error = co_await next<protocol::RequestError>(*connection);
    EXPECT_TRUE(error);
    if (error) {
      EXPECT_EQ(error->error.code, ErrorCode::invalid_argument);
    }
    EXPECT_TRUE(self->log_->contains(
        {"request failed", to_string(bad.spec.request), "invalid_argument", "traceparent=" + bad.spec.trace}));
  }(this));
}

TEST_F(ControlServerTest, SendsBlobsInChunksBelowTheFrameLimit) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->greeted();
    send(*connection, protocol::GetBlob{"digest"});
    std::string bytes;
    while (bytes.size() < 1'300'000) {
      auto blob = co_await next<protocol::Blob>(*connection);
      EXPECT_TRUE(blob);
      if (!blob) co_return;
      EXPECT_EQ(blob->offset, bytes.size());
      EXPECT_EQ(blob->total_bytes, 1'300'000u);
      bytes += blob->bytes;
    }
    EXPECT_EQ(bytes, std::string(1'300'000, 'x'));
    send(*connection, protocol::GetBlob{"unknown"});
    EXPECT_TRUE(co_await next<protocol::ProtocolError>(*connection));
  }(this));
}

TEST_F(ControlServerTest, AbortEndsAStreamAndALostRouterEndsAllOfIts) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->greeted();
    send(*connection, generate({1, 1}, 10'000));
    EXPECT_TRUE(co_await next<protocol::Step>(*connection));
    send(*connection, protocol::Abort{{1, 1}, std::nullopt, 0, "test"});
    send(*connection, generate({1, 2}, 3));
    EXPECT_EQ((co_await stream_of(*connection, {1, 2})).size(), 3u);

    auto second = co_await self->greeted();
    send(*second, generate({2, 1}, 10'000));
    EXPECT_TRUE(co_await next<protocol::Step>(*second));
    second->close();
    // The load report tells when nothing runs any more.
    for (int i = 0; i < 1000; ++i) {
      auto load = co_await next<protocol::Load>(*connection);
      EXPECT_TRUE(load);
      if (!load || load->running + load->waiting == 0) co_return;
    }
    ADD_FAILURE() << "a request survived its router";
  }(this));
}

TEST_F(ControlServerTest, OneRouterCannotTouchAnothersRequest) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto first = co_await self->greeted();
    auto second = co_await self->greeted();
    send(*first, generate({9, 9}, 10'000));  // must still run when the second asks
    EXPECT_TRUE(co_await next<protocol::Step>(*first));
    send(*second, protocol::Abort{{9, 9}, std::nullopt, 0, "not mine"});
    send(*second, generate({9, 9}, 4));
    auto refused = co_await next<protocol::RequestError>(*second);
    EXPECT_TRUE(refused);
    if (refused) {
      EXPECT_EQ(refused->error.code, ErrorCode::invalid_argument);
    }
  }(this));
}

TEST_F(ControlServerTest, DrainRefusesNewWorkAndFinishesTheOld) {
  run([](ControlServerTest* self) -> asio::awaitable<void> {
    auto connection = co_await self->greeted();
    send(*connection, generate({1, 1}, 50));
    EXPECT_TRUE(co_await next<protocol::Step>(*connection));
    self->server_->announce_drain();
    send(*connection, generate({1, 2}, 1));
    auto refused = co_await next<protocol::RequestError>(*connection);
    EXPECT_TRUE(refused);
    if (refused) {
      EXPECT_EQ(refused->error.code, ErrorCode::unavailable);
    }
    EXPECT_TRUE(self->engine_->post(DrainEngine{}));
    for (int i = 0; i < 1000 && !self->drained_; ++i) (void)co_await connection->read(10ms);
    EXPECT_TRUE(self->drained_);
  }(this));
}

}  // namespace
}  // namespace penstock::worker
