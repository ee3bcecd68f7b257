// Reads of another process's memory on the same host by process_vm_readv(): one copy, no help from the owner, and done
// when the call returns, so nothing can write to our pool after an endpoint was closed. It needs the permission to
// trace the owner: the same user and one PID namespace; can_read_from() finds out.
// Owner: UcxTransport, on its thread. Bounds: one call copies what its runs say and blocks for as long as that takes.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

/// A process, and a random number at an address in it, which tells it from another one with the same process id.
struct HostKey {
  std::uint64_t process = 0;
  std::uint64_t proof_address = 0;
  std::uint64_t proof = 0;
};

/// This process's key; the same at every call.
HostKey own_host_key();
bool can_read_from(const HostKey& owner);
/// Remote offsets count from `remote_base` in the owner, local ones from `local_base`.
Result<void> read_from(const HostKey& owner, std::uint64_t remote_base, std::byte* local_base,
                       std::span<const ReadRun> runs);

}  // namespace penstock::worker::transfer
