#include "bench/transfer/reference.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace penstock::worker::transfer {
namespace {

constexpr std::size_t piece_bytes = 256 << 10;

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("loopback TCP: ") + what + ": " + std::strerror(errno));
}

/// Sends everything once for each byte that comes, until the other end closes.
[[noreturn]] void serve(const sockaddr_in& address, const std::vector<std::byte>& source) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  char order = 0;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
  while (::read(connection, &order, 1) == 1) {
    for (std::size_t at = 0; at < source.size();) {
      const ssize_t sent = ::write(connection, source.data() + at, std::min(piece_bytes, source.size() - at));
      if (sent <= 0) ::_exit(1);
      at += static_cast<std::size_t>(sent);
    }
  }
  ::_exit(0);
}

}  // namespace

Reference::Reference(std::size_t bytes) : source_(bytes, std::byte{1}), target_(bytes, std::byte{2}) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  check(::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) == 0, "bind");
  check(::listen(listener, 1) == 0, "listen");
  check(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  child_ = ::fork();
  if (child_ == 0) serve(address, source_);
  check(child_ > 0, "fork");
  socket_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  check(socket_ >= 0, "accept");
}

Reference::~Reference() {
  ::close(socket_);
  ::waitpid(child_, nullptr, 0);
}

double Reference::copy() {
  const TimePoint begin = clock_.now();
  std::memcpy(target_.data(), source_.data(), source_.size());
  return static_cast<double>(source_.size()) / std::chrono::duration<double>(clock_.now() - begin).count();
}

double Reference::loopback_tcp() {
  const TimePoint begin = clock_.now();
  check(::write(socket_, "g", 1) == 1, "write");
  for (std::size_t at = 0; at < target_.size();) {
    const ssize_t got = ::read(socket_, target_.data() + at, std::min(piece_bytes, target_.size() - at));
    check(got > 0, "read");
    at += static_cast<std::size_t>(got);
  }
  return static_cast<double>(target_.size()) / std::chrono::duration<double>(clock_.now() - begin).count();
}

}  // namespace penstock::worker::transfer
