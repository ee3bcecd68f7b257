#include "worker/transfer/ucx/pool_share.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "common/base/descriptor.hpp"
#include "common/base/id.hpp"

namespace penstock::worker::transfer {
namespace {

using Token = std::array<std::uint64_t, 2>;

using base::Descriptor;

/// An address in the abstract namespace: no file, gone with the socket, seen within one network namespace.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::size_t count = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), count);  // the zero before it makes it abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length = 0;
};

bool is_own_user(int connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

void limit_waits(int connection, int milliseconds) {
  const timeval limit{0, milliseconds * 1000};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/// One byte of data with one descriptor.
struct FileMessage {
  FileMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  char byte = 'K';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

/// -1 if none came.
int receive_file(int connection) {
  FileMessage message;
  if (::recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  const bool is_file = control != nullptr && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS &&
                       control->cmsg_len == CMSG_LEN(sizeof(int));
  int file = -1;
  if (is_file) std::memcpy(&file, CMSG_DATA(control), sizeof file);
  return file;
}

}  // namespace

// ---- The owner ----

std::unique_ptr<PoolShare> PoolShare::start(int pool_file) {
  if (pool_file < 0) return nullptr;
  const auto random = random_id<InstanceId>(), token = random_id<InstanceId>();
  ShareKey key{"penstock-kv-" + to_string(random), token.high, token.low};
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const AbstractAddress address(key.name);
  if (listener.get() < 0 || wake.get() < 0 || ::bind(listener.get(), address.get(), address.length) != 0 ||
      ::listen(listener.get(), 16) != 0) {
    return nullptr;
  }
  return std::unique_ptr<PoolShare>(new PoolShare(pool_file, listener.release(), wake.release(), std::move(key)));
}

PoolShare::PoolShare(int pool_file, int listener, int wake, ShareKey key)
    : pool_file_(pool_file), listener_(listener), wake_(wake), key_(std::move(key)), thread_([this] { run(); }) {}

PoolShare::~PoolShare() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  thread_.join();
  ::close(listener_);
  ::close(wake_);
}

void PoolShare::run() {
  while (true) {
    std::array<pollfd, 2> ready{{{listener_, POLLIN, 0}, {wake_, POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    const Descriptor connection(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() >= 0) answer(connection.get());
  }
}

void PoolShare::answer(int connection) const {
  if (!is_own_user(connection)) return;
  limit_waits(connection, 100);
  Token token{};
  if (::recv(connection, token.data(), sizeof token, MSG_WAITALL) != static_cast<ssize_t>(sizeof token)) return;
  if (token != Token{key_.token_high, key_.token_low}) return;
  FileMessage message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof pool_file_);
  std::memcpy(CMSG_DATA(control), &pool_file_, sizeof pool_file_);
  [[maybe_unused]] const auto sent = ::sendmsg(connection, &message.header, MSG_NOSIGNAL);
}

// ---- The reader ----

Result<SharedMapping> map_shared_pool(const ShareKey& key, std::uint64_t bytes) {
  const auto refuse = [](const char* why) { return make_error(ErrorCode::unavailable, why); };
  if (key.name.empty() || bytes == 0) return refuse("the peer shares no memory");
  const Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return refuse("no socket");
  limit_waits(connection.get(), 100);
  const AbstractAddress address(key.name);
  if (::connect(connection.get(), address.get(), address.length) != 0) return refuse("the peer is not on this host");
  if (!is_own_user(connection.get())) return refuse("the peer is another user");
  const Token token{key.token_high, key.token_low};
  if (::send(connection.get(), token.data(), sizeof token, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof token)) {
    return refuse("the peer does not listen");
  }
  const Descriptor file(receive_file(connection.get()));
  if (file.get() < 0) return refuse("the peer gave no memory file");
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return refuse("the peer's file is no memory");
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return refuse("the peer's memory file could shrink");
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    return refuse("the peer's memory file is smaller than its pool");
  }
  return SharedMapping::map(file.get(), bytes, MappingAccess::read_only);
}

}  // namespace penstock::worker::transfer
