#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstring>
#include <thread>

#include "common/async/deadline.hpp"
#include "common/async/event_queue.hpp"
#include "common/async/frame_connection.hpp"
#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"

namespace penstock::async {
namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;

/// Runs a coroutine to its end on `io`, at most 10 s.
void run(asio::io_context& io, asio::awaitable<void> task) {
  bool done = false;
  std::exception_ptr failure;
  asio::co_spawn(io, std::move(task), [&](const std::exception_ptr& thrown) {
    failure = thrown;
    done = true;
    io.stop();
  });
  io.restart();
  io.run_for(10s);
  ASSERT_TRUE(done) << "the coroutine did not end in 10 s";
  if (failure) std::rethrow_exception(failure);
}

/// Two connected sockets on loopback.
struct SocketPair {
  explicit SocketPair(asio::io_context& io) : left(io), right(io) {
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    left.connect(acceptor.local_endpoint());
    right = acceptor.accept();
  }
  tcp::socket left, right;
};

asio::awaitable<void> count_after(Duration wait, int& count) {
  co_await pause(wait);
  ++count;
}
asio::awaitable<void> throw_at_once() {
  throw std::runtime_error("broken");
  co_return;
}

TEST(TaskGroup, DrainWaitsForTasks) {
  asio::io_context io;
  TaskGroup group(io.get_executor());
  int count = 0;
  for (int i = 0; i < 3; ++i) group.spawn("count", count_after(1ms, count));
  EXPECT_EQ(group.count(), 3u);
  std::size_t cancelled = 9;
  run(io, [](TaskGroup& tasks, std::size_t& left) -> asio::awaitable<void> {
    left = co_await tasks.drain(5s);
  }(group, cancelled));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cancelled, 0u);
  EXPECT_EQ(group.count(), 0u);
}

TEST(TaskGroup, DrainCancelsWhatIsLeft) {
  asio::io_context io;
  std::string failures;
  TaskGroup group(io.get_executor(), [&](std::string_view, std::string_view what) { failures += what; });
  int count = 0;
  group.spawn("long", count_after(1h, count));
  std::size_t cancelled = 0;
  run(io, [](TaskGroup& tasks, std::size_t& left) -> asio::awaitable<void> {
    left = co_await tasks.drain(1ms);
  }(group, cancelled));
  EXPECT_EQ(cancelled, 1u);
  EXPECT_EQ(group.count(), 0u);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(failures, "");
}

TEST(TaskGroup, TellsOfFailures) {
  asio::io_context io;
  std::string failures;
  TaskGroup group(io.get_executor(), [&](std::string_view task, std::string_view what) {
    failures += std::string(task) + ":" + std::string(what);
  });
  group.spawn("bad", throw_at_once());
  io.run_for(1s);
  EXPECT_EQ(failures, "bad:broken");
  EXPECT_EQ(group.count(), 0u);
}

TEST(Deadline, WorkThatIsTooLongIsCancelled) {
  asio::io_context io;
  run(io, []() -> asio::awaitable<void> {
    auto slow = []() -> asio::awaitable<Result<int>> {
      co_await pause(1h);
      co_return 1;
    };
    auto quick = []() -> asio::awaitable<Result<int>> { co_return 2; };
    auto late = co_await with_deadline(slow(), 2ms);
    EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded);
    auto timely = co_await with_deadline(quick(), 1h);
    EXPECT_EQ(*timely, 2);
  }());
}

TEST(Deadline, WatchdogFiresOnceAndNotAfterItsEnd) {
  asio::io_context io;
  int fired = 0;
  run(io, [](int& count) -> asio::awaitable<void> {
    const auto executor = co_await asio::this_coro::executor;
    {
      Watchdog gone(executor, 1ms, [&] { ++count; });
    }
    Watchdog stays(executor, 1ms, [&] { ++count; });
    co_await pause(10ms);
    EXPECT_TRUE(stays.expired());
  }(fired));
  EXPECT_EQ(fired, 1);
}

