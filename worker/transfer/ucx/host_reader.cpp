#include "worker/transfer/ucx/host_reader.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/id.hpp"

namespace penstock::worker::transfer {
namespace {

constexpr std::size_t vectors_max = 64;

iovec at(std::uint64_t address, std::uint64_t bytes) {
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), static_cast<std::size_t>(bytes)};
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  base::random_bytes(&number, sizeof number);
  return number;
}

}  // namespace

HostKey own_host_key() {
  static const std::uint64_t proof = random_number();
  return {static_cast<std::uint64_t>(::getpid()), reinterpret_cast<std::uint64_t>(&proof), proof};
}

bool can_read_from(const HostKey& owner) {
  std::uint64_t found = 0;
  const iovec local = at(reinterpret_cast<std::uint64_t>(&found), sizeof found);
  const iovec remote = at(owner.proof_address, sizeof found);
  const ssize_t got = ::process_vm_readv(static_cast<pid_t>(owner.process), &local, 1, &remote, 1, 0);
  return got == static_cast<ssize_t>(sizeof found) && found == owner.proof;
}

Result<void> read_from(const HostKey& owner, std::uint64_t remote_base, std::byte* local_base,
                       std::span<const ReadRun> runs) {
  std::uint64_t done = 0;  // bytes of runs.front()
  while (!runs.empty()) {
    std::array<iovec, vectors_max> local, remote;
    const std::size_t count = std::min(runs.size(), vectors_max);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t skip = i == 0 ? done : 0;
      local[i] = at(reinterpret_cast<std::uint64_t>(local_base) + runs[i].local_offset + skip, runs[i].bytes - skip);
      remote[i] = at(remote_base + runs[i].remote_offset + skip, runs[i].bytes - skip);
    }
    const ssize_t got =
        ::process_vm_readv(static_cast<pid_t>(owner.process), local.data(), count, remote.data(), count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return make_error(ErrorCode::unavailable, std::string("the peer's memory can't be read: ") +
                                                    (got < 0 ? std::strerror(errno) : "it has ended"));
    }
    done += static_cast<std::uint64_t>(got);
    while (!runs.empty() && done >= runs.front().bytes) {
      done -= runs.front().bytes;
      runs = runs.subspan(1);
    }
  }
  return {};
}

}  // namespace penstock::worker::transfer
