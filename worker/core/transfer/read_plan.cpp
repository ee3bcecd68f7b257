#include "worker/core/transfer/read_plan.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::worker::transfer {
namespace {

/// Bounds what one post costs; more runs than this are more quanta.
constexpr std::size_t runs_per_quantum_max = 256;

std::vector<ReadRun> merge(std::span<const BlockIndex> remote, std::span<const BlockIndex> local,
                           const std::vector<bool>& skip, std::uint64_t block_bytes) {
  std::vector<ReadRun> runs;
  for (std::size_t i = 0; i < remote.size(); ++i) {
    if (i < skip.size() && skip[i]) continue;
    const ReadRun run{remote[i] * block_bytes, local[i] * block_bytes, block_bytes};
    if (!runs.empty() && runs.back().remote_offset + runs.back().bytes == run.remote_offset &&
        runs.back().local_offset + runs.back().bytes == run.local_offset) {
      runs.back().bytes += block_bytes;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace

std::vector<ReadQuantum> plan_reads(std::span<const BlockIndex> remote, std::span<const BlockIndex> local,
                                    const std::vector<bool>& skip, std::uint64_t block_bytes,
                                    std::uint64_t quantum_bytes) {
  PENSTOCK_CHECK(remote.size() == local.size() && quantum_bytes > 0);
  std::vector<ReadQuantum> quanta;
  for (ReadRun run : merge(remote, local, skip, block_bytes)) {
    while (run.bytes > 0) {
      if (quanta.empty() || quanta.back().bytes >= quantum_bytes || quanta.back().runs.size() >= runs_per_quantum_max) {
        quanta.emplace_back();
      }
      ReadQuantum& quantum = quanta.back();
      const std::uint64_t piece = std::min(run.bytes, quantum_bytes - quantum.bytes);
      quantum.runs.push_back({run.remote_offset, run.local_offset, piece});
      quantum.bytes += piece;
      run.remote_offset += piece;
      run.local_offset += piece;
      run.bytes -= piece;
    }
  }
  return quanta;
}

}  // namespace penstock::worker::transfer
