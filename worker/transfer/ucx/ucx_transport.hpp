// KvTransport over UCX (C API, 1.13 surface). Control messages are eager active messages. Bulk: from a process on this
// host by a copy from its mapped memory file, or by process_vm_readv(); else by active messages that the reader copies
// from; by UCX gets where the caller says so (RDMA). See docs/adr/0006 and 0007. One context and one single-threaded
// worker. Only worker/app (and tests) name this type.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

enum class UcxBulk : std::uint8_t {
  automatic,     // mapped or process_copy from peers on this host, unless TCP is forced; messages from others
  process_copy,  // process_vm_readv where it is permitted, else messages
  gets,          // ucp_get_nbx
  messages,      // the owner sends what a READ message asks for, by active messages
};

struct UcxOptions {
  std::string tls;          // UCX_TLS, e.g. "tcp" or "sm,self"; "" leaves the environment's or UCX's choice
  std::string net_devices;  // UCX_NET_DEVICES; "" leaves it
  UcxBulk bulk = UcxBulk::automatic;
};

/// Throws std::runtime_error with a sentence if UCX cannot be started.
std::unique_ptr<KvTransport> make_ucx_transport(const UcxOptions& options);

}  // namespace penstock::worker::transfer