TEST(EventQueue, BatchesInOrderAndRefusesWhenFull) {
  asio::io_context io;
  std::vector<int> got;
  int batches = 0;
  EventQueue<int> queue(io.get_executor(), 4, [&](std::vector<int>&& batch) {
    got.insert(got.end(), batch.begin(), batch.end());
    ++batches;
  });
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_FALSE(queue.push(4));
  io.run_for(1s);
  EXPECT_EQ(got, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(batches, 1);
  queue.close();
  EXPECT_FALSE(queue.push(5));
}

TEST(EventQueue, NothingIsLostBetweenThreads) {
  asio::io_context io;
  auto work = asio::make_work_guard(io);
  constexpr int threads = 4, each = 5000;
  int total = 0;
  EventQueue<int> queue(io.get_executor(), 64, [&](std::vector<int>&& batch) {
    total += static_cast<int>(batch.size());
    if (total == threads * each) io.stop();
  });
  std::vector<std::jthread> producers;
  for (int t = 0; t < threads; ++t) {
    producers.emplace_back([&] {
      for (int i = 0; i < each; ++i) {
        while (!queue.push(i)) std::this_thread::yield();
      }
    });
  }
  io.run_for(20s);
  EXPECT_EQ(total, threads * each);
}

TEST(Stream, SocketsHaveNoDelayAndKeepAlive) {
  asio::io_context io;
  SocketPair pair(io);
  apply({}, pair.left);
  tcp::no_delay no_delay;
  pair.left.get_option(no_delay);
  EXPECT_TRUE(no_delay.value());
  asio::socket_base::keep_alive keep_alive;
  pair.left.get_option(keep_alive);
  EXPECT_TRUE(keep_alive.value());
  unsigned user_timeout = 0;
  socklen_t size = sizeof user_timeout;
  getsockopt(pair.left.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, &size);
  EXPECT_EQ(user_timeout, 30'000u);
}

TEST(Stream, AcceptedSocketsHaveNoDelayToo) {
  asio::io_context io;
  SocketPair pair(io);
  Stream stream(std::move(pair.right));
  int value = 0;
  socklen_t size = sizeof value;
  ASSERT_EQ(getsockopt(stream.socket().native_handle(), IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_EQ(value, 1);
}

TEST(Stream, ATimedOutFillLosesNothing) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    Stream stream(std::move(sockets.left));
    EXPECT_EQ(co_await stream.fill(1ms), asio::error::timed_out);
    asio::write(sockets.right, asio::buffer("ab", 2));
    EXPECT_FALSE(co_await stream.fill(5s));
    EXPECT_EQ(stream.input(), "ab");
    stream.consume(1);
    asio::write(sockets.right, asio::buffer("c", 1));
    EXPECT_FALSE(co_await stream.fill(5s));
    EXPECT_EQ(stream.input(), "bc");
    EXPECT_EQ(co_await stream.fill(5s, 2), asio::error::no_buffer_space);
    sockets.right.close();
    EXPECT_EQ(co_await stream.fill(5s), asio::error::eof);
  }(pair));
}

TEST(Stream, AWatchTellsOfTheEnd) {
  asio::io_context io;
  SocketPair pair(io);
  Stream stream(std::move(pair.left));
  boost::system::error_code end;
  stream.watch(1024, [&](boost::system::error_code code) {
    end = code;
    io.stop();
  });
  asio::write(pair.right, asio::buffer("xyz", 3));
  pair.right.shutdown(tcp::socket::shutdown_send);
  io.run_for(5s);
  EXPECT_EQ(end, asio::error::eof);
  EXPECT_EQ(stream.input(), "xyz");
}

TEST(Stream, AWriteToAPeerThatReadsNothingStalls) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    Stream stream(std::move(sockets.left));
    const std::string much(32 << 20, 'x');
    const asio::const_buffer piece = asio::buffer(much);
    const IoResult result = co_await stream.write({&piece, 1}, 20ms);
    EXPECT_EQ(result.error, asio::error::timed_out);
    EXPECT_LT(result.bytes, much.size());
  }(pair));
}

TEST(Stream, ConnectRefusedIsUnavailable) {
  asio::io_context io;
  std::uint16_t free_port = 0;
  {
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    free_port = acceptor.local_endpoint().port();
  }
  run(io, [](std::uint16_t port) -> asio::awaitable<void> {
    auto stream = co_await connect("127.0.0.1", port, 5s);
    EXPECT_FALSE(stream);
    EXPECT_TRUE(stream || stream.error().code == ErrorCode::unavailable);
  }(free_port));
}

