#include "worker/transfer/channel.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

namespace penstock::worker::transfer {
namespace {

constexpr Duration hello_wait_max = std::chrono::seconds(5);
constexpr std::size_t frame_bytes_max = wire_header_bytes + wire_body_bytes_max;

struct AddressesDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

/// Numeric addresses only, so that nothing on the I/O thread waits for a name server; "localhost" is known.
Addresses resolve(std::string host, const std::string& port, int flags) {
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  return Addresses(::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) == 0 ? list : nullptr);
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Channels::~Channels() {
  for (const auto& [fd, channel] : channels_) ::close(fd);
  if (listener_ >= 0) ::close(listener_);
}

void Channels::listen(const std::string& host, std::uint16_t port) {
  const std::string where = host + ":" + std::to_string(port);
  const auto refuse = [&](const char* what) {
    return std::runtime_error("the KV control listener can't use " + where + ": " + what + ": " + std::strerror(errno) +
                              "; give another address or port");
  };
  const Addresses address = resolve(host, std::to_string(port), AI_PASSIVE);
  if (!address) throw std::runtime_error("the KV control listener's host must be a numeric address: " + host);
  listener_ = ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) throw refuse("socket");
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_, address->ai_addr, address->ai_addrlen) != 0) throw refuse("bind");
  if (::listen(listener_, 128) != 0) throw refuse("listen");
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) throw refuse("getsockname");
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

void Channels::dial(LinkId link, const std::string& address, base::Bytes hello) {
  const auto fail = [&](std::string why) { failed_dials_.emplace_back(link, std::move(why)); };
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return fail("the peer's address has no port: " + address);
  if (channels_.size() >= channels_max) return fail("too many control channels");
  const Addresses target = resolve(address.substr(0, colon), address.substr(colon + 1), 0);
  if (!target) return fail("the peer's address is not numeric: " + address);
  const int fd = ::socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(std::string("socket: ") + std::strerror(errno));
  set_options(fd);
  if (::connect(fd, target->ai_addr, target->ai_addrlen) != 0 && errno != EINPROGRESS) {
    fail(std::string("connect: ") + std::strerror(errno));
    ::close(fd);
    return;
  }
  Channel& channel = channels_[fd];
  channel.link = link;
  channel.stage = Stage::awaits_reply;
  channel.out = std::move(hello);
}

void Channels::close(LinkId link) {
  for (auto channel = channels_.begin(); channel != channels_.end(); ++channel) {
    if (channel->second.link != link) continue;
    ::close(channel->first);
    channels_.erase(channel);
    return;
  }
}

void Channels::collect(std::vector<pollfd>& out) const {
  if (listener_ >= 0) out.push_back({listener_, POLLIN, 0});
  for (const auto& [fd, channel] : channels_) {
    out.push_back({fd, static_cast<short>(channel.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  }
}

void Channels::handle(const std::vector<pollfd>& ready, TimePoint now, ChannelEvents& events) {
  for (const auto& [link, why] : std::exchange(failed_dials_, {})) events.on_closed(link, why);
  for (const pollfd& entry : ready) {
    if (entry.revents == 0) continue;
    if (entry.fd == listener_) {
      accept(now);
      continue;
    }
    auto found = channels_.find(entry.fd);
    if (found == channels_.end()) continue;  // closed by an earlier one
    if ((entry.revents & POLLOUT) != 0 && !write(entry.fd, found->second)) {
      end(entry.fd, "the control channel broke", events);
      continue;
    }
    const bool readable = (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (readable && !read(entry.fd, found->second, now, events)) end(entry.fd, "the peer closed its channel", events);
  }
}

void Channels::accept(TimePoint now) {
  for (int i = 0; i < 64; ++i) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (channels_.size() >= channels_max) {
      ::close(fd);
      continue;
    }
    set_options(fd);
    channels_[fd].since = now;
  }
}

/// False if the channel is over. The channel may be gone after it returned true (the events may close it).
bool Channels::read(int fd, Channel& channel, TimePoint now, ChannelEvents& events) {
  std::array<std::byte, 16384> buffer;
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (channel.stage == Stage::open) return false;  // nothing more is allowed
  channel.in.insert(channel.in.end(), buffer.begin(), buffer.begin() + got);
  if (channel.in.size() < wire_header_bytes) return true;
  base::ByteReader reader(channel.in);
  const auto magic = reader.read<std::uint32_t>();
  reader.read<std::uint32_t>();
  const auto body_bytes = reader.read<std::uint32_t>();
  const std::size_t frame_bytes = wire_header_bytes + body_bytes;
  if (magic != wire_magic || frame_bytes > frame_bytes_max || channel.in.size() > frame_bytes) return false;
  if (channel.in.size() < frame_bytes) return true;
  const base::Bytes frame = std::exchange(channel.in, {});
  const bool dialled = channel.stage == Stage::awaits_reply;
  channel.stage = Stage::open;
  channel.since = now;
  if (dialled) {
    events.on_reply(channel.link, frame);
    return true;
  }
  HelloResult result = events.on_hello(frame);
  auto still = channels_.find(fd);
  if (still == channels_.end()) return true;
  if (result.reply.empty()) return false;
  still->second.link = result.link;
  still->second.close_after_write = result.link == 0;
  still->second.out = std::move(result.reply);
  return write(fd, still->second);
}

bool Channels::write(int fd, Channel& channel) {
  if (!channel.out.empty()) {
    const ssize_t sent = ::send(fd, channel.out.data(), channel.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    channel.out.erase(channel.out.begin(), channel.out.begin() + sent);
  }
  return !(channel.out.empty() && channel.close_after_write);
}

void Channels::end(int fd, const std::string& why, ChannelEvents& events) {
  auto found = channels_.find(fd);
  if (found == channels_.end()) return;
  const LinkId link = found->second.link;
  ::close(fd);
  channels_.erase(found);
  if (link != 0) events.on_closed(link, why);
}

void Channels::tick(TimePoint now) {
  for (auto channel = channels_.begin(); channel != channels_.end();) {
    const bool silent = channel->second.stage == Stage::awaits_hello || channel->second.close_after_write;
    if (silent && now - channel->second.since > hello_wait_max) {
      ::close(channel->first);
      channel = channels_.erase(channel);
    } else {
      ++channel;
    }
  }
}

}  // namespace penstock::worker::transfer
