#include "worker/transfer/channel.hpp"

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/async/deadline.hpp"
#include "common/async/listen.hpp"
#include "common/async/stream.hpp"
#include "common/async/task_group.hpp"
#include "worker/core/transfer/wire.hpp"

namespace penstock::worker::transfer {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

constexpr Duration hello_wait_max = std::chrono::seconds(5);
constexpr Duration idle_wait = std::chrono::hours(1);  // of one look at an open channel, then another
constexpr Duration stranger_interval = std::chrono::seconds(1);
constexpr std::size_t frame_bytes_max = wire_header_bytes + wire_body_bytes_max;

/// How long the message at the start of `input` is, as far as can be told; 0: it is none of ours.
std::size_t frame_bytes(std::string_view input) {
  if (input.size() < wire_header_bytes) return wire_header_bytes;
  base::ByteReader reader(base::as_bytes(input));
  const auto magic = reader.read<std::uint32_t>();
  reader.read<std::uint32_t>();
  const auto body_bytes = reader.read<std::uint32_t>();
  return magic == wire_magic && body_bytes <= wire_body_bytes_max ? wire_header_bytes + body_bytes : 0;
}

struct Received {
  base::Bytes frame;               // empty: none came
  boost::system::error_code code;  // then why, if the stream knows
};

/// One message and no byte more. The caller sets the time limit.
asio::awaitable<Received> read_frame(async::Stream& stream) {
  Received received;
  std::size_t wanted = frame_bytes(stream.input());
  while (stream.input().size() < wanted && !received.code) {
    received.code = co_await stream.fill(hello_wait_max, frame_bytes_max + 1);
    wanted = frame_bytes(stream.input());
  }
  if (wanted != 0 && stream.input().size() == wanted) {
    const base::BytesView bytes = base::as_bytes(stream.input());
    received.frame.assign(bytes.begin(), bytes.end());
    stream.consume(wanted);
  }
  co_return received;
}

bool is_tls(const boost::system::error_code& code) {
  return code.category() == asio::error::get_ssl_category();
}

/// Returns when the peer closes, breaks, or says anything: nothing more is allowed.
asio::awaitable<void> wait_for_end(async::Stream& stream) {
  while (stream.input().empty()) {
    const boost::system::error_code code = co_await stream.fill(idle_wait, frame_bytes_max);
    if (code && code != asio::error::timed_out) co_return;
  }
}

std::optional<std::pair<std::string, std::uint16_t>> parse(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  std::uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto parsed = std::from_chars(address.data() + colon + 1, end, port);
  if (parsed.ec != std::errc{} || parsed.ptr != end || port == 0) return std::nullopt;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) return std::nullopt;
  return std::pair(std::move(host), port);
}

asio::awaitable<bool> write_frame(async::Stream& stream, const base::Bytes& frame) {
  const std::array<asio::const_buffer, 1> buffers{asio::buffer(frame)};
  const async::IoResult result = co_await stream.write(buffers, hello_wait_max);
  co_return !result.error;
}

}  // namespace

// On the thread of `io`, except for the constructor, on_io() and what `post` runs on the service's.
struct Channels::Impl {
  using StreamPtr = std::shared_ptr<async::Stream>;  // shared by its coroutine and a table, through which it is closed
  struct Parting {
    std::string why;
    bool refused = false;
  };

  Impl(ChannelTls contexts, Post to_service, ChannelEvents& told)
      : tls(std::move(contexts)), post(std::move(to_service)), events(told) {}

  void on_io(std::function<void()> call) { asio::post(io, std::move(call)); }
  bool is_full() const { return tasks.count() + parked.size() >= channels_max; }
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> serve(tcp::socket socket);
  asio::awaitable<void> answer(StreamPtr stream, HelloResult result);
  asio::awaitable<void> dial(LinkId link, std::string address, base::Bytes hello);
  asio::awaitable<Parting> talk(LinkId link, std::string address, base::Bytes hello);
  asio::awaitable<void> end();
  void closed(LinkId link, Parting parting);
  void refuse(const async::Stream& stream, const std::string& why);

  ChannelTls tls;
  Post post;
  ChannelEvents& events;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  async::TaskGroup tasks{io.get_executor()};
  async::TaskGroup last_task{io.get_executor()};
  tcp::acceptor acceptor{io};
  std::uint16_t port = 0;
  std::uint64_t next_parked = 0;
  std::map<std::uint64_t, StreamPtr> parked;  // said HELLO, wait for the service's judgement
  std::map<LinkId, StreamPtr> links;          // a null one is being dialled
  const SteadyClock clock;
  TimePoint next_stranger{};
  std::thread thread;
};

asio::awaitable<void> Channels::Impl::accept_loop() {
  while (acceptor.is_open()) {
    boost::system::error_code code;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, code));
    if (code == asio::error::operation_aborted) co_return;
    if (code) {
      co_await async::pause(std::chrono::milliseconds(100));  // out of descriptors: let some close
      continue;
    }
    if (is_full()) continue;  // the socket closes
    async::apply(async::SocketOptions(), socket);
    tasks.spawn("kv channel", serve(std::move(socket)));
  }
}