TEST(FrameConnection, FramesArriveWholeAndInOrder) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection a{Stream(std::move(sockets.left))}, b{Stream(std::move(sockets.right))};
    const std::string large(1 << 20, 'z');
    for (std::uint16_t i = 0; i < 100; ++i) EXPECT_EQ(a.send(i, "body" + std::to_string(i), i), SendResult::queued);
    EXPECT_EQ(a.send(7, large), SendResult::queued);
    EXPECT_EQ(a.send(8, ""), SendResult::queued);
    for (std::uint16_t i = 0; i < 100; ++i) {
      auto frame = co_await b.read(5s);
      EXPECT_TRUE(frame);
      EXPECT_EQ(frame->type, i);
      EXPECT_EQ(frame->flags, i);
      EXPECT_EQ(frame->body, "body" + std::to_string(i));
    }
    EXPECT_EQ((co_await b.read(5s))->body, large);
    EXPECT_EQ((co_await b.read(5s))->body, "");
    EXPECT_TRUE(co_await a.flush(5s));
    EXPECT_EQ(a.queued_bytes(), 0u);
  }(pair));
}

FrameLimits long_messages() {
  FrameLimits limits;
  limits.frame_bytes_max = 100;
  limits.message_bytes_max = 1000;
  return limits;
}

TEST(FrameConnection, ALongMessageComesWholeInItsPlace) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection a(Stream(std::move(sockets.left)), long_messages());
    FrameConnection b(Stream(std::move(sockets.right)), long_messages());
    std::string body;
    for (std::size_t size : {0u, 1u, 99u, 100u, 101u, 200u, 999u, 1000u}) {
      body.assign(size, static_cast<char>('a' + size % 26));
      EXPECT_EQ(a.send(5, body, 3), SendResult::queued);
      EXPECT_EQ(a.send(6, "next"), SendResult::queued);
      auto frame = co_await b.read(5s);
      EXPECT_TRUE(frame);
      EXPECT_EQ(frame->body, body);
      EXPECT_EQ(frame->type, 5);
      EXPECT_EQ(frame->flags, 3);
      EXPECT_EQ((co_await b.read(5s))->body, "next");
    }
    body.assign(1001, 'x');
    EXPECT_EQ(a.send(5, body), SendResult::too_large);
  }(pair));
}

// What a peer sends that keeps to no limit; the reader says why and closes.
Error refusal_of(const std::string& bytes, FrameLimits limits) {
  asio::io_context io;
  SocketPair pair(io);
  Error error;
  run(io,
      [](SocketPair& sockets, const std::string& sent, FrameLimits its_limits, Error& out) -> asio::awaitable<void> {
        FrameConnection reader(Stream(std::move(sockets.left)), its_limits);
        asio::write(sockets.right, asio::buffer(sent));
        sockets.right.shutdown(asio::ip::tcp::socket::shutdown_send);
        auto frame = co_await reader.read(5s);
        EXPECT_FALSE(frame);
        EXPECT_FALSE(reader.is_open());
        if (!frame) out = frame.error();
      }(pair, bytes, limits, error));
  return error;
}

TEST(FrameConnection, MessagesOverTheLimitsAreRefused) {
  const std::string piece = std::string("\x64\0\0\0\5\0\0\x80", 8) + std::string(100, 'x');
  std::string bytes;
  for (int i = 0; i < 20; ++i) bytes += piece;
  EXPECT_EQ(refusal_of(bytes, long_messages()).code, ErrorCode::data_loss);
  FrameLimits single = long_messages();
  single.message_bytes_max = 0;
  EXPECT_EQ(refusal_of(piece, single).code, ErrorCode::data_loss);
  const std::string other_type("\1\0\0\0\6\0\0\0y", 9);
  EXPECT_NE(refusal_of(piece + other_type, long_messages()).message.find("another type"), std::string::npos);
  EXPECT_NE(refusal_of(piece, long_messages()).message.find("ended within a frame"), std::string::npos);
}

TEST(FrameConnection, SplitsAtEveryByteMakeNoDifference) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection reader{Stream(std::move(sockets.left))};
    const std::string bytes("\3\0\0\0\x2A\0\1\0abc\0\0\0\0\x2B\0\0\0", 19);
    for (char byte : bytes) {
      asio::write(sockets.right, asio::buffer(&byte, 1));
      co_await pause(100us);
    }
    auto first = co_await reader.read(5s);
    EXPECT_EQ(first->type, 42);
    EXPECT_EQ(first->flags, 1);
    EXPECT_EQ(first->body, "abc");
    EXPECT_EQ((co_await reader.read(5s))->type, 43);
    EXPECT_EQ((co_await reader.read(1ms)).error().code, ErrorCode::deadline_exceeded);
    EXPECT_TRUE(reader.is_open());
  }(pair));
}

