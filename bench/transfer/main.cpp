// KV transfer between two processes over UCX: GB/s over shared memory (floor 4) and over TCP (floor 0.6), and the
// hand-over of one block from offer to commit (p50 at most 5 ms). Prints each figure with its ratio to the floor.
// Run: cmake --preset release && cmake --build --preset release --target bench-transfer &&
// build/release/bin/bench-transfer
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/integration/transfer/peer_process.hpp"

namespace penstock::worker::transfer {
namespace {

constexpr std::uint32_t large_blocks = 512;  // 8,192 tokens of the default model
constexpr int large_rounds = 9;
constexpr int small_rounds = 101;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int measure(const char* name, const UcxOptions& ucx, double floor_gb) {
  test::ProcessPair pair(ucx, large_blocks);
  std::vector<double> rates, milliseconds;
  for (int i = 0; i <= large_rounds; ++i) {
    const auto outcome = pair.transfer(large_blocks);
    if (!outcome.complete || !pair.bytes_are_right(large_blocks)) {
      std::fprintf(stderr, "%s: %s\n", name, outcome.complete ? "wrong bytes" : outcome.error.c_str());
      return 1;
    }
    const double seconds = std::chrono::duration<double>(outcome.offer_to_commit).count();
    if (i > 0) rates.push_back(static_cast<double>(outcome.bytes) / seconds / 1e9);  // the first one connects
  }
  for (int i = 0; i < small_rounds; ++i) {
    const auto outcome = pair.transfer(1);
    if (!outcome.complete) return 1;
    milliseconds.push_back(std::chrono::duration<double, std::milli>(outcome.offer_to_commit).count());
  }
  const double rate = median(rates), best = *std::max_element(rates.begin(), rates.end()), p50 = median(milliseconds);
  std::printf(
      "%-14s %-12s %7.2f GB/s, best %.2f  (floor %.1f, ratio %.2f)   hand-over p50 %.3f ms (limit 5, ratio %.3f)\n",
      name, pair.lane().c_str(), rate, best, floor_gb, rate / floor_gb, p50, p50 / 5.0);
  return 0;
}

int run() {
  std::printf("transfers of %.0f MB (8,192 tokens of the default model), two processes\n",
              large_blocks * test::process_block_bytes / 1e6);
  UcxOptions tcp, by_messages, by_process_copy;
  tcp.tls = "tcp,self";
  by_messages.bulk = UcxBulk::messages;
  by_process_copy.bulk = UcxBulk::process_copy;
  return measure("shared memory", {}, 4.0) + measure("  process copy", by_process_copy, 4.0) +
         measure("  by messages", by_messages, 0.6) + measure("tcp", tcp, 0.6);
}

}  // namespace
}  // namespace penstock::worker::transfer

int main() {
  return penstock::worker::transfer::run();
}