/// Up to HELLO; answer() goes on when the service has judged it.
asio::awaitable<void> Channels::Impl::serve(tcp::socket socket) {
  StreamPtr stream;
  if (tls.server) {
    stream = std::make_shared<async::Stream>(std::move(socket), tls.server, "");
  } else {
    stream = std::make_shared<async::Stream>(std::move(socket));
  }
  const async::Watchdog limit(io.get_executor(), hello_wait_max, [stream] { stream->close(); });
  if (tls.server) {
    const auto code = co_await stream->handshake(hello_wait_max);
    if (code) {
      refuse(*stream, stream->describe_handshake(code));
      co_return;
    }
  }
  Received hello = co_await read_frame(*stream);
  if (hello.frame.empty()) {
    refuse(*stream, hello.code ? hello.code.message() : "its first bytes are no HELLO");
    co_return;
  }
  const std::uint64_t place = ++next_parked;
  parked[place] = stream;
  // Only the number goes to the service's thread: a stream lives and ends on this one.
  post([this, place, frame = std::move(hello.frame)] {
    HelloResult result = events.on_hello(frame);
    on_io([this, place, answered = std::move(result)] {
      auto found = parked.find(place);
      if (found == parked.end()) return;
      StreamPtr waiting = std::move(found->second);
      parked.erase(found);
      if (answered.link != 0) links[answered.link] = waiting;
      tasks.spawn("kv channel", answer(std::move(waiting), answered));
    });
  });
}

asio::awaitable<void> Channels::Impl::answer(StreamPtr stream, HelloResult result) {
  bool sent = false;
  if (!result.reply.empty()) sent = co_await write_frame(*stream, result.reply);
  if (result.link == 0) {
    if (sent) co_await stream->shutdown_send();
    co_return;
  }
  if (sent) co_await wait_for_end(*stream);
  Parting parting;
  parting.why = "the peer closed its channel";
  closed(result.link, std::move(parting));
}

asio::awaitable<void> Channels::Impl::dial(LinkId link, std::string address, base::Bytes hello) {
  Parting parting = co_await talk(link, std::move(address), std::move(hello));
  closed(link, std::move(parting));
}

/// Dials, says HELLO, tells the answer, waits for the end. Returns why it ended.
asio::awaitable<Channels::Impl::Parting> Channels::Impl::talk(LinkId link, std::string address, base::Bytes hello) {
  Parting parting;
  const auto target = parse(address);
  parting.why = "the peer's address is no host:port: " + address;
  if (!target) co_return parting;
  parting.why = "too many control channels";
  if (is_full()) co_return parting;
  auto connected = co_await async::connect(target->first, target->second, hello_wait_max, tls.client);
  if (!connected) {
    parting.why = connected.error().message;
    parting.refused = connected.error().code == ErrorCode::unauthenticated;
    co_return parting;
  }
  const auto stream = std::make_shared<async::Stream>(std::move(*connected));
  auto found = links.find(link);
  if (found == links.end()) co_return parting;  // the service closed it meanwhile
  found->second = stream;
  Received reply;
  {
    const async::Watchdog limit(io.get_executor(), hello_wait_max, [stream] { stream->close(); });
    co_await write_frame(*stream, hello);  // if it fails, the peer may have said why
    reply = co_await read_frame(*stream);
  }
  parting.why = "the peer at " + address + " gave no answer to HELLO";
  if (reply.code) parting.why += ": " + reply.code.message();
  parting.refused = is_tls(reply.code);
  if (reply.frame.empty()) co_return parting;
  post([this, link, frame = std::move(reply.frame)] { events.on_reply(link, frame); });
  co_await wait_for_end(*stream);
  parting.why = "the peer closed its channel";
  parting.refused = false;
  co_return parting;
}

/// Tells the service, unless it closed the link itself.
void Channels::Impl::closed(LinkId link, Parting parting) {
  auto found = links.find(link);
  if (found == links.end()) return;
  links.erase(found);
  post([this, link, parting = std::move(parting)] {
    if (parting.refused) return events.on_dial_refused(link, parting.why);
    events.on_closed(link, parting.why);
  });
}

void Channels::Impl::refuse(const async::Stream& stream, const std::string& why) {
  const TimePoint now = clock.now();
  if (now < next_stranger) return;
  next_stranger = now + stranger_interval;
  post([this, text = stream.peer_address() + ": " + why] { events.on_stranger(text); });
}

/// Everything closes at once: the peers see their channels end.
asio::awaitable<void> Channels::Impl::end() {
  boost::system::error_code ignored;
  acceptor.close(ignored);
  parked.clear();
  const auto open = std::exchange(links, {});
  for (const auto& [link, stream] : open) {
    if (stream) stream->close();
  }
  co_await tasks.drain(Duration{});
  work.reset();
  io.stop();
}

// ---- The service's side ----

Channels::Channels(ChannelTls tls, Post post, ChannelEvents& events)
    : impl_(std::make_unique<Impl>(std::move(tls), std::move(post), events)) {}

Channels::~Channels() {
  if (!impl_->thread.joinable()) return;
  impl_->on_io([impl = impl_.get()] { impl->last_task.spawn("kv channels end", impl->end()); });
  impl_->thread.join();
}

void Channels::listen(const std::string& host, std::uint16_t port) {
  const std::string address = host == "localhost" ? "127.0.0.1" : host;
  if (auto opened = async::listen(impl_->acceptor, address, port); !opened) {
    throw std::runtime_error("the KV control listener: " + opened.error().message);
  }
  impl_->port = impl_->acceptor.local_endpoint().port();
  impl_->tasks.spawn("kv accept", impl_->accept_loop());
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

std::uint16_t Channels::port() const {
  return impl_->port;
}

void Channels::dial(LinkId link, const std::string& address, base::Bytes hello) {
  impl_->on_io([impl = impl_.get(), link, address, hello = std::move(hello)]() mutable {
    impl->links[link] = nullptr;
    impl->tasks.spawn("kv channel", impl->dial(link, std::move(address), std::move(hello)));
  });
}

void Channels::close(LinkId link) {
  impl_->on_io([impl = impl_.get(), link] {
    auto found = impl->links.find(link);
    if (found == impl->links.end()) return;
    const auto stream = found->second;
    impl->links.erase(found);
    if (stream) stream->close();
  });
}

}  // namespace penstock::worker::transfer
