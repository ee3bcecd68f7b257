// KV transfer between two processes over UCX: GB/s over shared memory (floor 4) and over TCP (floor 0.6), and the
// hand-over of one block from offer to commit (p50 at most 5 ms). Each rate stands beside what the machine itself does
// at that moment: a plain copy on one core, or bytes through a loopback TCP socket. Rounds of all lanes take turns, so
// that what else the machine runs meets all of them.
// Run: cmake --preset release && cmake --build --preset release --target bench-transfer &&
// build/release/bin/bench-transfer [ROUNDS]; in the cuda preset with --device cuda first: pools on a GPU (device.cpp).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#ifdef PENSTOCK_CUDA
#include "bench/transfer/device.hpp"
#endif
#include "bench/transfer/reference.hpp"
#include "tests/integration/transfer/peer_process.hpp"

namespace penstock::worker::transfer {
namespace {

constexpr std::uint32_t large_blocks = 512;  // 8,192 tokens of the default model
constexpr int small_rounds = 101;
constexpr int rounds_max = 100;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// One way to move KV, what it is measured against, and what came out.
struct Lane {
  const char* name;
  UcxOptions ucx;
  double (Reference::*reference)();
  const char* reference_name;
  double floor_gb;
  std::unique_ptr<test::ProcessPair> pair = {};
  std::vector<double> rates = {}, references = {}, ratios = {};
};

bool transfer(Lane& lane) {
  const auto outcome = lane.pair->transfer(large_blocks);
  if (!outcome.complete || !lane.pair->bytes_are_right(large_blocks)) {
    std::fprintf(stderr, "%s: %s\n", lane.name, outcome.complete ? "wrong bytes" : outcome.error.c_str());
    return false;
  }
  const double seconds = std::chrono::duration<double>(outcome.offer_to_commit).count();
  lane.rates.push_back(static_cast<double>(outcome.bytes) / seconds);
  return true;
}

bool one_round(Lane& lane, Reference& machine) {
  const double before = (machine.*lane.reference)();
  if (!transfer(lane)) return false;
  lane.references.push_back(std::max(before, (machine.*lane.reference)()));
  lane.ratios.push_back(lane.rates.back() / lane.references.back());
  return true;
}

bool report(Lane& lane) {
  std::vector<double> milliseconds;
  for (int i = 0; i < small_rounds; ++i) {
    const auto outcome = lane.pair->transfer(1);
    if (!outcome.complete) return false;
    milliseconds.push_back(std::chrono::duration<double, std::milli>(outcome.offer_to_commit).count());
  }
  const double rate = median(lane.rates) / 1e9, best = *std::max_element(lane.rates.begin(), lane.rates.end()) / 1e9;
  const double p50 = median(milliseconds);
  std::printf("%-15s %-12s %6.2f GB/s, best %.2f  (floor %.1f, ratio %.2f, best %.2f)\n", lane.name,
              lane.pair->lane().c_str(), rate, best, lane.floor_gb, rate / lane.floor_gb, best / lane.floor_gb);
  std::printf("%-15s %-12s %6.2f GB/s, ratio %.2f, best %.2f\n", "", lane.reference_name, median(lane.references) / 1e9,
              median(lane.ratios), *std::max_element(lane.ratios.begin(), lane.ratios.end()));
  std::printf("%-15s %-12s %6.3f ms p50  (limit 5, ratio %.3f)\n", "", "one block", p50, p50 / 5.0);
  return true;
}

int run(int rounds) {
  std::printf("transfers of %.0f MB (8,192 tokens of the default model), two processes, %d rounds: medians and bests\n",
              large_blocks * test::process_block_bytes / 1e6, rounds);
  UcxOptions tcp, by_messages, by_process_copy;
  tcp.tls = "tcp,self";
  by_messages.bulk = UcxBulk::messages;
  by_process_copy.bulk = UcxBulk::process_copy;
  Reference machine(large_blocks * test::process_block_bytes);
  std::vector<Lane> lanes;
  lanes.push_back({"shared memory", {}, &Reference::copy, "plain copy", 4.0});
  lanes.push_back({"  process copy", by_process_copy, &Reference::copy, "plain copy", 4.0});
  lanes.push_back({"  by messages", by_messages, &Reference::copy, "plain copy", 0.6});
  lanes.push_back({"tcp", tcp, &Reference::loopback_tcp, "bare socket", 0.6});
  std::vector<std::unique_ptr<test::PrefillProcess>> children;
  for (const Lane& lane : lanes) children.push_back(std::make_unique<test::PrefillProcess>(lane.ucx, large_blocks));
  for (Lane& lane : lanes) {
    auto child = std::move(children[static_cast<std::size_t>(&lane - lanes.data())]);
    lane.pair = std::make_unique<test::ProcessPair>(std::move(child), lane.ucx, large_blocks);
    if (!transfer(lane)) return 1;  // the first one connects
    lane.rates.clear();
  }
  for (int round = 0; round < rounds; ++round) {
    for (Lane& lane : lanes) {
      if (!one_round(lane, machine)) return 1;
    }
  }
  for (Lane& lane : lanes) {
    if (!report(lane)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace penstock::worker::transfer

int main(int count, char** arguments) {
  bool on_device = false;
#ifdef PENSTOCK_CUDA
  on_device = count > 2 && std::strcmp(arguments[1], "--device") == 0 && std::strcmp(arguments[2], "cuda") == 0;
#endif
  if (on_device) {
    arguments += 2;
    count -= 2;
  }
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  if (rounds < 1 || rounds > penstock::worker::transfer::rounds_max) {
    std::fprintf(stderr, "usage: bench-transfer [--device cuda, in builds with it] [ROUNDS, at most %d]\n",
                 penstock::worker::transfer::rounds_max);
    return 2;
  }
#ifdef PENSTOCK_CUDA
  if (on_device) return penstock::worker::transfer::measure_device(rounds);
#endif
  return penstock::worker::transfer::run(rounds);
}
