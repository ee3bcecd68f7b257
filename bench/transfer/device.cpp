// KV transfer between two processes whose pools are on one GPU: by device copies, and through host memory as between
// hosts. A device copy on one GPU reads and writes the same memory, so its rate says nothing about NVLink.
#include "bench/transfer/device.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "tests/integration/transfer/peer_process.hpp"
#include "worker/transfer/cuda/cuda_pool.hpp"

namespace penstock::worker::transfer {
namespace {

constexpr std::uint32_t pool_blocks = 2913;  // 1 GiB

struct Size {
  const char* name;
  std::uint32_t blocks;
};
constexpr Size sizes[] = {{"1 GiB", pool_blocks}, {"8 MB", 22}, {"1,024 tokens", 64}, {"one block", 1}};

struct Lane {
  const char* name;
  UcxOptions ucx;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool measure(test::ProcessPair& pair, const Size& size, int rounds, const char* how) {
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const auto outcome = pair.transfer(size.blocks);
    if (!outcome.complete || (round == 0 && !pair.bytes_are_right(size.blocks))) {
      std::fprintf(stderr, "%s: %s\n", size.name, outcome.complete ? "wrong bytes" : outcome.error.c_str());
      return false;
    }
    seconds.push_back(std::chrono::duration<double>(outcome.offer_to_commit).count());
  }
  const double bytes = size.blocks * static_cast<double>(test::process_block_bytes), p50 = median(seconds);
  std::printf("%-12s %-13s %-9s %9.3f ms p50, %7.2f GB/s, best %.2f\n", pair.lane().substr(0, 11).c_str(), size.name,
              how, p50 * 1e3, bytes / p50 / 1e9, bytes / *std::min_element(seconds.begin(), seconds.end()) / 1e9);
  return true;
}

}  // namespace

int measure_device(int rounds) {
  std::printf("two processes, pools on GPU 0, blocks of %.0f KB, offer to commit, medians of %d (1 GiB) to %d rounds\n",
              test::process_block_bytes / 1e3, rounds, 10 * rounds);
  const DevicePoolFactory on_gpu = [](std::uint64_t bytes) { return make_cuda_pool(bytes, 0); };
  UcxOptions by_messages, tcp;
  by_messages.bulk = UcxBulk::messages;
  tcp.tls = "tcp,self";
  const Lane lanes[] = {{"device copies", {}}, {"through host memory", by_messages}, {"the same over TCP", tcp}};
  std::vector<std::unique_ptr<test::PrefillProcess>> children;
  for (const Lane& lane : lanes) {
    children.push_back(std::make_unique<test::PrefillProcess>(lane.ucx, pool_blocks, ChannelTls{}, on_gpu));
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    std::printf("%s\n", lanes[i].name);
    test::ProcessPair pair(std::move(children[i]), lanes[i].ucx, pool_blocks, {}, {}, on_gpu);
    if (!pair.transfer(1).complete) return 1;  // the first one connects
    for (const Size& size : sizes) {
      if (!measure(pair, size, size.blocks == pool_blocks ? rounds : 10 * rounds, "in a row")) return 1;
    }
    pair.scatter();
    if (!measure(pair, sizes[0], rounds, "scattered")) return 1;
  }
  return 0;
}

}  // namespace penstock::worker::transfer