TEST(FrameConnection, ACancelledReadLosesNothing) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection reader{Stream(std::move(sockets.left))};
    asio::write(sockets.right, asio::buffer("\1\0\0\0\5\0", 6));
    EXPECT_EQ((co_await with_deadline(reader.read(1h), 2ms)).error().code, ErrorCode::deadline_exceeded);
    EXPECT_TRUE(reader.is_open());
    asio::write(sockets.right, asio::buffer("\0\0x", 3));
    EXPECT_EQ((co_await reader.read(5s))->body, "x");
  }(pair));
}

TEST(FrameConnection, RefusesFramesOverTheLimit) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection reader{Stream(std::move(sockets.left)), {.frame_bytes_max = 16, .message_bytes_max = 0}};
    EXPECT_EQ(reader.send(1, std::string(17, 'x')), SendResult::too_large);
    asio::write(sockets.right, asio::buffer("\xFF\xFF\xFF\xFF\0\0\0\0", 8));
    EXPECT_EQ((co_await reader.read(5s)).error().code, ErrorCode::data_loss);
    EXPECT_FALSE(reader.is_open());
    EXPECT_EQ(reader.send(1, ""), SendResult::closed);
  }(pair));
}

TEST(FrameConnection, ACloseWithinAFrameIsDataLossAndBetweenFramesIsNot) {
  for (const std::size_t sent : {std::size_t{10}, std::size_t{11}}) {
    asio::io_context io;
    SocketPair pair(io);
    run(io, [](SocketPair& sockets, std::size_t bytes) -> asio::awaitable<void> {
      FrameConnection reader{Stream(std::move(sockets.left))};
      asio::write(sockets.right, asio::buffer("\3\0\0\0\1\0\0\0abc", bytes));
      sockets.right.close();
      auto frame = co_await reader.read(5s);
      if (bytes == 11) {
        EXPECT_TRUE(frame);
        EXPECT_EQ((co_await reader.read(5s)).error().code, ErrorCode::unavailable);
      } else {
        EXPECT_EQ(frame.error().code, ErrorCode::data_loss);
      }
    }(pair, sent));
  }
}

TEST(FrameConnection, AFullQueueSaysSoAndRecovers) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection writer{Stream(std::move(sockets.left)), {.queue_bytes_max = 8 << 20}};
    const std::string body(1 << 20, 'x');
    int queued = 0;
    while (queued < 100 && writer.send(1, body) == SendResult::queued) ++queued;
    EXPECT_EQ(queued, 7);  // 8 MiB less the headers
    EXPECT_EQ((co_await writer.writable(0, 5ms)).error().code, ErrorCode::deadline_exceeded);
    // The kernel has taken some; the rest of the room fills again.
    while (queued < 100 && writer.send(1, body) == SendResult::queued) ++queued;
    EXPECT_LT(queued, 100);
    EXPECT_EQ(writer.send(1, body), SendResult::full);
    FrameConnection reader{Stream(std::move(sockets.right))};
    for (int i = 0; i < queued; ++i) EXPECT_TRUE(co_await reader.read(5s));
    EXPECT_TRUE(co_await writer.writable(0, 5s));
    EXPECT_EQ(writer.send(1, body), SendResult::queued);
    EXPECT_TRUE(co_await reader.read(5s));
  }(pair));
}

TEST(FrameConnection, AStalledPeerIsCut) {
  asio::io_context io;
  SocketPair pair(io);
  run(io, [](SocketPair& sockets) -> asio::awaitable<void> {
    FrameConnection writer{Stream(std::move(sockets.left)), {.queue_bytes_max = 64 << 20, .write_stall_max = 20ms}};
    const std::string body(1 << 20, 'x');
    for (int i = 0; i < 32; ++i) writer.send(1, body);
    EXPECT_EQ((co_await writer.flush(5s)).error().code, ErrorCode::unavailable);
    EXPECT_FALSE(writer.is_open());
  }(pair));
}

TEST(StopSignals, FirstDrainsSecondExits) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    asio::io_context io;
    auto work = asio::make_work_guard(io);
    bool draining = false;
    StopSignals signals(io.get_executor(), [&] {
      draining = true;
      raise(SIGTERM);
    });
    raise(SIGTERM);
    io.run_for(5s);
    _exit(draining ? 1 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace penstock::async
