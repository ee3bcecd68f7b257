// From block lists to reads: adjacent blocks merge where they are adjacent on both sides, then the runs are cut into
// quanta, so that transfers to one peer can take turns. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/types.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

/// One quantum: what one post_read() takes.
struct ReadQuantum {
  std::vector<ReadRun> runs;
  std::uint64_t bytes = 0;
};

/// `remote[i]` goes to `local[i]` unless `skip[i]`. The lists have one length; `skip` may be shorter (nothing skipped).
std::vector<ReadQuantum> plan_reads(std::span<const BlockIndex> remote, std::span<const BlockIndex> local,
                                    const std::vector<bool>& skip, std::uint64_t block_bytes,
                                    std::uint64_t quantum_bytes);

}  // namespace penstock::worker::transfer
