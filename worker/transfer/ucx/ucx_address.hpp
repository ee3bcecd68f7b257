// What UCX transports tell each other about themselves, as bytes. Every length is checked. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"
#include "worker/transfer/ucx/host_reader.hpp"
#include "worker/transfer/ucx/pool_share.hpp"

namespace penstock::worker::transfer {

struct UcxAddress {
  std::uint64_t transport = 0;  // random, one a transport
  std::uint64_t pool_base = 0;
  std::uint64_t pool_bytes = 0;
  std::string host;  // equal where memory can be shared: boot id and IPC namespace
  HostKey process;
  ShareKey share;
  base::Bytes worker;
  base::Bytes rkey;    // of a pool in host memory
  base::Bytes device;  // DevicePool::handle() of one that a device has; exactly one of the two is there
};

base::Bytes encode(const UcxAddress& address);
Result<UcxAddress> decode_ucx_address(base::BytesView bytes);

/// Of this process.
std::string host_identity();

}  // namespace penstock::worker::transfer
